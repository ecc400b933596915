"""The types of InferenceService: defaults, helpers, lenient and strict reading."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from equipoise.api.base import problems
from equipoise.api.engine import EngineType, RouterType
from equipoise.api.identity import Phase, Precision, ServiceKey, Shape
from equipoise.api.model_source import ModelSpec, ModelUri
from equipoise.api.phases import Scaling
from equipoise.api.policy import CapacityMode, MetricsSource, RolloutSpec, Switch
from equipoise.api.service import InferenceService
from equipoise.api.targets import TargetsSpec

SMALLEST: dict[str, Any] = {
    "apiVersion": "equipoise.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "prod"},
    "spec": {"model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"}, "targets": {"ttft": "500ms", "tpot": "50ms"}},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(SMALLEST)
    *parents, last = path.split(".")
    node = result
    for parent in parents:
        node = node.setdefault(parent, {})
    node[last] = value
    return result


def test_the_smallest_form_has_a_default_for_everything_else() -> None:
    service = InferenceService.parse_strict(SMALLEST)
    spec = service.spec
    assert service.key == ServiceKey("prod", "chat")
    assert spec.model.model_name == "meta-llama/Llama-3.1-8B-Instruct"
    assert spec.model.precisions == (Precision.BF16,)
    assert (spec.targets.ttft_seconds, spec.targets.tpot_seconds, spec.targets.percentile) == (0.5, 0.05, 95)
    assert (spec.engine.type, spec.router_type, spec.router.replicas) == (EngineType.VLLM, RouterType.VLLM_ROUTER, 2)
    for phase in Phase:
        bounds = spec.phases.of(phase)
        assert (bounds.min, bounds.max, bounds.pools, bounds.shape, bounds.scaling) == (1, None, (), None, Scaling.AUTO)
    assert (spec.capacity.mode, spec.capacity.flips, spec.capacity.bounded_queues) == (
        CapacityMode.AUTO,
        Switch.AUTO,
        Switch.AUTO,
    )
    assert (spec.capacity.max_gpus, spec.capacity.max_cost_usd_per_hour, spec.capacity.interval_seconds) == (None, None, None)
    assert (spec.capacity.cooldown.grow_seconds, spec.capacity.cooldown.shrink_seconds) == (0.0, 300.0)
    assert (spec.rollout.progress_deadline_seconds, spec.drain.grace_seconds) == (1200.0, 300.0)
    assert (spec.metrics.source, spec.metrics.pod_monitor) == (MetricsSource.PROMETHEUS, Switch.AUTO)


def test_wire_names_are_camel_case_with_the_initialisms_of_kubernetes() -> None:
    service = InferenceService.parse_strict(changed("spec.capacity", {"maxGPUs": 8, "maxCostPerHour": 42}))
    assert service.spec.capacity.max_gpus == 8
    assert service.spec.capacity.max_cost_usd_per_hour == 42.0
    assert service.to_dict()["spec"]["capacity"]["maxGPUs"] == 8
    assert InferenceService.parse_strict(service.to_dict()) == service


def test_reading_forgives_unknown_fields_and_strict_reading_names_them() -> None:
    data = changed("spec.fromTheFuture", 1)
    assert InferenceService.parse(data) == InferenceService.parse(SMALLEST)
    with pytest.raises(ValidationError, match=r"spec\.fromTheFuture"):
        InferenceService.parse_strict(data)


def test_strict_reading_leaves_metadata_to_kubernetes() -> None:
    data = changed("metadata.managedFields", [{"manager": "kubectl"}])
    data["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "blockOwnerDeletion": True}]
    assert InferenceService.parse_strict(data).metadata.name == "chat"
    assert InferenceService.parse(data).metadata.owner_references[0].uid == "u"


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("spec.targets.ttft", "5 s", r"spec\.targets\.ttft\n.*'5 s' is no duration"),
        ("spec.capacity", {"maxCostPerHour": "a lot"}, r"spec\.capacity\.maxCostPerHour\n.*'a lot' is no quantity"),
        ("spec.rollout", {"maxSurge": "half"}, r"spec\.rollout\.maxSurge\n.*'half' is neither a count"),
        ("spec.phases", {"prefill": {"scaling": "Manual"}}, r"spec\.phases\.prefill\.scaling\n"),
        ("spec.model.uri", "meta-llama/Llama-3.1-8B", r"spec\.model\.uri\n"),
    ],
)
def test_errors_name_field_and_value(path: str, value: Any, named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        InferenceService.parse(changed(path, value))


def test_what_could_not_be_read_is_said_in_one_line() -> None:
    data = changed("spec.targets.ttft", "5 s")
    data["spec"]["drain"] = {"grace": "soon"}
    with pytest.raises(ValidationError) as error:
        InferenceService.parse(data)
    assert problems(error.value) == (
        "spec.targets.ttft: '5 s' is no duration; write numbers with a unit of ms, s, m or h, such as 500ms or 1m30s; "
        "spec.drain.grace: 'soon' is no duration; write numbers with a unit of ms, s, m or h, such as 500ms or 1m30s"
    )


@pytest.mark.parametrize(
    ("uri", "parts", "served"),
    [
        ("hf://Qwen/Qwen3-32B@v1.2", ("hf", "Qwen/Qwen3-32B", "v1.2"), "Qwen/Qwen3-32B"),
        ("pvc://weights/models/llama", ("pvc", "weights/models/llama", ""), "llama"),
        ("s3://bucket/models/llama-70b", ("s3", "bucket/models/llama-70b", ""), "llama-70b"),
        ("gs://bucket/llama", ("gs", "bucket/llama", ""), "llama"),
        ("file:///models/llama/", ("file", "/models/llama/", ""), "llama"),
    ],
)
def test_addresses_give_the_served_name(uri: str, parts: tuple[str, str, str], served: str) -> None:
    model = ModelSpec(uri=uri)
    assert model.source == ModelUri(*parts)
    assert model.model_name == served
    assert ModelSpec(uri=uri, served_name="mine").model_name == "mine"


@pytest.mark.parametrize(
    "uri", ["", "hf://", "http://host/model", "file://models", "hf://a//b", "hf://a b", "pvc:///x", "HF://a/b"]
)
def test_what_is_no_address_is_refused_with_the_forms_there_are(uri: str) -> None:
    with pytest.raises(ValueError, match="hf://ORG/NAME"):
        ModelUri.parse(uri)


def test_only_allowed_precisions_have_weights() -> None:
    model = ModelSpec.parse_strict(
        {
            "uri": "hf://a/b",
            "weights": {"calibrated": [{"precision": "fp8"}, {"precision": "int4", "uri": "hf://a/b-awq"}]},
        }
    )
    assert model.precisions == (Precision.BF16, Precision.FP8, Precision.INT4)
    assert model.uri_for(Precision.BF16) == (ModelUri("hf", "a/b"), False)
    assert model.uri_for(Precision.FP8) == (ModelUri("hf", "a/b"), True)
    assert model.uri_for(Precision.INT4) == (ModelUri("hf", "a/b-awq"), False)
    with pytest.raises(ValueError, match="int4 is neither the precision of the weights nor under calibrated"):
        ModelSpec(uri="hf://a/b").uri_for(Precision.INT4)


def test_active_parameters_are_all_of_them_unless_said_otherwise() -> None:
    dense = ModelSpec.parse({"uri": "hf://a/b", "architecture": {"parameters": "8.03G"}}).architecture
    mixture = ModelSpec.parse(
        {"uri": "hf://a/b", "architecture": {"parameters": "30.5G", "activeParameters": "3.3G"}}
    ).architecture
    assert (dense.parameter_count, dense.active_parameter_count) == (8.03e9, 8.03e9)
    assert (mixture.parameter_count, mixture.active_parameter_count) == (30.5e9, 3.3e9)
    assert ModelSpec(uri="hf://a/b").architecture.active_parameter_count is None


def test_time_to_publish_tightens_tpot_but_never_loosens_it() -> None:
    targets = TargetsSpec(ttft="1s", tpot="50ms", time_to_publish="9s", thinking_tokens=400)
    assert targets.tpot_seconds == pytest.approx(8.0 / 400)
    assert TargetsSpec(ttft="1s", tpot="10ms", time_to_publish="9s", thinking_tokens=400).tpot_seconds == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("engine", "router", "effective"),
    [
        ("vllm", None, RouterType.VLLM_ROUTER),
        ("sglang", None, RouterType.SGLANG_ROUTER),
        ("trtllm", None, RouterType.NONE),
        ("custom", None, RouterType.NONE),
        ("vllm", "inference-pool", RouterType.INFERENCE_POOL),
    ],
)
def test_the_router_follows_the_engine(engine: str, router: str | None, effective: RouterType) -> None:
    data = changed("spec.engine", {"type": engine, "image": "registry.example/engine:1"})
    if router:
        data["spec"]["router"] = {"type": router}
    assert InferenceService.parse(data).spec.router_type is effective


def test_a_shape_takes_the_precision_of_the_weights_unless_it_has_its_own() -> None:
    data = changed("spec.phases", {"prefill": {"shape": {"tensorParallel": 4}}, "decode": {"shape": {"precision": "fp8"}}})
    phases = InferenceService.parse(data).spec.phases
    assert phases.prefill.shape is not None
    assert phases.decode.shape is not None
    assert phases.prefill.shape.shape(Precision.INT4) == Shape(4, 1, Precision.INT4)
    assert phases.decode.shape.shape(Precision.BF16) == Shape(1, 1, Precision.FP8)


def test_rollout_percentages_round_against_harm() -> None:
    rollout = RolloutSpec(max_unavailable="25%", max_surge="25%")
    assert (rollout.max_unavailable_of(3), rollout.max_surge_of(3)) == (0, 1)
    assert (rollout.max_unavailable_of(8), rollout.max_surge_of(8)) == (2, 2)
