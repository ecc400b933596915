"""What a controller sees once a round, and what it answers: the same for the operator's own decisions and for every rival."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide.types import ServiceInput, VariantStatus
from equipoise.fleet.types import Fleet
from equipoise.observe.types import ServiceObservation
from equipoise.simulate.loop.setup import World

Allocation = dict[Variant, int]


@dataclass(frozen=True, slots=True)
class PhaseGauges:
    """What gauges say of one phase at the moment of the round, over the pods in routing: for rivals that read them directly."""

    running_requests: int = 0
    waiting_requests: int = 0
    queued_prompt_tokens: int = 0
    kv_usage_sum: float = 0.0
    kv_tokens_used: int = 0
    busy_share: float = 0.0  # of the replicas that computed something at this moment


@dataclass(frozen=True, slots=True)
class ServiceView:
    """One service at the round. `given` is what the operator's decide() takes; `allocation` what was last asked for."""

    given: ServiceInput
    observation: ServiceObservation
    allocation: Mapping[Variant, int]
    gauges: Mapping[Phase, PhaseGauges]

    def ready(self, phase: Phase) -> int:
        """Replicas of the phase that serve."""
        return sum(status.ready for status in self.given.variants if status.variant.phase is phase)

    def asked(self, phase: Phase) -> int:
        """Replicas of the phase that were asked for."""
        return sum(count for variant, count in self.allocation.items() if variant.phase is phase)

    def status(self, variant: Variant) -> VariantStatus:
        """The variant's pods."""
        return next((status for status in self.given.variants if status.variant == variant), VariantStatus(variant))


@dataclass(frozen=True, slots=True)
class View:
    """One round. `now` is virtual seconds since the traffic began."""

    now: float
    fleet: Fleet
    services: Mapping[ServiceKey, ServiceView]


class Policy(Protocol):
    """A controller. One object serves one run."""

    name: str
    flips: bool  # whether it asks for flips where the engines can: else its changes are stops and starts
    bounded: bool  # whether the operator's admission limits are set under it
    instant: bool  # moves cost nothing (the oracle): no start-up, no drain, no scheduling

    def initial(self, world: World) -> Mapping[ServiceKey, Mapping[tuple[Phase, str], int]]:
        """Replicas to begin with, where they differ from the world's; services that are left out begin as the world says."""
        ...

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        """The allocation to carry out; services that are left out keep theirs."""
        ...
