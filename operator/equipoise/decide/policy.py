"""From the resource a user writes to what decide() needs of it."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from equipoise.api.engine import RouterType
from equipoise.api.identity import Phase, ServiceKey
from equipoise.api.phases import PhaseSpec
from equipoise.api.service import InferenceService
from equipoise.decide.flip_support import flip_support
from equipoise.decide.types import CapacityMode, PhasePolicy, Reason, Scaling, ServiceInput
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Refusal, Targets

_TIMESTAMP = re.compile(r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})")


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """What the spec of one service means, without anything of the cluster."""

    key: ServiceKey
    served_model_name: str
    model: ModelFacts
    targets: Targets
    phases: Mapping[Phase, PhasePolicy]
    mode: CapacityMode
    priority: int
    max_gpus: int | None
    max_cost_usd_per_hour: float | None
    cooldown_grow_seconds: float
    cooldown_shrink_seconds: float
    flip_supported: bool
    flip_reason: str
    created_seconds: float
    shares_arrivals: bool = True  # whether the router sends requests where fewer run
    notes: tuple[Reason, ...] = ()  # what looks unintended, though it can be carried out

    def service_input(self) -> ServiceInput:
        """As decide() takes it; replicas, quota and external counts are the cluster's to fill in."""
        return ServiceInput(
            key=self.key,
            model=self.model,
            targets=self.targets,
            phases=self.phases,
            mode=self.mode,
            priority=self.priority,
            max_gpus=self.max_gpus,
            max_cost_usd_per_hour=self.max_cost_usd_per_hour,
            cooldown_grow_seconds=self.cooldown_grow_seconds,
            cooldown_shrink_seconds=self.cooldown_shrink_seconds,
            flip_supported=self.flip_supported,
            flip_reason=self.flip_reason,
            created_seconds=self.created_seconds,
            shares_arrivals=self.shares_arrivals,
        )


def service_policy(resource: InferenceService) -> ServicePolicy | tuple[Reason, ...]:
    """The policy, or why the spec cannot be sized: each problem names the field and what to do."""
    spec = resource.spec
    facts = model_facts(spec.model.uri, spec.model.architecture)
    if isinstance(facts, Refusal):
        return (Reason(facts.reason, facts.message),)
    # Replicas are only rendered in precisions that the user allows, whatever the model's name suggests.
    allowed = spec.model.precisions
    notes: tuple[Reason, ...] = ()
    if not set(allowed) & set(facts.precisions):
        said = ", ".join(precision.value for precision in allowed)
        published = ", ".join(precision.value for precision in facts.precisions)
        text = f"spec.model.weights.precision is {said}, but {facts.name} is published in {published}: sizes are those of {said}"
        notes = (Reason("PrecisionUnlikely", text),)
    flips, why = flip_support(spec)
    return ServicePolicy(
        key=resource.key,
        served_model_name=spec.model.model_name,
        model=replace(facts, precisions=allowed),
        targets=Targets(spec.targets.ttft_seconds, spec.targets.tpot_seconds, float(spec.targets.percentile)),
        phases={phase: _phase(spec.phases.of(phase), resource) for phase in Phase},
        mode=CapacityMode(spec.capacity.mode.value),
        priority=spec.capacity.priority,
        max_gpus=spec.capacity.max_gpus,
        max_cost_usd_per_hour=spec.capacity.max_cost_usd_per_hour,
        cooldown_grow_seconds=spec.capacity.cooldown.grow_seconds,
        cooldown_shrink_seconds=spec.capacity.cooldown.shrink_seconds,
        flip_supported=flips,
        flip_reason=why,
        created_seconds=created_seconds(resource.metadata.creation_timestamp),
        shares_arrivals=spec.router_type is not RouterType.NONE,
        notes=notes,
    )


def created_seconds(timestamp: str) -> float:
    """Seconds since the epoch of a Kubernetes timestamp (always UTC); 0.0 when there is none yet."""
    found = _TIMESTAMP.match(timestamp)
    return float(calendar.timegm((*map(int, found.groups()), 0, 0, 0))) if found else 0.0


def _phase(phase: PhaseSpec, resource: InferenceService) -> PhasePolicy:
    return PhasePolicy(
        minimum=phase.min,
        maximum=phase.max,
        pools=phase.pools,
        shape=None if phase.shape is None else phase.shape.shape(resource.spec.model.weights.precision),
        scaling=Scaling(phase.scaling.value),
    )
