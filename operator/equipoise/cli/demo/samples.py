"""What the demo saw, second by second, and the moves it saw. Plain values, so that summary and picture need no cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Phase


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at everything. Latencies are the clients' own, at the target percentile; None: no request."""

    at_seconds: float  # since the traffic began
    traffic: str  # name of the traffic's phase: chat, code
    requests_per_second: float
    ttft_seconds: float | None
    tpot_seconds: float | None
    ready: Mapping[tuple[Phase, str], int] = field(default_factory=dict)  # by phase and pool
    desired: Mapping[tuple[Phase, str], int] = field(default_factory=dict)
    gpus_bound: Mapping[str, int] = field(default_factory=dict)  # by pool, of pods that hold a node
    refused: int = 0  # so far
    lost: int = 0  # so far: requests that a deleted or failed pod took with it
    completed: int = 0  # so far
    lagging: Phase | None = None  # the phase that the operator holds for the lagging one


@dataclass(frozen=True, slots=True)
class SeenMove:
    """A move as the status told it."""

    at_seconds: float
    kind: str
    donor: str
    receiver: str
    replicas: int
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """A whole demo."""

    samples: tuple[Sample, ...]
    moves: tuple[SeenMove, ...]
    turns: tuple[tuple[float, str], ...]  # when which traffic began, the first included
    targets: Mapping[Phase, float]
    pools: Mapping[str, int]  # GPUs per pool
