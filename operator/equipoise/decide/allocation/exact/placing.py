"""A node for every replica of a plan: the proof that the scheduler can place it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Variant
from equipoise.decide.allocation.exact.layout import Group, Layout, Node
from equipoise.decide.allocation.exact.nodes import Packing


@dataclass(slots=True)
class Placement:
    """Node positions per replica, what found no place, and the GPUs taken per pool and node."""

    places: dict[Variant, list[tuple[int, ...]]] = field(default_factory=dict)
    failed: dict[Variant, int] = field(default_factory=dict)
    left: dict[str, list[int]] = field(default_factory=dict)


class _Room:
    """GPUs left per node, with nodes found by what they have left."""

    def __init__(self, nodes: list[Node]) -> None:
        self.left = [node.gpus for node in nodes]
        self.open = [node.open for node in nodes]
        self._buckets: dict[int, dict[int, None]] = {}
        for place, count in enumerate(self.left):
            if self.open[place]:
                self._buckets.setdefault(count, {})[place] = None
        self._most = max(self._buckets, default=0)

    def take(self, place: int, gpus: int) -> bool:
        if self.left[place] < gpus:
            return False
        if self.open[place]:
            del self._buckets[self.left[place]][place]
            self._buckets.setdefault(self.left[place] - gpus, {})[place] = None
        self.left[place] -= gpus
        return True

    def best_fit(self, gpus: int) -> int | None:
        for count in range(gpus, self._most + 1):
            bucket = self._buckets.get(count)
            if bucket:
                place = next(iter(bucket))
                self.take(place, gpus)
                return place
        return None


def place(layout: Layout, counts: Mapping[Variant, int], packing: Packing | None = None) -> Placement:
    """First what stays where it is, then what is new: the widest first, on the node that it fills best."""
    result = Placement()
    rooms = {pool: _Room(nodes) for pool, nodes in layout.pools.items()}
    new: list[tuple[int, Variant, list[int], int]] = []
    for index, group in enumerate(layout.groups):
        wanted = {c.variant: counts.get(c.variant, 0) * group.chunks for c in group.choices if counts.get(c.variant, 0)}
        if not wanted:
            continue
        nodes = layout.pools[group.pool]
        stays = _stays(index, group, nodes, sum(wanted.values()), packing)
        found = _keep(group, nodes, wanted, stays, rooms[group.pool])
        new += [(-group.width, variant, found[variant], chunks) for variant, chunks in wanted.items()]
    guides = dict(packing.new) if packing is not None else {}
    for negative, variant, chunks_there, wanted_chunks in sorted(new, key=lambda item: item[:2]):
        width, room = -negative, rooms[variant.pool]
        guided = sorted(place for pool, place, wide in guides if pool == variant.pool and wide == width)
        for _ in range(wanted_chunks - len(chunks_there)):
            found_place = _follow(guides, guided, variant.pool, width, room)
            if found_place is None:
                found_place = room.best_fit(width)
            if found_place is None:
                break
            chunks_there.append(found_place)
    for _, variant, chunks_there, wanted_chunks in new:
        per_replica = layout.by_variant[variant].chunks
        whole = len(chunks_there) // per_replica
        result.places[variant] = [tuple(chunks_there[i * per_replica : (i + 1) * per_replica]) for i in range(whole)]
        if whole * per_replica < wanted_chunks:
            result.failed[variant] = wanted_chunks // per_replica - whole
        for place_left in chunks_there[whole * per_replica :]:
            rooms[variant.pool].take(place_left, -layout.by_variant[variant].width)
    result.left = {pool: room.left for pool, room in rooms.items()}
    return result


def _stays(index: int, group: Group, nodes: list[Node], wanted: int, packing: Packing | None) -> dict[int, int]:
    """Chunks that stay, by node: as the program says, else all that may; of too many, those on the fullest nodes."""
    there = group.slots if group.current else {}
    limit = min(wanted, group.current * group.chunks)
    if packing is not None and any((index, place) in packing.stays for place in there):
        return {place: packing.stays.get((index, place), 0) for place in there}
    if sum(there.values()) <= limit:
        return dict(there)
    stays: dict[int, int] = {}
    for place in sorted(there, key=lambda place: (nodes[place].open, -sum(nodes[place].slots.values()), place)):
        stays[place] = min(there[place], limit)
        limit -= stays[place]
    return stays


def _keep(
    group: Group, nodes: list[Node], wanted: Mapping[Variant, int], stays: dict[int, int], room: _Room
) -> dict[Variant, list[int]]:
    """Chunks that stay, by variant: each first where it runs itself, then (a flip) where the other phase gives one up."""
    found: dict[Variant, list[int]] = {variant: [] for variant in wanted}
    left = dict(stays)
    for own in (True, False):
        for variant, chunks in wanted.items():
            for place in sorted(left):
                most = nodes[place].slots.get(variant, 0) if own else left[place]
                for _ in range(min(most, left[place], chunks - len(found[variant]))):
                    if room.take(place, group.width):
                        left[place] -= 1
                        found[variant].append(place)
    return found


def _follow(guides: dict[tuple[str, int, int], int], guided: list[int], pool: str, width: int, room: _Room) -> int | None:
    for place in guided:
        if guides[pool, place, width] > 0 and room.take(place, width):
            guides[pool, place, width] -= 1
            return place
    return None
