"""GPU nodes, and which of them have the same device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from equipoise.fleet.node_labels import GPU_RESOURCES, Product, not_whole, product_of
from equipoise.fleet.requests import count
from equipoise.fleet.types import Device

_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True, eq=False)
class GpuNode:
    """A node with whole GPUs. `resources` counts its GPUs by extended resource; `resource` is the first of them."""

    name: str
    labels: Mapping[str, str]
    resources: Mapping[str, int]
    product: Product | None
    device: Device | None
    problem: str
    raw: Mapping[str, Any]

    @property
    def resource(self) -> str:
        """The extended resource that stands for its GPUs."""
        return next(iter(self.resources))

    @property
    def gpus(self) -> int:
        """GPUs of that resource."""
        return self.resources[self.resource]

    def matches(self, selector: Mapping[str, str]) -> bool:
        """Whether it carries all these labels."""
        return all(self.labels.get(key) == value for key, value in selector.items())


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes with the same device."""

    device: Device | None
    nodes: tuple[GpuNode, ...]

    @property
    def problem(self) -> str:
        """What was not understood about the device."""
        return next((node.problem for node in self.nodes if node.problem), "")

    def describe(self) -> str:
        """The device and its nodes, for messages."""
        return f"{self.device.name if self.device else 'unknown'} ({node_names(self.nodes)})"

    def selector(self, all_nodes: Sequence[GpuNode]) -> dict[str, str]:
        """Labels that select these nodes and no other device: the product, and the memory only where the product alone would
        not do.
        """
        product = self.nodes[0].product if self.nodes else None
        if product is None:
            return {}
        selector = {product.product_label: product.product}
        others = [node for node in all_nodes if node.device != self.device and node.matches(selector)]
        if others and product.memory_label:
            selector[product.memory_label] = product.memory
        return selector


def read_nodes(nodes: Iterable[Mapping[str, Any]], further_resources: Iterable[str], problems: list[str]) -> list[GpuNode]:
    """Nodes that have whole GPUs, in order of name. Nodes with parts of GPUs are left out and named in `problems`."""
    names = dict.fromkeys((*GPU_RESOURCES, *sorted(further_resources)))
    found = []
    refused: dict[str, list[GpuNode]] = defaultdict(list)
    for raw in nodes:
        metadata, status = raw.get("metadata"), raw.get("status")
        if not isinstance(metadata, Mapping) or not isinstance(status, Mapping):
            continue
        allocatable = status.get("allocatable")
        if not isinstance(allocatable, Mapping):
            continue
        resources = {name: amount for name in names if name in allocatable and (amount := count(allocatable[name]))}
        if not resources:
            continue
        labels = metadata.get("labels")
        labels = labels if isinstance(labels, Mapping) else {}
        product = product_of(labels)
        identified = product.recognise() if product else None
        node = GpuNode(
            name=str(metadata.get("name", "")),
            labels=labels,
            resources=resources,
            product=product,
            device=identified.device if identified else None,
            problem=identified.problem if identified else "",
            raw=raw,
        )
        reason = not_whole(labels)
        if reason:
            refused[reason].append(node)
        else:
            found.append(node)
    problems.extend(f"{node_names(members)}: no pool, for {reason}" for reason, members in sorted(refused.items()))
    return sorted(found, key=lambda node: node.name)


def group_by_device(nodes: Iterable[GpuNode]) -> dict[Device | None, list[GpuNode]]:
    """Nodes by device; None holds those whose labels name none."""
    groups: dict[Device | None, list[GpuNode]] = defaultdict(list)
    for node in nodes:
        groups[node.device].append(node)
    return dict(groups)


def majority(groups: Mapping[Device | None, Sequence[GpuNode]], *, by_label: bool = False) -> Group:
    """The device with most GPUs (ties: first by name); `by_label` splits further by resource and product label, which a
    selector cannot join.
    """
    candidates: dict[tuple[str, str, str], list[GpuNode]] = defaultdict(list)
    for device, nodes in groups.items():
        for node in nodes:
            label = f"{node.product.product_label}={node.product.product}" if by_label and node.product else ""
            candidates[f"{device.name} {device.memory_bytes}" if device else "", label, node.resource if by_label else ""].append(
                node
            )
    _, best = min(candidates.items(), key=lambda item: (-sum(node.gpus for node in item[1]), item[0]))
    return Group(best[0].device, tuple(best))


def node_names(nodes: Sequence[GpuNode]) -> str:
    """`node a`, `nodes a, b, c and 4 more`."""
    names = sorted(node.name for node in nodes)
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{'node' if len(names) == 1 else 'nodes'} {shown}{more}"
