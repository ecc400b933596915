"""The shape of the traffic: mean lengths and prefix hits, observed, remembered or assumed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.decide.settings import Settings
from equipoise.decide.smoothing import average, read_level, short, write_level
from equipoise.observe.types import Idle, Known, ServiceObservation, Signal
from equipoise.perf.types import Workload

_ENOUGH_ENDED = 50.0  # answers, for the estimate to rest on them: chance is then about 14 %
_LONGEST = 10_000_000.0  # tokens; no engine holds more, whatever a signal says


@dataclass(frozen=True, slots=True)
class WorkloadEstimate:
    """Mean lengths as sizing should see them. `assumed` names the parts that come from documented defaults."""

    workload: Workload
    assumed: tuple[str, ...] = ()
    memory: Mapping[str, float] = field(default_factory=dict)


def estimate_workload(
    observation: ServiceObservation | None, extra: Mapping[str, float], now_seconds: float, settings: Settings
) -> WorkloadEstimate:
    """Lengths from the observation, else from memory, else Azure's conversation trace (`Settings.default_*`).

    A changed mix is taken at once, noise is smoothed (`smoothing.average`): lengths are taken to spread like an exponential.
    """
    memory: dict[str, float] = {}
    window = observation.window_seconds if observation is not None else 0.0
    assumed: list[str] = []

    def length(name: str, signal: Signal | float | None, samples: float, default: float) -> float:
        level = read_level(extra, name)
        value = signal if isinstance(signal, float) else _known(signal)
        if value is not None and value > 0.0:
            value = min(value, _LONGEST)
            level = average(level, value, samples, 1.0, window, now_seconds, settings)
        if level is None:
            assumed.append(f"{name.rpartition('.')[2].replace('_', ' ')} {default:.0f}")
            return default
        memory.update(write_level(level, name))
        return level.value if level.value > 0.0 else default

    if observation is None:
        prompt = length("lengths.prompt_tokens", None, 1.0, settings.default_prompt_tokens)
        output = length("lengths.output_tokens", None, 1.0, settings.default_output_tokens)
        hits = extra.get("lengths.prefix_hit_share", 0.0)
    else:
        prompt_requests = _requests(observation.prefill.served_requests_per_second, observation.window_seconds)
        prompt = length("lengths.prompt_tokens", observation.prefill.mean_tokens, prompt_requests, settings.default_prompt_tokens)
        completed = extra.get("lengths.completed_tokens")
        seen_completed = _known(observation.decode.mean_tokens)
        mean, samples = answer_tokens(observation, completed)
        if seen_completed is not None or completed is not None:
            memory["lengths.completed_tokens"] = short(seen_completed if seen_completed is not None else completed or 0.0)
        output = length("lengths.output_tokens", mean, samples, settings.default_output_tokens)
        seen = _known(observation.prefill.prefix_hit_share)
        hits = extra.get("lengths.prefix_hit_share", 0.0) if seen is None else seen
    hits = min(0.99, max(0.0, hits))
    if hits:
        memory["lengths.prefix_hit_share"] = round(hits, 2)
    workload = Workload(max(1.0, prompt), max(1.0, output), round(hits, 2))
    return WorkloadEstimate(workload, tuple(assumed), memory)


def answer_tokens(observation: ServiceObservation, completed: float | None) -> tuple[float | None, float]:
    """Mean answer length of the requests that are *offered*, and how many stand behind it. `completed`: as remembered.

    The mean over completed answers is late by a whole answer: after a shift from short to long answers it keeps saying
    "short" until the first long ones end. Answers in progress are censored observations; for exponential-like lengths the best
    estimate is then all tokens written over all answers ended (Epstein and Sobel, 1953). With few ended answers that is wild, so
    the mean over completed ones joins in, with the weight of half the requests offered while none has ended (the estimate then
    stays within twice the tokens written per request offered) and less the more have: in an overloaded decode phase only the
    short ones end.
    """
    decode = observation.decode
    seen = _known(decode.mean_tokens)
    completed = completed if seen is None else seen
    written, ended = _known(decode.tokens_per_second), _known(decode.served_requests_per_second)
    if isinstance(decode.served_requests_per_second, Idle):
        ended = 0.0
    window = observation.window_seconds
    if written is None or ended is None or written <= 0.0:
        return completed, _requests(decode.served_requests_per_second, window)
    offered = max(_known(decode.requests_per_second) or 0.0, _known(observation.prefill.requests_per_second) or 0.0, ended)
    if completed is None or completed <= 0.0:
        return (written / ended, ended * window) if ended > 0.0 else (None, 0.0)
    prior = 0.5 * offered * window * _ENOUGH_ENDED / (_ENOUGH_ENDED + ended * window)
    total = ended * window + prior
    if total <= 0.0:
        return completed, 0.0
    return (written * window + prior * completed) / total, total


def _known(signal: Signal | None) -> float | None:
    return signal.value if isinstance(signal, Known) and math.isfinite(signal.value) else None


def _requests(signal: Signal, window_seconds: float) -> float:
    rate = _known(signal)
    return 1.0 if rate is None else max(1.0, rate * window_seconds)
