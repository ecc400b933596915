"""The chart on a real API server: installed, upgraded, removed; and rights that are neither too few nor too many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from equipoise.api.identity import FIELD_MANAGER

if TYPE_CHECKING:
    from local_cluster import LocalCluster

ROOT = Path(__file__).parents[2]
CHART = str(ROOT / "charts" / "equipoise")
NAMESPACE = "equipoise-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:equipoise"
GOLDEN = ROOT / "tests" / "unit" / "render" / "golden"
SERVICE = {
    "apiVersion": "equipoise.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "prod"},
    "spec": {"model": {"uri": "hf://org/model"}, "targets": {"ttft": "500ms", "tpot": "50ms"}},
}


@dataclass(frozen=True)
class Right:
    """A verb on a resource (or `resource/subresource`), in the served namespace unless said otherwise."""

    verb: str
    group: str
    resource: str
    namespace: str = "prod"
    name: str = ""

    def review(self) -> dict[str, Any]:
        plural, _, subresource = self.resource.partition("/")
        attributes = {
            "verb": self.verb, "group": self.group, "resource": plural, "subresource": subresource,
            "namespace": self.namespace, "name": self.name,
        }  # fmt: skip
        spec = {"user": ACCOUNT, "groups": ["system:serviceaccounts"], "resourceAttributes": attributes}
        return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


@pytest.fixture(scope="module")
def chart_cluster() -> Iterator[LocalCluster]:
    """A cluster of its own: Helm would not take over CRDs that other tests applied. Without nodes, so no pod ever runs."""
    from local_cluster import ClusterOptions, LocalCluster

    options = ClusterOptions(name="chart", with_kwok=False, with_prometheus=False)
    with LocalCluster.start(options) as running:
        running.helm("install", "equipoise", CHART, "--namespace", NAMESPACE, "--create-namespace")
        running.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/inferenceservices.equipoise.dev")
        running.kubectl("create", "namespace", "prod")
        yield running


def test_notes_say_what_is_missing(chart_cluster: LocalCluster) -> None:
    notes = chart_cluster.helm("get", "notes", "equipoise", "--namespace", NAMESPACE)
    assert "prometheus.url is not set" in notes
    assert "kind: InferenceService" in notes


def test_the_operators_pod_is_allowed_where_pods_are_restricted(chart_cluster: LocalCluster) -> None:
    chart_cluster.kubectl("label", "namespace", "prod", "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    template = chart_cluster.get_json("deployment", "equipoise", "-n", NAMESPACE)["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator", "namespace": "prod"}, "spec": spec}
    try:
        chart_cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    finally:
        chart_cluster.kubectl("label", "namespace", "prod", "pod-security.kubernetes.io/enforce-")


@pytest.mark.parametrize("name", ["mixed-fleet", "sglang"])
def test_the_operators_rights_suffice_for_every_child(chart_cluster: LocalCluster, name: str) -> None:
    """As the chart's ServiceAccount; the routers' Roles would be refused as an escalation if it could not read pods itself."""
    chart_cluster.apply([SERVICE])
    uid = chart_cluster.get_json("inferenceservice", "chat", "-n", "prod")["metadata"]["uid"]
    children = list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))
    for child in children:
        child["metadata"]["ownerReferences"][0]["uid"] = uid
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": children})
    account = ("--kubeconfig", str(chart_cluster.service_account_kubeconfig(NAMESPACE, "equipoise")))
    apply = ("apply", "--server-side", f"--field-manager={FIELD_MANAGER}", "--validate=false", "-f", "-")
    assert chart_cluster.kubectl(*account, *apply, input=text).count("serverside-applied") == len(children)
    # Without --wait: kubectl would watch each object, and rights to that are no concern of this test.
    assert chart_cluster.kubectl(*account, "delete", "--wait=false", "-f", "-", input=text).count("deleted") == len(children)


def test_the_operator_can_read_what_it_watches(chart_cluster: LocalCluster) -> None:
    from equipoise.reconcile.sources import POLLED, WATCHED

    wanted = sorted({source.kind for source in (*WATCHED, *POLLED)})
    asked = [Right(verb, kind.group, kind.plural) for kind in wanted for verb in ("get", "list", "watch")]
    denied = {right.resource for right, allowed in zip(asked, _may(chart_cluster, *asked), strict=True) if not allowed}
    assert denied <= {"configmaps", "leaderworkersets"}, "neither is rendered"


def test_rights_in_a_served_namespace(chart_cluster: LocalCluster) -> None:
    needed = [
        Right("patch", "", "pods"),
        Right("patch", "equipoise.dev", "inferenceservices/status"),
        Right("patch", "equipoise.dev", "phasescales/status"),
        Right("patch", "equipoise.dev", "gpupools/status"),
        Right("update", "equipoise.dev", "inferenceservices/finalizers"),
        Right("create", "", "events"),
        Right("patch", "", "events"),
    ]
    unneeded = [
        Right("patch", "equipoise.dev", "inferenceservices"),
        Right("delete", "equipoise.dev", "inferenceservices"),
        Right("create", "", "pods"),
        Right("delete", "", "pods"),
        Right("patch", "", "nodes"),
        Right("get", "", "secrets"),
        Right("create", "rbac.authorization.k8s.io", "clusterroles"),
        Right("escalate", "rbac.authorization.k8s.io", "roles"),
        Right("bind", "rbac.authorization.k8s.io", "roles"),
        Right("get", "coordination.k8s.io", "leases"),
    ]
    allowed = dict(zip([*needed, *unneeded], _may(chart_cluster, *needed, *unneeded), strict=True))
    assert [right for right in needed if not allowed[right]] == []
    assert [right for right in unneeded if allowed[right]] == []


def test_one_lease_in_the_release_namespace(chart_cluster: LocalCluster) -> None:
    own = [Right(verb, "coordination.k8s.io", "leases", NAMESPACE, "equipoise-leader") for verb in ("create", "get", "update")]
    other = Right("get", "coordination.k8s.io", "leases", NAMESPACE, "other")
    assert _may(chart_cluster, *own, other) == [True, True, True, False]


def test_upgrade_and_removal_keep_the_services(chart_cluster: LocalCluster) -> None:
    chart_cluster.apply([SERVICE])
    upgrade = ("upgrade", "equipoise", CHART, "--namespace", NAMESPACE)
    chart_cluster.helm(*upgrade, "--set", "replicaCount=1", "--set", "watch.namespaces={prod}")
    apply = Right("patch", "apps", "deployments")
    rights = (apply, replace(apply, namespace="default"), Right("list", "", "nodes", namespace=""))
    assert _may(chart_cluster, *rights) == [True, False, True]
    chart_cluster.helm("uninstall", "equipoise", "--namespace", NAMESPACE, "--wait")
    assert chart_cluster.get_json("inferenceservice", "chat", "-n", "prod")["spec"]["model"]["uri"] == "hf://org/model"
    # As if the CRDs had been applied by other means.
    for marks in (
        ("annotate", "meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-"),
        ("label", "app.kubernetes.io/managed-by-"),
    ):
        chart_cluster.kubectl(marks[0], "-f", str(ROOT / "crds"), *marks[1:])
    chart_cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    chart_cluster.helm("install", "equipoise", CHART, "--namespace", NAMESPACE, "--take-ownership", "--force-conflicts")
    assert chart_cluster.get_json("deployment", "equipoise", "-n", NAMESPACE)["spec"]["replicas"] == 2


def test_kustomize_is_accepted(chart_cluster: LocalCluster) -> None:
    folder = str(ROOT / "deploy" / "kustomize")
    answer = chart_cluster.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", folder)
    assert "deployment.apps/equipoise serverside-applied" in answer


def _may(cluster: LocalCluster, *rights: Right) -> list[bool]:
    """What the API server says the chart's ServiceAccount may do, one answer for each right."""
    reviews = {"apiVersion": "v1", "kind": "List", "items": [right.review() for right in rights]}
    each = 'jsonpath={.status.allowed}{" "}'
    return [line == "true" for line in cluster.kubectl("create", "-o", each, "-f", "-", input=json.dumps(reviews)).split()]
