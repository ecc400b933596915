"""Laying the user's pod template over ours, and what is put back."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.api.identity import Variant
from equipoise.render import Rendering, RenderOptions, compose, render
from equipoise.render.merge import overlay_object

GPU = "nvidia.com/gpu"


@pytest.fixture
def template(service: Any, pools: Any, variant: Any, uid: str) -> Any:
    """The prefill pod template of a spec."""

    def run(spec: str) -> dict[str, Any]:
        children = render(service(spec), uid, {variant("prefill"): 1}, pools("h100-80gb"))
        found: dict[str, Any] = children[0]["spec"]["template"]
        return found

    return run


def test_named_lists_merge_and_volumes_and_variables_are_replaced_whole() -> None:
    base = {
        "containers": [{"name": "engine", "image": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}],
        "volumes": [{"name": "cache", "emptyDir": {}}],
        "tolerations": [{"key": "gpu"}],
    }
    over = {
        "containers": [
            {"name": "engine", "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]},
            {"name": "helper", "image": "b"},
        ],
        "volumes": [{"name": "cache", "hostPath": {"path": "/c"}}],
        "tolerations": [{"key": "gpu"}, {"key": "spot"}],
    }
    merged = overlay_object(base, over)
    engine, helper = merged["containers"]
    assert engine["image"] == "a"
    assert engine["env"] == [
        {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "Y", "value": "1"},
    ]
    assert helper == {"name": "helper", "image": "b"}
    assert merged["volumes"] == [{"name": "cache", "hostPath": {"path": "/c"}}]
    assert merged["tolerations"] == [{"key": "gpu"}, {"key": "spot"}]
    assert base["volumes"] == [{"name": "cache", "emptyDir": {}}], "the base is left alone"


def test_another_handler_takes_the_place_of_ours_and_null_takes_away() -> None:
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5}
    assert overlay_object(probe, {"exec": {"command": ["true"]}}) == {"periodSeconds": 5, "exec": {"command": ["true"]}}
    assert overlay_object({"a": 1, "b": 2}, {"a": None}) == {"b": 2}


def test_what_routing_and_placement_depend_on_is_put_back(template: Any) -> None:
    result = template("""
        engine:
          podTemplate:
            metadata: {labels: {llm-d.ai/role: mine, team: search}}
            spec:
              nodeSelector: {nvidia.com/gpu.product: other, zone: a}
              terminationGracePeriodSeconds: 5
              tolerations: null
              containers:
              - name: engine
                resources: {limits: {nvidia.com/gpu: "8", memory: 64Gi}}
    """)
    assert result["metadata"]["labels"]["llm-d.ai/role"] == "prefill"
    assert result["metadata"]["labels"]["team"] == "search"
    assert result["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "zone": "a"}
    assert result["spec"]["terminationGracePeriodSeconds"] == 345
    resources = result["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {GPU: "1", "memory": "64Gi"}
    assert resources["requests"][GPU] == "1"


def test_a_longer_grace_and_a_phase_template_win(template: Any) -> None:
    result = template("""
        engine: {podTemplate: {spec: {terminationGracePeriodSeconds: 900, priorityClassName: low}}}
        phases: {prefill: {podTemplate: {spec: {priorityClassName: high}}}}
    """)
    assert result["spec"]["terminationGracePeriodSeconds"] == 900
    assert result["spec"]["priorityClassName"] == "high"


def test_children_never_carry_the_parents_labels(service: Any, pools: Any, variant: Any, uid: str) -> None:
    resource = service()
    assert resource.metadata.labels["app.kubernetes.io/instance"] == "argo-app"
    for child in render(resource, uid, {variant("prefill"): 1}, pools("h100-80gb")):
        assert child["metadata"]["labels"]["app.kubernetes.io/instance"] == "chat"
        assert child["metadata"]["ownerReferences"][0]["uid"] == uid
        assert not {"status", "resourceVersion", "managedFields"} & ({*child} | {*child["metadata"]})


def test_a_pool_that_is_gone_keeps_its_deployment_and_stops_nothing_else(
    service: Any, pools: Any, variant: Any, uid: str
) -> None:
    allocation: dict[Variant, int] = {variant("prefill"): 1, variant("decode", "l4-24gb"): 2}
    result: Rendering = compose(service(), uid, allocation, pools("h100-80gb"))
    assert result.kept == {"chat-decode-l4-24gb-tp1-bf16"}
    assert not result.refused
    assert "chat-prefill-h100-80gb-tp1-bf16" in {child["metadata"]["name"] for child in result.children}
    assert "l4-24gb" in result.problems[0].message


def test_a_precision_that_is_not_allowed_any_more_keeps_its_deployment(service: Any, pools: Any, variant: Any, uid: str) -> None:
    result = compose(service(), uid, {variant("prefill", shape="tp1-fp8"): 1}, pools("h100-80gb"))
    assert result.kept == {"chat-prefill-h100-80gb-tp1-fp8"}
    assert result.problems[0].variant == variant("prefill", shape="tp1-fp8")


def test_a_refused_spec_changes_nothing(service: Any, pools: Any, variant: Any, uid: str) -> None:
    allocation = {variant("prefill"): 1, variant("decode"): 1}
    result = compose(service("phases: {prefill: {engineArgs: [--port=1]}}"), uid, allocation, pools("h100-80gb"))
    assert result.refused
    assert result.children == ()
    assert len(result.kept) == 2, "also the phase without a fault: two revisions must not meet"


def test_an_absent_kind_is_said_and_stops_nothing(service: Any, pools: Any, variant: Any, uid: str) -> None:
    spec = "router: {type: inference-pool, endpointPicker: {name: epp}}"
    result = compose(service(spec), uid, {variant("prefill"): 1}, pools("h100-80gb"))
    assert not result.refused
    assert [problem.field for problem in result.problems] == ["spec.router.type"]
    assert "InferencePool" not in {child["kind"] for child in result.children}


def test_monitors_can_be_turned_off(service: Any, pools: Any, variant: Any, uid: str) -> None:
    options = RenderOptions(available_kinds=frozenset({"podmonitors.monitoring.coreos.com"}))
    children = render(service("metrics: {podMonitor: Disabled}"), uid, {variant("prefill"): 1}, pools("h100-80gb"), options)
    assert "PodMonitor" not in {child["kind"] for child in children}


def test_wrong_calls_are_refused_loudly(service: Any, pools: Any, variant: Any, uid: str) -> None:
    with pytest.raises(ValueError, match=r"metadata\.uid"):
        render(service(), "", {}, pools())
    with pytest.raises(ValueError, match="another service"):
        render(service(), uid, {variant("prefill", name="other"): 1}, pools("h100-80gb"))
