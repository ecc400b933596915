"""What one decode replica sustains inside the TPOT target.

Sequences join and leave; all of them wait for the same step. The largest batch is where a step reaches the target, KV is full,
or the engine's own limit is met. The mean batch must stay below it so far that, at the percentile, the batch of the moment
still fits (square-root staffing): small batches need relatively more room. Throughput is then the mean batch over its step
time.
"""

from __future__ import annotations

from typing import Final

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.types import Device
from equipoise.perf.calibrate import calibrated_times
from equipoise.perf.capacity.prefill import PIPELINE_EFFICIENCY
from equipoise.perf.capacity.queueing import MAXIMUM_UTILISATION, mean_batch_for_limit
from equipoise.perf.capacity.transfer import most_prompt_tokens_per_second
from equipoise.perf.memory import kv_capacity_tokens, weight_bytes
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, StepTimes, Targets, Workload

# Of the KV, what is planned with: a queue for KV, once it forms, lasts. Simulated, the last tenth turns 5 % of waiting
# sequences into 11 %.
KV_SHARE: Final = 0.9
MAXIMUM_SEQUENCES: Final = 256  # vLLM's max_num_seqs in most set-ups, and the largest batch that the fitted table saw


def decode_capacity(
    model: ModelFacts,
    device: Device,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    network_bytes_per_second: float,
    kv_hop: bool,
    servers: int = 1,
    speed: float = 1.0,
) -> ReplicaCapacity | Refusal:
    """Output tokens/s inside the target, or why there are none."""
    kv_tokens = kv_capacity_tokens(model, device, shape)
    times = step_times(model, device, shape)
    if isinstance(kv_tokens, Refusal):
        return kv_tokens
    if isinstance(times, Refusal):
        return times
    times = calibrated_times(times, Phase.DECODE, speed)
    prompt, output = max(0.0, workload.mean_prompt_tokens), max(1.0, workload.mean_output_tokens)
    # A sequence met at a random moment belongs to a long answer more often than to a short one: with lengths spread like an
    # exponential, what it has written by then is the mean output, not half of it.
    context = prompt + output
    squared = max(prompt * prompt, workload.prompt_tokens_second_moment or 2.0 * prompt * prompt)
    context_variability = (squared + 2 * prompt * output + 2 * output * output) / (context * context)
    where = device.name if shape.gpus_per_replica == 1 else f"{shape.gpus_per_replica} x {device.name}"
    refusal = _idle_refusal(model, shape, where, times, context, kv_tokens, targets)
    if refusal is not None:
        return refusal
    stages = shape.pipeline_parallel  # a batch in each stage; each has its share of the KV
    per_sequence = times.decode_per_sequence + times.decode_per_context_token * context
    by_target = (targets.tpot_seconds - times.decode_constant) / per_sequence
    fixed_part = times.decode_per_sequence / per_sequence
    step_variability = 1.0 + (context_variability - 1.0) * (1.0 - fixed_part) ** 2
    by_memory = kv_tokens / context / stages
    growth = per_sequence / times.decode_constant
    # A sequence that arrives needs room for itself beside those there; waiting for it would count as TTFT.
    room = max(KV_SHARE * by_memory - 1.0, 0.5 * by_memory)
    limits = (
        (by_target, by_target, step_variability, "target"),
        (room, by_memory, context_variability, "kv memory"),
        (float(MAXIMUM_SEQUENCES), float(MAXIMUM_SEQUENCES), 1.0, "batch limit"),
    )
    batches = [
        (min(mean_batch_for_limit(usable, spread, growth, targets.percentile, servers), MAXIMUM_UTILISATION * limit), binds)
        for usable, limit, spread, binds in limits
    ]
    mean_batch, binds = min(batches)
    step = times.decode_step_seconds(mean_batch, mean_batch * context)
    scale = 1.0 if stages == 1 else stages * PIPELINE_EFFICIENCY
    rate = mean_batch / step * scale
    bound = min(by_target, by_memory, MAXIMUM_SEQUENCES)
    peak = bound / times.decode_step_seconds(bound, bound * context) * scale
    if kv_hop and prompt > 0:
        link = most_prompt_tokens_per_second(model, network_bytes_per_second) * output / prompt
        if link < rate:
            rate, binds = link, "network"
    return ReplicaCapacity(
        phase=Phase.DECODE,
        tokens_per_second=rate,
        max_batch=max(1, int(bound * stages)),
        kv_tokens=kv_tokens,
        service_seconds=times.decode_step_seconds(bound, bound * context),
        binds=binds,
        source=times.source,
        utilisation=rate / peak,
    )


def _idle_refusal(
    model: ModelFacts, shape: Shape, where: str, times: StepTimes, context: float, kv_tokens: int, targets: Targets
) -> Refusal | None:
    """Why even a single sequence does not fit; None when it does."""
    target = f"target {targets.tpot_seconds * 1e3:.0f} ms"
    if times.decode_constant > targets.tpot_seconds:
        return Refusal(
            "MissesTPOT",
            f"one step reads {weight_bytes(model, shape.precision) / 1e9:.1f} GB of weights: "
            f"{times.decode_constant * 1e3:.0f} ms on {where}, {target}",
        )
    alone = times.decode_step_seconds(1, context)
    if alone > targets.tpot_seconds:
        return Refusal(
            "MissesTPOT",
            f"one step of a single sequence with {context:,.0f} tokens of context takes {alone * 1e3:.0f} ms on "
            f"{where}, {target}",
        )
    if context > kv_tokens:
        return Refusal("ContextTooLong", f"{where} holds KV of {kv_tokens:,} tokens, a mean sequence has {context:,.0f}")
    return None
