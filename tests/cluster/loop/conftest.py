"""One cluster with Equipoise installed for the tests of the whole loop: pools of 80, 48 and 24 GB, eight GPUs each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from equipoise_stage import Stage
    from local_cluster.options import Target

POOLS = (
    ("NVIDIA-A100-SXM4-80GB", 81920, "a100"),
    ("NVIDIA-L40S", 46068, "l40s"),
    ("NVIDIA-GeForce-RTX-4090", 24564, "rtx4090"),
)
GPUS_PER_NODE, NODES_PER_POOL = 4, 2
ALL_GPUS = len(POOLS) * GPUS_PER_NODE * NODES_PER_POOL

Apply = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Chart installed by Helm, one operator process running with the chart's rights, emulated engines behind the pods."""
    from equipoise_stage import Stage
    from local_cluster import ClusterOptions, LocalCluster

    target = cast("Target", request.config.getoption("--cluster-target"))
    options = ClusterOptions(name="loop", target=target, prometheus_scrape_interval_seconds=1.0, audit=target == "local")
    with LocalCluster.start(options) as cluster:
        cluster.add_cpu_nodes(2)
        for product, memory_mib, prefix in POOLS:
            cluster.add_gpu_nodes(product, memory_mib, GPUS_PER_NODE, NODES_PER_POOL, prefix=prefix)
        running = Stage(cluster)
        running.install_chart()
        running.start_operator({"capacity": {"intervalSeconds": 2}})
        running.start_emulator()
        yield running
        running.stop()


@pytest.fixture
def space(stage: Stage) -> Iterator[str]:
    """A namespace of the test's own; at the end its services are deleted and their GPUs are free again."""
    from local_cluster import wait_until

    name = f"loop-{secrets.token_hex(4)}"
    stage.cluster.kubectl("create", "namespace", name)
    yield name
    if stage.operator is None or not stage.operator.is_running:
        stage.start_operator({"capacity": {"intervalSeconds": 2}})
    stage.cluster.kubectl("delete", "inferenceservices", "--all", "-n", name, "--ignore-not-found")
    wait_until(lambda: not stage.cluster.get_json("pods", "-n", name)["items"], 60, f"the pods of {name} to go")
    stage.cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def apply_service(stage: Stage, space: str) -> Apply:
    """Apply an InferenceService: `apply_service("chat", ttft="1s", phases={...})`; returns it as the server has it."""

    def apply(name: str = "chat", *, uri: str = "hf://meta-llama/Llama-3.1-8B-Instruct", ttft: str = "1s", tpot: str = "50ms",
              **spec: Any) -> dict[str, Any]:  # fmt: skip
        manifest = {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": space},
            "spec": {"model": {"uri": uri, **spec.pop("model", {})}, "targets": {"ttft": ttft, "tpot": tpot}, **spec},
        }
        stage.cluster.apply([manifest])
        return stage.service(space, name)

    return apply
