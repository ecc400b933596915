"""The CustomResourceDefinitions: names, columns and subresources around the schemas of the types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from equipoise.api.base import ApiObject
from equipoise.api.identity import GROUP, VERSION
from equipoise.api.pool import GPUPool
from equipoise.api.scale import PhaseScale
from equipoise.api.schema import Schema, structural, without_defaults, without_titles
from equipoise.api.service import InferenceService

_API_VERSION: Final = "APIVersion of the schema, `equipoise.dev/v1alpha1`."
_KIND: Final = "Kind of the object, `{kind}`."


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`; `wide` ones are shown with `-o wide` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As the CRD has it."""
        result: dict[str, Any] = {"name": self.name, "type": self.type, "description": self.description, "jsonPath": self.path}
        return result | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of the API."""

    model: type[ApiObject]
    plural: str
    short_name: str
    namespaced: bool
    columns: tuple[Column, ...]
    scale: bool = False

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.model.__name__

    @property
    def file_name(self) -> str:
        """File of its CRD under crds/."""
        return f"{self.plural}.{GROUP}.yaml"


def _ready(message: bool = False) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{"message" if message else "status"}'


AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since it was created.", "date")

RESOURCES: Final = (
    Resource(InferenceService, "inferenceservices", "eis", True, (
        Column("Ready", _ready(), "Whether the service answers requests."),
        Column("TTFT", ".status.summary.ttft", "Observed time to first token over its target."),
        Column("TPOT", ".status.summary.tpot", "Observed time per output token over its target."),
        Column("Prefill", ".status.summary.prefill", "Ready over desired prefill replicas."),
        Column("Decode", ".status.summary.decode", "Ready over desired decode replicas."),
        Column("GPUs", ".status.summary.gpus", "GPUs that the allocation holds."),
        Column("Lagging", ".status.summary.lagging", "The phase that lags, if one does."),
        Column("USD/h", ".status.costPerHour", "What the allocation costs, in USD per hour.", wide=True),
        Column("Model", ".spec.model.uri", "Where the weights are.", wide=True),
        Column("Message", _ready(message=True), "What the condition Ready says.", wide=True),
        AGE,
    )),
    Resource(GPUPool, "gpupools", "egp", False, (
        Column("Ready", _ready(), "Whether nodes match and the device is known."),
        Column("Device", ".status.device", "The device as it was recognised."),
        Column("Nodes", ".status.nodes", "Nodes that match.", "integer"),
        Column("GPUs", ".status.gpus", "GPUs of the nodes that can take pods.", "integer"),
        Column("Free", ".status.free", "GPUs that no pod holds.", "integer"),
        Column("USD/GPU-h", ".status.pricePerGPUHour", "Price of one GPU, in USD per hour."),
        Column("Paused", ".spec.paused", "Whether it takes no new replicas.", "boolean", wide=True),
        Column("Message", _ready(message=True), "What the condition Ready says.", wide=True),
        AGE,
    )),
    Resource(PhaseScale, "phasescales", "eps", True, (
        Column("Desired", ".spec.replicas", "Replicas asked for.", "integer"),
        Column("Current", ".status.replicas", "Replicas that exist.", "integer"),
        AGE,
    ), scale=True),
)  # fmt: skip


def titled_schema(resource: Resource) -> Schema:
    """The schema of a kind with the names of its types: what the reference page is made of."""
    schema = structural(resource.model)
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string", "description": _API_VERSION}
    properties["kind"] = {"type": "string", "description": _KIND.format(kind=resource.kind)}
    properties["metadata"] = {"type": "object"}  # the API server allows no more here
    properties["spec"].pop("default", None)
    properties["status"] = without_defaults(properties["status"])
    return schema


def definition(resource: Resource) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [column.to_dict() for column in resource.columns],
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": without_titles(titled_schema(resource))},
    }
    if resource.scale:
        version["subresources"]["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short_name],
                "categories": ["equipoise"],
            },
            "versions": [version],
        },
    }
