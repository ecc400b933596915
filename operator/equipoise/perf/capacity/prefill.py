"""What one prefill replica sustains inside the TTFT target.

A batch-by-tokens engine works through prompts in order of arrival, and the time of a step is close to linear in its tokens
whichever prompts they belong to. So a prompt waits for the work before it: M/G/1, with the spread of prompt lengths as the spread
of service, and a factor for what batching adds (queueing.py). M/D/1 (DistServe) ignores the spread; M/M/1 (arXiv 2603.04716:
mu - 1 / target) fixes it, and bounds the mean instead of the percentile.

    TTFT = wait + own prefill + KV transfer + first decode step, inside the target for `percentile` per cent of prompts

The first decode step is taken at the TPOT target: decode replicas may run up to it. A device that cannot do the *mean* prompt in
time is refused. One that can, yet misses with so many long prompts that the percentile is out of reach even idle, is offered at
the little utilisation at which hardly anyone waits; `attainable_share` says what it can reach.
"""

from __future__ import annotations

import math
from typing import Final

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.types import Device
from equipoise.perf.calibrate import calibrated_times
from equipoise.perf.capacity.queueing import MAXIMUM_UTILISATION, share_below, spread, utilisation_for_target
from equipoise.perf.capacity.transfer import kv_transfer_seconds, most_prompt_tokens_per_second
from equipoise.perf.memory import kv_capacity_tokens
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, StepTimes, Targets, Workload

PIPELINE_EFFICIENCY: Final = 0.9  # of the stages' sum, for bubbles between unequal prompts


def prefill_capacity(
    model: ModelFacts,
    device: Device,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    network_bytes_per_second: float,
    kv_hop: bool,
    servers: int,
    speed: float = 1.0,
) -> ReplicaCapacity | Refusal:
    """Uncached prompt tokens/s inside the target, or why there is none."""
    kv_tokens = kv_capacity_tokens(model, device, shape)
    times = step_times(model, device, shape)
    if isinstance(kv_tokens, Refusal):
        return kv_tokens
    if isinstance(times, Refusal):
        return times
    times = calibrated_times(times, Phase.PREFILL, speed)
    prompt = max(1.0, workload.mean_prompt_tokens)
    where = device.name if shape.gpus_per_replica == 1 else f"{shape.gpus_per_replica} x {device.name}"
    if prompt > kv_tokens:
        return Refusal("PromptTooLong", f"{where} holds KV of {kv_tokens:,} tokens, the mean prompt has {prompt:,.0f}")
    uncached = max(1.0, prompt * min(1.0, 1.0 - workload.prefix_hit_share))
    missed = uncached / prompt
    squared = max(prompt * prompt, workload.prompt_tokens_second_moment or 2.0 * prompt * prompt)
    # Uncached tokens attend to cached ones too: L^2 less the square of the cached part, per square of the uncached part.
    attended = (1.0 - (1.0 - missed) ** 2) / (missed * missed)
    service = times.prefill_seconds(uncached, attended * uncached * uncached)
    transfer = kv_transfer_seconds(model, prompt, network_bytes_per_second) if kv_hop else 0.0
    first_step = targets.tpot_seconds if kv_hop else 0.0
    budget = targets.ttft_seconds - transfer - first_step
    if service > budget:
        return _misses(where, uncached, service, transfer, first_step, targets)
    lengths = spread(uncached, squared * missed * missed)
    services = [(times.prefill_seconds(length, attended * length * length), share) for length, share in lengths]
    stages = shape.pipeline_parallel
    utilisation = utilisation_for_target(budget, services, targets.percentile, servers * stages)
    mean_service = sum(value * share for value, share in services)
    peak = uncached / mean_service * (1.0 if stages == 1 else stages * PIPELINE_EFFICIENCY)
    rate = utilisation * peak
    binds = "compute" if utilisation >= MAXIMUM_UTILISATION else "target"
    if kv_hop:
        link = most_prompt_tokens_per_second(model, network_bytes_per_second) * missed
        if link < rate:
            rate, binds = link, "network"
    return ReplicaCapacity(
        phase=Phase.PREFILL,
        tokens_per_second=rate,
        max_batch=max(1, int(kv_tokens // prompt)),
        kv_tokens=kv_tokens,
        service_seconds=service,
        binds=binds,
        source=times.source,
        utilisation=rate / peak,
        attainable_share=share_below(_longest(times, attended, budget), uncached, squared * missed * missed),
    )


def _longest(times: StepTimes, attended: float, budget: float) -> float:
    """Most uncached tokens that an idle replica prefills within the budget."""
    room, linear, square = budget - times.prefill_constant, times.prefill_per_token, times.prefill_per_token_squared * attended
    # The root of square x L^2 + linear x L = room, in the form that also holds for square = 0.
    return 2.0 * room / (linear + math.sqrt(linear * linear + 4.0 * square * room))


def _misses(where: str, tokens: float, service: float, transfer: float, first_step: float, targets: Targets) -> Refusal:
    extras = (
        f", and KV transfer {transfer:.2f} s with a first decode step of up to {first_step:.2f} s follow" if first_step else ""
    )
    if service > targets.ttft_seconds:
        extras = ""
    return Refusal(
        "MissesTTFT",
        f"prefill of {tokens:,.0f} tokens takes {service:.2f} s on {where}{extras}, target {targets.ttft_seconds:.2f} s",
    )
