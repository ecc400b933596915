"""From InferenceService to running phases and back, on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from equipoise_stage import Stage

Apply = Callable[..., dict[str, Any]]


def deployments(stage: Stage, namespace: str, phase: str = "") -> list[dict[str, Any]]:
    selector = "app.kubernetes.io/managed-by=equipoise" + (f",app.kubernetes.io/component={phase}" if phase else "")
    items = stage.cluster.get_json("deployments", "-n", namespace, "-l", selector)["items"]
    return [item for item in items if phase or item["metadata"]["labels"]["app.kubernetes.io/component"] != "router"]


def engine_args(deployment: dict[str, Any]) -> list[str]:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    engine = next(item for item in containers if item["name"] == "engine")
    return [*engine.get("command", ()), *engine.get("args", ())]


def test_three_lines_become_two_running_phases(stage: Stage, space: str, apply_service: Apply) -> None:
    """The smallest form: both phases Ready on pools that fit, a router before them, the status says so."""
    apply_service()
    stage.wait_condition(space, "chat", "Ready")
    status = stage.service(space, "chat")["status"]
    assert status["phases"]["prefill"]["ready"] >= 1
    assert status["phases"]["decode"]["ready"] >= 1
    assert status["endpoint"] == f"http://chat-router.{space}.svc/v1"
    assert status["observedGeneration"] == 1
    router = stage.cluster.get_json("deployment", "chat-router", "-n", space)
    assert router["spec"]["template"]["spec"]["serviceAccountName"]
    line = stage.cluster.kubectl("get", "eis", "-n", space)
    assert "chat" in line
    assert "1/1" in line


def test_an_edit_reaches_the_children(stage: Stage, space: str, apply_service: Apply) -> None:
    """A new engine argument is in both phases' pods, and the service comes back to Ready on the new generation."""
    from local_cluster import wait_until

    apply_service()
    stage.wait_condition(space, "chat", "Ready")
    apply_service(engine={"args": ["--max-num-seqs=77"]})
    wait_until(
        lambda: all("--max-num-seqs=77" in engine_args(item) for item in deployments(stage, space)),
        30,
        "the argument to reach both phases",
    )
    stage.wait_condition(space, "chat", "Ready")
    assert stage.service(space, "chat")["status"]["observedGeneration"] == 2


def test_a_deleted_child_comes_back(stage: Stage, space: str, apply_service: Apply) -> None:
    """Deployments, the router and its rights are restored after a deletion by hand."""
    from local_cluster import wait_until

    apply_service()
    stage.wait_condition(space, "chat", "Ready")
    decode = deployments(stage, space, "decode")[0]["metadata"]
    for kind, name in (("deployment", decode["name"]), ("role", "chat-router"), ("service", "chat-router")):
        before = stage.cluster.get_json(kind, name, "-n", space)["metadata"]["uid"]
        stage.cluster.kubectl("delete", kind, name, "-n", space, "--wait=false")

        def is_back(kind: str = kind, name: str = name, before: str = before) -> bool:
            found = json.loads(stage.cluster.kubectl("get", kind, name, "-n", space, "-o", "json"))
            return bool(found["metadata"]["uid"] != before)

        wait_until(is_back, 30, f"{kind} {name} to come back")
    stage.wait_condition(space, "chat", "Ready")


def test_an_edit_by_hand_is_undone(stage: Stage, space: str, apply_service: Apply) -> None:
    """Counts, arguments and labels that a hand changed are set back; what Equipoise does not own is left."""
    from local_cluster import wait_until

    apply_service()
    stage.wait_condition(space, "chat", "Ready")
    found = deployments(stage, space, "prefill")[0]
    name, args = found["metadata"]["name"], engine_args(found)
    stage.cluster.kubectl("annotate", "deployment", name, "-n", space, "example.org/note=mine")
    stage.cluster.kubectl("scale", "deployment", name, "-n", space, "--replicas=3")
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": ["--by-hand"]}]
    stage.cluster.kubectl("patch", "deployment", name, "-n", space, "--type=json", "-p", json.dumps(patch))

    def is_restored() -> bool:
        now = stage.cluster.get_json("deployment", name, "-n", space)
        return bool(now["spec"]["replicas"] == found["spec"]["replicas"] and engine_args(now) == args)

    wait_until(is_restored, 30, "count and arguments to be set back")
    assert stage.cluster.get_json("deployment", name, "-n", space)["metadata"]["annotations"]["example.org/note"] == "mine"


def test_deleting_the_service_deletes_everything(stage: Stage, space: str, apply_service: Apply) -> None:
    """Nothing is left behind, and no finalizer keeps the resource."""
    from local_cluster import wait_until

    apply_service()
    stage.wait_condition(space, "chat", "Ready")
    assert not stage.service(space, "chat")["metadata"].get("finalizers")
    stage.cluster.kubectl("delete", "inferenceservice", "chat", "-n", space)
    kinds = "deployments,replicasets,pods,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,phasescales"

    def left() -> list[str]:
        names = stage.cluster.kubectl("get", kinds, "-n", space, "-l", "app.kubernetes.io/managed-by=equipoise", "-o", "name")
        return names.split()

    wait_until(lambda: not left(), 60, "the children to go")


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_minimum_is_kept_per_phase(stage: Stage, space: str, apply_service: Apply, phase: str) -> None:
    """A minimum of three replicas of one phase is there before any traffic."""
    apply_service(phases={phase: {"min": 3}})
    stage.wait_condition(space, "chat", "Ready")
    assert stage.service(space, "chat")["status"]["phases"][phase]["ready"] == 3


def test_external_scaling_follows_kubectl_scale(stage: Stage, space: str, apply_service: Apply) -> None:
    """With scaling External the count is PhaseScale's: `kubectl scale` works, and Equipoise never writes it back."""
    from local_cluster import wait_until

    apply_service(phases={"decode": {"scaling": "External", "min": 1}})
    stage.wait_condition(space, "chat", "Ready")
    # An autoscaler takes an absent count for "switched off": the first one is set for it.
    wait_until(lambda: stage.cluster.get_json("phasescale", "chat-decode", "-n", space).get("spec", {}).get("replicas") == 1, 30,
               "the first count")  # fmt: skip
    stage.cluster.kubectl("scale", "phasescale", "chat-decode", "-n", space, "--replicas=3")
    wait_until(lambda: stage.service(space, "chat")["status"]["phases"]["decode"].get("ready") == 3, 30, "three decode replicas")
    scale = stage.cluster.get_json("phasescale", "chat-decode", "-n", space)
    assert scale["spec"]["replicas"] == 3
    assert scale["status"]["replicas"] == 3
    assert "llm-d.ai/role=decode" in scale["status"]["selector"]
