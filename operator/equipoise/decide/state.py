"""One service while a round decides about it: what is known, what is planned, what has been said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from equipoise.api.identity import Phase, Shape, Variant
from equipoise.decide.allocation.types import Shortfall
from equipoise.decide.demand import Demand, DemandUnknown
from equipoise.decide.lag import Lag
from equipoise.decide.memory import PhaseMemory, ServiceMemory, VariantMemory, parse_variant_key
from equipoise.decide.options import PoolRefusal
from equipoise.decide.performance import at_need
from equipoise.decide.types import (
    CapacityMode,
    Move,
    PhasePolicy,
    Reason,
    Scaling,
    ServiceInput,
    Speed,
    VariantOption,
    VariantStatus,
)
from equipoise.decide.worth import Regimes
from equipoise.observe.types import ServiceObservation
from equipoise.perf.types import Workload


@dataclass(slots=True)
class PhaseState:
    """One phase. `current` are the counts as last decided, `next` the counts this round is coming to."""

    phase: Phase
    policy: PhasePolicy
    options: Mapping[Variant, VariantOption]
    refusals: tuple[PoolRefusal, ...]
    demand: Demand | DemandUnknown
    lag: Lag
    memory: PhaseMemory
    needed: float | None = None
    floor: int = 1  # fewest replicas: the user's minimum, or the count that someone else owns
    current: dict[Variant, int] = field(default_factory=dict)
    next: dict[Variant, int] = field(default_factory=dict)
    wanted: dict[Variant, int] = field(default_factory=dict)
    statuses: dict[Variant, VariantStatus] = field(default_factory=dict)
    ready: dict[Variant, int] = field(init=False)  # replicas that serve now
    serving: float = field(init=False)  # their tokens per second

    def __post_init__(self) -> None:
        self.ready = {variant: status.ready for variant, status in self.statuses.items() if status.ready}
        self.serving = self.capacity(self.ready)

    @property
    def urgent(self) -> float | None:
        """Work to do now with the trim, tokens per second; None when it is not known."""
        return self.demand.urgent * self.memory.trim if isinstance(self.demand, Demand) else None

    @property
    def steady(self) -> float | None:
        """The same without the queue."""
        return self.demand.now * self.memory.trim if isinstance(self.demand, Demand) else None

    @property
    def automatic(self) -> bool:
        """Whether Equipoise may choose this phase's count in this round."""
        return self.policy.scaling is Scaling.AUTO and isinstance(self.demand, Demand)

    @property
    def fixed_count(self) -> int | None:
        """The count that someone else owns, None when it is Equipoise's."""
        if self.policy.scaling is Scaling.EXTERNAL:
            return self.policy.minimum if self.policy.external_replicas is None else max(0, self.policy.external_replicas)
        return self.policy.minimum if self.policy.scaling is Scaling.FIXED else None

    def rate(self, variant: Variant) -> float:
        """Tokens per second of one replica; 0 for a variant that no option describes any more."""
        option = self.options.get(variant)
        return option.capacity.tokens_per_second if option is not None else 0.0

    def capacity(self, counts: Mapping[Variant, int]) -> float:
        """Tokens per second of these replicas."""
        return sum(self.rate(variant) * count for variant, count in counts.items())

    def count_on(self, needed: float | None) -> None:
        """Take the capacity of a replica to be that of a member of the group that this need takes."""
        self.options = at_need(self.options, needed)
        self.serving = self.capacity(self.ready)

    def replicas(self) -> int:
        """Replicas that this round is coming to."""
        return sum(self.next.values())


@dataclass(slots=True)
class ServiceState:
    """One service in the round."""

    service: ServiceInput
    observation: ServiceObservation | None
    memory: ServiceMemory
    phases: dict[Phase, PhaseState]
    settling: bool
    gpu_prices: Mapping[str, float] = field(default_factory=dict)  # USD per GPU and hour, by pool
    extra: dict[str, float] = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    workload: Workload = field(default_factory=lambda: Workload(0.0, 0.0))
    infeasible: Reason | None = None
    regimes: Regimes = field(default_factory=Regimes)
    shortfalls: list[Shortfall] = field(default_factory=list)
    capped: set[Variant] = field(default_factory=set)  # variants that the service's own caps keep from growing
    waiting: dict[Variant, int] = field(default_factory=dict)  # replicas to come when GPUs are free
    speeds: Mapping[Variant, Speed] = field(default_factory=dict)
    calibration: Mapping[str, VariantMemory] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether this round may change anything."""
        return self.service.mode is CapacityMode.AUTO and not self.service.deleting

    def say(self, name: str, message: str, phase: Phase | None = None) -> None:
        """Add a reason."""
        self.reasons.append(Reason(name, message, phase))

    def said(self, name: str) -> bool:
        """Whether a reason of this name was given."""
        return any(reason.name == name for reason in self.reasons)

    def calm(self) -> None:
        """No cold move is wanted any more: confirmations start anew."""
        for phase in self.phases.values():
            if phase.memory.pressed_rounds:
                phase.memory = replace(phase.memory, pressed_rounds=0)

    def gpus(self) -> int:
        """GPUs of the counts this round is coming to."""
        return sum(
            variant.shape.gpus_per_replica * count for phase in self.phases.values() for variant, count in phase.next.items()
        )

    def cost(self) -> float:
        """USD per hour of the same."""
        return sum(
            self.gpu_prices.get(variant.pool, 0.0) * variant.shape.gpus_per_replica * count
            for phase in self.phases.values()
            for variant, count in phase.next.items()
        )

    def places(self) -> list[tuple[str, Shape]]:
        """(pool, shape) of every variant in play, ordered."""
        found = {
            (variant.pool, variant.shape)
            for phase in self.phases.values()
            for counts in (phase.next, phase.wanted)
            for variant in counts
        }
        return sorted(found)


def current_counts(service: ServiceInput, memory: ServiceMemory) -> dict[Variant, int]:
    """Replicas per variant as last decided; the Deployments' own counts when nothing was ever decided.

    What was decided is what the workload loop is carrying out, so a count edited by hand or a write that is still under way
    does not count as a new starting point.
    """
    if memory.allocation:
        found = {}
        for text, count in memory.allocation.items():
            variant = parse_variant_key(service.key, text)
            if variant is not None and count > 0 and variant.phase in service.phases:
                found[variant] = count
        return found
    return {status.variant: status.desired for status in service.variants if status.desired > 0}


def unbound(status: VariantStatus | None, count: int) -> int:
    """Replicas of the count that hold no GPU yet: pending, or not even created."""
    return count if status is None else max(0, count - status.ready - status.starting)


def load(work: float | None, capacity: float) -> float:
    """Work over capacity: 0 without work (or with none known), infinite for work without capacity."""
    if work is None or work <= 0.0:
        return 0.0
    return work / capacity if capacity > 0.0 else float("inf")


def figure(utilisation: float) -> str:
    """A utilisation for people."""
    return "infinite (no capacity)" if utilisation == float("inf") else f"{utilisation:.2f}"
