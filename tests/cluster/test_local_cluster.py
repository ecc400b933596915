"""The local cluster behaves like a real one where the operator looks: scheduling, readiness, adoption, discovery, rights."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from local_cluster import LocalCluster


def condition(cluster: LocalCluster, namespace: str, pod: str, kind: str) -> dict[str, Any]:
    conditions = cluster.get_json("pod", pod, "-n", namespace)["status"].get("conditions", [])
    found: dict[str, Any] = next((item for item in conditions if item["type"] == kind), {})
    return found


def is_ready(cluster: LocalCluster, namespace: str, pod: str) -> bool:
    return condition(cluster, namespace, pod, "Ready").get("status") == "True"


def seconds_until(condition_holds: Any, timeout_seconds: float = 30.0, description: str = "") -> float:
    from local_cluster import wait_until

    started = time.monotonic()
    wait_until(condition_holds, timeout_seconds, description or "the condition", poll_seconds=0.02)
    return time.monotonic() - started


@pytest.fixture
def pool(cluster: LocalCluster) -> Iterator[dict[str, str]]:
    """A node with eight GPUs of the test's own; the value selects it."""
    name = f"pool-{secrets.token_hex(3)}"
    nodes = cluster.add_gpu_nodes("NVIDIA-H100-80GB-HBM3", 81559, 8, 1, prefix=name, labels={"test/pool": name})
    yield {"test/pool": name}
    cluster.remove_nodes(nodes)


@contextmanager
def engine_at(address: str, metrics: str) -> Iterator[int]:
    """A small server on a pod's address; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(metrics.encode())

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    port = 8000 if address != "127.0.0.1" else 0
    with ThreadingHTTPServer((address, port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_versions_are_the_pinned_ones(cluster: LocalCluster) -> None:
    server = json.loads(cluster.kubectl("version", "-o", "json"))["serverVersion"]
    assert server["minor"] == "36"
    assert server["gitVersion"].startswith("v1.36.")
    assert cluster.helm("version", "--short").startswith("v4.")


def test_a_node_looks_as_gpu_feature_discovery_leaves_it(cluster: LocalCluster, pool: dict[str, str]) -> None:
    (node,) = cluster.get_json("nodes", "-l", f"test/pool={pool['test/pool']}")["items"]
    labels = node["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert (labels["nvidia.com/gpu.memory"], labels["nvidia.com/gpu.count"]) == ("81559", "8")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in node["spec"]["taints"]


def test_the_ninth_gpu_stays_pending(cluster: LocalCluster, namespace: str, pool: dict[str, str], make_pod: Any) -> None:
    cluster.apply([make_pod(f"engine-{n}", namespace, gpus=4, node_selector=pool) for n in range(2)])
    seconds_until(lambda: all(is_ready(cluster, namespace, f"engine-{n}") for n in range(2)))
    cluster.apply([make_pod("ninth", namespace, gpus=1, node_selector=pool)])
    seconds_until(lambda: condition(cluster, namespace, "ninth", "PodScheduled").get("reason") == "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in condition(cluster, namespace, "ninth", "PodScheduled")["message"]
    cluster.kubectl("delete", "pod", "engine-0", "-n", namespace)
    seconds_until(lambda: is_ready(cluster, namespace, "ninth"), description="the ninth pod to get the freed GPU")


def test_a_pod_without_toleration_stays_off_gpu_nodes(
    cluster: LocalCluster, namespace: str, pool: dict[str, str], make_pod: Any
) -> None:
    cluster.apply([make_pod("router", namespace, node_selector=pool)])
    seconds_until(lambda: condition(cluster, namespace, "router", "PodScheduled").get("reason") == "Unschedulable")
    assert "untolerated taint" in condition(cluster, namespace, "router", "PodScheduled")["message"]


def test_start_up_takes_as_long_as_asked_and_a_change_does_not_prolong_it(
    cluster: LocalCluster, namespace: str, make_pod: Any
) -> None:
    startup = {"equipoise.dev/emulated-startup-seconds": "2.5"}
    started = time.monotonic()
    cluster.apply([make_pod("slow", namespace, annotations=startup), make_pod("quick", namespace)])
    seconds_until(lambda: is_ready(cluster, namespace, "quick"))
    status = cluster.get_json("pod", "slow", "-n", namespace)["status"]
    assert (status["phase"], status["containerStatuses"][0]["started"]) == ("Running", False)
    assert status["podIP"].startswith(cluster.pod_cidr.split(".0.0/")[0]) or cluster.options.target != "local"
    assert condition(cluster, namespace, "slow", "Ready")["reason"] == "ContainersNotReady"
    cluster.kubectl("label", "pod", "slow", "-n", namespace, "changed=meanwhile")
    seconds_until(lambda: is_ready(cluster, namespace, "slow"))
    elapsed = time.monotonic() - started
    assert 2.5 <= elapsed < 4.5
    assert cluster.get_json("pod", "slow", "-n", namespace)["status"]["containerStatuses"][0]["ready"] is True
    assert "reason" not in condition(cluster, namespace, "slow", "Ready")


def test_termination_takes_as_long_as_asked_within_the_grace_period(cluster: LocalCluster, namespace: str, make_pod: Any) -> None:
    asked = {"equipoise.dev/emulated-termination-seconds": "1.5"}
    too_long = {"equipoise.dev/emulated-termination-seconds": "600"}
    cluster.apply(
        [
            make_pod("at-once", namespace),
            make_pod("drains", namespace, annotations=asked),
            make_pod("cut-off", namespace, annotations=too_long, grace_seconds=2),
        ]
    )
    seconds = {}
    for name in ("at-once", "drains", "cut-off"):
        seconds_until(lambda name=name: is_ready(cluster, namespace, name))
        started = time.monotonic()
        cluster.kubectl("delete", "pod", name, "-n", namespace, "--wait=true")
        seconds[name] = time.monotonic() - started
    assert seconds["at-once"] < 1.4
    assert 1.5 <= seconds["drains"] < 3.5
    assert 2.0 <= seconds["cut-off"] < 4.0


def test_readiness_gates_decide_over_ready(cluster: LocalCluster, namespace: str, make_pod: Any) -> None:
    gate = "equipoise.dev/serving"
    cluster.apply([make_pod("gated", namespace, readiness_gates=[gate])])
    seconds_until(lambda: condition(cluster, namespace, "gated", "ContainersReady").get("status") == "True")
    assert condition(cluster, namespace, "gated", "Ready")["reason"] == "ReadinessGatesNotReady"
    for status in ("True", "False", "True"):
        patch = json.dumps({"status": {"conditions": [{"type": gate, "status": status}]}})
        cluster.kubectl("patch", "pod", "gated", "-n", namespace, "--subresource=status", "-p", patch)
        seconds_until(lambda status=status: is_ready(cluster, namespace, "gated") is (status == "True"))


def test_a_container_that_cannot_start_and_a_probe_that_fails(cluster: LocalCluster, namespace: str, make_pod: Any) -> None:
    cluster.apply([make_pod("broken", namespace, annotations={"equipoise.dev/emulated-start-failure": "ImagePullBackOff"})])
    seconds_until(lambda: condition(cluster, namespace, "broken", "Ready").get("status") == "False")
    status = cluster.get_json("pod", "broken", "-n", namespace)["status"]
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert (status["phase"], "podIP" in status) == ("Pending", False)
    cluster.kubectl("annotate", "pod", "broken", "-n", namespace, "equipoise.dev/emulated-start-failure-")
    seconds_until(lambda: is_ready(cluster, namespace, "broken"))
    assert "message" not in condition(cluster, namespace, "broken", "Ready")
    cluster.kubectl("annotate", "pod", "broken", "-n", namespace, "equipoise.dev/emulated-ready=false")
    seconds_until(lambda: not is_ready(cluster, namespace, "broken"))
    cluster.kubectl("annotate", "pod", "broken", "-n", namespace, "equipoise.dev/emulated-ready-")
    seconds_until(lambda: is_ready(cluster, namespace, "broken"))


def test_prometheus_finds_an_engine_at_its_pods_address(cluster: LocalCluster, namespace: str, make_pod: Any) -> None:
    labels = {
        "app.kubernetes.io/managed-by": "equipoise",
        "llm-d.ai/role": "decode",
        "equipoise.dev/service": "chat",
        "equipoise.dev/variant": "chat-decode-l40s",
    }
    cluster.apply([make_pod("engine", namespace, labels=labels), make_pod("other", namespace)])
    seconds_until(lambda: is_ready(cluster, namespace, "engine") and is_ready(cluster, namespace, "other"))
    address = cluster.get_json("pod", "engine", "-n", namespace)["status"]["podIP"]
    query = f'num_requests_running{{namespace="{namespace}"}}'
    with engine_at(address, "num_requests_running 7\n"):
        seconds_until(lambda: bool(cluster.prometheus_query(query)), description="Prometheus to find the engine")
    (series,) = cluster.prometheus_query(query)
    assert series["value"][1] == "7"
    expected = {"pod": "engine", "llm_d_ai_role": "decode", "equipoise_dev_service": "chat"}
    assert expected.items() <= series["metric"].items()
    assert series["metric"]["equipoise_dev_variant"] == "chat-decode-l40s"
    assert series["metric"]["instance"] == f"{address}:8000"
    # A pod that is not Equipoise's is left alone.
    assert {row["metric"]["pod"] for row in cluster.prometheus_query(f'up{{namespace="{namespace}"}}')} == {"engine"}


def test_prometheus_takes_a_static_target_while_it_runs(cluster: LocalCluster) -> None:
    with engine_at("127.0.0.1", "operator_rounds_total 3\n") as port:
        cluster.add_static_target(f"127.0.0.1:{port}", {"part": "operator"})
        query = 'operator_rounds_total{job="static",part="operator"}'
        seconds_until(lambda: bool(cluster.prometheus_query(query)), description="Prometheus to scrape the new target")


def deployment(namespace: str, role: str, replicas: int, pool: dict[str, str], make_pod: Any) -> dict[str, Any]:
    labels = {"app": "chat", "role": role}
    pod = make_pod("unnamed", namespace, gpus=1, labels=labels, node_selector=pool)
    spec = {**pod["spec"], "restartPolicy": "Always"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": role, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def test_a_pod_changes_role_by_adoption_without_a_restart(
    cluster: LocalCluster, namespace: str, pool: dict[str, str], make_pod: Any
) -> None:
    """Receiver up, label, donor down: the same pod, on the same node, ends up in the other Deployment on a full pool."""
    # Four slots: the rest of the node is taken.
    cluster.apply([make_pod("filler", namespace, gpus=4, node_selector=pool)])
    cluster.apply([deployment(namespace, "decode", 3, pool, make_pod), deployment(namespace, "prefill", 1, pool, make_pod)])

    def available(name: str) -> int:
        return int(cluster.get_json("deployment", name, "-n", namespace)["status"].get("availableReplicas", 0))

    seconds_until(lambda: (available("decode"), available("prefill")) == (3, 1))
    replica_set = cluster.get_json("replicasets", "-n", namespace, "-l", "role=prefill")["items"][0]["metadata"]
    pod = cluster.get_json("pods", "-n", namespace, "-l", "role=decode")["items"][0]
    name = pod["metadata"]["name"]
    cluster.kubectl("scale", "deployment/prefill", "-n", namespace, "--replicas=2")
    template_hash = replica_set["labels"]["pod-template-hash"]
    cluster.kubectl("label", "pod", name, "-n", namespace, "--overwrite", "role=prefill", f"pod-template-hash={template_hash}")
    cluster.kubectl("scale", "deployment/decode", "-n", namespace, "--replicas=2")

    def settled() -> bool:
        pods = cluster.get_json("pods", "-n", namespace, "-l", "app=chat")["items"]
        return (available("decode"), available("prefill"), len(pods)) == (2, 2, 4)

    seconds_until(settled, description="both Deployments to have two available pods and nothing more")
    flipped = cluster.get_json("pod", name, "-n", namespace)
    assert flipped["metadata"]["uid"] == pod["metadata"]["uid"]
    assert flipped["metadata"]["ownerReferences"][0]["name"] == replica_set["name"]
    assert flipped["spec"]["nodeName"] == pod["spec"]["nodeName"]
    assert flipped["status"]["podIP"] == pod["status"]["podIP"]
    assert flipped["status"]["startTime"] == pod["status"]["startTime"]
    assert flipped["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_service_account_has_its_own_rights_only(cluster: LocalCluster, namespace: str) -> None:
    from local_cluster import CommandError

    cluster.kubectl("create", "serviceaccount", "reader", "-n", namespace)
    cluster.kubectl("create", "role", "reader", "-n", namespace, "--verb=get,list", "--resource=pods")
    cluster.kubectl("create", "rolebinding", "reader", "-n", namespace, "--role=reader", f"--serviceaccount={namespace}:reader")
    kubeconfig = cluster.service_account_kubeconfig(namespace, "reader")
    as_reader = ("--kubeconfig", str(kubeconfig))
    seconds_until(lambda: cluster.kubectl(*as_reader, "auth", "can-i", "list", "pods").strip() == "yes")
    cluster.kubectl(*as_reader, "get", "pods")
    with pytest.raises(CommandError, match="forbidden"):
        cluster.kubectl(*as_reader, "get", "nodes")
    with pytest.raises(CommandError, match="forbidden"):
        cluster.kubectl(*as_reader, "create", "configmap", "anything")


def test_the_audit_log_tells_who_wrote_what(cluster: LocalCluster, namespace: str) -> None:
    from local_cluster import audited_requests

    if cluster.audit_log is None:
        pytest.skip("only our own API server writes an audit log; run with --cluster-target local")
    log = cluster.audit_log
    cluster.kubectl("create", "configmap", "counted", "-n", namespace)
    cluster.kubectl("label", "configmap", "counted", "-n", namespace, "a=b")
    cluster.kubectl("get", "configmap", "counted", "-n", namespace)

    def writes() -> list[str]:
        found = audited_requests(log, user="equipoise-admin", writes_only=True)
        return [request.verb for request in found if (request.namespace, request.name) == (namespace, "counted")]

    seconds_until(lambda: len(writes()) >= 2)
    assert writes() == ["create", "patch"]
