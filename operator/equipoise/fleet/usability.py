"""Whether a node can take an engine's pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
# The node controller sets these taints when it sets Ready to something else, or on a cordon: the plainer reason is given instead.
_IMPLIED = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"})


def unusable_reason(node: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> str:
    """Why no engine can be placed there now; empty when one can."""
    metadata, spec = _mapping(node.get("metadata")), _mapping(node.get("spec"))
    if metadata.get("deletionTimestamp"):
        return "being deleted"
    ready = next((item for item in _items(_mapping(node.get("status")).get("conditions")) if item.get("type") == "Ready"), None)
    if ready is None:
        return "has reported no Ready condition yet"
    if ready.get("status") != "True":
        message = str(ready.get("message") or ready.get("reason") or "").strip()
        return f"not Ready ({message})" if message else "not Ready"
    if spec.get("unschedulable"):
        return "cordoned"
    for taint in _items(spec.get("taints")):
        if taint.get("effect") in _BLOCKING and taint.get("key") not in _IMPLIED and not tolerated(taint, tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            name = f"{taint.get('key')}{value}:{taint.get('effect')}"
            return f"tainted {name}, which engines do not tolerate; add a toleration to its GPUPool"
    return ""


def tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one of the tolerations matches, by the scheduler's rules."""
    for toleration in tolerations:
        key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
        effect = toleration.get("effect") or ""
        if effect and effect != taint.get("effect"):
            continue
        if key and key != taint.get("key"):
            continue
        if operator == "Exists" or (key and (toleration.get("value") or "") == (taint.get("value") or "")):
            return True
    return False


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
