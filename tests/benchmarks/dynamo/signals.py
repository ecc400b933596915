"""From what Dynamo's simulator tells a planner at each tick to the operator's own observation. Nothing is made up.

The simulator gives counts of arrivals, means over finished requests, and what each worker's last pass held. Percentiles,
attainment and per-worker latencies are not among it: those signals stay unknown, and the law does without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from equipoise.api.identity import ServiceKey
from equipoise.observe.types import Idle, Known, PhaseObservation, ServiceObservation, Signal, Unknown, UnknownReason

WINDOW_SECONDS: Final = 15.0  # the operator's shortest (observe.settings), as with its direct scrapes every 5 s
NOT_TOLD: Final = Unknown(UnknownReason.NOT_EXPOSED, "the simulator tells means only")


class Window:
    """The last ticks, and what they say together."""

    def __init__(self, key: ServiceKey, kv_tokens_per_worker: int, most_tokens_per_pass: int) -> None:
        self._key, self._kv_tokens, self._pass_tokens = key, kv_tokens_per_worker, most_tokens_per_pass
        self._ticks: deque[Mapping[str, Any]] = deque()
        self._before: Mapping[str, Any] | None = None  # the tick at which the window begins

    def add(self, tick: Mapping[str, Any]) -> None:
        """One tick; those before the window are forgotten."""
        self._ticks.append(tick)
        while tick["now_ms"] - self._ticks[0]["now_ms"] >= WINDOW_SECONDS * 1e3 - 1.0:
            self._before = self._ticks.popleft()

    def observation(self, at_seconds: float) -> ServiceObservation:
        """Of the window that ends with the last tick."""
        traffic = [tick["traffic"] for tick in self._ticks]
        seconds = sum(entry["duration_s"] for entry in traffic)
        arrived = sum(entry["num_req"] for entry in traffic)
        finished = sum(entry["shape_count"] for entry in traffic)
        queued = self._each("prefill_fpm_snapshots", "num_queued_prefill")
        running, waiting = (self._each("decode_fpm_snapshots", field) for field in ("num_decode_requests", "num_queued_decode"))
        mean_ttft = _mean(traffic, "avg_ttft_ms", "ttft_count", 1e-3)
        offered = _rate(arrived, seconds)
        prefill = PhaseObservation(
            requests_per_second=offered,
            served_requests_per_second=_rate(
                max(0.0, arrived - self._growth("prefill_fpm_snapshots", "num_queued_prefill")), seconds
            ),
            refused_requests_per_second=Idle(),  # it has no bound on queues
            mean_tokens=self._prompt_tokens() or _mean(traffic, "avg_isl", "shape_count", 1.0),
            prefix_hit_share=_mean(traffic, "avg_kv_hit_rate", "hit_rate_count", 1.0),
            latency_mean_seconds=NOT_TOLD,
            latency_percentile_seconds=NOT_TOLD,
            attainment=NOT_TOLD,
            running_requests=Known(fmean(self._each("prefill_fpm_snapshots", "num_prefill_requests"))),
            waiting_requests=Known(fmean(queued)),
            waiting_for_capacity_requests=NOT_TOLD,
            kv_usage_share=NOT_TOLD,
            latency_source="Dynamo replay",
        )
        resident = fmean(self._each("decode_fpm_snapshots", "sum_decode_kv_tokens"))
        workers = max(1.0, fmean(len(tick["decode_fpm_snapshots"]) for tick in self._ticks))
        decode = PhaseObservation(
            requests_per_second=_rate(
                max(
                    0.0,
                    finished
                    + self._growth("decode_fpm_snapshots", "num_decode_requests")
                    + self._growth("decode_fpm_snapshots", "num_queued_decode"),
                ),
                seconds,
            ),
            served_requests_per_second=_rate(finished, seconds),
            refused_requests_per_second=Idle(),
            tokens_per_second=_rate(sum(entry["accept_length_forward_count"] for entry in traffic), seconds),
            mean_tokens=_mean(traffic, "avg_osl", "shape_count", 1.0),
            latency_mean_seconds=_mean(traffic, "avg_itl_ms", "itl_count", 1e-3),
            latency_percentile_seconds=NOT_TOLD,
            attainment=NOT_TOLD,
            running_requests=Known(fmean(running)),
            waiting_requests=Known(fmean(waiting)),
            waiting_for_capacity_requests=Known(fmean(waiting)),
            kv_usage_share=Known(resident / workers / self._kv_tokens),
            latency_source="Dynamo replay",
        )
        return ServiceObservation(
            self._key, at_seconds, max(seconds, 1.0), prefill, decode, ttft_mean_seconds=mean_ttft, ttft_attainment=NOT_TOLD
        )

    def _prompt_tokens(self) -> Signal | None:
        """Mean length of the prompts that workers have before them; None when there are none.

        The simulator's own mean is over requests that were answered completely, so it comes a whole answer late, where an engine
        counts a prompt once it is computed. A worker's queue, and a pass over whole prompts, say it in time.
        """
        tokens = prompts = 0.0
        for tick in self._ticks:
            for entry in tick["prefill_fpm_snapshots"]:
                tokens += entry["sum_queued_prefill_tokens"]
                prompts += entry["num_queued_prefill"]
                if not entry["sum_prefill_kv_tokens"] and entry["sum_prefill_tokens"] < self._pass_tokens:
                    tokens += entry["sum_prefill_tokens"]
                    prompts += entry["num_prefill_requests"]
        return Known(tokens / prompts, samples=prompts) if prompts else None

    def prompt_variation(self) -> float:
        """Variance over squared mean of the prompt lengths that workers have before them, in tenths.

        1.0 when there are none: exponential-like, what the performance model takes where nothing is known.
        """
        mean = self._prompt_tokens()
        total = weighted = 0.0
        for tick in self._ticks:
            for entry in tick["prefill_fpm_snapshots"]:
                for count, variance in (
                    ("num_queued_prefill", "var_queued_prefill_length"),
                    ("num_prefill_requests", "var_prefill_length"),
                ):
                    total += entry[count]
                    weighted += entry[count] * entry[variance]
        if not isinstance(mean, Known) or total <= 0.0:
            return 1.0
        return round(weighted / total / mean.value**2, 1)

    def _growth(self, role: str, field: str) -> float:
        """How much more there is at the end of the window than at its beginning."""
        return _sum(self._ticks[-1][role], field) - (0.0 if self._before is None else _sum(self._before[role], field))

    def _each(self, role: str, field: str) -> list[float]:
        return [_sum(tick[role], field) for tick in self._ticks]


def _sum(snapshots: Sequence[Mapping[str, Any]], field: str) -> float:
    return float(sum(entry[field] for entry in snapshots))


def _rate(count: float, seconds: float) -> Signal:
    if seconds <= 0.0:
        return Unknown(UnknownReason.NO_SERIES, "no time has passed")
    return Known(count / seconds, samples=count) if count > 0 else Idle()


def _mean(traffic: Sequence[Mapping[str, Any]], field: str, count: str, factor: float) -> Signal:
    total = sum(entry[count] for entry in traffic)
    if total <= 0:
        return Idle()
    return Known(sum(entry[field] * entry[count] for entry in traffic) / total * factor, samples=float(total))
