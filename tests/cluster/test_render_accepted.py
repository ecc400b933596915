"""Rendered manifests on the real API server: accepted, and after its defaults no difference is left to write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from equipoise.api.identity import FIELD_MANAGER, Phase, Precision, ServiceKey, Shape, Variant
from equipoise.api.service import InferenceService
from equipoise.fleet.types import Device, Pool
from equipoise.render import differences, render

if TYPE_CHECKING:
    from local_cluster import LocalCluster

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "tests" / "unit" / "render" / "golden").glob("*.yaml"))
STAND_INS = (
    ("monitoring.coreos.com", "podmonitors", "PodMonitor"),
    ("inference.networking.k8s.io", "inferencepools", "InferencePool"),
)

Manifest = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def kinds(cluster: LocalCluster) -> Iterator[None]:
    """Our CRDs, and stand-ins for those of other projects; the latter go at the end, because operators notice them."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    cluster.apply([_stand_in(*names) for names in STAND_INS])
    names = [f"crd/{plural}.{group}" for group, plural, _ in STAND_INS]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/inferenceservices.equipoise.dev", *names)
    yield
    cluster.kubectl("delete", *names)


@pytest.fixture
def owner(cluster: LocalCluster, namespace: str) -> Manifest:
    """A live InferenceService, so that the garbage collector leaves its children alone."""
    cluster.apply([_service(namespace, {})])
    return cluster.get_json("inferenceservice", "chat", "-n", namespace)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_manifests_are_accepted_and_then_at_rest(
    cluster: LocalCluster, namespace: str, owner: Manifest, path: Path
) -> None:
    children = [_moved(child, namespace, owner["metadata"]["uid"]) for child in yaml.safe_load_all(path.read_text())]
    _apply(cluster, children, "--dry-run=server")
    _assert_at_rest(cluster, namespace, children)


def test_what_users_lay_over_it_is_compared_by_meaning(cluster: LocalCluster, namespace: str, owner: Manifest) -> None:
    """Quantities in other units, zero values and empty lists come back from the API server written otherwise, or not at all."""
    partial = yaml.safe_load("""
        spec:
          hostNetwork: false
          imagePullSecrets: []
          priorityClassName: ""
          volumes: [{name: scratch, emptyDir: {sizeLimit: 1024Mi}}]
          containers:
          - name: engine
            tty: false
            resources: {requests: {cpu: 2500m, memory: 16384Mi, ephemeral-storage: "1e9"}, limits: {memory: "0.5Ti"}}
            volumeMounts: [{name: scratch, mountPath: /scratch, readOnly: false}]
            readinessProbe: {tcpSocket: {port: 8000}, initialDelaySeconds: 0}
            env: [{name: EMPTY, value: ""}]
          - {name: helper, image: "helper:1", args: [], resources: {}}
    """)
    resource = InferenceService.parse(_service(namespace, {"engine": {"podTemplate": partial}}) | {})
    variant = Variant(resource.key, Phase.PREFILL, "h100", Shape())
    children = render(resource, owner["metadata"]["uid"], {variant: 0}, {"h100": _pool()})
    _assert_at_rest(cluster, namespace, children)


def test_an_edit_is_a_difference_and_applying_mends_it(cluster: LocalCluster, namespace: str, owner: Manifest) -> None:
    resource = InferenceService.parse(owner)
    variant = Variant(ServiceKey(namespace, "chat"), Phase.DECODE, "h100", Shape())
    children = render(resource, owner["metadata"]["uid"], {variant: 0}, {"h100": _pool()})
    _assert_at_rest(cluster, namespace, children)
    name = children[0]["metadata"]["name"]
    cluster.kubectl("set", "image", f"deployment/{name}", "engine=other:1", "-n", namespace)
    cluster.kubectl("scale", f"deployment/{name}", "--replicas=1", "-n", namespace)
    found = differences(children[0], cluster.get_json("deployment", name, "-n", namespace))
    assert [line.split(":")[0] for line in found] == ["spec.replicas", "spec.template.spec.containers[engine].image"]
    _assert_at_rest(cluster, namespace, children)


def _assert_at_rest(cluster: LocalCluster, namespace: str, children: list[Manifest]) -> None:
    """Apply, compare with what came of it, apply again: nothing may be left to write, and nothing may change."""
    _apply(cluster, children)
    live = _live(cluster, namespace)
    assert {_key(child): differences(child, live[_key(child)]) for child in children} == {_key(child): () for child in children}
    _apply(cluster, children)
    again = _live(cluster, namespace)
    assert {_key(child): _generation(again[_key(child)]) for child in children} == {
        _key(child): _generation(live[_key(child)]) for child in children
    }


def _apply(cluster: LocalCluster, children: list[Manifest], *flags: str) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": children})
    arguments = ("apply", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}", *flags, "-f", "-")
    cluster.kubectl(*arguments, input=text)


def _live(cluster: LocalCluster, namespace: str) -> dict[tuple[str, str], Manifest]:
    kinds = "deployments,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,phasescales,podmonitors,inferencepools"
    return {_key(item): item for item in cluster.get_json(kinds, "-n", namespace)["items"]}


def _generation(obj: Manifest) -> Any:
    """What changes with the wanted state: kinds without a generation have no status either, so there it is the version."""
    return obj["metadata"].get("generation", obj["metadata"]["resourceVersion"])


def _key(child: Manifest) -> tuple[str, str]:
    return child["kind"], child["metadata"]["name"]


def _moved(child: Manifest, namespace: str, uid: str) -> Manifest:
    text = json.dumps(child).replace('"namespace": "prod"', f'"namespace": "{namespace}"')
    moved: Manifest = json.loads(text)
    moved["metadata"]["ownerReferences"][0]["uid"] = uid
    return moved


def _service(namespace: str, more: Manifest) -> Manifest:
    spec = {"model": {"uri": "hf://org/model"}, "targets": {"ttft": "500ms", "tpot": "50ms"}, **more}
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": namespace},
        "spec": spec,
    }


def _pool() -> Pool:
    device = Device("H100", 80 * 2**30, 3.35e12, {Precision.BF16: 989e12}, 4.5e11, 8, 0.5, 0.7, 0.7, "test")
    return Pool("h100", device, (), 2.0, node_selector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})


def _stand_in(group: str, plural: str, kind: str) -> Manifest:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # The group of InferencePool is protected: whoever defines it says where the API was approved.
        "metadata": {"name": f"{plural}.{group}", "annotations": {"api-approved.kubernetes.io": "unapproved, a test's stand-in"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
