"""The shape of the traffic: mean lengths and prefix hits, observed, remembered or assumed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.decide.settings import Settings
from equipoise.decide.smoothing import Level, follow, read_level, write_level
from equipoise.observe.types import Idle, Known, ServiceObservation, Signal
from equipoise.perf.types import Workload

_GRID = 1.05  # lengths are rounded to powers of this, so that capacity changes when the traffic does, not with every request


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

    A changed mix is taken at once, noise is smoothed (`smoothing.follow`): the standard error of a mean of n exponential-like
    lengths is mean / sqrt(n).
    """
    memory: dict[str, float] = {}
    assumed: list[str] = []

    def length(name: str, signal: Signal | float | None, samples: float, default: float) -> float:
        level = read_level(extra, name)
        value = signal if isinstance(signal, float) else _known(signal)
        if value is not None and value > 0.0:
            level, _ = follow(level, value, value / math.sqrt(max(1.0, samples)), now_seconds, settings)
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
        mean, samples = answer_tokens(observation, read_level(extra, "lengths.output_tokens"))
        output = length("lengths.output_tokens", mean, samples, settings.default_output_tokens)
        seen = _known(observation.prefill.prefix_hit_share)
        hits = extra.get("lengths.prefix_hit_share", 0.0) if seen is None else seen
    hits = min(0.99, max(0.0, hits))
    if hits:
        memory["lengths.prefix_hit_share"] = round(hits, 2)
    workload = Workload(on_grid(prompt), on_grid(output), round(hits, 2))
    return WorkloadEstimate(workload, tuple(assumed), memory)


def answer_tokens(observation: ServiceObservation, previous: Level | None) -> tuple[float | None, float]:
    """Mean answer length of the requests that are *offered*, and how many stand behind it.

    The mean over completed answers is late by a whole answer: after a shift from short to long answers it keeps saying
    "short" until the first long ones end. Answers in progress are censored observations; for exponential-like lengths the best
    estimate is then all tokens written over all answers ended (Epstein and Sobel, 1953). With few ended answers that is wild, so
    the previous mean joins in with the weight of a quarter of the requests offered in the window.
    """
    decode = observation.decode
    completed = _known(decode.mean_tokens)
    written, ended = _known(decode.tokens_per_second), _known(decode.served_requests_per_second)
    if isinstance(decode.served_requests_per_second, Idle):
        ended = 0.0
    window = observation.window_seconds
    if written is None or ended is None or written <= 0.0:
        return completed, _requests(decode.served_requests_per_second, window)
    offered = max(_known(decode.requests_per_second) or 0.0, _known(observation.prefill.requests_per_second) or 0.0, ended)
    prior_mean = previous.value if previous is not None else completed
    if prior_mean is None or prior_mean <= 0.0:
        return completed, ended * window
    prior = 0.25 * offered * window
    total = ended * window + prior
    if total <= 0.0:
        return completed, 0.0
    return (written * window + prior * prior_mean) / total, total


def on_grid(value: float) -> float:
    """The nearest power of 1.05, rounded to a tenth of a token."""
    return 1.0 if value <= 1.0 else round(_GRID ** round(math.log(value, _GRID)), 1)


def _known(signal: Signal | None) -> float | None:
    return signal.value if isinstance(signal, Known) and math.isfinite(signal.value) else None


def _requests(signal: Signal, window_seconds: float) -> float:
    rate = _known(signal)
    return 1.0 if rate is None else max(1.0, rate * window_seconds)
