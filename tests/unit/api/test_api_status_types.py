"""Status types: summaries, allocation entries, and texts that never grow past what the server admits."""

from __future__ import annotations

import pytest

from equipoise.api.conditions import Condition, ConditionType, find_condition
from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.api.pool import DeviceSpec, FlopsSpec, GPUPool, GPUPoolSpec
from equipoise.api.scale import PhaseScale
from equipoise.api.status import (
    AllocationEntry,
    DecisionReason,
    InferenceServiceStatus,
    LastDecision,
    PhasesStatus,
    PhaseStatus,
    Transaction,
    summarise,
)

SERVICE = ServiceKey("prod", "chat")


def test_the_summary_shows_observed_over_target_and_ready_over_desired() -> None:
    status = InferenceServiceStatus(
        phases=PhasesStatus(
            prefill=PhaseStatus(desired=3, ready=2, latency="410ms", target="500ms"),
            decode=PhaseStatus(desired=4, ready=4, target="50ms"),
        ),
        gpus=7,
        lagging=Phase.PREFILL,
    )
    assert summarise(status).to_dict() == {
        "ttft": "410ms/500ms",
        "tpot": "?/50ms",
        "prefill": "2/3",
        "decode": "4/4",
        "gpus": "7",
        "lagging": "prefill",
    }


def test_the_summary_of_nothing_claims_nothing() -> None:
    summary = summarise(InferenceServiceStatus())
    assert (summary.ttft, summary.gpus, summary.lagging) == ("?/?", "?", "-")


def test_allocation_entries_are_variants_and_back() -> None:
    variant = Variant(SERVICE, Phase.DECODE, "a100-80gb", Shape(2, 1, Precision.FP8))
    entry = AllocationEntry.of(variant, 3, wanted=4)
    assert entry.to_dict() == {"phase": "decode", "pool": "a100-80gb", "shape": "tp2-fp8", "replicas": 3, "wanted": 4}
    assert AllocationEntry.parse_strict(entry.to_dict()).variant(SERVICE) == variant
    assert "wanted" not in AllocationEntry.of(variant, 3, wanted=3).to_dict()


def test_an_unreadable_shape_is_named() -> None:
    with pytest.raises(ValueError, match="shape 'huge'"):
        AllocationEntry(phase=Phase.PREFILL, pool="p", shape="huge", replicas=1).variant(SERVICE)


def test_too_long_a_message_is_cut_and_never_stops_a_status_write() -> None:
    condition = Condition(type="Ready", status="False", reason="X", message="m" * 5000)
    assert len(condition.message) == 4096
    assert condition.message.endswith("m…")
    decision = LastDecision(verdict="Hold", reasons=tuple(DecisionReason(name=f"R{n}") for n in range(100)))
    assert [reason.name for reason in decision.reasons] == [f"R{n}" for n in range(64)]


def test_a_transaction_keeps_what_only_the_writer_knows() -> None:
    data = {"id": "t1", "kind": "handover", "step": "drain", "donorPods": ["a", "b"]}
    assert data.items() <= Transaction.parse(data).to_dict().items()


def test_conditions_are_found_by_type() -> None:
    ready = Condition(type=ConditionType.READY, status="True", reason="AllReady")
    assert find_condition([ready], "Ready") is ready
    assert find_condition([ready], "Progressing") is None


def test_pool_figures_are_numbers_in_base_units() -> None:
    spec = GPUPoolSpec(
        node_selector={"nvidia.com/gpu.product": "NVIDIA-L40S"},
        price_per_gpu_hour="1.80",
        network_bandwidth="12.5G",
        device=DeviceSpec(memory="48Gi", memory_bandwidth="864G", link_bandwidth="32G", flops=FlopsSpec(bf16="362T", fp8="733T")),
    )
    assert (spec.price_usd_per_gpu_hour, spec.network_bytes_per_second) == (1.8, 12.5e9)
    assert (spec.device.memory_bytes, spec.device.memory_bytes_per_second) == (48 * 2**30, 864e9)
    assert spec.device.link_bytes_per_second == 32e9
    assert spec.device.flops_per_second == {Precision.BF16: 362e12, Precision.FP8: 733e12}


def test_pool_figures_left_out_are_unknown_and_not_zero() -> None:
    pool = GPUPool.parse_strict({"kind": "GPUPool", "metadata": {"name": "l40s"}, "spec": {"nodeSelector": {"a": "b"}}})
    assert (pool.spec.price_usd_per_gpu_hour, pool.spec.device.memory_bytes, pool.spec.device.flops_per_second) == (
        None,
        None,
        {},
    )
    assert (pool.spec.resource_name, pool.spec.paused, pool.status.free) == ("nvidia.com/gpu", False, None)


def test_a_phase_scale_asks_for_nothing_until_somebody_does() -> None:
    assert PhaseScale.parse({"kind": "PhaseScale", "metadata": {"name": "chat-prefill"}}).spec.replicas is None
    assert PhaseScale.parse_strict({"kind": "PhaseScale", "spec": {"replicas": 3}}).spec.replicas == 3
