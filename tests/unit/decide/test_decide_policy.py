"""From the resource to the policy, and whether replicas can flip."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape
from equipoise.api.service import InferenceService
from equipoise.decide.flip_support import flip_support
from equipoise.decide.policy import ServicePolicy, created_seconds, service_policy
from equipoise.decide.types import CapacityMode, Scaling

P, D = Phase.PREFILL, Phase.DECODE


def resource(**spec: Any) -> InferenceService:
    given = {
        "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
        "targets": {"ttft": "500ms", "tpot": "50ms"},
        **spec,
    }
    metadata = {"name": "chat", "namespace": "prod", "creationTimestamp": "2026-11-30T00:00:10Z"}
    return InferenceService.model_validate({"metadata": metadata, "kind": "InferenceService", "spec": given})


def policy(**spec: Any) -> ServicePolicy:
    found = service_policy(resource(**spec))
    assert isinstance(found, ServicePolicy)
    return found


def test_the_smallest_resource_has_every_default() -> None:
    found = policy()
    assert found.key == ServiceKey("prod", "chat")
    assert found.served_model_name == "meta-llama/Llama-3.1-8B-Instruct"
    assert (found.targets.ttft_seconds, found.targets.tpot_seconds, found.targets.percentile) == (0.5, 0.05, 95.0)
    assert found.mode is CapacityMode.AUTO
    assert found.cooldown_shrink_seconds == 300.0
    assert found.flip_supported
    assert found.phases[P].minimum == 1
    assert found.created_seconds == 1_795_996_810.0
    given = found.service_input()
    assert given.key == found.key
    assert given.flip_reason == found.flip_reason
    assert not given.variants


def test_bounds_pools_and_shapes_come_through() -> None:
    found = policy(
        model={
            "uri": "hf://meta-llama/Llama-3.1-8B-Instruct",
            "weights": {"precision": "bf16", "calibrated": [{"precision": "fp8"}]},
        },
        phases={
            "prefill": {
                "min": 2,
                "max": 6,
                "pools": ["l40s-48gb", "h100-80gb"],
                "shape": {"tensorParallel": 2, "precision": "fp8"},
            },
            "decode": {"scaling": "External"},
        },
        capacity={"priority": 7, "maxGPUs": 12, "maxCostPerHour": "42.50", "mode": "Recommend", "cooldown": {"grow": "30s"}},
    )
    prefill = found.phases[P]
    assert (prefill.minimum, prefill.maximum, prefill.pools) == (2, 6, ("l40s-48gb", "h100-80gb"))
    assert prefill.shape == Shape(2, 1, Precision.FP8)
    assert found.phases[D].scaling is Scaling.EXTERNAL
    assert (found.priority, found.max_gpus, found.max_cost_usd_per_hour) == (7, 12, 42.5)
    assert found.mode is CapacityMode.RECOMMEND
    assert found.cooldown_grow_seconds == 30.0
    assert found.model.precisions == (Precision.BF16, Precision.FP8)


def test_thinking_time_tightens_tpot() -> None:
    found = policy(targets={"ttft": "500ms", "tpot": "50ms", "timeToPublish": "8500ms", "thinkingTokens": 400})
    assert found.targets.tpot_seconds == pytest.approx(0.02)


def test_an_unknown_model_names_the_fields_that_are_missing() -> None:
    found = service_policy(resource(model={"uri": "hf://acme/enigma-9b"}))
    assert isinstance(found, tuple)
    assert "spec.model.architecture lacks parameters" in found[0].message


def test_precisions_are_those_the_user_allows_and_a_surprise_is_noted() -> None:
    found = policy(model={"uri": "hf://meta-llama/Llama-3.1-8B-Instruct-FP8"})
    assert found.model.precisions == (Precision.BF16,)
    assert "published in fp8" in found.notes[0].message


@pytest.mark.parametrize(
    ("spec", "possible", "why"),
    [
        ({}, True, "matter of routing"),
        ({"engine": {"version": "0.32.0"}}, True, "matter of routing"),
        ({"engine": {"version": "0.33.1"}}, False, "verified with vLLM 0.32, not with 0.33.1"),
        ({"capacity": {"flips": "Disabled"}}, False, "Disabled"),
        ({"engine": {"type": "sglang"}}, False, "idle replica only"),
        ({"engine": {"type": "custom", "image": "x"}}, False, "not known to change phase"),
        (
            {"engine": {"args": ['--kv-transfer-config={"kv_connector":"MooncakeConnector"}']}},
            False,
            "MooncakeConnector",
        ),
        ({"engine": {"args": ["--kv-transfer-config", '{"kv_role":"kv_both"}']}}, True, "matter of routing"),
        ({"engine": {"args": ["--kv_transfer_config.kv_connector=P2pNcclConnector"]}}, False, "P2pNcclConnector"),
        ({"phases": {"decode": {"engineArgs": ["--max-num-seqs=64"]}}}, True, "keeps those it was started with"),
    ],
)
def test_whether_replicas_flip_and_why(spec: dict[str, Any], possible: bool, why: str) -> None:
    found, reason = flip_support(resource(**spec).spec)
    assert found is possible
    assert why in reason


def test_timestamps_that_are_not_there_are_zero() -> None:
    assert created_seconds("") == 0.0
