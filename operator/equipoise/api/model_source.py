"""spec.model: which model, where its weights are, and what sizing has to know of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from equipoise.api.base import ApiModel, rule, rules
from equipoise.api.identity import Precision
from equipoise.api.values import PositiveQuantity, parse_quantity

URI_PATTERN: Final = (
    r"^(hf|pvc|s3|gs)://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)*(@[A-Za-z0-9._/-]+)?$|^file:///[A-Za-z0-9._/-]+$"
)
ModelUriText = Annotated[str, Field(pattern=URI_PATTERN, max_length=512)]


@dataclass(frozen=True, slots=True)
class ModelUri:
    """A model address taken apart.

    `path` is `org/name` for hf, `claim/path` for pvc, `bucket/key` for s3 and gs, `/path` for file.
    """

    scheme: str
    path: str
    revision: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelUri:
        """Take apart what the CRD's pattern admits; ValueError says which forms there are."""
        if not re.fullmatch(URI_PATTERN, text, re.ASCII):
            raise ValueError(
                f"spec.model.uri: {text!r} is no model address; write hf://ORG/NAME[@REVISION], pvc://CLAIM/PATH, "
                "s3://BUCKET/KEY, gs://BUCKET/KEY or file:///PATH"
            )
        scheme, _, rest = text.partition("://")
        path, _, revision = rest.partition("@")
        return cls(scheme, path, revision)

    @property
    def served_name(self) -> str:
        """What clients call the model by default: `org/name` for hf as engines do, else the last part of the path."""
        return self.path if self.scheme == "hf" else self.path.rstrip("/").rpartition("/")[2]


class Architecture(ApiModel):
    """Figures of the model that sizing needs. Those left out are taken from the catalogue of known models."""

    model_config = rules(
        rule("!has(self.parameters) || !has(self.activeParameters) || "
             "quantity(string(self.activeParameters)).compareTo(quantity(string(self.parameters))) <= 0",
             "activeParameters cannot be more than parameters: are they swapped?", field_path=".activeParameters"),
        rule("!has(self.attentionHeads) || !has(self.kvHeads) || self.attentionHeads % self.kvHeads == 0",
             "kvHeads must divide attentionHeads: take both from the model's config.json", field_path=".kvHeads"),
    )  # fmt: skip

    parameters: PositiveQuantity | None = None
    """Parameters in all, as a quantity: `8.03G` is 8.03 billion."""
    active_parameters: PositiveQuantity | None = None
    """Parameters used for each token, as a quantity; less than `parameters` for mixtures of experts, equal to it when left
    out."""
    layers: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Transformer layers (`num_hidden_layers`), a count."""
    hidden_size: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Width of the residual stream (`hidden_size`), in elements."""
    attention_heads: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Query heads (`num_attention_heads`), a count; tensor parallel sizes divide it."""
    kv_heads: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Key and value heads (`num_key_value_heads`), a count; with layers and headDim they give the KV bytes of a token."""
    head_dim: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Width of one head, in elements; hiddenSize / attentionHeads when left out."""
    max_context: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    """Longest context to serve, in tokens; the engine's limit is set to it, and memory must hold at least one such request."""

    @property
    def parameter_count(self) -> float | None:
        """`parameters` as a number."""
        return None if self.parameters is None else parse_quantity(self.parameters, "spec.model.architecture.parameters")

    @property
    def active_parameter_count(self) -> float | None:
        """`activeParameters` as a number, else `parameters`."""
        if self.active_parameters is None:
            return self.parameter_count
        return parse_quantity(self.active_parameters, "spec.model.architecture.activeParameters")


class CalibratedWeights(ApiModel):
    """The same model in a lower precision, whose answers you have checked."""

    model_config = rules(
        rule("self.precision == 'fp8' || has(self.uri)",
             "int4 and bf16 weights need a uri of their own; only fp8 can be made by the engine while it loads",
             field_path=".uri"),
    )  # fmt: skip

    precision: Precision
    """Precision of these weights: bf16 (2 bytes a parameter), fp8 (1) or int4 (a half)."""
    uri: ModelUriText | None = None
    """Address of these weights, in the forms of `spec.model.uri`. Without it the engine quantises the main weights while it loads
    them (fp8 only)."""


class Weights(ApiModel):
    """Precisions that replicas may use."""

    model_config = rules(
        rule("!has(self.calibrated) || !self.calibrated.exists(other, other.precision == self.precision)",
             "calibrated lists other precisions than the one at spec.model.uri: take the entry of the same precision out",
             field_path=".calibrated"),
    )  # fmt: skip

    precision: Precision = Precision.BF16
    """Precision of the weights at `spec.model.uri`: bf16 (2 bytes a parameter), fp8 (1) or int4 (a half)."""
    calibrated: Annotated[
        tuple[CalibratedWeights, ...],
        Field(max_length=3, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["precision"]}),
    ] = ()
    """Other precisions that are good enough for your users, at most one entry each. Nothing else is ever quantised: a GPU that
    would need a precision not named here is left out."""


class ModelSpec(ApiModel):
    """The model to serve."""

    uri: ModelUriText
    """Where the weights are: `hf://ORG/NAME[@REVISION]` (Hugging Face), `pvc://CLAIM/PATH` (a PersistentVolumeClaim of the same
    namespace), `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, or `file:///PATH` (inside the engine's container)."""
    served_name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Name that clients send as `model`. When left out: `ORG/NAME` of an hf address, else the last part of the path."""
    architecture: Architecture = Architecture()
    """Figures for sizing, for models that are not in the catalogue, or to correct it."""
    weights: Weights = Weights()
    """Precision of the weights, and which others may be used."""

    @property
    def source(self) -> ModelUri:
        """`uri`, taken apart."""
        return ModelUri.parse(self.uri)

    @property
    def model_name(self) -> str:
        """`servedName`, or what follows from the address."""
        return self.served_name or self.source.served_name

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Precisions that replicas may use, that of `uri` first."""
        return (self.weights.precision, *(entry.precision for entry in self.weights.calibrated))

    def uri_for(self, precision: Precision) -> tuple[ModelUri, bool]:
        """Address of the weights in that precision, and whether the engine must quantise them while loading.

        ValueError when the user has not allowed that precision.
        """
        if precision is self.weights.precision:
            return self.source, False
        for entry in self.weights.calibrated:
            if entry.precision is precision:
                return (self.source, True) if entry.uri is None else (ModelUri.parse(entry.uri), False)
        raise ValueError(f"spec.model.weights: {precision.value} is neither the precision of the weights nor under calibrated")
