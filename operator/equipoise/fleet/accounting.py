"""Who holds which GPUs: one pass over the pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from equipoise.api.identity import Variant
from equipoise.fleet.requests import gpu_request, holds_resources


@dataclass(slots=True)
class Holdings:
    """GPUs held per node and resource, by others and by each own variant."""

    foreign: dict[tuple[str, str], int] = field(default_factory=dict)
    own: dict[tuple[str, str], dict[Variant, int]] = field(default_factory=dict)

    def on(self, node: str, resource: str) -> tuple[int, dict[Variant, int]]:
        """GPUs of others on that node, and of own variants."""
        return self.foreign.get((node, resource), 0), self.own.get((node, resource), {})


def holdings(
    pods: Iterable[Mapping[str, Any]],
    resources_of_nodes: Mapping[str, Mapping[str, int]],
    own: Callable[[Mapping[str, Any]], Variant | None],
) -> Holdings:
    """All GPUs that bound pods hold on these nodes, terminating pods included: free is what is left, whoever's pods they are."""
    result = Holdings()
    for pod in pods:
        if not holds_resources(pod):
            continue
        node = pod["spec"]["nodeName"]
        resources = resources_of_nodes.get(node)
        if not resources:
            continue
        for resource in resources:
            amount = gpu_request(pod, resource)
            if not amount:
                continue
            variant = own(pod)
            if variant is None:
                result.foreign[node, resource] = result.foreign.get((node, resource), 0) + amount
            else:
                counts = result.own.setdefault((node, resource), {})
                counts[variant] = counts.get(variant, 0) + amount
    return result
