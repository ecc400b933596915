"""What the status is made of: one value, gathered once, read by every part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from equipoise.api.identity import Phase, Variant
from equipoise.decide.types import Decision, Reason, VariantStatus
from equipoise.observe.types import ServiceObservation
from equipoise.reconcile.rollout.memory import RolloutMemory


@dataclass(frozen=True, slots=True)
class PhaseFacts:
    """Counts of one phase over its variants, and what keeps pods from running."""

    minimum: int = 1
    desired: int = 0
    ready: int = 0
    starting: int = 0
    pending: int = 0
    draining: int = 0
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything about one service at one moment."""

    generation: int
    percentile: float
    targets_text: Mapping[Phase, str]
    phases: Mapping[Phase, PhaseFacts]
    variants: tuple[VariantStatus, ...] = ()
    names: Mapping[Variant, str] = field(default_factory=dict)
    variant_messages: Mapping[Variant, str] = field(default_factory=dict)
    decision: Decision | None = None
    observation: ServiceObservation | None = None
    problem: Reason | None = None  # the spec cannot be carried out; what runs is left alone
    metrics_trouble: Reason | None = None  # of the source as a whole
    waiting: Sequence[str] = ()  # steps of moves that wait, as sentences
    goodput_percent: int | None = None
    revision: str = ""
    rollout: RolloutMemory | None = None
    drain_grace_seconds: float = 300.0
    progress_deadline_seconds: float = 1200.0
    endpoint: str = ""

    @property
    def serves(self) -> bool:
        """Whether at least one replica of each phase is ready."""
        return all(found.ready > 0 for found in self.phases.values())


def phase_facts(
    variants: Sequence[VariantStatus],
    allocation: Mapping[Variant, int],
    phase: Phase,
    minimum: int,
    troubles: Sequence[str],
) -> PhaseFacts:
    """Sum up one phase: desired is what was decided, where something was; else what the Deployments ask for."""
    mine = [item for item in variants if item.variant.phase is phase]
    decided = [count for variant, count in allocation.items() if variant.phase is phase]
    return PhaseFacts(
        minimum=minimum,
        desired=sum(decided) if decided else sum(item.desired for item in mine),
        ready=sum(item.ready for item in mine),
        starting=sum(item.starting for item in mine),
        pending=sum(item.pending for item in mine),
        draining=sum(item.draining for item in mine),
        troubles=tuple(dict.fromkeys(troubles)),
    )
