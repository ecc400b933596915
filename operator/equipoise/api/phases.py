"""spec.phases: bounds and wishes for prefill and decode, each on its own."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from equipoise.api.base import ApiModel, FreeObject, LabelValue, rule, rules
from equipoise.api.engine import Arguments
from equipoise.api.identity import Phase, Precision, Shape


class Scaling(StrEnum):
    """Who owns a phase's replica count."""

    AUTO = "Auto"
    EXTERNAL = "External"
    FIXED = "Fixed"


class ShapeSpec(ApiModel):
    """How one replica sits on a pool; it holds tensorParallel x pipelineParallel GPUs."""

    tensor_parallel: Literal[1, 2, 4, 8, 16] = 1
    """GPUs that share every layer, a count: 1, 2, 4, 8 or 16. They are of one node."""
    pipeline_parallel: Annotated[int, Field(ge=1, le=16)] = 1
    """Groups of layers in a row, a count; above 1 a replica may span nodes."""
    precision: Precision | None = None
    """Precision of the weights: that of `spec.model.weights` or one of its calibrated ones. When left out: that of the
    weights."""

    def shape(self, default: Precision) -> Shape:
        """As the value that all rooms use."""
        return Shape(self.tensor_parallel, self.pipeline_parallel, self.precision or default)


class PhaseSpec(ApiModel):
    """One phase."""

    model_config = rules(
        rule("!has(self.max) || self.min <= self.max", "max must be at least min: raise max or lower min", field_path=".max"),
        rule("self.scaling != 'External' || !has(self.max)",
             "with scaling External the autoscaler owns the bounds: take max out here and set it there", field_path=".max"),
        rule("self.scaling != 'Fixed' || !has(self.max) || self.max == self.min",
             "with scaling Fixed the count is min: take max out, or set scaling to Auto", field_path=".max"),
        rule("self.scaling != 'Fixed' || self.min >= 1",
             "with scaling Fixed the count is min, and 0 would never serve: set min to 1 or more", field_path=".min"),
    )  # fmt: skip

    min: Annotated[int, Field(ge=0, le=1000)] = 1
    """Least replicas, a count. 0 lets an idle service give all its GPUs back, and must then be 0 for both phases."""
    max: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Most replicas, a count. When left out: what the pools hold."""
    pools: Annotated[
        tuple[Annotated[LabelValue, Field(min_length=1)], ...],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = ()
    """Names of the pools that may be used, the preferred first. When left out: every pool on which the phase fits and meets
    its target."""
    shape: ShapeSpec | None = None
    """How one replica sits on its GPUs. When left out: computed for each pool."""
    scaling: Scaling = Scaling.AUTO
    """Who owns the replica count: Auto (Equipoise), External (whoever scales the PhaseScale `<name>-prefill` or `<name>-decode`:
    an HPA, KEDA or a person; it starts at `min`), or Fixed (always `min`)."""
    engine_args: Arguments = ()
    """Further command-line arguments of the engine in this phase only, put after `spec.engine.args`."""
    pod_template: FreeObject | None = None
    """A partial PodTemplateSpec for this phase only, laid over the rendered one after `spec.engine.podTemplate`."""


class PhasesSpec(ApiModel):
    """Both phases."""

    model_config = rules(
        rule("(self.prefill.min == 0) == (self.decode.min == 0)",
             "min must be 0 for both phases or for neither: a phase alone serves nothing", field_path=".decode.min"),
    )  # fmt: skip

    prefill: PhaseSpec = PhaseSpec()
    """The phase that reads the prompt, is bound by compute and sets TTFT."""
    decode: PhaseSpec = PhaseSpec()
    """The phase that writes the answer, is bound by memory bandwidth and sets TPOT."""

    def of(self, phase: Phase) -> PhaseSpec:
        """The part of that phase."""
        return self.prefill if phase is Phase.PREFILL else self.decode
