"""A Prometheus histogram that costs little to fill."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """`counts[i]` are the samples in (edges[i-1], edges[i]]; the last one is +Inf's. Not cumulative."""

    __slots__ = ("count", "counts", "edges", "total")

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = tuple(edges)
        self.counts = [0] * (len(self.edges) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, value: float, samples: int = 1) -> None:
        """Add a sample, or several of one value."""
        self.counts[bisect_left(self.edges, value)] += samples
        self.total += value * samples
        self.count += samples

    def observe_steps(self, steps: int, size: int, first: float, slope: float, fresh: int) -> None:
        """Add `size` samples for each of `steps` values first, first+slope, …, but only size-fresh for the first of them."""
        edges, counts = self.edges, self.counts
        self.total += size * steps * (first + slope * (steps - 1) / 2.0) - fresh * first
        self.count += size * steps - fresh
        index = bisect_left(edges, first)
        counts[index] -= fresh
        done = 0
        while index < len(edges) and first + slope * (steps - 1) > edges[index]:
            below = min(steps, int((edges[index] - first) / slope) + 1)  # values up to this edge
            counts[index] += (below - done) * size
            done = below
            index += 1
        counts[index] += (steps - done) * size
