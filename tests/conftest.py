"""Fixtures that every kind of test may use: the local cluster, a namespace on it, and clusters of a test's own."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "deploy" / "local"))

if TYPE_CHECKING:
    from local_cluster import ClusterOptions, LocalCluster
    from local_cluster.options import Target

ClusterFactory = Callable[["ClusterOptions | None"], "LocalCluster"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster-target",
        choices=("local", "kind", "kubeconfig"),
        default="local",
        help="where the tests of a cluster run: a control plane of their own (local), a kind cluster, or the current context",
    )


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """One cluster for all tests of the session, started by the first that asks for it; has two nodes without GPUs."""
    from local_cluster import ClusterOptions, LocalCluster

    target = cast("Target", request.config.getoption("--cluster-target"))
    options = ClusterOptions(name="tests", target=target, prometheus_scrape_interval_seconds=1.0, audit=target == "local")
    with LocalCluster.start(options) as running:
        running.add_cpu_nodes(2)
        yield running


@pytest.fixture
def namespace(cluster: LocalCluster) -> Iterator[str]:
    """A namespace of the test's own; at the end it is deleted and its pods have given their GPUs back."""
    from local_cluster import wait_until

    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    # Pods wait for this account; the controller-manager makes it a moment after the namespace.
    wait_until(lambda: cluster.kubectl("get", "serviceaccount", "default", "-n", name, "--ignore-not-found", "-o", "name"))
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
    # Nothing can be created in the namespace any more. Its own controller would begin with the pods 5 s later.
    cluster.kubectl("delete", "pods", "--all", "-n", name, "--wait=false")
    wait_until(
        lambda: not cluster.kubectl("get", "pods", "-n", name, "--ignore-not-found", "-o", "name"),
        timeout_seconds=60,
        description=f"the pods of namespace {name} to go",
    )


@pytest.fixture
def cluster_factory() -> Iterator[ClusterFactory]:
    """Starts clusters of the test's own: `cluster_factory(ClusterOptions(...))`; all are stopped at the test's end."""
    from local_cluster import ClusterOptions, LocalCluster

    with ExitStack() as stack:

        def start(options: ClusterOptions | None = None) -> LocalCluster:
            return stack.enter_context(LocalCluster.start(options or ClusterOptions(name="own")))

        yield start
