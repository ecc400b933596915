"""GPUs of a pool, node by node: what is free, what current replicas hold, and where another replica fits."""

from __future__ import annotations

from collections.abc import Sequence

from equipoise.api.identity import Shape
from equipoise.decide.allocation.types import NodeSpace


def chunks_of(shape: Shape, largest_node: int) -> tuple[int, int]:
    """(chunks, GPUs per chunk) of one replica: whole on one node where one is large enough, else a pipeline stage per chunk."""
    if shape.gpus_per_replica <= largest_node or shape.pipeline_parallel == 1:
        return 1, shape.gpus_per_replica
    return shape.pipeline_parallel, shape.tensor_parallel


class PoolSpace:
    """Takes replicas on nodes: best fit, so that whole nodes stay whole for wide replicas. Nothing here depends on a hash order.

    A new replica goes where GPUs are free; only when none are does it take the place of a current replica that the plan has not
    kept. Nodes are kept in buckets by their number of GPUs, so that a take costs the same on ten nodes and on ten thousand.
    """

    def __init__(self, nodes: Sequence[NodeSpace]) -> None:
        ordered = sorted(nodes, key=lambda node: node.name)
        self.names = [node.name for node in ordered]
        self.index = {name: position for position, name in enumerate(self.names)}
        self.open = [node.open for node in ordered]
        held = [sum(node.own_gpus.values()) for node in ordered]
        self.reusable = [min(count, max(node.gpus, 0)) if node.open else count for node, count in zip(ordered, held, strict=True)]
        self.free = [max(0, node.gpus - count) if node.open else 0 for node, count in zip(ordered, held, strict=True)]
        self.free_gpus = sum(self.free)  # that nothing holds
        self.total_gpus = sum(  # on open nodes, that nothing in the plan has taken yet
            free + kept for free, kept, is_open in zip(self.free, self.reusable, self.open, strict=True) if is_open
        )
        largest = max((free + kept for free, kept in zip(self.free, self.reusable, strict=True)), default=0)
        self.largest = largest
        self._by_free: list[dict[int, None]] = [{} for _ in range(largest + 1)]
        self._by_total: list[dict[int, None]] = [{} for _ in range(largest + 1)]
        for position in range(len(ordered)):
            if self.open[position]:
                self._by_free[self.free[position]][position] = None
                self._by_total[self.free[position] + self.reusable[position]][position] = None

    @property
    def roomiest(self) -> int:
        """Most GPUs on one open node that nothing in the plan has taken yet."""
        return max((count for count, places in enumerate(self._by_total) if places), default=0)

    def take(self, chunks: int, gpus: int, *, displace: bool = True) -> tuple[int, ...] | None:
        """Places for one new replica, or None. With `displace`, places of current replicas count as free when nothing else is."""
        places: list[int] = []
        for _ in range(chunks):
            place = self._best_fit(self._by_free, gpus)
            if place is None and displace:
                place = self._best_fit(self._by_total, gpus)
            if place is None:
                for taken in places:
                    self.give_back(taken, gpus)
                return None
            self._change(place, min(gpus, self.free[place]), max(0, gpus - self.free[place]))
            places.append(place)
        return tuple(places)

    def keep(self, place: int, gpus: int) -> bool:
        """A current replica stays where it is; False when its place has been taken."""
        if self.reusable[place] < gpus:
            return False
        self._change(place, 0, gpus)
        return True

    def give_back(self, place: int, gpus: int) -> None:
        """Undo a take: the GPUs are free again."""
        self._change(place, -gpus, 0)

    def _best_fit(self, buckets: list[dict[int, None]], gpus: int) -> int | None:
        for count in range(gpus, len(buckets)):
            if buckets[count]:
                return next(iter(buckets[count]))
        return None

    def _change(self, place: int, free: int, reusable: int) -> None:
        if not self.open[place]:
            self.free[place] -= free
            self.reusable[place] -= reusable
            self.free_gpus -= free
            return
        self.free_gpus -= free
        self.total_gpus -= free + reusable
        del self._by_free[self.free[place]][place]
        del self._by_total[self.free[place] + self.reusable[place]][place]
        self.free[place] -= free
        self.reusable[place] -= reusable
        self._by_free[self.free[place]][place] = None
        self._by_total[self.free[place] + self.reusable[place]][place] = None
