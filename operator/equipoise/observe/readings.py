"""Raw readings of the whole fleet, as a source (Prometheus, direct scrape) hands them over: rows, or a failure per reading."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from equipoise.api.identity import ServiceKey
from equipoise.observe.engines.table import Reading


@contextmanager
def acyclic() -> Iterator[None]:
    """Build many small objects that refer to none of their owners, without the garbage collector looking for cycles meanwhile.

    A fleet of 1,000 services is 200,000 of them per round; the collector's passes over them cost as much as reading them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


class Row(NamedTuple):
    """One group's number. `edge` is the upper bound of a bucket; 0.0 for everything that is no bucket."""

    variant: str
    edge: float
    value: float


class Group(NamedTuple):
    """Whose rows they are: of one phase of a service under one served model name. Routers have neither role nor model."""

    namespace: str
    service: str
    role: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A reading that could not be taken, as a sentence."""

    message: str


Table = Mapping[Group, list[Row]]
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

    def rows(self, reading: Reading, group: Group) -> list[Row]:
        """That group's rows; none on failure."""
        outcome = self.outcomes.get(reading)
        if outcome is None or isinstance(outcome, Failure):
            return _NONE
        return outcome.get(group, _NONE)


_NONE: list[Row] = []
