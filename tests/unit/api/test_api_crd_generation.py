"""The CRDs: fresh, structural, described, bounded; and what the generator refuses to express."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from equipoise.api.base import ApiModel
from equipoise.api.crd import RESOURCES, Resource, definition
from equipoise.api.generate import REFERENCE, crd_files, main
from equipoise.api.reference import page
from equipoise.api.schema import structural, without_titles
from equipoise.api.service import InferenceService

ROOT = Path(__file__).parents[3]
CLIENT_SIDE_APPLY_LIMIT_BYTES = 262_144
FORBIDDEN = {
    "$ref",
    "$defs",
    "anyOf",
    "allOf",
    "oneOf",
    "const",
    "title",
    "examples",
    "uniqueItems",
    "patternProperties",
    "propertyNames",
}

Node = tuple[str, Mapping[str, Any]]


def schema_of(resource: Resource) -> dict[str, Any]:
    schema: dict[str, Any] = definition(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[Node]:
    """Every named field, with its path."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields(child, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


def nodes(schema: Mapping[str, Any], path: str = "") -> Iterator[Node]:
    """Every schema, those of list items and map values too."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from nodes(schema[key], path + suffix)


def test_what_is_committed_is_what_the_types_say() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "crds").glob("*.yaml")}
    assert committed == dict(crd_files()), "run `make generate`"
    assert (ROOT / REFERENCE).read_text(encoding="utf-8") == page(), "run `make generate`"


def test_the_command_writes_crds_and_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "crds")]) == 0
    assert sorted(path.name for path in (tmp_path / "crds").iterdir()) == sorted(crd_files())
    assert (tmp_path / REFERENCE).read_text(encoding="utf-8") == page()
    assert str(tmp_path) in capsys.readouterr().out
    assert main([]) == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_every_field_is_described(resource: Resource) -> None:
    undescribed = [path for path, node in fields(schema_of(resource)) if not node.get("description") and path != ".metadata"]
    assert undescribed == []


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_only_structural_keywords_are_left(resource: Resource) -> None:
    for path, node in nodes(schema_of(resource)):
        assert not FORBIDDEN & set(node), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_everything_a_user_writes_is_bounded(resource: Resource) -> None:
    """Without bounds the API server reckons rules with the largest request there can be, and refuses them."""
    for path, node in nodes(schema_of(resource)["properties"]["spec"]):
        if node.get("type") == "string":
            assert "enum" in node or "maxLength" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
            assert "x-kubernetes-list-type" in node, path
        if "additionalProperties" in node:
            assert "maxProperties" in node, path
        if node.get("type") == "integer":
            assert "enum" in node or "minimum" in node, path


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_a_status_holds_only_what_was_written(resource: Resource) -> None:
    assert [path for path, node in nodes(schema_of(resource)["properties"]["status"]) if "default" in node] == []


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_a_crd_fits_into_the_annotation_of_client_side_apply(resource: Resource) -> None:
    assert len(crd_files()[resource.file_name].encode()) < CLIENT_SIDE_APPLY_LIMIT_BYTES / 2


def test_each_rule_says_how_to_mend_it() -> None:
    """A message names a field and an act; one that only says "invalid" helps nobody."""
    for resource in RESOURCES:
        for path, node in nodes(schema_of(resource)):
            for rule in node.get("x-kubernetes-validations", []):
                assert len(rule["message"].split()) >= 5, (path, rule)


def test_defaults_of_sections_are_complete() -> None:
    """The API server checks rules against a default before it fills in the defaults within."""
    rollout = schema_of(RESOURCES[0])["properties"]["spec"]["properties"]["rollout"]
    assert rollout["default"] == {"maxUnavailable": "1", "maxSurge": "1", "progressDeadline": "20m"}


def test_the_defaults_of_types_and_crd_are_the_same() -> None:
    schema = schema_of(RESOURCES[0])
    smallest = {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"model": {"uri": "hf://a/b"}, "targets": {"ttft": "1s", "tpot": "50ms"}},
    }
    filled = {**smallest, "spec": with_defaults(smallest["spec"], schema["properties"]["spec"])}
    assert InferenceService.parse_strict(filled) == InferenceService.parse_strict(smallest)
    assert filled["spec"]["capacity"]["cooldown"] == {"grow": "0s", "shrink": "5m"}


def with_defaults(value: Any, schema: Mapping[str, Any]) -> Any:
    """What the API server does with a value: fill in defaults, from the outside in."""
    if not isinstance(value, dict):
        return value
    result = dict(value)
    for name, child in schema.get("properties", {}).items():
        if name not in result and "default" in child:
            result[name] = child["default"]
        if name in result:
            result[name] = with_defaults(result[name], child)
    return result


class Inner(ApiModel):
    """An inner object."""

    size: Annotated[int, Field(gt=0)] = 1
    """A size."""


class Outer(ApiModel):
    """An outer object."""

    maybe_text: Annotated[str, Field(max_length=5)] | None = None
    """A text, or nothing."""
    one: Literal["only"] = "only"
    """One value."""
    inner: Inner = Inner()
    """An object with defaults."""
    maybe_inner: Inner | None = None
    """An object, or nothing."""
    free: dict[str, Any] = Field(default={})
    """Anything."""
    texts: tuple[str, ...] = ()
    """Texts."""


def test_pydantic_becomes_structural() -> None:
    inner = {
        "type": "object",
        "properties": {
            "size": {"type": "integer", "description": "A size.", "default": 1, "minimum": 0, "exclusiveMinimum": True}
        },
    }
    assert without_titles(structural(Outer)) == {
        "type": "object",
        "description": "An outer object.",
        "properties": {
            "maybeText": {"type": "string", "description": "A text, or nothing.", "maxLength": 5},
            "one": {"type": "string", "description": "One value.", "default": "only", "enum": ["only"]},
            "inner": {**inner, "description": "An object with defaults.", "default": {"size": 1}},
            "maybeInner": {**inner, "description": "An object, or nothing."},
            "free": {"type": "object", "description": "Anything.", "x-kubernetes-preserve-unknown-fields": True},
            "texts": {"type": "array", "description": "Texts.", "items": {"type": "string"}},
        },
    }


class Union(ApiModel):
    """Two kinds of value."""

    value: Inner | Outer = Inner()
    """One or the other."""


class Recursive(ApiModel):
    """Holds itself."""

    child: Recursive | None = None
    """Another one."""


class Holder(ApiModel):
    """Holds something that holds itself."""

    first: Recursive | None = None
    """The first."""


class Multiple(ApiModel):
    """Has a bound that a structural schema lacks."""

    even: Annotated[int, Field(multiple_of=2)] = 2
    """An even number."""


@pytest.mark.parametrize(
    ("model", "message"),
    [(Union, "a CRD has no unions"), (Holder, "Recursive contains itself"), (Multiple, "a CRD cannot express multipleOf")],
)
def test_what_a_crd_cannot_express_is_an_error(model: type[ApiModel], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        structural(model)


def test_the_reference_has_every_field_and_every_message() -> None:
    text = page()
    for resource in RESOURCES:
        schema = schema_of(resource)
        for part in ("spec", "status"):
            for path, _ in fields(schema["properties"][part]):
                assert f"| `{path.rpartition('.')[2]}` |" in text, (resource.kind, part, path)
        for path, node in nodes(schema):
            for rule in node.get("x-kubernetes-validations", []):
                assert rule["message"] in text, (resource.kind, path)
