"""The chart carries the CRDs as they are generated from the types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "equipoise"
HINT = "run: PYTHONPATH=deploy/local python deploy/kustomize/generate.py"


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}


def test_the_charts_crds_are_those_of_the_repository() -> None:
    assert texts(CHART / "files" / "crds") == texts(ROOT / "crds"), HINT


def test_kustomize_has_the_same_crds() -> None:
    one_file = list(yaml.safe_load_all((ROOT / "deploy" / "kustomize" / "crds.yaml").read_text()))
    assert one_file == [yaml.safe_load(text) for _, text in sorted(texts(ROOT / "crds").items())], HINT


def test_the_crds_can_be_marked_to_stay() -> None:
    """The template finds the one line that the annotation goes after by its text."""
    for name, text in texts(CHART / "files" / "crds").items():
        assert text.count("\nmetadata:\n") == 1, name
        assert "annotations" not in yaml.safe_load(text)["metadata"], name


def test_every_value_has_its_schema_and_the_other_way_round() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(value: Any, node: dict[str, Any], path: str) -> None:
        if "properties" not in node:
            return
        optional = {"global", "timeoutSeconds"}
        assert node["additionalProperties"] is False, path
        assert set(value) == set(node["properties"]) - optional, path
        for key, inner in value.items():
            compare(inner, node["properties"][key], f"{path}.{key}")

    compare(values, schema, "values")


def test_chart_and_package_have_one_version() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == project["version"]
    assert chart["appVersion"] == project["version"]
