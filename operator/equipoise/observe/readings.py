"""Raw readings of the whole fleet, as a source (Prometheus, direct scrape) hands them over: rows, or a failure per reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.engines.table import Reading


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


class Row(NamedTuple):
    """One group's number. `edge` is the upper bound of a bucket; 0.0 for everything that is no bucket."""

    model: str
    role: str
    variant: str
    edge: float
    value: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A reading that could not be taken, as a sentence."""

    message: str


Table = Mapping[ServiceKey, list[Row]]
Outcome = Table | Failure


class PodSighting(NamedTuple):
    """What the roll call saw of one pod: when its last sample was (None: none now), and how many the probe window holds."""

    service: ServiceKey
    pod: str
    role: str
    model: str
    variant: str
    last_seconds: float | None
    samples: float


@dataclass(frozen=True, slots=True)
class RollCall:
    """All pods that have series, and how long the window was that samples were counted in."""

    sightings: tuple[PodSighting, ...]
    probe_seconds: float


@dataclass(frozen=True, slots=True)
class Readings:
    """All readings of one engine in one window, and those of the routers."""

    window_seconds: float
    outcomes: Mapping[Reading, Outcome] = field(default_factory=dict)

    def failure(self, reading: Reading) -> Failure | None:
        """Why that reading failed, None when it did not. A reading that was never asked for has not failed."""
        outcome = self.outcomes.get(reading)
        return outcome if isinstance(outcome, Failure) else None

    def exposed(self, reading: Reading) -> bool:
        """Whether the engine's table has that reading at all."""
        return reading in self.outcomes

    def rows(self, reading: Reading, service: ServiceKey, phase: Phase | None, model: str | None) -> list[Row]:
        """That service's rows, of one role and served model where given; none on failure."""
        outcome = self.outcomes.get(reading)
        if outcome is None or isinstance(outcome, Failure):
            return []
        rows: Iterable[Row] = outcome.get(service, ())
        return [row for row in rows if (phase is None or row.role == phase.value) and (model is None or row.model == model)]
