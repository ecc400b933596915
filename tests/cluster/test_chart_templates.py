"""The chart through real Helm, without a cluster: what each value changes."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.reconcile.settings import load_settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "equipoise"
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def helm() -> str:
    from local_cluster import ensure_built

    return ensure_built().program("helm")


@pytest.fixture
def template(helm: str) -> Any:
    """Renders the chart with some values, in the form `a.b=c`."""

    def run(*values: str) -> list[Manifest]:
        flags = [part for value in values for part in ("--set", value)]
        command = [helm, "template", "equipoise", str(CHART), "--namespace", "equipoise-system", *flags]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise ValueError(answer.stderr)
        return [manifest for manifest in yaml.safe_load_all(answer.stdout) if manifest]

    return run


def of_kind(manifests: Iterable[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def test_lint_finds_nothing(helm: str) -> None:
    answer = subprocess.run([helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    assert "[WARNING]" not in answer.stdout


def test_the_settings_file_is_one_the_operator_reads(template: Any, tmp_path: Path) -> None:
    manifests = template(
        "prometheus.url=http://prometheus:9090", "capacity.intervalSeconds=5", "watch.namespaces={a,b}", "settings.workers=3",
        "settings.capacity.intervalSeconds=7", "logging.level=debug",
    )  # fmt: skip
    file = tmp_path / "config.yaml"
    file.write_text(of_kind(manifests, "ConfigMap")[0]["data"]["config.yaml"])
    settings = load_settings(file)
    assert settings.prometheus.url == "http://prometheus:9090"
    assert settings.namespaces == ("a", "b")
    assert settings.leader_election.namespace == "equipoise-system"
    assert (settings.workers, settings.capacity.interval_seconds) == (3, 7.0), "settings win over the named values"


def test_crds_are_installed_kept_or_left_out(template: Any) -> None:
    keep = {"helm.sh/resource-policy": "keep"}
    crds = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")}
    kept = of_kind(template(), "CustomResourceDefinition")
    assert [crd["metadata"].pop("annotations") for crd in kept] == [keep] * len(crds)
    assert sorted(kept, key=lambda crd: crd["metadata"]["name"]) == [crds[name] for name in sorted(crds)]
    loose = of_kind(template("crds.keep=false"), "CustomResourceDefinition")
    assert all("annotations" not in crd["metadata"] for crd in loose)
    assert len(loose) == len(crds)
    assert of_kind(template("crds.install=false"), "CustomResourceDefinition") == []


def test_rights_on_workloads_can_be_kept_to_namespaces(template: Any) -> None:
    manifests = template("watch.namespaces={prod,test}")
    bindings = [
        item["metadata"]["namespace"] for item in of_kind(manifests, "RoleBinding") if item["roleRef"]["kind"] == "ClusterRole"
    ]
    assert bindings == ["prod", "test"]
    assert [item["roleRef"]["name"].rpartition(":")[2] for item in of_kind(manifests, "ClusterRoleBinding")] == ["fleet"]
    everywhere = template()
    assert {item["roleRef"]["name"].rpartition(":")[2] for item in of_kind(everywhere, "ClusterRoleBinding")} == {
        "fleet",
        "workloads",
    }


def test_no_rule_holds_a_wildcard_or_secrets(template: Any) -> None:
    for role in [*of_kind(template(), "ClusterRole"), *of_kind(template(), "Role")]:
        for rule in role["rules"]:
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            assert not {"secrets", "configmaps", "clusterroles", "clusterrolebindings"} & set(rule["resources"])


def test_one_replica_needs_no_budget_and_a_digest_takes_the_tags_place(template: Any) -> None:
    digest = f"sha256:{'0' * 64}"
    manifests = template("replicaCount=1", f"image.digest={digest}", "image.tag=x")
    assert of_kind(manifests, "PodDisruptionBudget") == []
    (deployment,) = of_kind(manifests, "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f"@{digest}")
    assert of_kind(template(), "PodDisruptionBudget")[0]["spec"]["minAvailable"] == 1


def test_other_settings_restart_the_pods(template: Any) -> None:
    def checksum(*values: str) -> str:
        (deployment,) = of_kind(template(*values), "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum("replicaCount=3")
    assert checksum() != checksum("prometheus.url=http://p:9090")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("replicas=3", "replicas"),
        ("prometheus.adress=x", "adress"),
        ("prometheus.url=prometheus:9090", "url"),
        ("logging.level=loud", "level"),
        ("watch.namespaces={A}", "namespaces"),
        ("replicaCount=two", "replicaCount"),
    ],
)
def test_values_that_mean_nothing_are_refused(template: Any, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        template(value)


def test_kustomize_is_what_the_chart_renders(helm: str) -> None:
    spec = importlib.util.spec_from_file_location("kustomize_generate", ROOT / "deploy" / "kustomize" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, text in generate.kustomize_files(helm).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run deploy/kustomize/generate.py"
