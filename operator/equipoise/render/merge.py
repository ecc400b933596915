"""Laying a partial object over a rendered one: maps merge, lists of named things merge by name, `null` takes away.

What the user gives wins. Two rules keep the result valid where Kubernetes allows one of several members only: volumes and
variables are replaced whole, and a probe or hook of the user's takes the place of ours even when it uses another handler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from equipoise.render.differs import LIST_KEYS, list_key

_REPLACED_WHOLE: Final = frozenset({"volumes", "env", "volumeMounts"})
_APPENDED: Final = frozenset({"tolerations", "envFrom", "hostAliases"})
_HANDLERS: Final = frozenset({"httpGet", "tcpSocket", "exec", "grpc", "sleep"})


def overlay_object(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`; neither is changed."""
    result = dict(base)
    if _HANDLERS & set(over):
        result = {key: value for key, value in result.items() if key not in _HANDLERS}
    for key, value in over.items():
        below = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = overlay_object(below if isinstance(below, Mapping) else {}, value)
        elif _is_list(value) and _is_list(below):
            result[key] = _overlay_list(key, list(below or ()), list(value))
        else:
            result[key] = value
    return result


def _overlay_list(name: str, base: list[Any], over: list[Any]) -> list[Any]:
    if name in _APPENDED:
        return base + [item for item in over if item not in base]
    keys = LIST_KEYS.get(name)
    if keys is None or not all(isinstance(item, Mapping) for item in over):
        return over
    result = list(base)
    for item in over:
        key = list_key(item, keys)
        index = next((i for i, below in enumerate(result) if list_key(below, keys) == key), None)
        if index is None:
            result.append(overlay_object({}, item))
        else:
            result[index] = overlay_object({} if name in _REPLACED_WHOLE else result[index], item)
    return result


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
