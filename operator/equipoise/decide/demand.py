"""Demand of each phase in tokens per second: what is offered, what is queued, and what will come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Phase
from equipoise.decide.settings import Settings
from equipoise.decide.smoothing import Level, average, follow, read_level, short, write_level
from equipoise.observe.types import Idle, Known, ServiceObservation, Signal, Unknown, UnknownReason
from equipoise.perf.types import Workload


@dataclass(frozen=True, slots=True)
class Demand:
    """Work offered to one phase, tokens per second.

    `now` is what is offered lately, `backlog` what draining the queue adds; both together drive flips. `forecast` is the upper
    quantile at the start-up time and drives everything that takes as long as a start-up: it leaves the backlog out, which is
    gone or hopeless by then (in a sketch, cold moves do better without it: 49.0 % against 43.0 % goodput).
    """

    now: float
    backlog: float
    forecast: float
    requests_per_second: float
    idle: bool = False
    shifted: bool = False
    rising: bool = False  # shifted, and upwards: the window still holds what was before, so there is more than it shows
    memory: Mapping[str, float] = field(default_factory=dict)

    @property
    def urgent(self) -> float:
        """Offered work and queued work together."""
        return self.now + self.backlog


@dataclass(frozen=True, slots=True)
class DemandUnknown:
    """Why the demand of a phase is not known. Never to be read as zero."""

    message: str
    memory: Mapping[str, float] = field(default_factory=dict)


def offered_requests(observation: ServiceObservation, phase: Phase) -> Signal:
    """Requests per second that want this phase: arrivals, never completions.

    Decode is sized from what arrives at the service: decode itself sees only what prefill lets through, which collapses
    exactly when prefill starves (Narwhal, HeteroScale). Requests that skip prefill count where they are seen.
    """
    own = observation.phase(phase).requests_per_second
    if phase is Phase.PREFILL:
        return own
    first = observation.prefill.requests_per_second
    if isinstance(own, Unknown):
        return first if own.reason is UnknownReason.NOT_EXPOSED else own
    if isinstance(first, Unknown):
        # Decode's own count is only trusted as "nothing is offered" when prefill says so too.
        return first if isinstance(own, Idle) else own
    if isinstance(own, Known) and isinstance(first, Known):
        return own if own.value >= first.value else first
    return own if isinstance(own, Known) else first


def estimate_demand(
    observation: ServiceObservation | None,
    phase: Phase,
    workload: Workload,
    extra: Mapping[str, float],
    startup_seconds: float,
    decode_starves: bool,
    decode_slots: float,
    now_seconds: float,
    settings: Settings,
) -> Demand | DemandUnknown:
    """The demand of one phase, or why it is not known."""
    name = f"{phase.value}.demand"
    previous = read_level(extra, name)
    kept = {entry: value for entry, value in extra.items() if entry.startswith(f"{name}.")}
    if observation is None:
        return DemandUnknown("no observation of this service in this round", kept)
    offered = offered_requests(observation, phase)
    if isinstance(offered, Unknown):
        text = f" ({offered.message})" if offered.message else ""
        return DemandUnknown(f"offered requests/s unknown: {offered.reason.value}{text}", kept)
    if isinstance(offered, Known) and not (math.isfinite(offered.value) and offered.value >= 0.0):
        return DemandUnknown(f"offered requests/s is {offered.value}: no number to size from", kept)
    rate = offered.value if isinstance(offered, Known) else 0.0
    tokens = workload.uncached_prompt_tokens if phase is Phase.PREFILL else workload.mean_output_tokens
    work = rate * tokens
    requests = max(1.0, rate * observation.window_seconds)
    # Poisson arrivals of exponential-like lengths: the variance of the sum is 2 n mean^2.
    level, shifted = follow(previous, work, work * math.sqrt(2.0 / requests), now_seconds, settings)
    before = read_level(extra, f"{name}.recent")
    # That nothing came is as telling as the number of requests that should have come.
    due = 0.0 if before is None else before.value / max(1.0, tokens) * observation.window_seconds
    recent = average(before, work, max(requests, due), 2.0, observation.window_seconds, now_seconds, settings)
    upper = level.forecast(startup_seconds, settings) + settings.forecast_deviations * _uncertainty(level)
    return Demand(
        now=recent.value,
        backlog=_backlog(observation, phase, workload, decode_starves, decode_slots) / settings.backlog_drain_seconds,
        forecast=upper,
        requests_per_second=rate,
        idle=rate == 0.0,
        shifted=shifted,
        rising=shifted and previous is not None and level.value > previous.value,
        memory={**write_level(level, name), **write_level(recent, f"{name}.recent")},
    )


def _uncertainty(level: Level) -> float:
    """What the forecast may miss by: the deviation seen, at most half the level: one wild hour must not double a fleet."""
    return min(level.deviation, 0.5 * level.value)


def _backlog(
    observation: ServiceObservation, phase: Phase, workload: Workload, decode_starves: bool, decode_slots: float
) -> float:
    """Queued tokens. A queue before prefill that decode causes (its KV is not fetched) is decode's work, not prefill's.

    Decode seldom queues: it runs more answers at once, all of them too slowly. Answers beyond `decode_slots`, what the ready
    replicas can run inside the target, are its queue.
    """
    prefill_waiting = _count(observation.prefill.waiting_requests)
    if phase is Phase.PREFILL:
        return 0.0 if decode_starves else prefill_waiting * workload.uncached_prompt_tokens
    waiting = observation.decode.waiting_for_capacity_requests
    if isinstance(waiting, Unknown):
        waiting = observation.decode.waiting_requests
    crowded = max(0.0, _count(observation.decode.running_requests) - decode_slots) if decode_slots > 0.0 else 0.0
    queued = _count(waiting) + crowded + (prefill_waiting if decode_starves else 0.0)
    return queued * workload.mean_output_tokens


def _count(signal: Signal) -> float:
    """A queue length; a queue that is not seen adds nothing, since arrivals are counted apart."""
    return max(0.0, signal.value) if isinstance(signal, Known) and math.isfinite(signal.value) else 0.0


def describe(phase: Phase, demand: Demand, workload: Workload) -> str:
    """The numbers behind a demand, for people."""
    if demand.idle and demand.now < 1.0:
        return f"{phase.value}: no requests in the window"
    tokens = workload.uncached_prompt_tokens if phase is Phase.PREFILL else workload.mean_output_tokens
    kind = "uncached prompt" if phase is Phase.PREFILL else "output"
    text = f"{demand.requests_per_second:.3g} requests/s × {tokens:.0f} {kind} tokens, {short(demand.now):,.0f} tokens/s"
    if demand.backlog >= 0.01 * max(1.0, demand.now):
        text += f", the queue adds {demand.backlog:,.0f}"
    return f"{text}, up to {demand.forecast:,.0f} expected"
