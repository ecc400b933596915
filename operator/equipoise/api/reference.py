"""docs/reference/api.md from the same schemas as the CRDs, so that the page cannot say what the server does not do."""

from __future__ import annotations

import json

from equipoise.api.crd import RESOURCES, Resource, titled_schema
from equipoise.api.identity import GROUP, VERSION
from equipoise.api.schema import TITLE, Schema
from equipoise.api.values import DURATION_PATTERN, QUANTITY_PATTERN

_HEAD = f"""<!-- Generated from operator/equipoise/api by `make crds`; do not edit. -->
# API reference: `{GROUP}/{VERSION}`

Durations are strings such as `500ms`, `1.5s` or `1m30s`. Quantities are numbers in Kubernetes' notation, such as `"12.5"`, `80Gi`
or `8.03G`; put those with a decimal point and no letter in quotes. A field may be left out unless it says *required*. What a
rule below forbids is refused by the API server itself, with the message shown here.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_HEAD, _contents(), *(_kind(resource) for resource in RESOURCES)])


def _contents() -> str:
    lines = ["| Kind | Short name | Scope | What it is |", "|---|---|---|---|"]
    for resource in RESOURCES:
        scope = "namespace" if resource.namespaced else "cluster"
        description = titled_schema(resource)["description"]
        lines.append(f"| [{resource.kind}](#{resource.kind.lower()}) | `{resource.short_name}` | {scope} | {description} |")
    return "\n".join(lines) + "\n"


def _kind(resource: Resource) -> str:
    schema = titled_schema(resource)
    found: dict[str, tuple[list[str], Schema]] = {}
    for name in ("spec", "status"):
        _collect(name, schema["properties"][name], found)
    sections = [_section(resource, paths, type_schema) for paths, type_schema in found.values()]
    return "\n".join([f"## {resource.kind}\n\n{schema['description']}\n", _rules(schema), *sections])


def _collect(path: str, schema: Schema, found: dict[str, tuple[list[str], Schema]]) -> None:
    """Every object type below a path in the order of the page, once, with all the paths at which it stands."""
    inner = schema.get("items", schema)
    if "properties" not in inner:
        return
    path += "[]" if "items" in schema else ""
    paths, _ = found.setdefault(inner[TITLE], ([], inner))
    paths.append(path)
    if len(paths) == 1:
        for child, child_schema in inner["properties"].items():
            _collect(f"{path}.{child}", child_schema, found)


def _section(resource: Resource, paths: list[str], schema: Schema) -> str:
    heading = f"### {resource.kind}: " + ", ".join(f"`{path}`" for path in paths)
    lines = [
        f'<a id="{_anchor(resource, schema)}"></a>\n\n{heading}\n',
        "| Field | Type | Default | Meaning |",
        "|---|---|---|---|",
    ]
    required = set(schema.get("required", ()))
    for field, child in schema["properties"].items():
        default = "*required*" if field in required else _default(child)
        lines.append(f"| `{field}` | {_type(resource, child)} | {default} | {_cell(child['description'])} |")
    rules = _rules(schema)
    return "\n".join(lines) + (f"\n\n{rules}" if rules else "\n")


def _anchor(resource: Resource, schema: Schema) -> str:
    return f"{resource.kind}-{schema[TITLE]}".lower()


def _rules(schema: Schema) -> str:
    """The rules of an object and of its fields, by their messages."""
    messages = [rule["message"] for rule in schema.get("x-kubernetes-validations", [])]
    for name, child in schema["properties"].items():
        if "properties" not in child:
            messages += [f"{name} {rule['message']}" for rule in child.get("x-kubernetes-validations", [])]
    return (
        "".join(
            ["What the API server refuses, and what it then says:\n", *(f"\n- {_cell(message)}" for message in messages), "\n"]
        )
        if messages
        else ""
    )


def _type(resource: Resource, schema: Schema) -> str:
    if "items" in schema:
        kind = _type(resource, schema["items"])
        return f"list of {'strings' if kind == 'string' else kind}"
    if "properties" in schema:
        return f"[object](#{_anchor(resource, schema)})"
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "count or percentage" if "%" in schema["pattern"] else "quantity"
    if "additionalProperties" in schema:
        return "map of strings"
    named = {DURATION_PATTERN: "duration", QUANTITY_PATTERN: "quantity"}
    if schema.get("pattern") in named:
        return named[schema["pattern"]]
    return f"{schema['type']}{_bounds(schema)}"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None or (low == 0 and high is None):
        return ""
    return f", {low} to {high}" if high is not None else f", at least {low}"


def _default(schema: Schema) -> str:
    default = schema.get("default")
    if default is None or isinstance(default, dict):
        return ""
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def _cell(text: str) -> str:
    """Markdown takes `<` outside of code for HTML, and `|` for the end of a cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`&lt;", "`<")
