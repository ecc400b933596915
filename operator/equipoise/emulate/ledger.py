"""What the clients saw: true TTFT, TPOT and goodput of one service, by second and in rolling windows. No I/O, no clock.

A verdict is counted when it is known: a TTFT that misses its target, at the moment the target passes; one that meets it, with
the first token; TPOT, with the last token. So a phase that starves shows at once, and not only when its requests end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from equipoise.perf.types import Targets
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import Outcome

WINDOWS_SECONDS: Final = (5, 15, 60)
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)


@dataclass
class Second:
    """What happened in one second."""

    at_seconds: int
    offered: int = 0
    offered_prompt_tokens: int = 0
    offered_output_tokens: int = 0
    completed: int = 0
    output_tokens: int = 0
    refused: int = 0
    lost: int = 0
    aborted: int = 0
    ttft_met: int = 0
    ttft_missed: int = 0
    tpot_met: int = 0
    tpot_missed: int = 0
    good: int = 0
    bad: int = 0
    ttft_seconds: list[float] = field(default_factory=list)
    tpot_seconds: list[float] = field(default_factory=list)


class Ledger:
    """Follows requests from their arrival to their end."""

    def __init__(self, targets: Targets, keep_seconds: int = max(WINDOWS_SECONDS) + 5) -> None:
        self.targets = targets
        self.totals = dict.fromkeys(("offered", "completed", "refused", "lost", "aborted", "good", "bad"), 0)
        self.causes: dict[str, int] = {}
        self._keep = keep_seconds
        self._seconds: deque[Second] = deque()
        self._no_token: dict[Request, bool] = {}  # no first token yet; True: already counted as missed
        self._judged: set[Request] = set()  # still under way, but already lost for goodput

    def arrived(self, request: Request, now: float) -> None:
        """A client sent a request."""
        second = self._second(now)
        second.offered += 1
        second.offered_prompt_tokens += request.prompt_tokens
        second.offered_output_tokens += request.output_tokens
        self.totals["offered"] += 1
        self._no_token[request] = False

    def ended(self, request: Request, now: float) -> None:
        """A request ended, however."""
        second = self._second(now)
        if request in self._no_token:
            self._first_token(request, now)
        match request.outcome:
            case Outcome.FINISHED:
                second.completed += 1
                second.output_tokens += request.output_tokens
                self.totals["completed"] += 1
                tpot = request.tpot_seconds
                if tpot is not None and request.output_tokens > 1:
                    second.tpot_seconds.append(tpot)
                    met = tpot <= self.targets.tpot_seconds
                    second.tpot_met += met
                    second.tpot_missed += not met
            case Outcome.REFUSED:
                second.refused += 1
                self.totals["refused"] += 1
            case Outcome.LOST:
                second.lost += 1
                self.totals["lost"] += 1
            case _:
                second.aborted += 1
                self.totals["aborted"] += 1
        if request.cause:
            self.causes[request.cause] = self.causes.get(request.cause, 0) + 1
        if request in self._judged:
            self._judged.discard(request)
        else:
            self._judge(second, request.meets(self.targets.ttft_seconds, self.targets.tpot_seconds))

    def look(self, now: float) -> None:
        """Notice first tokens and targets that have passed. Call it a few times a second, and before reading anything."""
        self._second(now)  # quiet seconds are seconds too
        target = self.targets.ttft_seconds
        for request, missed in list(self._no_token.items()):
            if 0.0 <= request.first_token <= now:
                self._first_token(request, now)
            elif not missed and now - request.arrival > target:
                self._no_token[request] = True
                second = self._second(request.arrival + target)
                second.ttft_missed += 1
                self._judge(second, False)
                self._judged.add(request)

    def _first_token(self, request: Request, now: float) -> None:
        missed = self._no_token.pop(request)
        ttft = request.ttft_seconds if request.first_token <= now else None
        second = self._second(request.first_token if ttft is not None else now)
        if ttft is not None:
            second.ttft_seconds.append(ttft)
        if not missed:
            met = ttft is not None and ttft <= self.targets.ttft_seconds
            second.ttft_met += met
            second.ttft_missed += not met

    def _judge(self, second: Second, good: bool) -> None:
        second.good += good
        second.bad += not good
        self.totals["good" if good else "bad"] += 1

    def _second(self, at: float) -> Second:
        """The second that `at` lies in; moments older than what is kept count in the oldest one."""
        seconds, wanted = self._seconds, int(at)
        if not seconds:
            seconds.append(Second(wanted))
        while seconds[-1].at_seconds < wanted:
            seconds.append(Second(seconds[-1].at_seconds + 1))
            if len(seconds) > self._keep:
                seconds.popleft()
        return seconds[max(0, wanted - seconds[0].at_seconds)]

    @property
    def waiting_for_first_token(self) -> int:
        """Requests without a first token."""
        return len(self._no_token)

    def oldest_wait_seconds(self, now: float) -> float:
        """How long the request that waits longest for its first token has waited."""
        return max((now - request.arrival for request in self._no_token), default=0.0)

    def window(self, now: float, seconds: int) -> dict[str, Any]:
        """Figures over the last whole seconds. Latencies and shares are None where nothing happened: that is not zero."""
        self._second(now)
        end = int(now)
        part = [second for second in self._seconds if end - seconds <= second.at_seconds < end]
        return summary(part, seconds)

    def seconds_between(self, begin: int, end: int) -> list[Second]:
        """The whole seconds from `begin` up to `end`, as far as they are kept."""
        return [second for second in self._seconds if begin <= second.at_seconds < end]


def summary(seconds: Sequence[Second], length_seconds: float) -> dict[str, Any]:
    """Rates, latencies and shares of some seconds, as plain JSON."""
    length = max(length_seconds, 1e-9)
    return {
        "offered_requests_per_second": round(sum(second.offered for second in seconds) / length, 3),
        "offered_prompt_tokens_per_second": round(sum(second.offered_prompt_tokens for second in seconds) / length, 1),
        "offered_output_tokens_per_second": round(sum(second.offered_output_tokens for second in seconds) / length, 1),
        "completed_requests_per_second": round(sum(second.completed for second in seconds) / length, 3),
        "completed": sum(second.completed for second in seconds),
        "refused": sum(second.refused for second in seconds),
        "lost": sum(second.lost for second in seconds),
        "aborted": sum(second.aborted for second in seconds),
        "ttft_seconds": _latency(value for second in seconds for value in second.ttft_seconds),
        "tpot_seconds": _latency(value for second in seconds for value in second.tpot_seconds),
        "ttft_attainment": _share(sum(s.ttft_met for s in seconds), sum(s.ttft_missed for s in seconds)),
        "tpot_attainment": _share(sum(s.tpot_met for s in seconds), sum(s.tpot_missed for s in seconds)),
        "goodput": _share(sum(s.good for s in seconds), sum(s.bad for s in seconds)),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def _latency(values: Iterable[float]) -> dict[str, float | int | None]:
    ordered = sorted(values)
    if not ordered:
        return {"count": 0, "mean": None, **{f"p{share * 100:g}": None for share in QUANTILES}}
    found = {f"p{share * 100:g}": round(quantile(ordered, share), 5) for share in QUANTILES}
    return {"count": len(ordered), "mean": round(sum(ordered) / len(ordered), 5), **found}


def _share(yes: int, no: int) -> float | None:
    return round(yes / (yes + no), 4) if yes + no else None
