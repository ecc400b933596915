"""Rollouts on the real controllers: both phases in lockstep, with and without a spare GPU, and back where it does not start."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise_stage import Stage

Apply = Callable[..., dict[str, Any]]
SHAPE = {"tensorParallel": 1, "precision": "bf16"}


def phases(prefill: int, decode: int, pool: str) -> dict[str, Any]:
    common = {"scaling": "Fixed", "pools": [pool], "shape": SHAPE}
    return {"prefill": {**common, "min": prefill}, "decode": {**common, "min": decode}}


def engine(version: str, startup_seconds: int = 2) -> dict[str, Any]:
    annotations = {"equipoise.dev/emulated-startup-seconds": str(startup_seconds)}
    return {"args": [f"--max-num-seqs={version}"], "podTemplate": {"metadata": {"annotations": annotations}}}


@dataclass
class Watch:
    """Replicas of a service as the API server shows them, sampled some times a second."""

    bound: int = 0
    least: dict[str, int] = field(default_factory=dict)
    samples: int = 0


def pods(stage: Stage, space: str) -> list[dict[str, Any]]:
    return list(stage.cluster.get_json("pods", "-n", space, "-l", "llm-d.ai/role")["items"])


def is_serving(pod: dict[str, Any], phase: str) -> bool:
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions", ())}
    found = pod["metadata"]["labels"]
    return conditions.get("Ready") == "True" and found["llm-d.ai/role"] == phase and not pod["metadata"].get("deletionTimestamp")


@contextmanager
def watching(stage: Stage, space: str) -> Iterator[Watch]:
    watch, stop = Watch(), threading.Event()

    def sample() -> None:
        while not stop.wait(0.2):
            found = pods(stage, space)
            watch.samples += 1
            watch.bound = max(watch.bound, sum(bool(pod["spec"].get("nodeName")) for pod in found))
            for phase in ("prefill", "decode"):
                serving = sum(is_serving(pod, phase) for pod in found)
                watch.least[phase] = min(watch.least.get(phase, serving), serving)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join(10)


def rollout(stage: Stage, space: str) -> dict[str, Any]:
    return dict(stage.service(space, "chat")["status"].get("rollout") or {})


def all_run(stage: Stage, space: str, argument: str, count: int) -> bool:
    """Whether exactly so many pods serve, all with that argument, and one Deployment per phase is left."""
    found = pods(stage, space)
    serve = [pod for pod in found if any(is_serving(pod, phase) for phase in ("prefill", "decode"))]
    left = stage.cluster.get_json("deployments", "-n", space, "-l", "equipoise.dev/variant")["items"]
    return (
        len(found) == len(serve) == count
        and len(left) == 2
        and all(argument in json.dumps(pod["spec"]["containers"]) for pod in serve)
    )


def begin(stage: Stage, space: str, apply_service: Apply, pool: str, **more: Any) -> None:
    from local_cluster import wait_until

    apply_service(ttft="5s", tpot="200ms", phases=phases(5, 2, pool), engine=engine("11"), **more)
    wait_until(lambda: all_run(stage, space, "--max-num-seqs=11", 7), 90, "seven replicas", poll_seconds=1.0)


def test_five_and_two_with_one_spare_gpu(stage: Stage, space: str, apply_service: Apply) -> None:
    """Eight GPUs for seven replicas: nothing is missing at any time, never more than eight; the operator dies on the way."""
    from local_cluster import wait_until

    pool = "a100-80gb"
    begin(stage, space, apply_service, pool)
    with watching(stage, space) as watch:
        apply_service(ttft="5s", tpot="200ms", phases=phases(5, 2, pool), engine=engine("22"))
        wait_until(lambda: rollout(stage, space).get("ready", 0) >= 2, 60, "two new replicas", poll_seconds=0.5)
        stage.kill_operator()
        stage.start_operator({"capacity": {"intervalSeconds": 2}})
        wait_until(lambda: all_run(stage, space, "--max-num-seqs=22", 7), 120, "the rollout", poll_seconds=1.0)
    assert watch.bound <= 8, f"{watch.bound} replicas held GPUs at once"
    assert watch.least == {"prefill": 5, "decode": 2}, f"least that served, in {watch.samples} looks"
    wait_until(lambda: not rollout(stage, space), 30, "the rollout to be over in status")
    assert len(stage.service(space, "chat")["status"]["revisions"]) == 2


def test_a_full_pool_and_a_broken_image(stage: Stage, space: str, apply_service: Apply) -> None:
    """Seven GPUs for seven replicas: one is missing at most. Then an image that never starts: both phases go back together."""
    from local_cluster import wait_until

    pool = "rtx-4090-24gb"
    more = {"capacity": {"maxGPUs": 7}, "rollout": {"progressDeadline": "12s"}}
    begin(stage, space, apply_service, pool, **more)
    with watching(stage, space) as watch:
        apply_service(ttft="5s", tpot="200ms", phases=phases(5, 2, pool), engine=engine("22"), **more)
        wait_until(lambda: all_run(stage, space, "--max-num-seqs=22", 7), 120, "the rollout", poll_seconds=1.0)
        good = stage.service(space, "chat")["status"]["revision"]
        broken = engine("33", startup_seconds=3600)
        apply_service(ttft="5s", tpot="200ms", phases=phases(5, 2, pool), engine=broken, **more)
        wait_until(lambda: rollout(stage, space).get("stage") == "RolledBack", 90, "the way back", poll_seconds=1.0)
        wait_until(
            lambda: all_run(stage, space, "--max-num-seqs=22", 7), 60, "all replicas of the good revision", poll_seconds=1.0
        )
    assert watch.bound <= 7, f"{watch.bound} replicas held GPUs at once"
    assert watch.least["prefill"] >= 4
    assert watch.least["decode"] >= 1
    status = stage.service(space, "chat")["status"]
    assert status["revision"] == good
    assert "had no further replica ready for 12 s" in status["rollout"]["reason"]
    assert next(item["status"] for item in status["conditions"] if item["type"] == "Ready") == "True"
