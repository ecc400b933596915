"""The CRDs on the real API server: accepted, with their defaults, columns, subresources and short names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from equipoise.api.conditions import Condition, set_condition
from equipoise.api.crd import RESOURCES
from equipoise.api.identity import Phase
from equipoise.api.pool import GPUPool
from equipoise.api.scale import PhaseScale
from equipoise.api.service import InferenceService
from equipoise.api.status import InferenceServiceStatus, PhasesStatus, PhaseStatus, summarise

if TYPE_CHECKING:
    from local_cluster import LocalCluster

CRDS = Path(__file__).parents[2] / "crds"
SMALLEST: dict[str, Any] = {
    "apiVersion": "equipoise.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat"},
    "spec": {"model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"}, "targets": {"ttft": "500ms", "tpot": "50ms"}},
}
DEFAULTS: dict[str, Any] = {
    "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct", "architecture": {}, "weights": {"precision": "bf16"}},
    "targets": {"ttft": "500ms", "tpot": "50ms", "percentile": 95},
    "engine": {"type": "vllm"},
    "phases": {"prefill": {"min": 1, "scaling": "Auto"}, "decode": {"min": 1, "scaling": "Auto"}},
    "router": {"replicas": 2},
    "capacity": {
        "mode": "Auto",
        "priority": 0,
        "cooldown": {"grow": "0s", "shrink": "5m"},
        "flips": "Auto",
        "boundedQueues": "Auto",
    },
    "rollout": {"maxUnavailable": "1", "maxSurge": "1", "progressDeadline": "20m"},
    "drain": {"grace": "5m"},
    "metrics": {"source": "Prometheus", "podMonitor": "Auto"},
}
SCALE: dict[str, Any] = {
    "apiVersion": "equipoise.dev/v1alpha1",
    "kind": "PhaseScale",
    "metadata": {"name": "chat-decode"},
    "spec": {"replicas": 2},
}


@pytest.fixture(scope="module", autouse=True)
def crds(cluster: LocalCluster) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_the_schema_is_structural_and_the_names_are_free(resource: Any, cluster: LocalCluster) -> None:
    crd = cluster.get_json("crd", f"{resource.plural}.equipoise.dev")
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert conditions.get("NonStructuralSchema", "False") == "False"


def test_applying_again_changes_nothing(cluster: LocalCluster) -> None:
    """What the server stores is what was sent, so a GitOps tool sees no difference."""
    before = cluster.kubectl("get", "crd", "inferenceservices.equipoise.dev", "-o", "jsonpath={.metadata.generation}")
    assert cluster.kubectl("diff", "--server-side", "--force-conflicts", "-f", str(CRDS)) == ""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    assert cluster.kubectl("get", "crd", "inferenceservices.equipoise.dev", "-o", "jsonpath={.metadata.generation}") == before


def test_the_smallest_form_gets_the_documented_defaults(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("create", "--validate=strict", "-n", namespace, "-f", "-", input=json.dumps(SMALLEST))
    stored = cluster.get_json("eis", "chat", "-n", namespace)
    assert stored["spec"] == DEFAULTS
    assert "status" not in stored
    assert InferenceService.parse_strict(stored).spec == InferenceService.parse_strict(SMALLEST).spec


def test_numbers_without_quotes_mean_the_same(cluster: LocalCluster, namespace: str) -> None:
    data = {**SMALLEST, "spec": {**SMALLEST["spec"], "capacity": {"maxCostPerHour": 40}, "rollout": {"maxSurge": 0}}}
    cluster.kubectl("create", "--validate=strict", "-n", namespace, "-f", "-", input=json.dumps(data))
    spec = InferenceService.parse_strict(cluster.get_json("eis", "chat", "-n", namespace)).spec
    assert (spec.capacity.max_cost_usd_per_hour, spec.rollout.max_surge_of(8)) == (40.0, 0)


def status_of_a_lagging_service() -> InferenceServiceStatus:
    ready = Condition(type="Ready", status="True", reason="Serving", message="both phases answer", observed_generation=1)
    status = InferenceServiceStatus(
        observed_generation=1,
        conditions=tuple(set_condition([], ready, "2026-01-01T00:00:00Z")),
        phases=PhasesStatus(
            prefill=PhaseStatus(desired=3, ready=2, latency="612ms", target="500ms", lag="1.22", attainment="0.871"),
            decode=PhaseStatus(desired=4, ready=4, latency="31ms", target="50ms", lag="0.62", attainment="0.993"),
        ),
        gpus=7,
        cost_per_hour="24.3",
        lagging=Phase.PREFILL,
    )
    return status.model_copy(update={"summary": summarise(status)})


def write_status(cluster: LocalCluster, namespace: str, kind: str, name: str, status: dict[str, Any]) -> None:
    cluster.kubectl(
        "patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )


def test_kubectl_get_shows_the_service_at_a_glance(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(SMALLEST))
    write_status(cluster, namespace, "eis", "chat", status_of_a_lagging_service().to_dict())
    header, row = cluster.kubectl("get", "eis", "-n", namespace).splitlines()
    assert header.split() == ["NAME", "READY", "TTFT", "TPOT", "PREFILL", "DECODE", "GPUS", "LAGGING", "AGE"]
    assert row.split()[:-1] == ["chat", "True", "612ms/500ms", "31ms/50ms", "2/3", "4/4", "7", "prefill"]
    wide = cluster.kubectl("get", "eis", "-n", namespace, "-o", "wide")
    assert "24.3" in wide
    assert "both phases answer" in wide


def test_the_server_keeps_every_field_of_the_status_types(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(SMALLEST))
    status = status_of_a_lagging_service().to_dict() | {
        "memory": {"phases": {"prefill": {"trim": 1.25}}, "last_grow_seconds": 12.5},
        "transaction": {"id": "t1", "kind": "handover", "step": "drain", "donorPods": ["a"]},
        "allocation": [{"phase": "prefill", "pool": "l40s", "shape": "tp1-bf16", "replicas": 3}],
    }
    write_status(cluster, namespace, "eis", "chat", status)
    stored = cluster.get_json("eis", "chat", "-n", namespace)["status"]
    assert stored == status


def test_status_and_spec_are_written_apart(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps({**SMALLEST, "status": {"gpus": 99}}))
    assert "status" not in cluster.get_json("eis", "chat", "-n", namespace)
    patch = {"spec": {"targets": {"percentile": 50}}, "status": {"gpus": 3}}
    cluster.kubectl("patch", "eis", "chat", "-n", namespace, "--subresource=status", "--type=merge", "-p", json.dumps(patch))
    stored = cluster.get_json("eis", "chat", "-n", namespace)
    assert stored["status"]["gpus"] == 3
    assert stored["spec"]["targets"]["percentile"] == 95
    assert stored["metadata"]["generation"] == 1


def test_unknown_fields_are_refused_when_strict_and_pruned_otherwise(cluster: LocalCluster, namespace: str) -> None:
    from local_cluster import CommandError

    data = {**SMALLEST, "spec": {**SMALLEST["spec"], "phase": {"prefill": {"min": 2}}}}
    with pytest.raises(CommandError) as error:
        cluster.kubectl("create", "--validate=strict", "-n", namespace, "-f", "-", input=json.dumps(data))
    assert 'unknown field "spec.phase"' in error.value.stderr
    cluster.kubectl("create", "--validate=ignore", "-n", namespace, "-f", "-", input=json.dumps(data))
    assert cluster.get_json("eis", "chat", "-n", namespace)["spec"] == DEFAULTS


def test_pod_templates_are_kept_as_they_were_written(cluster: LocalCluster, namespace: str) -> None:
    template = {"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "engine", "resources": {"limits": {"cpu": "4"}}}]}}
    data = {**SMALLEST, "spec": {**SMALLEST["spec"], "engine": {"podTemplate": template}}}
    cluster.kubectl("create", "--validate=strict", "-n", namespace, "-f", "-", input=json.dumps(data))
    assert cluster.get_json("eis", "chat", "-n", namespace)["spec"]["engine"]["podTemplate"] == template


def test_a_phase_scale_is_scaled_by_kubectl(cluster: LocalCluster, namespace: str) -> None:
    cluster.kubectl("create", "--validate=strict", "-n", namespace, "-f", "-", input=json.dumps(SCALE))
    selector = "equipoise.dev/service=chat,llm-d.ai/role=decode"
    write_status(cluster, namespace, "eps", "chat-decode", {"replicas": 2, "selector": selector})
    cluster.kubectl("scale", "eps", "chat-decode", "-n", namespace, "--replicas=5", "--current-replicas=2")
    scale = json.loads(
        cluster.kubectl("get", "--raw", f"/apis/equipoise.dev/v1alpha1/namespaces/{namespace}/phasescales/chat-decode/scale")
    )
    assert (scale["spec"]["replicas"], scale["status"]) == (5, {"replicas": 2, "selector": selector})
    stored = PhaseScale.parse_strict(cluster.get_json("eps", "chat-decode", "-n", namespace))
    assert (stored.spec.replicas, stored.status.replicas, stored.status.selector) == (5, 2, selector)
    header, row = cluster.kubectl("get", "eps", "-n", namespace).splitlines()
    assert header.split() == ["NAME", "DESIRED", "CURRENT", "AGE"]
    assert row.split()[:-1] == ["chat-decode", "5", "2"]


def test_a_pool_shows_what_it_holds(cluster: LocalCluster) -> None:
    pool = {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": "columns-l40s"},
        "spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"}, "pricePerGPUHour": "1.80"},
    }
    cluster.kubectl("create", "--validate=strict", "-f", "-", input=json.dumps(pool))
    try:
        status = {
            "nodes": 2,
            "gpus": 16,
            "free": 3,
            "device": "L40S",
            "pricePerGPUHour": "1.8",
            "priceSource": "GPUPool columns-l40s",
        }
        cluster.kubectl(
            "patch", "egp", "columns-l40s", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
        )
        header, row = cluster.kubectl("get", "egp", "columns-l40s").splitlines()
        assert header.split() == ["NAME", "READY", "DEVICE", "NODES", "GPUS", "FREE", "USD/GPU-H", "AGE"]
        assert row.split()[1:-1] == ["L40S", "2", "16", "3", "1.8"]
        assert GPUPool.parse_strict(cluster.get_json("egp", "columns-l40s")).spec.price_usd_per_gpu_hour == 1.8
    finally:
        cluster.kubectl("delete", "egp", "columns-l40s")


def test_the_category_finds_all_kinds(cluster: LocalCluster, namespace: str) -> None:
    for data in (SMALLEST, SCALE):
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(data))
    names = cluster.kubectl("get", "equipoise", "-n", namespace, "-o", "name").split()
    assert {"inferenceservice.equipoise.dev/chat", "phasescale.equipoise.dev/chat-decode"} <= set(names)


def test_explain_shows_descriptions_and_choices(cluster: LocalCluster) -> None:
    text = cluster.kubectl("explain", "eis.spec.phases.decode")
    assert "Least replicas, a count." in text
    assert "enum: Auto, External, Fixed" in text
