"""`equipoise plan --fleet live` on a real API server: nodes and pods as they are there, strangers' GPUs left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from local_cluster import LocalCluster

EQUIPOISE = Path(sys.executable).parent / "equipoise"
POOL = "b200-180gb"
SERVICE = """
apiVersion: equipoise.dev/v1alpha1
kind: InferenceService
metadata: {name: chat, namespace: %s}
spec:
  model: {uri: "hf://meta-llama/Llama-3.1-8B-Instruct"}
  targets: {ttft: 500ms, tpot: 50ms}
  phases: {prefill: {pools: [%s]}, decode: {pools: [%s]}}
"""


@pytest.fixture
def nodes(cluster: LocalCluster) -> Iterator[list[str]]:
    """Two nodes of a device that no other test uses, four GPUs each."""
    names = cluster.add_gpu_nodes("NVIDIA-B200", 183359, 4, 2, prefix="plan")
    yield names
    cluster.remove_nodes(names)


@pytest.fixture
def plan(cluster: LocalCluster, namespace: str, nodes: list[str], tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    (tmp_path / "service.yaml").write_text(SERVICE % (namespace, POOL, POOL))

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        command: list[str | Path] = [
            EQUIPOISE, "plan", "-f", tmp_path / "service.yaml", "--fleet", "live", "--output", "json",
            "--demand", "requests=40/s,prompt=1155,output=211", *arguments,
        ]  # fmt: skip
        found = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert found.returncode in (0, 1), found.stderr
        return found.returncode, json.loads(found.stdout)

    return run


def pool(found: dict[str, Any]) -> dict[str, Any]:
    pools: list[dict[str, Any]] = found["fleet"]["pools"]
    return next(entry for entry in pools if entry["name"] == POOL)


def test_the_fleet_is_what_the_cluster_has_and_strangers_leave(
    cluster: LocalCluster,
    namespace: str,
    nodes: list[str],
    make_pod: Callable[..., dict[str, Any]],
    plan: Callable[..., tuple[int, dict[str, Any]]],
) -> None:
    from local_cluster import wait_until

    code, empty = plan()
    assert (pool(empty)["device"], pool(empty)["nodes"], pool(empty)["usableGPUs"]) == ("B200", 2, 8)
    assert code == 0
    assert empty["covered"]
    assert 2 <= pool(empty)["plannedGPUs"] <= 8

    selector = {"kubernetes.io/hostname": nodes[0]}
    cluster.apply([make_pod("stranger", namespace, gpus=3, node_selector=selector)])
    # Its own replicas are what is planned with, so they hold nothing.
    labels = {
        "app.kubernetes.io/managed-by": "equipoise", "equipoise.dev/service": "chat",
        "app.kubernetes.io/component": "decode", "llm-d.ai/role": "decode",
        "equipoise.dev/pool": POOL, "equipoise.dev/shape": "tp1-bf16",
    }  # fmt: skip
    cluster.apply([make_pod("mine", namespace, gpus=1, node_selector=selector, labels=labels)])
    wait_until(lambda: {pod["spec"].get("nodeName") for pod in cluster.get_json("pods", "-n", namespace)["items"]} == {nodes[0]})
    _, shared = plan()
    assert pool(shared)["usableGPUs"] == 5

    cluster.kubectl("cordon", nodes[1])
    code, tight = plan("--demand", "requests=4000/s")
    assert pool(tight)["usableGPUs"] == 1
    assert pool(tight)["plannedGPUs"] <= 1
    assert code == 1
    assert not tight["covered"]
    placed = [
        node
        for phase in tight["services"][0]["plan"]["phases"].values()
        for variant in phase["variants"]
        for node in variant["nodes"]
    ]
    assert set(placed) <= {nodes[0]}


def test_tables_name_the_pool(cluster: LocalCluster, namespace: str, nodes: list[str], tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(SERVICE % (namespace, POOL, POOL))
    found = subprocess.run(
        [EQUIPOISE, "plan", "-f", tmp_path / "service.yaml", "--live", "--demand", "requests=5/s"],
        env=cluster.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert POOL in found.stdout
    assert "…" not in found.stdout
