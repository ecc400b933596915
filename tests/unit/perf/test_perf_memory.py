from __future__ import annotations

from dataclasses import replace

import pytest

from equipoise.api.identity import Precision, Shape
from equipoise.api.model_source import Architecture
from equipoise.fleet.catalogue import DEVICES, device
from equipoise.perf.memory import (
    kv_bytes_per_gpu,
    kv_capacity_tokens,
    longest_context_tokens,
    shape_refusal,
    shapes,
    weight_bytes,
)
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Refusal


def known(name: str) -> ModelFacts:
    found = model_facts(f"hf://any/{name}")
    assert isinstance(found, ModelFacts)
    return found


LLAMA_8B, LLAMA_70B, QWEN_32B = known("Llama-3.1-8B"), known("Llama-3.1-70B"), known("Qwen3-32B")


@pytest.mark.parametrize(
    ("name", "precision", "gigabytes"),
    [
        ("Llama-3.1-8B", Precision.BF16, 16.06),
        ("Llama-3.1-8B", Precision.FP8, 9.08),  # nvidia/Llama-3.1-8B-Instruct-FP8: 9.1 GB
        ("Llama-3.1-8B", Precision.INT4, 5.73),  # hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4: 5.73 GB
        ("Llama-3.1-70B", Precision.INT4, 39.8),  # hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4: 39.8 GB
        ("gpt-oss-120b", Precision.INT4, 65.2),
        ("Qwen3-0.6B", Precision.BF16, 1.19),
    ],
)
def test_size_of_published_checkpoints(name: str, precision: Precision, gigabytes: float) -> None:
    assert weight_bytes(known(name), precision) / 1e9 == pytest.approx(gigabytes, rel=0.02)


@pytest.mark.parametrize(
    ("model", "name", "size", "tokens"),
    [  # aiconfigurator 0.12.0 for vLLM, and on the RTX 4090 what vLLM 0.19 itself reported
        (LLAMA_8B, "H100", 1, 432_992),
        (LLAMA_8B, "H200", 1, 882_732),
        (LLAMA_8B, "A100-80GB", 1, 432_992),
        (LLAMA_8B, "L40S", 1, 174_857),
        (LLAMA_8B, "RTX-PRO-6000", 1, 547_954),
        (LLAMA_8B, "Arc-Pro-B60", 1, 44_787),
        (LLAMA_8B, "RTX-4090", 1, 41_408),
        (QWEN_32B, "H100", 2, 301_810),
        (QWEN_32B, "L40S", 2, 43_675),
        (LLAMA_70B, "H100", 4, 454_016),
        (LLAMA_70B, "H200", 2, 370_583),
        (LLAMA_70B, "A100-80GB", 4, 454_016),
    ],
)
def test_kv_capacity_is_that_of_real_engines(model: ModelFacts, name: str, size: int, tokens: int) -> None:
    found = kv_capacity_tokens(model, device(name), Shape(size))
    assert not isinstance(found, Refusal)
    assert found == pytest.approx(tokens, rel=0.1)


def test_the_longest_request_is_bound_by_memory_or_by_the_model() -> None:
    assert longest_context_tokens(LLAMA_8B, device("RTX-4090"), Shape()) == kv_capacity_tokens(
        LLAMA_8B, device("RTX-4090"), Shape()
    )
    assert longest_context_tokens(LLAMA_8B, device("H100"), Shape()) == LLAMA_8B.max_context_tokens
    assert isinstance(longest_context_tokens(LLAMA_70B, device("L4"), Shape()), Refusal)


def test_a_replica_must_hold_the_longest_request_that_the_user_wants() -> None:
    long = model_facts("hf://any/Llama-3.1-8B", Architecture(max_context=100_000))
    assert isinstance(long, ModelFacts)
    refusal = kv_capacity_tokens(long, device("RTX-4090"), Shape())
    assert isinstance(refusal, Refusal)
    assert "the rest KV of 100000 tokens" in refusal.message
    assert shapes(long, device("RTX-4090"), gpus_per_node=2) == (Shape(2),)
    assert isinstance(kv_capacity_tokens(long, device("H100"), Shape()), int)


def test_kv_heads_are_shared_out_and_never_split() -> None:
    assert kv_bytes_per_gpu(LLAMA_8B, Shape(4)) == LLAMA_8B.kv_bytes_per_token / 4
    four_heads = known("Qwen3-30B-A3B")
    assert kv_bytes_per_gpu(four_heads, Shape(8)) == four_heads.kv_bytes_per_token / 4  # each head on two GPUs
    latent = known("DeepSeek-V3")
    assert kv_bytes_per_gpu(latent, Shape(8)) == latent.kv_bytes_per_token  # one latent, on every GPU
    assert kv_bytes_per_gpu(LLAMA_8B, Shape(2, 2)) == LLAMA_8B.kv_bytes_per_token / 4  # half the layers on each stage


def test_a_refusal_says_how_much_memory_is_missing() -> None:
    refusal = kv_capacity_tokens(LLAMA_70B, device("H100"), Shape())
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "DoesNotFit"
    assert refusal.message == (
        "Llama-3.1-70B as tp1-bf16 needs 142.4 GB on each GPU (141.1 GB of weights, the rest KV of 4096 tokens); "
        "H100 has 72.2 GB for them: 70.3 GB missing"
    )


@pytest.mark.parametrize(
    ("model", "name", "shape", "reason"),
    [
        (LLAMA_8B, "L40S", Shape(4), "TensorParallelTooWide"),
        (LLAMA_8B, "T4", Shape(precision=Precision.FP8), "NoKernels"),
        (known("Phi-3.5-mini"), "H100", Shape(3), "HeadsNotDivisible"),
        (known("gemma-3-1b"), "H100", Shape(8), "HeadsNotDivisible"),  # four query heads
        (known("phi-4"), "H100", Shape(4), "HeadsNotDivisible"),  # ten KV heads
        (known("Llama-3.2-1B"), "H100", Shape(1, 17), "TooManyStages"),
    ],
)
def test_impossible_shapes_are_refused_by_name(model: ModelFacts, name: str, shape: Shape, reason: str) -> None:
    refusal = shape_refusal(model, device(name), shape)
    assert refusal is not None
    assert refusal.reason == reason
    assert isinstance(kv_capacity_tokens(model, device(name), shape), Refusal)


def test_smallest_shape_first_and_nothing_absurdly_wide() -> None:
    assert shapes(LLAMA_8B, device("H100"), gpus_per_node=8) == (Shape(1), Shape(2), Shape(4))
    assert shapes(LLAMA_70B, device("H100"), gpus_per_node=8) == (Shape(2), Shape(4), Shape(8))
    assert shapes(LLAMA_70B, device("H100"), gpus_per_node=4) == (Shape(2), Shape(4))
    assert shapes(LLAMA_8B, device("L40S"), gpus_per_node=8) == (Shape(1), Shape(2))


def test_precisions_are_only_those_allowed() -> None:
    both = shapes(LLAMA_8B, device("L4"), gpus_per_node=1, precisions=[Precision.FP8, Precision.BF16])
    assert both == (Shape(precision=Precision.BF16), Shape(precision=Precision.FP8))
    assert shapes(LLAMA_8B, device("L4"), gpus_per_node=1) == (Shape(),)
    refusal = shapes(LLAMA_8B, device("T4"), gpus_per_node=1, precisions=[Precision.FP8])
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "NoKernels"


def test_a_checkpoint_published_in_low_precision_is_loaded_as_it_is() -> None:
    found = shapes(known("gpt-oss-120b"), device("H100"), gpus_per_node=2, precisions=[Precision.BF16])
    assert found == (Shape(1, 1, Precision.INT4), Shape(2, 1, Precision.INT4))


def test_a_wanted_shape_is_only_checked() -> None:
    assert shapes(LLAMA_8B, device("H100"), gpus_per_node=8, wanted=Shape(8)) == (Shape(8),)
    small = shapes(LLAMA_8B, device("H100"), gpus_per_node=4, wanted=Shape(8))
    assert isinstance(small, Refusal)
    assert small.reason == "NodeTooSmall"
    assert isinstance(shapes(LLAMA_70B, device("H100"), gpus_per_node=8, wanted=Shape()), Refusal)


def test_nothing_fits_names_the_widest_replica_and_what_lacks() -> None:
    refusal = shapes(LLAMA_70B, device("L40S"), gpus_per_node=8)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "DoesNotFit"
    assert "needs 142.4 GB" in refusal.message
    assert "2 x L40S" in refusal.message
    assert refusal.message.endswith("65.1 GB missing")


def test_no_precision_and_no_gpu_are_told_apart() -> None:
    no_precision = shapes(LLAMA_8B, device("H100"), gpus_per_node=8, precisions=[])
    no_gpu = shapes(LLAMA_8B, device("H100"), gpus_per_node=0)
    assert isinstance(no_precision, Refusal)
    assert isinstance(no_gpu, Refusal)
    assert (no_precision.reason, no_gpu.reason) == ("NoPrecision", "NoGPU")


def test_more_memory_never_holds_less() -> None:
    tokens = []
    for gigabytes in range(20, 100, 2):
        found = kv_capacity_tokens(LLAMA_8B, replace(DEVICES["L40S"], memory_bytes=gigabytes * 10**9), Shape())
        tokens.append(0 if isinstance(found, Refusal) else found)
    assert tokens == sorted(tokens)
    assert tokens[0] == 0
    assert tokens[-1] > 400_000
