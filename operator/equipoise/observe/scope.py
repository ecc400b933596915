"""What the caller wants observed: one service, the pods it has, and what to measure them against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Phase, ServiceKey
from equipoise.perf.types import Targets


@dataclass(frozen=True, slots=True)
class PodScope:
    """One pod of a phase that exists now. Pods that are draining belong to no phase and are not passed.

    `serving_since_seconds` (seconds since the epoch): since when it has been ready *in this phase*: the Ready condition's
    last transition, or the flip if that was later; None while it is not ready. `address` is host:port of its metrics page,
    for the direct scrape only.
    """

    name: str
    serving_since_seconds: float | None
    variant: str = ""
    address: str = ""

    @property
    def ready(self) -> bool:
        """Whether the pod serves, so that its series must be there."""
        return self.serving_since_seconds is not None


@dataclass(frozen=True, slots=True)
class ServiceScope:
    """One service to observe."""

    key: ServiceKey
    engine: str  # spec.engine.type
    served_model_name: str  # what the engine writes into the label model_name
    targets: Targets
    pods: Mapping[Phase, tuple[PodScope, ...]] = field(default_factory=dict)

    def pods_of(self, phase: Phase) -> tuple[PodScope, ...]:
        """The phase's pods, none if it has none."""
        return self.pods.get(phase, ())
