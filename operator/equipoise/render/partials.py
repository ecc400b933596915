"""Checking the user's partial pod templates. The CRD keeps them as free objects, so what is no pod template is found here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from equipoise.render.differs import LIST_KEYS
from equipoise.render.options import Problem, Refusal

_STRING_MAPS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels"})
_OBJECTS: Final = frozenset({"metadata", "spec", "resources", "requests", "limits", "securityContext", "affinity", "lifecycle"})
_OBJECT_LISTS: Final = frozenset({*LIST_KEYS, "tolerations", "envFrom"})


def check_partial(source: str, partial: Mapping[str, Any], container: str, arguments_field: str) -> None:
    """A Refusal unless it is the beginning of a PodTemplateSpec that leaves the container's arguments alone.

    Arguments belong into `arguments_field`: in a template they would replace Equipoise's. Wrong names and values inside are left
    to the API server, which refuses them in its own words.
    """
    strangers = sorted(str(name) for name in set(partial) - {"metadata", "spec"})
    if strangers:
        raise Refusal(Problem(source, f"{strangers[0]!r} is no part of a pod template; it has metadata and spec"))
    for name in partial:
        _expect(isinstance(partial[name], Mapping), f"{source}.{name}", partial[name], "an object")
    _walk(source, partial)
    for given in partial.get("spec", {}).get("containers") or ():
        if given.get("name") == container and "args" in given and arguments_field:
            message = f"args would replace those the phases and the router need; take them out and use {arguments_field}"
            raise Refusal(Problem(f"{source}.spec.containers[{container}]", message))


def _walk(path: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _check_member(f"{path}.{key}", str(key), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _walk(f"{path}[{index}]", inner)


def _check_member(path: str, key: str, value: Any) -> None:
    if value is None:
        return
    if key in _STRING_MAPS:
        texts = isinstance(value, Mapping) and all(text is None or isinstance(text, str) for text in value.values())
        _expect(texts, path, value, "an object of strings (numbers and true need quotes)")
        return
    if key in _OBJECTS:
        _expect(isinstance(value, Mapping), path, value, "an object")
    elif key in _OBJECT_LISTS:
        objects = isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
        _expect(objects, path, value, "a list of objects")
        for item in value:
            for name in LIST_KEYS.get(key, ()):
                _expect(isinstance(item.get(name, ""), str | int), f"{path}[].{name}", item.get(name), "a string or a number")
    _walk(path, value)


def _expect(holds: bool, path: str, found: Any, expected: str) -> None:
    if not holds:
        text = repr(found)
        raise Refusal(Problem(path, f"found {text if len(text) <= 80 else text[:77] + '...'}, expected {expected}"))
