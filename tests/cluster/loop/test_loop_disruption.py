"""A node is about to go: its replicas have their successors started on other nodes first, and an Event tells of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise_stage import Stage

Apply = Callable[..., dict[str, Any]]
SHAPE = {"tensorParallel": 1, "precision": "bf16"}


def serving(stage: Stage, space: str) -> dict[str, list[str]]:
    """Nodes of the replicas that serve, by role."""
    found: dict[str, list[str]] = {"prefill": [], "decode": []}
    for pod in stage.cluster.get_json("pods", "-n", space, "-l", "llm-d.ai/role")["items"]:
        conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
        role = pod["metadata"]["labels"]["llm-d.ai/role"]
        if conditions.get("Ready") == "True" and role in found and not pod["metadata"].get("deletionTimestamp"):
            found[role].append(pod["spec"]["nodeName"])
    return found


def test_a_cordoned_node_is_left_without_missing_a_replica(stage: Stage, space: str, apply_service: Apply) -> None:
    """Two replicas of each phase over two nodes of four GPUs, one of which is cordoned."""
    from local_cluster import wait_until

    common = {"scaling": "Fixed", "pools": ["l40s-48gb"], "shape": SHAPE, "min": 2}
    annotations = {"equipoise.dev/emulated-startup-seconds": "2"}
    engine = {"podTemplate": {"metadata": {"annotations": annotations}}}
    apply_service(ttft="5s", tpot="200ms", phases={"prefill": common, "decode": common}, engine=engine)

    def counts() -> list[int]:
        return [len(nodes) for nodes in serving(stage, space).values()]

    wait_until(lambda: counts() == [2, 2], 60, "two replicas of each phase", poll_seconds=0.5)
    leaving = serving(stage, space)["decode"][0]
    stage.cluster.kubectl("cordon", leaving)
    try:

        def is_left() -> bool:
            found = serving(stage, space)
            assert all(len(nodes) >= 2 for nodes in found.values()), f"a replica is missing: {found}"
            return not any(leaving in nodes for nodes in found.values()) and counts() == [2, 2]

        wait_until(is_left, 60, f"all replicas to serve elsewhere than on {leaving}", poll_seconds=0.2)
    finally:
        stage.cluster.kubectl("uncordon", leaving)

    def told() -> set[str]:
        items = stage.cluster.get_json("events", "-n", space)["items"]
        return {item["reason"] for item in items if item["involvedObject"]["kind"] == "InferenceService"}

    wait_until(lambda: {"NodeLeaving", "Replaced"} <= told(), 30, "both Events", poll_seconds=0.5)
