"""Does the live object hold what is wanted? Compares meaning, so that nothing is written without a change.

The wanted object is the complete intent of one field manager; the live one has defaults, status and other managers' fields on
top. So every wanted field must be there with an equal meaning, and more may be there. What Equipoise stopped wanting leaves no
trace in such a comparison: the annotation `equipoise.dev/spec-hash`, part of every wanted object, changes with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from equipoise.api.values import parse_quantity

# Merge keys of server-side apply for the lists that Equipoise renders (k8s.io/api, `+listMapKey`); the last one that the item
# has decides. Lists that are not named here are compared whole.
LIST_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "volumeMounts": ("mountPath",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ports": ("containerPort", "port", "protocol"),
}
_KEY_DEFAULTS: Final[Mapping[str, Any]] = {"protocol": "TCP"}
_QUANTITY_PARENTS: Final = frozenset({"limits", "requests", "hard"})
_QUANTITY_FIELDS: Final = frozenset({"sizeLimit", "storage"})
_SCALARS: Final = frozenset({str, int, bool})
_TYPE_FIELDS: Final = frozenset({"apiVersion", "kind"})
# Maps that the API server drops when they are empty. Other empty objects are kept, and mean something: `emptyDir: {}`.
_DROPPED_MAPS: Final = frozenset({"labels", "annotations", "nodeSelector", "matchLabels", "data"})


def differs(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether applying `wanted` would change `live`."""
    return next(iter(_differences(wanted, live, ())), None) is not None


def differences(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[str, ...]:
    """Every field that differs, as `path: wanted …, found …`, in the order of the wanted object."""
    return tuple(_differences(wanted, live, ()))


def _differences(wanted: Any, live: Any, path: tuple[str, ...]) -> Iterator[str]:
    if _is_empty(wanted, path) and _is_empty(live, path):
        return
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for key, value in wanted.items():
            if _same_scalar(value, live.get(key)):
                continue
            # Items of a list answer carry no type; they were asked for by it.
            if not path and key in _TYPE_FIELDS and key not in live:
                continue
            yield from _differences(value, live.get(key), (*path, key))
    elif _is_list(wanted) and _is_list(live):
        yield from _list_differences(wanted, live, path)
    elif not _equal(wanted, live, path):
        yield f"{'.'.join(path) or 'object'}: wanted {_show(wanted)}, found {_show(live)}"


def _list_differences(wanted: Sequence[Any], live: Sequence[Any], path: tuple[str, ...]) -> Iterator[str]:
    keys = LIST_KEYS.get(path[-1]) if path else None
    if keys is not None and all(isinstance(item, Mapping) for item in (*wanted, *live)):
        found = {list_key(item, keys): item for item in live}
        for item in wanted:
            key = list_key(item, keys)
            yield from _differences(item, found.get(key), (*path[:-1], f"{path[-1]}[{'/'.join(str(part) for part in key)}]"))
    elif len(wanted) != len(live):
        yield f"{'.'.join(path)}: wanted {_show(wanted)}, found {_show(live)}"
    else:
        for index, (left, right) in enumerate(zip(wanted, live, strict=True)):
            if _same_scalar(left, right):
                continue
            yield from _differences(left, right, (*path[:-1], f"{path[-1]}[{index}]"))


def list_key(item: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    """The identity of a list item: the values of those merge keys that it has, defaults filled in."""
    return tuple(item.get(key, _KEY_DEFAULTS.get(key)) for key in keys if key in item or key in _KEY_DEFAULTS)


def _same_scalar(wanted: Any, live: Any) -> bool:
    """The common case, decided without going deeper: most of an object is text that has not changed."""
    return type(wanted) is type(live) and type(wanted) in _SCALARS and wanted == live


def _equal(wanted: Any, live: Any, path: tuple[str, ...]) -> bool:
    if isinstance(wanted, bool) or isinstance(live, bool):
        return wanted is live
    if wanted == live:
        return True
    is_quantity = path[-1:] and (path[-1] in _QUANTITY_FIELDS or (len(path) > 1 and path[-2] in _QUANTITY_PARENTS))
    if is_quantity and isinstance(wanted, str | int) and isinstance(live, str | int):
        try:
            return math.isclose(parse_quantity(wanted), parse_quantity(live), rel_tol=1e-12)
        except ValueError:
            return False
    return False


def _is_empty(value: Any, path: tuple[str, ...]) -> bool:
    """Zero values are not stored (Go's omitempty), so a wanted one equals an absent one."""
    if isinstance(value, Mapping):
        return not value and path[-1:] != () and path[-1] in _DROPPED_MAPS
    return not value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
