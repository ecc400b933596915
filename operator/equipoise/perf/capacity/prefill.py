"""What one prefill replica sustains inside the TTFT target.

A batch-by-tokens engine works through prompts in order of arrival, and the time of a step is close to linear in its tokens
whichever prompts they belong to. So a prompt waits for the work before it, as in M/G/1 with the spread of prompt lengths as the
spread of service; that batching shares the constant part of a step only makes it a little faster than this. M/D/1 (DistServe)
ignores the spread, M/M/1 (arXiv 2603.04716: mu - 1 / target) fixes it and bounds the mean, not the percentile.

    TTFT at the percentile = wait at the percentile + prefill of a mean prompt + KV transfer + first decode step

Lengths: a prompt far above the mean may miss whatever the load. That share is no matter of capacity, so it is reported
(`attainable_share`) and not a ground for refusal; a device that cannot do the mean prompt is refused.
"""

from __future__ import annotations

from typing import Final

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.types import Device
from equipoise.perf.capacity.queueing import MAXIMUM_UTILISATION, share_below, utilisation_for_wait
from equipoise.perf.capacity.transfer import kv_transfer_seconds, most_prompt_tokens_per_second
from equipoise.perf.memory import kv_capacity_tokens
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, Targets, Workload

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
) -> ReplicaCapacity | Refusal:
    """Uncached prompt tokens/s inside the target, or why there is none."""
    kv_tokens = kv_capacity_tokens(model, device, shape)
    times = step_times(model, device, shape)
    if isinstance(kv_tokens, Refusal):
        return kv_tokens
    if isinstance(times, Refusal):
        return times
    prompt = max(1.0, workload.mean_prompt_tokens)
    where = device.name if shape.gpus_per_replica == 1 else f"{shape.gpus_per_replica} x {device.name}"
    if prompt > kv_tokens:
        return Refusal("PromptTooLong", f"{where} holds KV of {kv_tokens:,} tokens, the mean prompt has {prompt:,.0f}")
    missed = min(1.0, max(0.0, 1.0 - workload.prefix_hit_share))
    uncached = max(1.0, prompt * missed)
    squared = max(prompt * prompt, workload.prompt_tokens_second_moment or 2.0 * prompt * prompt)
    # Uncached tokens attend to cached ones too: L^2 less the square of the cached part.
    service = times.prefill_seconds(uncached, squared * (1.0 - (1.0 - missed) ** 2))
    transfer = kv_transfer_seconds(model, prompt, network_bytes_per_second) if kv_hop else 0.0
    first_step = targets.tpot_seconds if kv_hop else 0.0
    budget = targets.ttft_seconds - service - transfer - first_step
    if budget < 0:
        return _misses(where, uncached, service, transfer, first_step, targets)
    per_token = (service - times.prefill_constant) / uncached
    uncached_squared = max(uncached * uncached, squared * missed * missed)
    constant = times.prefill_constant
    service_squared = constant * constant + 2 * constant * per_token * uncached + per_token * per_token * uncached_squared
    stages = 1.0 if shape.pipeline_parallel == 1 else shape.pipeline_parallel * PIPELINE_EFFICIENCY
    utilisation = utilisation_for_wait(budget, service_squared / (2 * service) / stages, targets.percentile, servers)
    peak = uncached / service * stages
    rate = utilisation * peak
    binds = "compute" if utilisation >= MAXIMUM_UTILISATION else "target"
    if kv_hop:
        link = most_prompt_tokens_per_second(model, network_bytes_per_second) * uncached / prompt
        if link < rate:
            rate, binds = link, "network"
    longest = (targets.ttft_seconds - transfer - first_step - constant) / per_token if per_token > 0 else float("inf")
    return ReplicaCapacity(
        phase=Phase.PREFILL,
        tokens_per_second=rate,
        max_batch=max(1, int(kv_tokens // prompt)),
        kv_tokens=kv_tokens,
        service_seconds=service,
        binds=binds,
        source=times.source,
        utilisation=rate / peak,
        attainable_share=share_below(longest, uncached, uncached_squared),
    )


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
