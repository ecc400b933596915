"""Does a replica fit, how many KV tokens does it hold, and which shapes make sense on a device.

Memory of one GPU: a share for the engine (vLLM's and SGLang's default 0.9), less its part of the weights, less what activations
and captured graphs take. What is left holds KV.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from equipoise.api.identity import Precision, Shape
from equipoise.fleet.types import Device
from equipoise.perf.types import ModelFacts, Refusal

ENGINE_MEMORY_SHARE: Final = 0.9
# Activations, captured graphs, communication buffers. 4.8 GB meets the KV capacity of all entries of the fitted table on
# devices of 48 GB and more (4.5 for 8B, 4.8-5.0 per GPU for 32B and 70B); 1.7 GB is what vLLM 0.19 left unused for KV on a real
# RTX 4090 (41,408 KV tokens). In between, a straight line, so that more memory never means fewer tokens.
LARGE_DEVICE_RESERVE_BYTES: Final = 4.8e9
SMALL_DEVICE_RESERVE_BYTES: Final = 1.7e9
SMALL_DEVICE_BYTES: Final = 26e9
LARGE_DEVICE_BYTES: Final = 48e9
MINIMUM_KV_TOKENS: Final = 4096  # less holds not even one long chat request, so such a replica is no use to anyone
LARGEST_OVER_SMALLEST: Final = 4  # tensor parallel sizes offered: the smallest that fits, up to this many times it

# Bytes a parameter takes outside the token tables. INT4: four bits, plus a 16-bit scale and a 4-bit zero point for each group of
# 128 weights.
_BYTES_PER_PARAMETER: Final[dict[Precision, float]] = {Precision.BF16: 2.0, Precision.FP8: 1.0, Precision.INT4: 0.5 + 2.5 / 128}
_PREFERENCE: Final = (Precision.BF16, Precision.FP8, Precision.INT4)


def weight_bytes(model: ModelFacts, precision: Precision) -> float:
    """Bytes of the whole checkpoint in that precision; token tables stay in 16 bits."""
    for measured, size in model.measured_weight_bytes:
        if measured is precision:
            return size
    tables = model.embedding_parameters * (1.0 if model.tied_embeddings else 2.0)
    return (model.parameters - tables) * _BYTES_PER_PARAMETER[precision] + tables * 2.0


def read_weight_bytes(model: ModelFacts, precision: Precision) -> float:
    """Bytes of weights that one decode step reads: all but the input table, of which a step reads only rows.

    Mixtures of experts are counted whole: at the batch sizes that decode runs at, nearly every expert has a token (64 tokens, 8
    of 128 experts each: 98 %), so this is exact where capacity is decided and pessimistic for a nearly idle replica.
    """
    table = 0.0 if model.tied_embeddings else model.embedding_parameters * 2.0
    return weight_bytes(model, precision) - table


def kv_bytes_per_gpu(model: ModelFacts, shape: Shape) -> float:
    """KV bytes of one token on one GPU. Heads are shared out; a head is never split, so with fewer heads than GPUs it is
    kept several times.
    """
    heads_on_gpu = math.ceil(model.kv_heads / shape.tensor_parallel)
    return model.kv_bytes_per_token * heads_on_gpu / model.kv_heads / shape.pipeline_parallel


def least_kv_tokens(model: ModelFacts) -> int:
    """KV tokens without which a replica is of no use: a long chat request, or the longest the user wants served."""
    return max(MINIMUM_KV_TOKENS, model.required_context_tokens)


def longest_context_tokens(model: ModelFacts, device: Device, shape: Shape) -> int | Refusal:
    """The longest request one replica can hold.

    Engines refuse to start with a longer limit, so it belongs in their flags: 41,000 tokens for Llama-3.1-8B on 24 GB, whose own
    limit is 131,072.
    """
    capacity = kv_capacity_tokens(model, device, shape)
    return capacity if isinstance(capacity, Refusal) else min(capacity, model.max_context_tokens)


def reserve_bytes(device: Device) -> float:
    """Memory of one GPU inside the engine's share that holds neither weights nor KV."""
    position = (device.memory_bytes - SMALL_DEVICE_BYTES) / (LARGE_DEVICE_BYTES - SMALL_DEVICE_BYTES)
    return SMALL_DEVICE_RESERVE_BYTES + min(1.0, max(0.0, position)) * (LARGE_DEVICE_RESERVE_BYTES - SMALL_DEVICE_RESERVE_BYTES)


@lru_cache(maxsize=4096)
def kv_capacity_tokens(model: ModelFacts, device: Device, shape: Shape) -> int | Refusal:
    """KV tokens that one replica holds, all sequences together; a Refusal when it does not fit or the shape is impossible
    here.
    """
    impossible = shape_refusal(model, device, shape)
    if impossible is not None:
        return impossible
    weights = weight_bytes(model, shape.precision)
    per_gpu = weights / shape.gpus_per_replica
    budget = device.memory_bytes * ENGINE_MEMORY_SHARE - reserve_bytes(device)
    tokens = math.floor((budget - per_gpu) / kv_bytes_per_gpu(model, shape))
    least = least_kv_tokens(model)
    if tokens < least:
        needed = per_gpu + least * kv_bytes_per_gpu(model, shape)
        return Refusal(
            "DoesNotFit",
            f"{model.name} as {shape} needs {needed / 1e9:.1f} GB on each GPU ({per_gpu / 1e9:.1f} GB of weights, the rest KV of "
            f"{least} tokens); {device.name} has {budget / 1e9:.1f} GB for them: "
            f"{(needed - budget) / 1e9:.1f} GB missing",
        )
    return tokens


def shape_refusal(model: ModelFacts, device: Device, shape: Shape) -> Refusal | None:
    """Why this shape cannot run on this device whatever the memory; None when it can."""
    size = shape.tensor_parallel
    if shape.precision not in device.flops_per_second:
        return Refusal("NoKernels", f"{device.name} has no {shape.precision.value} kernels")
    if size > device.max_tensor_parallel:
        return Refusal(
            "TensorParallelTooWide",
            f"{device.name} is of use up to tensor parallel {device.max_tensor_parallel}, asked for {size}: its link of "
            f"{device.link_bytes_per_second / 1e9:.0f} GB/s would spend the step on all-reduce",
        )
    if model.attention_heads % size:
        return Refusal(
            "HeadsNotDivisible",
            f"{model.name} has {model.attention_heads} attention heads, not divisible by tensor parallel {size}",
        )
    if model.kv_heads % size and size % model.kv_heads:
        return Refusal(
            "HeadsNotDivisible",
            f"{model.name} has {model.kv_heads} KV heads, which tensor parallel {size} neither divides nor multiplies",
        )
    if shape.pipeline_parallel > model.layers:
        return Refusal(
            "TooManyStages", f"{model.name} has {model.layers} layers, fewer than {shape.pipeline_parallel} pipeline stages"
        )
    return None


def shapes(
    model: ModelFacts,
    device: Device,
    *,
    gpus_per_node: int,
    wanted: Shape | None = None,
    precisions: Iterable[Precision] | None = None,
) -> tuple[Shape, ...] | Refusal:
    """Shapes worth considering on a device, fewest GPUs first, then the more exact precision.

    Only shapes inside one node, so no pipeline stages unless `wanted`. `wanted` is taken as it is, and only checked.
    `precisions` are those the user allows (default: the model's own). When nothing fits, the Refusal names the closest miss and
    the memory it lacks.
    """
    if wanted is not None:
        capacity = kv_capacity_tokens(model, device, wanted)
        if isinstance(capacity, Refusal):
            return capacity
        if wanted.gpus_per_replica > gpus_per_node:
            return Refusal(
                "NodeTooSmall",
                f"shape {wanted} takes {wanted.gpus_per_replica} GPUs, the largest node of {device.name} has {gpus_per_node}; "
                "replicas that span nodes are not placed",
            )
        return (wanted,)
    allowed = set(model.precisions if precisions is None else precisions)
    if Precision.BF16 in allowed and Precision.BF16 not in model.precisions:
        # The checkpoint is published in a lower precision (gpt-oss, DeepSeek): engines load it as it is.
        allowed = allowed - {Precision.BF16} | set(model.precisions)
    return _shapes(model, device, gpus_per_node, tuple(precision for precision in _PREFERENCE if precision in allowed))


@lru_cache(maxsize=4096)
def _shapes(model: ModelFacts, device: Device, gpus_per_node: int, allowed: tuple[Precision, ...]) -> tuple[Shape, ...] | Refusal:
    found: list[Shape] = []
    refusals: list[Refusal] = []
    for precision in allowed:
        smallest = 0
        for size in (1, 2, 4, 8):
            if size > gpus_per_node or (smallest and size > smallest * LARGEST_OVER_SMALLEST):
                break
            shape = Shape(size, 1, precision)
            capacity = kv_capacity_tokens(model, device, shape)
            if isinstance(capacity, Refusal):
                refusals.append(capacity)
            else:
                smallest = smallest or size
                found.append(shape)
    if found:
        return tuple(sorted(found, key=lambda shape: (shape.gpus_per_replica, _PREFERENCE.index(shape.precision))))
    return _nothing_fits(model, device, gpus_per_node, allowed, refusals)


def _nothing_fits(
    model: ModelFacts, device: Device, gpus_per_node: int, allowed: tuple[Precision, ...], refusals: list[Refusal]
) -> Refusal:
    if not allowed:
        return Refusal("NoPrecision", f"{model.name} comes in {', '.join(model.precisions)}; none of these is allowed here")
    if gpus_per_node < 1:
        return Refusal("NoGPU", f"no node of {device.name} has a GPU to give")
    usable = [precision for precision in allowed if precision in device.flops_per_second]
    if not usable:
        return refusals[0]
    smallest = min(usable, key=lambda precision: weight_bytes(model, precision))
    widest = max(size for size in (1, 2, 4, 8) if size <= min(gpus_per_node, device.max_tensor_parallel))
    needed = weight_bytes(model, smallest) + least_kv_tokens(model) * kv_bytes_per_gpu(model, Shape(widest)) * widest
    has = (device.memory_bytes * ENGINE_MEMORY_SHARE - reserve_bytes(device)) * widest
    if has >= needed:
        return refusals[-1]
    return Refusal(
        "DoesNotFit",
        f"{model.name} in {smallest.value} needs {needed / 1e9:.1f} GB for weights and the least KV; {widest} x {device.name}, "
        f"the most one replica can use here, have {has / 1e9:.1f} GB: {(needed - has) / 1e9:.1f} GB missing",
    )
