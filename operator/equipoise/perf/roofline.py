"""Step times from data-sheet figures and the efficiencies of the device catalogue, for what the fitted table does not hold.

Prefill is bound by compute, decode by reading weights and KV. The same form as the table, so the rest of the room does not care
which it was:

    prefill per token          2 x active parameters / (tensor parallel x compute efficiency x FLOPS) + all-reduce bytes / link
    prefill per token squared  2 x layers x heads x head width / (tensor parallel x attention share x compute efficiency x FLOPS)
    prefill constant           half the time of reading the weights once
    decode constant            weights / (tensor parallel x weight efficiency x bandwidth) + all-reduce latency + engine overhead
    decode per sequence        part of the compute of one token at peak rate + all-reduce bytes / link
    decode per context token   KV bytes / (KV efficiency x bandwidth)

The constants below and the efficiencies of devices with a fitted table were chosen together: the roofline meets the 14 entries
with a mean error of 2 % and at most 10 % (prompts of 512 to 8,192 tokens, batches of 1 to 128 with 1,024 to 4,096 tokens of
context).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from equipoise.api.identity import Precision, Shape
from equipoise.fleet.types import Device
from equipoise.perf.memory import kv_bytes_per_gpu, read_weight_bytes
from equipoise.perf.types import ModelFacts, StepTimes

ATTENTION_SHARE: Final = (
    0.65  # of the compute efficiency of matrix products, what attention reaches in prefill; entries .26 to .89
)
# At short prompts a step is bound by reading the weights, at long ones by compute; the straight line through both crosses zero at
# .26 to .85 of the reading time, median .54.
CONSTANT_SHARE_OF_WEIGHT_READ: Final = 0.5
# gpt-oss-120b on H200 does 33,821 prompt tokens/s (llm-d guide), .35 of the peak where dense models reach .69.
EXPERTS_COMPUTE_SHARE: Final = 0.5
ENGINE_OVERHEAD_SECONDS: Final = 0.0005  # of a step, beside what the correction of the table holds
DECODE_COMPUTE_SHARE: Final = (
    0.65  # compute hides behind reading in part: entries without all-reduce .48 to .88 of peak-rate time
)
ALL_REDUCE_LINK_SHARE: Final = 0.7  # of the link, what a ring gets
ALL_REDUCE_LATENCY_SECONDS: Final = 8e-6  # two in each layer
STAGE_HOP_SECONDS: Final = 100e-6  # activations to the next pipeline stage; assumed


@lru_cache(maxsize=4096)
def roofline_step_times(model: ModelFacts, device: Device, shape: Shape) -> StepTimes:
    """Step times of one replica from device figures. The precision must be one the device has kernels for."""
    size = shape.tensor_parallel
    peak = device.flops_per_second[shape.precision]
    compute = peak * size * device.prefill_compute_efficiency
    if model.is_mixture_of_experts:
        compute *= EXPERTS_COMPUTE_SHARE
    tables = model.embedding_parameters * (1.0 if model.tied_embeddings else 2.0)
    layer_parameters = max(model.active_parameters - tables, 0.5 * model.active_parameters)
    # Attention is computed in 16 bits whatever the weights.
    attention_compute = device.flops_per_second[Precision.BF16] * size * device.prefill_compute_efficiency * ATTENTION_SHARE
    all_reduce_bytes = 2 * model.layers * model.hidden_size * 2 * 2 * (size - 1) / size
    all_reduce = all_reduce_bytes / (ALL_REDUCE_LINK_SHARE * device.link_bytes_per_second)
    latency = (2 * model.layers * ALL_REDUCE_LATENCY_SECONDS if size > 1 else 0.0) + (
        shape.pipeline_parallel - 1
    ) * STAGE_HOP_SECONDS
    # Stages of a pipeline read their weights one after the other, so only tensor parallelism shortens a step.
    read = read_weight_bytes(model, shape.precision) / (size * device.weight_read_efficiency * device.memory_bytes_per_second)
    kv_bytes = kv_bytes_per_gpu(model, shape) * shape.pipeline_parallel
    return StepTimes(
        prefill_constant=CONSTANT_SHARE_OF_WEIGHT_READ * read + latency + ENGINE_OVERHEAD_SECONDS,
        prefill_per_token=2 * layer_parameters / compute + all_reduce,
        prefill_per_token_squared=2 * model.layers * model.attention_heads * model.head_dim / attention_compute,
        decode_constant=read + latency + ENGINE_OVERHEAD_SECONDS,
        decode_per_sequence=DECODE_COMPUTE_SHARE * 2 * model.active_parameters / (peak * size) + all_reduce,
        decode_per_context_token=kv_bytes / (device.kv_read_efficiency * device.memory_bytes_per_second),
        source=f"roofline: {device.source}",
    )
