"""InferenceService: one model, served with prefill and decode apart."""

from __future__ import annotations

from typing import Final, Literal

from equipoise.api.base import ApiModel, ApiObject, rule, rules
from equipoise.api.engine import EngineSpec, RouterSpec, RouterType
from equipoise.api.identity import ServiceKey
from equipoise.api.model_source import ModelSpec
from equipoise.api.phases import PhasesSpec
from equipoise.api.policy import CapacitySpec, DrainSpec, MetricsSpec, RolloutSpec
from equipoise.api.status import InferenceServiceStatus
from equipoise.api.targets import TargetsSpec

# The longest names derived from it must fit in 63 characters: a variant is `<name>-prefill-` with at least nine more to tell
# pools and shapes apart by a hash; `<name>-prefill`, `<name>-decode` and `<name>-router` are shorter.
MAX_NAME_LENGTH: Final = 45

_PHASES: Final = ("prefill", "decode")


def _gpus_at_least(phase: str) -> str:
    shape = f"self.phases.{phase}.shape"
    return f"self.phases.{phase}.min * (has({shape}) ? {shape}.tensorParallel * {shape}.pipelineParallel : 1)"


def _precision_known(phase: str) -> str:
    shape = f"self.phases.{phase}.shape"
    weights = "self.model.weights"
    return (
        f"(!has({shape}) || !has({shape}.precision) || {shape}.precision == {weights}.precision || (has({weights}.calibrated) && "
        f"{weights}.calibrated.exists(entry, entry.precision == {shape}.precision)))"
    )


def _tensor_parallel_divides(phase: str) -> str:
    shape = f"self.phases.{phase}.shape"
    return f"(!has({shape}) || self.model.architecture.attentionHeads % {shape}.tensorParallel == 0)"


class InferenceServiceSpec(ApiModel):
    """What to serve, how fast, and within what bounds."""

    model_config = rules(
        rule("!has(self.router.type) || self.router.type != 'vllm-router' || self.engine.type in ['vllm', 'custom']",
             "router.type vllm-router knows vLLM's hand-over only: use sglang-router with engine.type sglang, or leave it out",
             field_path=".router.type"),
        rule("!has(self.router.type) || self.router.type != 'sglang-router' || self.engine.type in ['sglang', 'custom']",
             "router.type sglang-router knows SGLang's hand-over only: use vllm-router with engine.type vllm, or leave it out",
             field_path=".router.type"),
        rule("has(self.router.type) || self.engine.type in ['vllm', 'sglang'] || "
             "!(has(self.router.image) || has(self.router.args) || has(self.router.podTemplate))",
             "engine.type trtllm and custom have no router by default: set router.type, "
             "or take router.image, args and podTemplate out",
             field_path=".router"),
        rule(f"!has(self.capacity.maxGPUs) || {_gpus_at_least('prefill')} + {_gpus_at_least('decode')} <= self.capacity.maxGPUs",
             "capacity.maxGPUs is less than the two phases' min take together (replicas x tensorParallel x pipelineParallel): "
             "raise maxGPUs or lower min", field_path=".capacity.maxGPUs"),
        rule(" && ".join(_precision_known(phase) for phase in _PHASES),
             "shape.precision must be that of model.weights or one under model.weights.calibrated: "
             "add it there once you have checked its answers",
             field_path=".phases"),
        rule("!has(self.model.architecture.attentionHeads) || "
             f"({' && '.join(_tensor_parallel_divides(phase) for phase in _PHASES)})",
             "shape.tensorParallel must divide model.architecture.attentionHeads: choose a smaller size", field_path=".phases"),
    )  # fmt: skip

    model: ModelSpec
    """The model to serve."""
    targets: TargetsSpec
    """The latency the service owes its users."""
    engine: EngineSpec = EngineSpec()
    """The serving engine."""
    phases: PhasesSpec = PhasesSpec()
    """Bounds and wishes for each phase."""
    router: RouterSpec = RouterSpec()
    """What receives the requests and sends them to the phases."""
    capacity: CapacitySpec = CapacitySpec()
    """How far capacity decisions may go."""
    rollout: RolloutSpec = RolloutSpec()
    """How a new template replaces the old one."""
    drain: DrainSpec = DrainSpec()
    """How replicas are taken out of service."""
    metrics: MetricsSpec = MetricsSpec()
    """How the service is observed."""

    @property
    def router_type(self) -> RouterType:
        """The router in effect."""
        return self.router.type_for(self.engine.type)


class InferenceService(ApiObject):
    """One model, served with prefill and decode apart, each on the GPU pools that suit it."""

    model_config = rules(
        rule(f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
             f"the name must have at most {MAX_NAME_LENGTH} characters, as names derived from it must fit in 63: shorten it"),
        rule("self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
             "the name must begin with a letter and hold only lower-case letters, digits and hyphens, "
             "because a Service is named after it: rename it"),
        rule("!self.metadata.name.matches('-(prefill|decode|router)(-|$)')",
             "the name must not go on with -prefill, -decode or -router, as these set derived names apart: rename it"),
    )  # fmt: skip

    kind: Literal["InferenceService"] = "InferenceService"
    spec: InferenceServiceSpec
    """What to serve, how fast, and within what bounds."""
    status: InferenceServiceStatus = InferenceServiceStatus()
    """What there is and what was decided; written by Equipoise."""

    @property
    def key(self) -> ServiceKey:
        """Namespace and name."""
        return ServiceKey(self.metadata.namespace, self.metadata.name)
