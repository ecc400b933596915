"""The local cluster's processes: side by side, stopped and started again, lost, and gone when their parent is gone."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from local_cluster import ClusterOptions, LocalCluster

LOCAL = Path(__file__).parents[2] / "deploy" / "local"
ClusterFactory = Callable[["ClusterOptions | None"], "LocalCluster"]

PARENT = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from local_cluster import ClusterOptions, LocalCluster
cluster = LocalCluster.start(ClusterOptions(name="orphan"))
names = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "prometheus"]
print(json.dumps({"pids": [cluster.component_pid(name) for name in names], "folder": str(cluster.folder)}), flush=True)
sys.stdin.read()
"""


def pod_status(cluster: LocalCluster, name: str) -> dict[str, Any]:
    status: dict[str, Any] = cluster.get_json("pod", name, "-n", "default")["status"]
    return status


def is_ready(cluster: LocalCluster, name: str) -> bool:
    conditions = pod_status(cluster, name).get("conditions", [])
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def answers(cluster: LocalCluster, expression: str) -> list[dict[str, Any]]:
    return cluster.prometheus_query(expression)


def test_clusters_side_by_side_share_nothing(cluster_factory: ClusterFactory, make_pod: Any) -> None:
    from local_cluster import ClusterOptions, wait_until

    pair = [cluster_factory(ClusterOptions(name=name, with_prometheus=False)) for name in ("one", "two")]
    one, two = pair
    assert one.server_url != two.server_url
    assert not ipaddress.ip_network(one.pod_cidr).overlaps(ipaddress.ip_network(two.pod_cidr))
    for cluster in pair:
        cluster.add_cpu_nodes(1)
        cluster.apply([make_pod("same-name", "default")])
        wait_until(partial(is_ready, cluster, "same-name"))
        address = ipaddress.ip_address(pod_status(cluster, "same-name")["podIP"])
        assert address in ipaddress.ip_network(cluster.pod_cidr)
    one.kubectl("delete", "pod", "same-name")
    assert is_ready(two, "same-name")
    folders = [cluster.folder for cluster in pair]
    pids = [cluster.component_pid("kube-apiserver") for cluster in pair]
    one.stop()
    assert (folders[0].exists(), folders[1].exists()) == (False, True)
    assert [is_running(pid) for pid in pids] == [False, True]
    two.kubectl("get", "nodes")


def test_each_component_can_be_stopped_and_started_again(cluster_factory: ClusterFactory, make_pod: Any) -> None:
    from local_cluster import ClusterOptions, LocalClusterError, wait_until

    cluster = cluster_factory(ClusterOptions(name="restarts", prometheus_scrape_interval_seconds=0.5))
    cluster.add_cpu_nodes(1)
    cluster.apply([make_pod("before", "default")])
    wait_until(lambda: is_ready(cluster, "before"))

    cluster.stop_component("kube-scheduler")
    with pytest.raises(LocalClusterError, match="kube-scheduler is not running"):
        cluster.component_pid("kube-scheduler")
    cluster.apply([make_pod("waits", "default")])
    cluster.start_component("kube-scheduler")
    wait_until(lambda: is_ready(cluster, "waits"))
    assert pod_status(cluster, "waits")["startTime"] >= pod_status(cluster, "before")["startTime"]

    first = cluster.component_pid("kwok")
    cluster.stop_component("kwok", grace_seconds=0)
    cluster.apply([make_pod("unseen", "default")])
    wait_until(lambda: bool(cluster.get_json("pod", "unseen")["spec"].get("nodeName")), description="a binding")
    assert pod_status(cluster, "unseen")["phase"] == "Pending"
    cluster.start_component("kwok")
    assert cluster.component_pid("kwok") != first
    wait_until(lambda: is_ready(cluster, "unseen"))
    addresses = [pod_status(cluster, name)["podIP"] for name in ("before", "waits", "unseen")]
    assert len(set(addresses)) == 3

    url = cluster.prometheus_url
    wait_until(lambda: answers(cluster, "vector(1)"))
    cluster.stop_component("prometheus")
    with pytest.raises(OSError, match="refused"):
        cluster.prometheus_query("vector(1)")
    cluster.start_component("prometheus")
    assert (cluster.prometheus_url, len(answers(cluster, "vector(1)"))) == (url, 1)

    cluster.stop_component("kube-controller-manager")
    cluster.stop_component("kube-apiserver", grace_seconds=0)
    cluster.start_component("kube-apiserver")
    cluster.start_component("kube-controller-manager")
    cluster.apply([make_pod("after", "default")])
    wait_until(lambda: is_ready(cluster, "after"))
    with pytest.raises(LocalClusterError, match="no component 'kubelet'; it has etcd, kube-apiserver"):
        cluster.stop_component("kubelet")


def test_a_killed_parent_leaves_nothing() -> None:
    from local_cluster import ensure_built, wait_until

    ensure_built()
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(LOCAL)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        started = json.loads(parent.stdout.readline())
        assert all(is_running(pid) for pid in started["pids"])
        # The whole group, as a terminal or a CI runner does it.
        os.killpg(parent.pid, signal.SIGKILL)
    wait_until(lambda: not any(is_running(pid) for pid in started["pids"]), 15, "the orphaned processes to end")
    wait_until(lambda: not Path(started["folder"]).exists(), 15, "the throw-away folder to go")


def test_a_cluster_that_is_there_already_can_be_used(cluster_factory: ClusterFactory, make_pod: Any) -> None:
    """The target `kubeconfig`: nothing but KWOK and Prometheus is started, and what was added goes at the end."""
    from local_cluster import ClusterOptions, LocalClusterError, wait_until

    host = cluster_factory(ClusterOptions(name="host", with_kwok=False, with_prometheus=False))
    with pytest.raises(LocalClusterError, match="started without Prometheus"):
        _ = host.prometheus_url
    guest = cluster_factory(ClusterOptions(name="guest", target="kubeconfig", kubeconfig=host.kubeconfig))
    assert guest.server_url == host.server_url
    assert guest.admin_token == host.admin_token
    assert guest.ca_file.read_bytes() == host.ca_file.read_bytes()
    with pytest.raises(LocalClusterError, match="no component 'kube-apiserver'; it has kwok, prometheus"):
        guest.component_pid("kube-apiserver")
    (node,) = guest.add_cpu_nodes(1)
    guest.apply([make_pod("guest", "default")])
    wait_until(lambda: is_ready(host, "guest"))
    guest.stop()
    remaining = [item["metadata"]["name"] for item in host.get_json("nodes")["items"]]
    assert node not in remaining
    assert not host.get_json("pods", "-n", "default")["items"]


def test_a_lost_node_is_noticed_by_the_control_plane_and_comes_back(cluster_factory: ClusterFactory, make_pod: Any) -> None:
    from local_cluster import ClusterOptions, wait_until

    cluster = cluster_factory(ClusterOptions(name="loss", node_grace_seconds=6, with_prometheus=False))
    (node,) = cluster.add_gpu_nodes("NVIDIA-L40S", 46068, 4, 1, prefix="l40s")
    cluster.apply([make_pod("engine", "default", gpus=1)])
    wait_until(lambda: is_ready(cluster, "engine"))
    cluster.lose_node(node)
    wait_until(lambda: not is_ready(cluster, "engine"), description="the pod to be marked not Ready")
    taints = [taint["key"] for taint in cluster.get_json("node", node)["spec"]["taints"]]
    assert "node.kubernetes.io/unreachable" in taints
    cluster.kubectl("delete", "pod", "engine", "--wait=false")
    assert "deletionTimestamp" in cluster.get_json("pod", "engine")["metadata"]
    cluster.recover_node(node)
    wait_until(lambda: not cluster.get_json("pods")["items"], description="the node to finish the deletion")


def test_what_fails_to_start_shows_its_log_and_leaves_nothing(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    from local_cluster import ClusterOptions, LocalClusterError

    name = f"broken-{secrets.token_hex(4)}"
    broken = tmp_path / "broken.yaml"
    broken.write_text("apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: broken}\nspec: {next: {delete: 7}}\n")
    with pytest.raises(LocalClusterError, match=r"(?s)kwok ended with exit code 1 while starting.*delete"):
        cluster_factory(ClusterOptions(name=name, extra_stage_files=(broken,), with_prometheus=False))
    assert not list(Path(tempfile.gettempdir()).glob(f"equipoise-{name}-*"))


def test_a_kept_folder_goes_on_where_it_was(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    from local_cluster import ClusterOptions

    options = ClusterOptions(name="kept", folder=tmp_path / "cluster", with_prometheus=False)
    first = cluster_factory(options)
    first.kubectl("create", "configmap", "remembered", "-n", "default")
    first.stop()
    assert (tmp_path / "cluster" / "logs" / "kube-apiserver.log").is_file()
    second = cluster_factory(options)
    assert second.get_json("configmap", "remembered", "-n", "default")["metadata"]["name"] == "remembered"


def test_off_loopback_a_service_has_endpoints(cluster_factory: ClusterFactory, make_pod: Any) -> None:
    from local_cluster import ClusterOptions, wait_until

    cluster = cluster_factory(ClusterOptions(name="endpoints", pod_cidr="10.244.0.0/16", with_prometheus=False))
    cluster.add_cpu_nodes(1)
    cluster.apply([make_pod("router", "default", labels={"app": "router"})])
    cluster.kubectl("create", "service", "clusterip", "router", "--tcp=80:8000")

    def addresses() -> list[str]:
        slices = cluster.get_json("endpointslices", "-l", "kubernetes.io/service-name=router")["items"]
        return [address for item in slices for endpoint in item["endpoints"] or [] for address in endpoint["addresses"]]

    wait_until(addresses, description="the Service to have an endpoint")
    assert addresses() == [pod_status(cluster, "router")["podIP"]] == ["10.244.0.1"]
