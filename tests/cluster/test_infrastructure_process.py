"""The operator's process on the real API server, with a small application in it: start, probes, repair, take-over, end.

Run as a program, this file is that operator; the tests start it and watch it from outside, as a cluster would.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from equipoise.api import labels
from equipoise.api.identity import ServiceKey
from equipoise.reconcile.contract import Context
from equipoise.reconcile.events import EventType
from equipoise.reconcile.kube.kinds import INFERENCE_SERVICE, POD, POD_MONITOR, SERVICE_ACCOUNT, Kind
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.main import main
from equipoise.reconcile.queue import Result
from equipoise.reconcile.settings import load_settings

if TYPE_CHECKING:
    from local_cluster import LocalCluster

CRDS = Path(__file__).parents[2] / "crds"


class OneAccountEach:
    """Keeps one ServiceAccount per service, annotated with how many pods with GPUs it sees and whether PodMonitors are served."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def reconcile(self, key: ServiceKey) -> Result:
        store, api = self._context.store, self._context.api
        service = store.service(key)
        if service is None:
            return Result()
        if "crash" in (service["metadata"].get("annotations") or {}):
            raise RuntimeError("told to crash")
        metadata: Object = {
            "name": f"{key.name}-seen",
            "namespace": key.namespace,
            "labels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE, labels.SERVICE: key.name},
            "ownerReferences": [
                {
                    "apiVersion": service["apiVersion"],
                    "kind": service["kind"],
                    "name": key.name,
                    "uid": service["metadata"]["uid"],
                    "controller": True,
                }
            ],
        }
        data = {"podMonitors": str(store.listed(POD_MONITOR)), "pods": str(store.count(POD))}
        found = store.get(SERVICE_ACCOUNT, key.namespace, metadata["name"])
        if found is None or found["metadata"].get("annotations") != data:
            intent = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "annotations": data}}
            store.upsert(SERVICE_ACCOUNT, await api.apply(intent))
            self._context.events.emit(service, EventType.NORMAL, "Applied", "the ServiceAccount was applied")
        return Result()

    async def capacity_round(self) -> float:
        return 1.0

    def affected_keys(self, kind: Kind, obj: Object) -> Set[ServiceKey]:
        metadata = obj["metadata"]
        if kind == INFERENCE_SERVICE:
            return {ServiceKey(metadata["namespace"], metadata["name"])}
        if kind == POD:
            return set(self._context.store.services())
        name = (metadata.get("labels") or {}).get(labels.SERVICE)
        return {ServiceKey(metadata["namespace"], name)} if name else set()


class Operator:
    """The process, seen from outside."""

    def __init__(self, folder: Path, name: str, settings: dict[str, Any]) -> None:
        config = folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(settings))
        self.log = folder / f"{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, __file__, str(config)], stderr=log, stdout=log)
        self._port: int | None = None

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    @property
    def port(self) -> int:
        if self._port is None:
            (line,) = [line for line in self.lines() if "port" in line and line["logger"].endswith("process")]
            self._port = int(line["port"])
        return self._port

    def fetch(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **match: str) -> float:
        """The sum over all series that match."""
        _, text = self.fetch("/metrics")
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and match.items() <= sample.labels.items()
        )

    def leads(self) -> bool:
        return self.metric("equipoise_leader") == 1 and self.fetch("/readyz") == (200, "[+] store: ok\n")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=30)


Start = Callable[..., Operator]


@pytest.fixture(autouse=True)
def crds(cluster: LocalCluster) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))


@pytest.fixture
def start(cluster: LocalCluster, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Starts operators that serve the test's namespace only."""
    with ExitStack() as stack:

        def begin(name: str = "operator", **settings: Any) -> Operator:
            operator = Operator(
                tmp_path,
                name,
                {
                    "kubeconfig": str(cluster.kubeconfig),
                    "namespaces": [namespace],
                    "http": {"host": "127.0.0.1", "port": 0},
                    "leaderElection": {"namespace": namespace},
                    **settings,
                },
            )

            def clean_up() -> None:
                operator.process.kill()
                operator.process.wait()

            stack.callback(clean_up)
            return operator

        yield begin


def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    from local_cluster import wait_until

    return wait_until(condition, timeout_seconds=seconds, description=what or "the condition", poll_seconds=0.05)


def service(namespace: str, name: str = "chat", **annotations: str) -> Object:
    return {
        "apiVersion": INFERENCE_SERVICE.api_version,
        "kind": INFERENCE_SERVICE.kind,
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"model": {"uri": "hf://org/model"}, "targets": {"ttft": "500ms", "tpot": "50ms"}},
    }


def seen(cluster: LocalCluster, namespace: str, name: str = "chat") -> dict[str, str]:
    found = cluster.kubectl("get", "serviceaccount", f"{name}-seen", "-n", namespace, "--ignore-not-found", "-o", "json")
    data: dict[str, str] = json.loads(found)["metadata"].get("annotations", {}) if found else {}
    return data


def test_it_makes_children_repairs_them_and_rests(start: Start, cluster: LocalCluster, namespace: str) -> None:
    operator = start()
    until(operator.leads)
    cluster.apply([service(namespace)])
    until(lambda: seen(cluster, namespace))

    cluster.kubectl("delete", "serviceaccount", "chat-seen", "-n", namespace)
    until(lambda: seen(cluster, namespace), what="the deleted child to come back")
    cluster.kubectl("annotate", "serviceaccount", "chat-seen", "-n", namespace, "--overwrite", "pods=99")
    until(lambda: seen(cluster, namespace).get("pods") == "0", what="the edited child to be put right")

    until(lambda: operator.metric("equipoise_api_writes_total", kind="Event") >= 1)
    written = operator.metric("equipoise_api_writes_total", kind="ServiceAccount")
    rounds = operator.metric("equipoise_capacity_round_seconds_count")
    until(lambda: operator.metric("equipoise_capacity_round_seconds_count") >= rounds + 3)
    assert operator.metric("equipoise_api_writes_total", kind="ServiceAccount") == written == 3

    stored = cluster.get_json("inferenceservice", "chat", "-n", namespace)["metadata"]
    assert "finalizers" not in stored
    assert stored.get("annotations", {}) == {}
    assert "Applied" in cluster.kubectl("events", "-n", namespace, "--for", "inferenceservice/chat")


def test_probes_answer_and_sigterm_ends_it_in_order(start: Start, cluster: LocalCluster, namespace: str) -> None:
    operator = start()
    until(operator.leads)
    status, text = operator.fetch("/livez")
    assert status == 200
    assert {line.split("] ")[1] for line in text.splitlines()} == {
        "event-loop: ok",
        "reconciles: ok",
        "capacity: ok",
        "watches: ok",
    }
    began = time.monotonic()
    assert operator.end(signal.SIGTERM) == 0
    assert time.monotonic() - began < 20
    lease = cluster.get_json("lease", "equipoise-leader", "-n", namespace)
    assert lease["spec"].get("holderIdentity", "") == ""
    assert [line["level"] for line in operator.lines() if line["level"] in ("error", "critical")] == []


def test_a_standby_takes_over_within_fifteen_seconds_of_a_kill_and_at_once_after_a_release(start: Start, namespace: str) -> None:
    first = start("first")
    until(first.leads)
    second = start("second")
    until(lambda: second.fetch("/readyz") == (200, "[+] standby: ok\n"))
    assert second.metric("equipoise_leader") == 0

    killed_at = time.monotonic()
    first.end(signal.SIGKILL)
    until(second.leads)
    took = time.monotonic() - killed_at
    assert took < 15.0
    third = start("third")
    until(lambda: third.fetch("/readyz")[1] == "[+] standby: ok\n")

    released_at = time.monotonic()
    assert second.end(signal.SIGTERM) == 0
    until(third.leads)
    print(f"take-over after a kill {took:.1f} s, after a release {time.monotonic() - released_at:.1f} s")
    assert time.monotonic() - released_at < 5.0


def test_a_leader_that_hangs_is_gone_before_the_standby_acts(start: Start) -> None:
    first, second = start("first"), start("second")
    until(lambda: first.leads() or second.leads())
    leader, standby = (first, second) if first.metric("equipoise_leader") else (second, first)
    leader.process.send_signal(signal.SIGSTOP)
    until(standby.leads, 20)
    leader.process.send_signal(signal.SIGCONT)
    assert leader.process.wait(timeout=10) != 0
    assert standby.leads()


def test_a_lease_taken_by_another_stops_the_leader_at_once(start: Start, cluster: LocalCluster, namespace: str) -> None:
    operator = start()
    until(operator.leads)
    cluster.kubectl(
        "patch", "lease", "equipoise-leader", "-n", namespace, "--type=merge", "-p", '{"spec":{"holderIdentity":"usurper"}}'
    )
    assert operator.process.wait(timeout=10) == 1
    assert any("leadership lost" in line["message"] and "usurper" in line["message"] for line in operator.lines())


def test_a_failing_reconcile_backs_off_and_hurts_nobody_else(start: Start, cluster: LocalCluster, namespace: str) -> None:
    operator = start()
    until(operator.leads)
    cluster.apply([service(namespace, "bad", crash="please"), service(namespace, "good")])
    until(lambda: seen(cluster, namespace, "good"))
    until(lambda: operator.metric("equipoise_reconcile_seconds_count", outcome="error") >= 3)
    assert operator.metric("equipoise_queue_failing") == 1
    failures = [line for line in operator.lines() if line.get("service") == "bad"]
    assert "told to crash" in failures[0]["message"]
    cluster.kubectl("annotate", "inferenceservice", "bad", "-n", namespace, "crash-")
    until(lambda: seen(cluster, namespace, "bad"), what="the repaired service to be taken up")
    until(lambda: operator.metric("equipoise_queue_failing") == 0)


def test_pods_that_hold_gpus_are_seen_whoever_owns_them(
    start: Start, cluster: LocalCluster, namespace: str, make_pod: Any
) -> None:
    operator = start()
    until(operator.leads)
    cluster.apply([service(namespace), make_pod("web", namespace), make_pod("training", namespace, gpus=1)])
    until(lambda: seen(cluster, namespace).get("pods") == "1")
    cluster.kubectl("delete", "pod", "training", "-n", namespace, "--grace-period=0", "--force")
    until(lambda: seen(cluster, namespace).get("pods") == "0")


def test_without_rights_on_nodes_it_runs_and_says_so(start: Start, cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("create", "serviceaccount", "limited", "-n", namespace)
    rules = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "limited", "namespace": namespace},
        "rules": [
            {"apiGroups": ["equipoise.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["serviceaccounts", "events"], "verbs": ["*"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]},
        ],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "limited", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "limited"},
        "subjects": [{"kind": "ServiceAccount", "name": "limited", "namespace": namespace}],
    }
    cluster.apply([rules, binding])
    operator = start(kubeconfig=str(cluster.service_account_kubeconfig(namespace, "limited")))
    until(operator.leads)
    cluster.apply([service(namespace)])
    until(lambda: seen(cluster, namespace))
    warnings = [line["message"] for line in operator.lines() if line["level"] == "warning"]
    assert any("nodes not watched" in text and 'cannot list resource "nodes"' in text for text in warnings)
    assert operator.process.poll() is None


def test_a_kind_that_comes_and_goes_is_noticed_without_a_restart(start: Start, cluster: LocalCluster, namespace: str) -> None:
    operator = start(pollSeconds=1)
    until(operator.leads)
    cluster.apply([service(namespace)])
    until(lambda: seen(cluster, namespace).get("podMonitors") == "False")
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(POD_MONITOR)},
        "spec": {
            "group": POD_MONITOR.group,
            "scope": "Namespaced",
            "names": {"kind": POD_MONITOR.kind, "plural": POD_MONITOR.plural},
            "versions": [
                {
                    "name": POD_MONITOR.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                }
            ],
        },
    }
    cluster.apply([crd])
    try:
        until(lambda: seen(cluster, namespace).get("podMonitors") == "True")
    finally:
        cluster.kubectl("delete", "crd", str(POD_MONITOR))
    until(lambda: seen(cluster, namespace).get("podMonitors") == "False")
    assert operator.process.poll() is None


def test_an_impossible_start_is_one_clear_line(start: Start, tmp_path: Path) -> None:
    operator = start(kubeconfig=str(tmp_path / "none"))
    assert operator.process.wait(timeout=30) == 1
    (line,) = [line for line in operator.lines() if line["level"] == "critical"]
    assert "set `kubeconfig` in the settings or $KUBECONFIG" in line["message"]


if __name__ == "__main__":
    sys.exit(main(load_settings(Path(sys.argv[1])), OneAccountEach))
