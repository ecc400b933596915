"""What every builder needs at hand, and the metadata that every child carries."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from equipoise.api import labels
from equipoise.api.identity import GROUP, VERSION, Phase, Precision, ServiceKey, Variant
from equipoise.api.service import InferenceService, InferenceServiceSpec
from equipoise.fleet.types import Pool
from equipoise.render.names import deployment_name, label_value
from equipoise.render.options import VERSIONS, Problem, Refusal, RenderOptions


@dataclass(frozen=True, slots=True)
class Context:
    """One rendering: the service, its uid, the fleet's pools, the options and the revision of both phases.

    `known` false: the service's spec is not that of the revision, which is only kept as its Deployments are.
    """

    service: InferenceService
    uid: str
    pools: Mapping[str, Pool]
    options: RenderOptions
    revision: str
    known: bool = True

    @property
    def key(self) -> ServiceKey:
        """Namespace and name."""
        return self.service.key

    @property
    def spec(self) -> InferenceServiceSpec:
        """What the user wrote."""
        return self.service.spec

    @property
    def engine_version(self) -> tuple[int, ...]:
        """The engine's version as three numbers: `0.32` is `(0, 32, 0)`."""
        text = self.spec.engine.version or VERSIONS.get(self.spec.engine.type.value, "0")
        numbers = [int(number) for number in re.split(r"[.+-]", text) if number.isdigit()]
        return tuple([*numbers, 0, 0, 0][:3])

    def pool(self, variant: Variant) -> Pool:
        """The variant's pool; a Refusal of this variant when the fleet has none of that name."""
        found = self.pools.get(variant.pool)
        if found is None:
            known = ", ".join(sorted(self.pools)) or "none"
            message = f"pool {variant.pool!r} of {variant} is not in the fleet (known: {known}); its Deployment stays as it is"
            raise Refusal(
                Problem("status.allocation", f"{message} until the pool is back or the replicas are moved away", variant)
            )
        return found

    def usable_devices(self) -> frozenset[str]:
        """Devices that this service's replicas may sit on by the spec: those of the pools named, else of the whole fleet."""
        named = [self.spec.phases.of(phase).pools for phase in Phase]
        names = set(self.pools) if not all(named) else {name for pools in named for name in pools}
        return frozenset(pool.device.name for name, pool in self.pools.items() if name in names)

    def metadata(self, name: str, app: str, component: str, more: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Metadata of a child: fixed labels (never copies of the parent's: a GitOps tool would take the child for its own)."""
        return {
            "name": name,
            "namespace": self.key.namespace,
            "labels": self.labels(app, component) | dict(more or {}),
            "ownerReferences": [self.owner_reference()],
        }

    def labels(self, app: str, component: str) -> dict[str, str]:
        """Labels that every child and every pod carries."""
        return {
            labels.NAME: app,
            labels.INSTANCE: self.key.name,
            labels.COMPONENT: component,
            labels.PART_OF: labels.MANAGED_BY_VALUE,
            labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
            labels.SERVICE: self.key.name,
        }

    def owner_reference(self) -> dict[str, Any]:
        """The controller reference: the garbage collector takes the children away with their owner, also without the operator."""
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "InferenceService",
            "name": self.key.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def pod_labels(self, variant: Variant) -> dict[str, str]:
        """All labels of an engine pod."""
        return {
            **self.labels(self.spec.engine.type.value, variant.phase.value),
            labels.ROLE: variant.phase.value,
            labels.MODEL: label_value(self.spec.model.model_name),
            labels.INFERENCE_SERVING: "true",
            labels.ENGINE_TYPE: self.spec.engine.type.value,
            labels.VARIANT: deployment_name(variant),
            labels.POOL: label_value(variant.pool),
            labels.SHAPE: str(variant.shape),
            labels.REVISION: self.revision,
        }


def role_selector(service: ServiceKey, phase: Phase) -> dict[str, str]:
    """Labels that routers, Services and budgets select a phase by; a draining pod does not carry them."""
    return {labels.SERVICE: service.name, labels.ROLE: phase.value}


def weight_bytes(context: Context, precision: Precision) -> float | None:
    """Size of the weights in that precision, in bytes; None when the number of parameters is not known."""
    given = context.spec.model.architecture.parameter_count
    parameters = given if given is not None else (context.options.model.parameters if context.options.model else None)
    per_parameter = {Precision.BF16: 2.0, Precision.FP8: 1.0, Precision.INT4: 0.5}[precision]
    return None if parameters is None else parameters * per_parameter
