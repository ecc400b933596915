"""The API server goes away under a running operator: a short absence is survived, a long one ends the leader and nobody else."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from local_cluster import LocalCluster

PROGRAM = Path(__file__).with_name("test_infrastructure_process.py")


@pytest.fixture
def own(cluster_factory: Any) -> LocalCluster:
    from local_cluster import ClusterOptions

    running: LocalCluster = cluster_factory(ClusterOptions(name="outage", with_kwok=False, with_prometheus=False))
    running.kubectl("apply", "--server-side", "-f", str(PROGRAM.parents[2] / "crds"))
    running.kubectl("create", "namespace", "prod")
    return running


def test_short_and_long_absences_of_the_api_server(own: LocalCluster, tmp_path: Path) -> None:
    rig = _program()
    settings = {
        "kubeconfig": str(own.kubeconfig),
        "http": {"host": "127.0.0.1", "port": 0},
        "leaderElection": {"namespace": "prod"},
    }
    operator = rig.Operator(tmp_path, "operator", settings)
    try:
        rig.until(operator.leads)
        own.apply([rig.service("prod")])
        rig.until(lambda: rig.seen(own, "prod"))

        own.stop_component("kube-apiserver", grace_seconds=0)
        own.start_component("kube-apiserver")
        own.kubectl("delete", "serviceaccount", "chat-seen", "-n", "prod")
        rig.until(lambda: rig.seen(own, "prod"), 60, "the child to come back after a short outage")
        assert operator.process.poll() is None, "a short outage must be survived"

        own.stop_component("kube-apiserver", grace_seconds=0)
        assert operator.process.wait(timeout=30) == 1
        assert any("leadership lost" in line["message"] for line in operator.lines())

        waiting = rig.Operator(tmp_path, "waiting", settings)  # as the kubelet would, while the API server is still away
        try:
            rig.until(lambda: waiting.fetch("/livez")[0] == 200)
            own.start_component("kube-apiserver")
            rig.until(waiting.leads, 60)
            assert waiting.end(signal.SIGTERM) == 0
        finally:
            waiting.process.kill()
            waiting.process.wait()
    finally:
        operator.process.kill()
        operator.process.wait()


def _program() -> Any:
    """The module with the small operator; tests are no package, so it is loaded by its path."""
    spec = importlib.util.spec_from_file_location("infrastructure_process", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
