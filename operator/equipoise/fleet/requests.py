"""GPUs that a pod holds, by Kubernetes' own rules for extended resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from equipoise.api.values import parse_quantity

_ENDED = frozenset({"Succeeded", "Failed"})


def holds_resources(pod: Mapping[str, Any]) -> bool:
    """Whether the pod is bound to a node and not ended. A terminating pod still holds what it asked for."""
    spec, status = _mapping(pod.get("spec")), _mapping(pod.get("status"))
    return bool(spec.get("nodeName")) and status.get("phase") not in _ENDED


def gpu_request(pod: Mapping[str, Any], resource_name: str) -> int:
    """What the scheduler reserves of an extended resource for this pod, as a count.

    The larger of all containers and sidecars together and of each init container with the sidecars started before it, plus
    overhead (Kubernetes: "Resource sharing within containers"). Requests of an extended resource equal its limits; either may
    be left out.
    """
    spec = _mapping(pod.get("spec"))
    sidecars = 0
    during_start = 0
    for container in _containers(spec.get("initContainers")):
        amount = _amount(container, resource_name)
        if container.get("restartPolicy") == "Always":
            sidecars += amount
            during_start = max(during_start, sidecars)
        else:
            during_start = max(during_start, sidecars + amount)
    running = sidecars + sum(_amount(container, resource_name) for container in _containers(spec.get("containers")))
    overhead = spec.get("overhead")
    return max(during_start, running) + (count(overhead.get(resource_name, 0)) if isinstance(overhead, Mapping) else 0)


def count(value: object) -> int:
    """A count as Kubernetes writes it (`8`, `"8"`); what cannot be read is an error of whoever wrote it and counts as zero."""
    if isinstance(value, str | int):
        if isinstance(value, int) or value.isdecimal():
            return int(value)
        try:
            return int(parse_quantity(value))
        except ValueError:
            return 0
    return 0


def _amount(container: Mapping[str, Any], resource_name: str) -> int:
    resources = container.get("resources")
    if not isinstance(resources, Mapping):
        return 0
    amount = 0
    for part in ("requests", "limits"):
        quantities = resources.get(part)
        if isinstance(quantities, Mapping) and resource_name in quantities:
            amount = max(amount, count(quantities[resource_name]))
    return amount


def _containers(value: object) -> Iterable[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else ()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
