"""Never more GPUs than there are; what is missing is said with what would help; broken input leaves what runs alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise_stage import Stage

Apply = Callable[..., dict[str, Any]]


def gpus_bound(stage: Stage) -> dict[str, int]:
    """GPUs that pods hold, by node."""
    result: dict[str, int] = {}
    for pod in stage.cluster.get_json("pods", "-A")["items"]:
        node = pod["spec"].get("nodeName")
        if not node or pod["status"].get("phase") in ("Succeeded", "Failed"):
            continue
        for container in pod["spec"]["containers"]:
            count = int(container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
            result[node] = result.get(node, 0) + count
    return result


def gpus_asked(stage: Stage, namespace: str) -> int:
    """GPUs that all Deployments of a namespace ask for together."""
    total = 0
    for item in stage.cluster.get_json("deployments", "-n", namespace)["items"]:
        for container in item["spec"]["template"]["spec"]["containers"]:
            width = int(container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
            total += width * item["spec"]["replicas"]
    return total


def test_twenty_services_never_ask_for_more_gpus_than_exist(stage: Stage, space: str, apply_service: Apply) -> None:
    """Twenty services of two phases want 40 GPUs at least; there are 24. What is placed is placed whole, the rest says why."""
    from local_cluster import wait_until

    limit = 24
    worst = 0
    for number in range(20):
        apply_service(f"service-{number}", router={"type": "none"})
        worst = max(worst, gpus_asked(stage, space))

    def decided() -> list[dict[str, Any]]:
        items = stage.cluster.get_json("inferenceservices", "-n", space)["items"]
        return [item for item in items if any(c["type"] == "CapacityLimited" and c["status"] != "Unknown"
                                              for c in item.get("status", {}).get("conditions", ()))]  # fmt: skip

    def settled() -> bool:
        nonlocal worst
        worst = max(worst, gpus_asked(stage, space))
        return len(decided()) == 20 and sum(gpus_bound(stage).values()) == gpus_asked(stage, space)

    wait_until(settled, 90, "all twenty to be decided and their pods to be bound")
    assert worst <= limit
    limited = [
        condition
        for item in decided()
        for condition in item["status"]["conditions"]
        if condition["type"] == "CapacityLimited" and condition["status"] == "True"
    ]
    assert limited, "24 GPUs cannot hold twenty services"
    assert all("GPU" in condition["message"] for condition in limited)
    pending = [pod for pod in stage.cluster.get_json("pods", "-n", space)["items"] if pod["status"]["phase"] == "Pending"]
    assert not pending


def test_a_pool_without_gpus_is_said_with_what_would_help(stage: Stage, space: str, apply_service: Apply) -> None:
    """All nodes of the only allowed pool cordoned: CapacityLimited names the pool, the GPUs that are missing, and a cure."""
    nodes = [f"rtx4090-{number}" for number in range(2)]
    names = [item["metadata"]["name"] for item in stage.cluster.get_json("nodes")["items"]]
    nodes = [name for name in names if name.startswith("rtx4090")]
    for node in nodes:
        stage.cluster.kubectl("cordon", node)
    try:
        pools = {"pools": ["rtx-4090-24gb"]}
        apply_service(phases={"prefill": pools, "decode": pools})
        found = stage.wait_condition(space, "chat", "CapacityLimited")
        assert "rtx-4090-24gb" in found["message"]
        assert "GPU" in found["message"]
    finally:
        for node in nodes:
            stage.cluster.kubectl("uncordon", node)
    stage.wait_condition(space, "chat", "Ready")


def test_prometheus_gone_holds_everything(stage: Stage, space: str, apply_service: Apply) -> None:
    """MetricsAvailable turns False with a sentence, and no count changes."""
    apply_service(phases={"decode": {"min": 2}})
    stage.wait_condition(space, "chat", "Ready")
    stage.wait_condition(space, "chat", "MetricsAvailable")
    before = gpus_asked(stage, space)
    stage.cluster.stop_component("prometheus")
    try:
        found = stage.wait_condition(space, "chat", "MetricsAvailable", "False")
        assert found["reason"] in ("Unreachable", "QueriesFailed", "QueryFailed")
        assert len(found["message"]) > 20
        assert gpus_asked(stage, space) == before
        decision = stage.service(space, "chat")["status"]["lastDecision"]
        assert decision["verdict"] == "Hold"
        assert "SignalUnknown" in [reason["name"] for reason in decision["reasons"]]
    finally:
        stage.cluster.start_component("prometheus")


def test_a_service_that_reads_its_pods_does_not_need_prometheus(stage: Stage, space: str, apply_service: Apply) -> None:
    """With metrics.source Pods the operator asks the engines itself, and says so while Prometheus is gone."""
    stage.cluster.stop_component("prometheus")
    try:
        apply_service(metrics={"source": "Pods"})
        stage.wait_condition(space, "chat", "Ready")
        stage.wait_condition(space, "chat", "MetricsAvailable")
    finally:
        stage.cluster.start_component("prometheus")


def test_an_unknown_model_is_named(stage: Stage, space: str, apply_service: Apply) -> None:
    """Without facts nothing can be sized: the condition says which field would help, and nothing is created."""
    apply_service(uri="hf://example/never-heard-of-9b")
    found = stage.wait_condition(space, "chat", "Ready", "False")
    assert "spec.model.architecture" in found["message"]
    assert gpus_asked(stage, space) == 0


def test_a_model_that_fits_nowhere_is_named(stage: Stage, space: str, apply_service: Apply) -> None:
    """405 billion parameters on nodes of 4 x 80 GB: the condition says how much is missing."""
    apply_service(uri="hf://meta-llama/Llama-3.1-405B-Instruct")
    found = stage.wait_condition(space, "chat", "CapacityLimited")
    assert "GB" in found["message"]
    assert gpus_asked(stage, space) == 0


def test_a_target_that_no_device_can_meet_is_named(stage: Stage, space: str, apply_service: Apply) -> None:
    """One millisecond per token: the condition gives the time of a step beside the target."""
    apply_service(tpot="1ms")
    found = stage.wait_condition(space, "chat", "CapacityLimited")
    assert "ms" in found["message"]
    assert gpus_asked(stage, space) == 0


def test_a_change_that_cannot_be_carried_out_leaves_what_runs_alone(stage: Stage, space: str, apply_service: Apply) -> None:
    """A running service whose model turns unknown goes on serving, and says what is wrong."""
    from local_cluster import wait_until

    apply_service()
    stage.wait_condition(space, "chat", "Ready")
    before = {item["metadata"]["uid"] for item in stage.cluster.get_json("pods", "-n", space)["items"]}
    apply_service(uri="hf://example/never-heard-of-9b")

    def told() -> bool:
        conditions = stage.service(space, "chat")["status"]["conditions"]
        ready = next(item for item in conditions if item["type"] == "Ready")
        return ready["observedGeneration"] == 2 and "spec.model.architecture" in ready["message"]

    wait_until(told, 30, "the condition to name the field")
    after = {
        item["metadata"]["uid"] for item in json.loads(stage.cluster.kubectl("get", "pods", "-n", space, "-o", "json"))["items"]
    }
    assert after == before
