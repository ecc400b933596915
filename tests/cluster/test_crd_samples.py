"""Every sample under deploy/samples is accepted as it stands, and the HPA of external-scaling.yaml really scales its phase."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from equipoise.api.base import ApiObject
from equipoise.api.pool import GPUPool
from equipoise.api.service import InferenceService

if TYPE_CHECKING:
    from local_cluster import LocalCluster

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
SAMPLES = sorted((ROOT / "deploy" / "samples").glob("*.yaml"))
TYPES: dict[str, type[ApiObject]] = {"InferenceService": InferenceService, "GPUPool": GPUPool}


@pytest.fixture(scope="module", autouse=True)
def crds(cluster: LocalCluster) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS))


def documents(sample: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(sample.read_text(encoding="utf-8")))


def test_the_samples_that_the_documentation_names_exist() -> None:
    assert {"smallest.yaml", "mixed-fleet.yaml", "external-scaling.yaml", "gpupools.yaml"} <= {sample.name for sample in SAMPLES}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_is_applied_and_read_back(sample: Path, cluster: LocalCluster, namespace: str) -> None:
    try:
        cluster.kubectl("apply", "--validate=strict", "-n", namespace, "-f", str(sample))
        for document in documents(sample):
            kind, name = document["kind"], document["metadata"]["name"]
            if kind in TYPES:
                stored = TYPES[kind].parse_strict(cluster.get_json(kind, name, "-n", namespace))
                assert stored.to_dict()["spec"] == TYPES[kind].parse_strict(document).to_dict()["spec"]
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-n", namespace, "-f", str(sample))


def test_an_hpa_scales_a_phase(cluster: LocalCluster, namespace: str) -> None:
    """Without metrics the real HPA controller still keeps its own lower bound, and so writes the PhaseScale through /scale."""
    from local_cluster import wait_until

    cluster.kubectl("apply", "-n", namespace, "-f", str(ROOT / "deploy/samples/external-scaling.yaml"))
    scale = {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "PhaseScale",
        "metadata": {"name": "reasoner-decode"},
        "spec": {"replicas": 1},
    }
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(scale))
    status = {"status": {"replicas": 1, "selector": "equipoise.dev/service=reasoner,llm-d.ai/role=decode"}}
    cluster.kubectl(
        "patch", "eps", "reasoner-decode", "-n", namespace, "--subresource=status", "--type=merge", "-p", json.dumps(status)
    )

    def asked_for() -> int:
        return int(cluster.get_json("eps", "reasoner-decode", "-n", namespace)["spec"]["replicas"])

    wait_until(lambda: asked_for() == 2, timeout_seconds=60, description="the HPA to raise the PhaseScale to its minReplicas")
    conditions = cluster.get_json("hpa", "reasoner-decode", "-n", namespace)["status"]["conditions"]
    assert {condition["type"]: condition["status"] for condition in conditions}["AbleToScale"] == "True"
