"""What came of every request, and what the run cost. The rule is the same for every policy."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan

from equipoise.api.identity import Phase, ServiceKey
from equipoise.perf.types import Targets
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import Outcome

RULE = (
    "goodput is the share of all requests offered that were answered completely with a TTFT and a mean time per output token "
    "inside their targets; refused, lost, given up and unfinished requests are misses"
)


@dataclass(slots=True)
class ServiceScore:
    """All requests of one service, in the order in which they ended. Latencies are NaN where there is none."""

    targets: Targets
    arrivals: array[float] = field(default_factory=lambda: array("d"))
    good: bytearray = field(default_factory=bytearray)
    ttft: array[float] = field(default_factory=lambda: array("d"))
    tpot: array[float] = field(default_factory=lambda: array("d"))  # of those that were answered completely
    outcomes: dict[Outcome, int] = field(default_factory=dict)
    late_ttft: int = 0
    late_tpot: int = 0

    def take(self, requests: Sequence[Request]) -> None:
        """Score requests; each once."""
        ttft_target, tpot_target = self.targets.ttft_seconds, self.targets.tpot_seconds
        for request in requests:
            ttft, tpot = request.ttft_seconds, request.tpot_seconds
            good = ttft is not None and tpot is not None and ttft <= ttft_target and tpot <= tpot_target
            self.arrivals.append(request.arrival)
            self.good.append(good)
            self.ttft.append(nan if ttft is None else ttft)
            self.tpot.append(nan if tpot is None else tpot)
            self.late_ttft += ttft is not None and ttft > ttft_target
            self.late_tpot += tpot is not None and tpot > tpot_target
            self.outcomes[request.outcome] = self.outcomes.get(request.outcome, 0) + 1

    @property
    def goodput(self) -> float:
        """Share of requests inside both targets; 1 when there were none."""
        return sum(self.good) / len(self.good) if self.good else 1.0

    def by_bin(self, seconds: float, until: float) -> list[float | None]:
        """Goodput of the requests that arrived in each bin; None in bins without requests."""
        count = max(1, int(-(-until // seconds)))
        offered, good = [0] * count, [0] * count
        for arrival, is_good in zip(self.arrivals, self.good, strict=True):
            position = min(count - 1, int(arrival / seconds))
            offered[position] += 1
            good[position] += is_good
        return [g / n if n else None for g, n in zip(good, offered, strict=True)]

    def latencies_by_bin(self, seconds: float, until: float, percent: float) -> tuple[list[float], list[float]]:
        """TTFT and TPOT at that percentile of the requests that arrived in each bin, NaN in bins without any."""
        count = max(1, int(-(-until // seconds)))
        found: tuple[list[list[float]], list[list[float]]] = ([[] for _ in range(count)], [[] for _ in range(count)])
        for arrival, ttft, tpot in zip(self.arrivals, self.ttft, self.tpot, strict=True):
            position = min(count - 1, int(arrival / seconds))
            found[0][position].append(ttft)
            found[1][position].append(tpot)

        def line(bins: list[list[float]]) -> list[float]:
            values = [percentile(values, percent) for values in bins]
            return [nan if value is None else value for value in values]

        return line(found[0]), line(found[1])

    def seconds_out_of_target(self, turns: Sequence[tuple[float, str]], until: float, bin_seconds: float = 5.0) -> list[float]:
        """After each turn of the traffic, how many seconds had less than the target percentile of requests inside."""
        share = self.targets.percentile / 100.0
        starts = [start for start, _ in turns]
        result = [0.0] * len(turns)
        for position, value in enumerate(self.by_bin(bin_seconds, until)):
            turn = bisect_right(starts, position * bin_seconds) - 1
            if value is not None and value < share and turn >= 0:
                result[turn] += bin_seconds
        return result


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that so many per cent do not exceed, NaN left out; None without values."""
    ordered = sorted(value for value in values if not isnan(value))
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100.0))]


@dataclass(frozen=True, slots=True)
class Moment:
    """What there was and what was done at a round, for plots. Counts by phase."""

    at_seconds: float
    ready: Mapping[Phase, int]
    starting: Mapping[Phase, int]
    draining: Mapping[Phase, int]
    flips: int
    starts: int
    stops: int


@dataclass(slots=True)
class RunResult:
    """One run of one policy in one world."""

    policy: str
    seed: int
    seconds: float
    scores: dict[ServiceKey, ServiceScore]
    gpu_hours: dict[str, float]  # by pool
    cost_usd: float
    flips: int
    starts: int
    stops: int
    moments: dict[ServiceKey, list[Moment]]
    turns: dict[ServiceKey, tuple[tuple[float, str], ...]]
    detail: str = ""  # what was found in hindsight, such as the best split
    requests_per_second: float = 0.0  # of processor time, the whole loop
    reasons: dict[str, int] = field(default_factory=dict)  # how often which rule of the operator spoke

    @property
    def goodput(self) -> float:
        """Over all services, by request."""
        total = sum(len(score.good) for score in self.scores.values())
        return sum(sum(score.good) for score in self.scores.values()) / total if total else 1.0

    @property
    def requests(self) -> int:
        """Offered in all."""
        return sum(len(score.good) for score in self.scores.values())

    @property
    def moves_per_hour(self) -> float:
        """Replicas that changed phase, started or stopped, per hour."""
        return (self.flips + self.starts + self.stops) / self.seconds * 3600.0
