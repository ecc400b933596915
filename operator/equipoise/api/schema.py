"""pydantic's JSON schema (2020-12) turned into what a CustomResourceDefinition takes (a structural OpenAPI 3.0 schema).

What has no counterpart there is an error, never dropped in silence. The differences that matter, per the Kubernetes pages
"Extend the Kubernetes API with CustomResourceDefinitions" (structural schemas, defaulting) and KEP-2876 (CEL):
no references, no `null` among types, no `const`, boolean exclusive bounds, `properties` or `additionalProperties` but not both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from equipoise.api.base import ApiModel

Schema = dict[str, Any]

TITLE: Final = "title"  # name of the pydantic type; kept for the reference page, taken out of the CRD by `without_titles`
_CARRIED: Final = (
    "type", "description", "default", "enum", "pattern", "format", "minLength", "maxLength", "minimum", "maximum",
    "minItems", "maxItems", "minProperties", "maxProperties", "required",
)  # fmt: skip
_REWRITTEN: Final = frozenset(
    {
        "$defs",
        "$ref",
        "anyOf",
        "allOf",
        "const",
        "properties",
        "additionalProperties",
        "items",
        "exclusiveMinimum",
        "exclusiveMaximum",
    }
)
_MEANINGLESS: Final = frozenset({TITLE, "propertyNames"})


def structural(model: type[ApiModel]) -> Schema:
    """The structural schema of a type, `title` holding the type's name wherever one begins.

    ValueError names the keyword or the recursion that a CRD cannot express.
    """
    source = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(source, source.get("$defs", {}), ())


def without_titles(schema: Schema) -> Schema:
    """The same schema as a CRD wants it."""
    cleaned: Schema = {key: value for key, value in schema.items() if key != TITLE or not isinstance(value, str)}
    if "properties" in schema:
        cleaned["properties"] = {name: without_titles(child) for name, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            cleaned[key] = without_titles(schema[key])
    return cleaned


def without_defaults(schema: Schema) -> Schema:
    """The same schema without defaults: a status holds only what was written to it."""
    cleaned: Schema = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in schema:
        cleaned["properties"] = {name: without_defaults(child) for name, child in schema["properties"].items()}
    if "items" in schema:
        # The keys of a list of the map type must be required or have a default; status types require theirs.
        cleaned["items"] = without_defaults(schema["items"])
    return cleaned


def _convert(node: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]) -> Schema:
    node = _resolved(node, definitions, path)
    path = (*path, *([node["$from"]] if "$from" in node else []))
    result: Schema = {key: node[key] for key in _CARRIED if key in node}
    if "x-kubernetes-int-or-string" in node:
        result.pop("type", None)
    if "const" in node:
        result["enum"] = [node["const"]]
    for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if key in node:
            result |= {bound: node[key], key: True}
    if "properties" in node:
        result[TITLE] = node.get("title", "")
        result["properties"] = {name: _convert(child, definitions, path) for name, child in node["properties"].items()}
    elif node.get("additionalProperties") is True:
        result["x-kubernetes-preserve-unknown-fields"] = True
    elif "additionalProperties" in node:
        result["additionalProperties"] = _convert(node["additionalProperties"], definitions, path)
    if "items" in node:
        result["items"] = _convert(node["items"], definitions, path)
    result |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    _settle_default(result)
    unknown = {key for key in node if not key.startswith(("x-kubernetes-", "$"))} - {*_CARRIED} - _REWRITTEN - _MEANINGLESS
    if unknown:
        raise ValueError(f"{'.'.join(path) or 'root'}: a CRD cannot express {', '.join(sorted(unknown))}")
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    return result


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """The node with references followed and `X | None` become X: what is optional is absent, never null."""
    merged = dict(node)
    while "$ref" in merged or "anyOf" in merged:
        if "anyOf" in merged:
            kinds = [kind for kind in merged.pop("anyOf") if kind.get("type") != "null"]
            if len(kinds) != 1:
                raise ValueError(f"{'.'.join(path) or 'root'}: a CRD has no unions; use one type with all fields and a rule")
            merged = {**kinds[0], **merged}
        if "$ref" in merged:
            name = merged.pop("$ref").rpartition("/")[2]
            if name in path:
                raise ValueError(f"{'.'.join(path)}: {name} contains itself, which a CRD cannot express")
            own_title = definitions[name].get("title", name)
            merged = {**definitions[name], **merged, "title": own_title, "$from": name}
    return merged


def _settle_default(schema: Schema) -> None:
    """Objects: the defaults of their fields, written out, because the API server checks rules on a default before it fills it in.

    No default at all where it only says that nothing is there.
    """
    if "default" not in schema:
        return
    if schema["default"] in (None, [], "", {}):
        del schema["default"]
    elif "properties" in schema:
        schema["default"] = {name: child["default"] for name, child in schema["properties"].items() if "default" in child}
