"""Flips on the real controllers: the very pods that serve change phase, none of them is ever deleted or started anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise_stage import Stage

Apply = Callable[..., dict[str, Any]]
POOLS = ["rtx-4090-24gb"]
SHAPE = {"tensorParallel": 1, "precision": "bf16"}


def phases(prefill: int, decode: int) -> dict[str, Any]:
    common = {"scaling": "Fixed", "pools": POOLS, "shape": SHAPE}
    return {"prefill": {**common, "min": prefill}, "decode": {**common, "min": decode}}


def engines(stage: Stage, namespace: str) -> dict[str, str]:
    """Phase of each engine pod that serves, by uid."""
    found = {}
    for pod in stage.cluster.get_json("pods", "-n", namespace, "-l", "llm-d.ai/role")["items"]:
        conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
        if conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp"):
            found[pod["metadata"]["uid"]] = pod["metadata"]["labels"]["llm-d.ai/role"]
    return found


def test_twenty_flips_keep_every_pod_that_serves(stage: Stage, space: str, apply_service: Apply) -> None:
    """Four replicas on a pool with four more GPUs free, three of them going there and back: placeholders come and go."""
    from local_cluster import wait_until

    annotations = {"equipoise.dev/emulated-startup-seconds": "15"}
    engine = {"podTemplate": {"metadata": {"annotations": annotations}}}
    apply_service(tpot="100ms", phases=phases(3, 1), engine=engine)

    def split(prefill: int, decode: int) -> bool:
        roles = sorted(engines(stage, space).values())
        return roles == ["decode"] * decode + ["prefill"] * prefill

    wait_until(lambda: split(3, 1), 60, "three prefill and one decode replica", poll_seconds=0.2)
    before = set(engines(stage, space))
    for number in range(20):
        prefill, decode = ((1, 3), (3, 1))[number % 2]
        apply_service(tpot="100ms", phases=phases(prefill, decode), engine=engine)
        wait_until(lambda p=prefill, d=decode: split(p, d), 30, f"flip {number}", poll_seconds=0.2)  # type: ignore[misc]
        assert set(engines(stage, space)) == before, f"flip {number} changed which pods serve"
