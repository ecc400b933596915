"""What one replica sustains when it does both phases, with decode steps disturbed by the prompts that come in between.

An engine with chunked prefill puts prompts into the steps that decode its running sequences. Step times add up: a mixed step
takes a decode step plus what its prompt tokens add (the weights are read once). So it is in vLLM's scheduler, in Sarathi-Serve
(OSDI'24) and in the engine model of `simulate`. With r requests/s on a replica, s the time that one prompt adds, d(B) a decode
step of B sequences and O the answer's length:

    share of time that prompts add   p = r mean(s)
    time between tokens              t = d(B) / (1 - p),   B = r O t
    batch                            fluctuates by square-root staffing (perf.capacity.decode), but sequences join in clumps
    TPOT of an answer                normal around t; prompts come over it in busy periods (M/G/1), variance
                                     r t mean(s^2) / (1 - p)^2 / O, and the step after its own prompt is longer than most
    TTFT                             the rest of a running step and one's own; prompts queue as in perf.capacity.prefill; no KV
                                     transfer

Both targets must hold at the percentile, and KV must hold the batch; the answer is 95 % of the largest r that does. Own
derivation. In 18 cases (8B and 70B on five devices, chat, code, long answers, long prompts) the simulated engine then met either
target for 92 to 100 % of requests where 95 % were asked for; tests repeat some of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Final

from equipoise.api.identity import Shape
from equipoise.fleet.types import Device
from equipoise.perf.capacity.decode import KV_SHARE, MAXIMUM_SEQUENCES
from equipoise.perf.capacity.queueing import (
    MAXIMUM_UTILISATION,
    mean_batch_for_limit,
    miss_share,
    normal_quantile,
    spread,
    utilisation_for_target,
)
from equipoise.perf.memory import kv_capacity_tokens
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, StepTimes, Targets, Workload

CHUNK_TOKENS: Final = 8192  # vLLM's max_num_batched_tokens on large devices, and the engine model's
MARGIN: Final = 0.95  # of the largest rate: what the approximation is too hopeful by, at most, in simulation
_ITERATIONS: Final = 30
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class AggregatedCapacity:
    """What a replica sustains when it does both phases. `binds`: TTFT, TPOT, kv memory, batch limit or compute."""

    requests_per_second: float
    mean_batch: float
    prompt_share: float  # of the time
    binds: str


@dataclass(frozen=True, slots=True)
class _Case:
    times: StepTimes
    targets: Targets
    prompt: float
    output: float
    chunks: int
    services: tuple[tuple[float, float], ...]  # what a prompt adds to a step, seconds with shares
    outputs: tuple[tuple[float, float], ...]  # answer lengths with shares
    context_spread: float
    kv_tokens: float
    sharing: int = 1

    @property
    def per_sequence(self) -> float:
        return self.times.decode_per_sequence + self.times.decode_per_context_token * (self.prompt + self.output)


@lru_cache(maxsize=16384)
def aggregated_capacity(
    model: ModelFacts, device: Device, shape: Shape, workload: Workload, targets: Targets, sharing: int = 1
) -> AggregatedCapacity | Refusal:
    """Requests per second of one replica inside both targets; a Refusal with numbers when there are none.

    `sharing` replicas even out the fluctuations of arrivals, as in `perf.capacity`; prompts disturb each replica's own answers
    all the same.
    """
    kv_tokens, times = kv_capacity_tokens(model, device, shape), step_times(model, device, shape)
    if isinstance(kv_tokens, Refusal):
        return kv_tokens
    if isinstance(times, Refusal):
        return times
    case = replace(_case(times, kv_tokens, workload, targets), sharing=sharing)
    where = device.name if shape.gpus_per_replica == 1 else f"{shape.gpus_per_replica} x {device.name}"
    missed = _misses_idle(case, where)
    if missed is not None:
        return missed
    low, high = 0.0, MAXIMUM_UTILISATION / _busy_per_request(case)
    binds = _broken(case, high)
    if not binds:
        return _answer(case, high, "compute")
    for _ in range(_ITERATIONS):
        middle = 0.5 * (low + high)
        broken = _broken(case, middle)
        if broken:
            high, binds = middle, broken
        else:
            low = middle
    if low <= 1e-6 * high or low <= 0.0:
        return Refusal("Disturbed", f"on {where} prompts disturb decode so much that {binds} is missed at any rate")
    return _answer(case, low, binds)


def _case(times: StepTimes, kv_tokens: int, workload: Workload, targets: Targets) -> _Case:
    prompt, output = max(1.0, workload.mean_prompt_tokens), max(1.0, workload.mean_output_tokens)
    uncached = max(1.0, workload.uncached_prompt_tokens)
    missed = uncached / prompt
    squared = max(prompt * prompt, workload.prompt_tokens_second_moment or 2.0 * prompt * prompt)
    attended = (1.0 - (1.0 - missed) ** 2) / (missed * missed)
    saved = min(times.prefill_constant, times.decode_constant)  # a mixed step reads the weights once
    services = tuple(
        (times.prefill_seconds(length, attended * length * length) - saved, share)
        for length, share in spread(uncached, squared * missed * missed)
    )
    context = prompt + output
    return _Case(
        times=times,
        targets=targets,
        prompt=prompt,
        output=output,
        chunks=math.ceil(uncached / CHUNK_TOKENS),
        services=services,
        outputs=spread(output, 2.0 * output * output),
        context_spread=(squared + 2 * prompt * output + 2 * output * output) / (context * context),
        kv_tokens=float(kv_tokens),
    )


def _mean(values: tuple[tuple[float, float], ...]) -> float:
    return sum(value * share for value, share in values)


def _busy_per_request(case: _Case) -> float:
    """Time that one more request takes of a full replica: its prompt, and its tokens' part of large steps."""
    return _mean(case.services) + case.output * case.per_sequence


def _misses_idle(case: _Case, where: str) -> Refusal | None:
    targets, times = case.targets, case.times
    step = times.decode_step_seconds(1.0, case.prompt + case.output)
    if step > targets.tpot_seconds:
        return Refusal(
            "MissesTPOT",
            f"one step of a single sequence takes {step * 1e3:.0f} ms on {where}, target {targets.tpot_seconds * 1e3:.0f} ms",
        )
    first = times.prefill_constant + _mean(case.services)
    if first > targets.ttft_seconds:
        return Refusal("MissesTTFT", f"a mean prompt takes {first:.2f} s on {where}, target {targets.ttft_seconds:.2f} s")
    if case.prompt + case.output > case.kv_tokens:
        return Refusal(
            "ContextTooLong", f"{where} holds KV of {case.kv_tokens:,.0f} tokens, a sequence has {case.prompt + case.output:,.0f}"
        )
    return None


def _state(case: _Case, rate: float) -> tuple[float, float, float] | None:
    """(share of prompts, mean batch, mean time between tokens) at that rate; None when the replica cannot keep up."""
    prompts = rate * _mean(case.services)
    left = 1.0 - prompts - rate * case.output * case.per_sequence
    if left <= 0.0:
        return None
    batch = rate * case.output * case.times.decode_constant / left
    between = (case.times.decode_constant + case.per_sequence * batch) / (1.0 - prompts)
    return prompts, batch, between


def _broken(case: _Case, rate: float) -> str:
    """What is broken at that rate; empty when everything holds."""
    state = _state(case, rate)
    if state is None:
        return "compute"
    prompts, batch, between = state
    growth = case.per_sequence / case.times.decode_constant
    clumping = _clumping(case, rate, prompts)
    percentile = case.targets.percentile
    if batch > mean_batch_for_limit(float(MAXIMUM_SEQUENCES), clumping, growth, percentile, case.sharing):
        return "batch limit"
    room = case.kv_tokens / (case.prompt + case.output)
    usable = max(KV_SHARE * room - 1.0, 0.5 * room)
    if batch > mean_batch_for_limit(usable, case.context_spread * clumping, growth, percentile, case.sharing):
        return "kv memory"
    if _missing_tpot(case, rate, prompts, batch, between, growth, clumping) > miss_share(percentile):
        return "TPOT"
    # The rest of the step that runs, and the decode part of each of one's own steps, at a batch of the percentile.
    noise = case.context_spread * clumping * batch * (1.0 + growth * batch) / case.sharing
    high = batch + normal_quantile(percentile) * math.sqrt(noise)
    steps = case.times.decode_step_seconds(high, high * (case.prompt + case.output)) * (1 + case.chunks)
    if utilisation_for_target(case.targets.ttft_seconds - steps, case.services, percentile, case.sharing) < prompts:
        return "TTFT"
    return ""


def _clumping(case: _Case, rate: float, prompts: float) -> float:
    """How much more the batch fluctuates than with arrivals one by one.

    On the clock of decode, which stands still while prompts are computed, sequences join in clumps: those that arrive during a
    busy period of prompts (M/G/1), of mean 1 / (1 - p) and variance (p (1 - p) + r^2 mean(s^2)) / (1 - p)^3.
    """
    left = 1.0 - prompts
    squares = rate * rate * sum(value * value * share for value, share in case.services)
    return 0.5 * (1.0 / left + (prompts * left + squares) / left**2 + 1.0)


def _missing_tpot(
    case: _Case, rate: float, prompts: float, batch: float, between: float, growth: float, clumping: float
) -> float:
    """Share of answers whose mean time between tokens is above the target: short answers average over few prompts."""
    seconds_squared = sum(value * value * share for value, share in case.services)
    steps = (case.per_sequence / (1.0 - prompts)) ** 2 * case.context_spread * clumping * batch * (1.0 + growth * batch)
    steps /= case.sharing
    # The step with one's own prompt is long, so more prompts than usual have come by its end.
    step = between * (1.0 - prompts)
    after_own = (_mean(case.services) + prompts * step) / (1.0 - prompts) * prompts / (1.0 - prompts)
    missing = 0.0
    for length, share in case.outputs:
        disturbed = rate * between * seconds_squared / (1.0 - prompts) ** 2 / max(1.0, length)
        room = case.targets.tpot_seconds - between - after_own / max(1.0, length)
        missing += share * (1.0 - _NORMAL.cdf(room / math.sqrt(steps + disturbed)))
    return missing


def _answer(case: _Case, rate: float, binds: str) -> AggregatedCapacity:
    state = _state(case, MARGIN * rate)
    prompts, batch, _ = state if state is not None else (1.0, 0.0, 0.0)
    return AggregatedCapacity(MARGIN * rate, batch, prompts, binds)
