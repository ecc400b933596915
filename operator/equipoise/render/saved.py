"""What a spec said of its engines at one revision: enough to render that revision again, and to put the spec back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from equipoise.api.service import InferenceService

Fields = tuple[str, ...]
FIELDS: Final[tuple[Fields, ...]] = (
    ("model",),
    ("engine", "image"),
    ("engine", "version"),
    ("engine", "args"),
    ("engine", "env"),
    ("engine", "podTemplate"),
    ("drain", "grace"),
    ("phases", "prefill", "engineArgs"),
    ("phases", "prefill", "podTemplate"),
    ("phases", "decode", "engineArgs"),
    ("phases", "decode", "podTemplate"),
    ("router", "type"),
    ("router", "endpointPicker"),
    ("capacity", "boundedQueues"),
    ("capacity", "flips"),
)
"""Everything that a revision is a digest of (`revision.basis`), by its path under `spec`. `engine.type` never changes."""
_DEFAULTS: Final[dict[Fields, Any]] = {
    ("drain", "grace"): "5m",
    ("capacity", "boundedQueues"): "Auto",
    ("capacity", "flips"): "Auto",
}


def saved_fields(service: InferenceService) -> dict[str, Any]:
    """Those fields as the spec has them now; what is unset or a default is left out."""
    spec = service.spec.to_dict()
    result: dict[str, Any] = {}
    for path in FIELDS:
        value = _get(spec, path)
        if value not in (None, [], {}, "") and value != _DEFAULTS.get(path):
            _set(result, path, value)
    return result


def at_fields(service: InferenceService, saved: Mapping[str, Any]) -> InferenceService:
    """The service with its engine fields as they were saved; pydantic's ValidationError where they cannot be read any more."""
    data = service.to_dict()
    spec = data["spec"]
    for path in FIELDS:
        value = _get(saved, path)
        if value is None:
            _remove(spec, path)
        else:
            _set(spec, path, value)
    return InferenceService.parse(data)


def patch_to(service: InferenceService, saved: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that puts the saved fields back into the service's spec: null where nothing was set."""
    now, spec = service.spec.to_dict(), dict[str, Any]()
    for path in FIELDS:
        value, present = _get(saved, path), _get(now, path)
        if path == ("model",):
            value = _with_nulls(value or {}, present or {})
        elif value is None and present in (None, [], {}):
            continue
        _set(spec, path, value)
    return {"spec": spec}


def _with_nulls(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch leaves out nothing by itself: fields that are there now and were not then are set to null."""
    result: dict[str, Any] = dict(wanted)
    for name, value in present.items():
        if name not in wanted:
            result[name] = None
        elif isinstance(value, Mapping) and isinstance(wanted[name], Mapping):
            result[name] = _with_nulls(wanted[name], value)
    return result


def _get(data: Mapping[str, Any], path: Fields) -> Any:
    found: Any = data
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _set(data: dict[str, Any], path: Fields, value: Any) -> None:
    for name in path[:-1]:
        data = data.setdefault(name, {})
    data[path[-1]] = value


def _remove(data: dict[str, Any], path: Fields) -> None:
    for name in path[:-1]:
        found = data.get(name)
        if not isinstance(found, dict):
            return
        data = found
    data.pop(path[-1], None)
