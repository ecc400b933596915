"""Percentiles and shares out of bucketed counts.

Inside a bucket the samples are taken as evenly spread (linear interpolation), the first bucket starts at 0, and nothing is
known beyond the last finite bound. Every estimate carries the edges of its bucket: vLLM's TPOT buckets are 10, 25, 50 ms, so
"20 or 24 ms" is interpolation and not measurement.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number between the edges of the bucket that it was read from. `high` is infinite beyond the last finite bound."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """How coarse the estimate is."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts at ascending finite bounds, and the count of all samples. Build it with `from_buckets`."""

    bounds: tuple[float, ...]
    cumulative: tuple[float, ...]
    count: float

    @classmethod
    def from_buckets(cls, buckets: Mapping[float, float] | Iterable[tuple[float, float]]) -> Histogram:
        """Build from upper bound -> cumulative count, in any order.

        Counts that fall from one bound to the next are raised to the one before: rates of buckets scraped one after the
        other, or sums over pods with different bounds, are not quite monotonic. NaN and negative counts are left out.
        Without a +Inf bucket the largest count is the total.
        """
        pairs = sorted(buckets.items() if isinstance(buckets, Mapping) else buckets)
        bounds: list[float] = []
        cumulative: list[float] = []
        highest = 0.0
        for bound, count in pairs:
            if math.isnan(count) or math.isnan(bound):
                continue
            highest = max(highest, count)
            if bound == math.inf:
                continue
            if bounds and bound == bounds[-1]:
                cumulative[-1] = highest
                continue
            bounds.append(bound)
            cumulative.append(highest)
        return cls(tuple(bounds), tuple(cumulative), highest)

    def share_within(self, target: float) -> Estimate | None:
        """Share of samples at or below `target` (0..1), None without samples.

        Beyond the last finite bound the share is what is known to be inside: the samples of the +Inf bucket count as outside.
        """
        if self.count <= 0:
            return None
        index = bisect_left(self.bounds, target)
        low_count = self.cumulative[index - 1] if index else 0.0
        if index == len(self.bounds):
            high_count, value = self.count, low_count
        else:
            high_count = self.cumulative[index]
            lower = self.bounds[index - 1] if index else min(0.0, self.bounds[0])
            span = self.bounds[index] - lower
            inside = (target - lower) / span if span > 0 else 1.0
            value = low_count + (high_count - low_count) * min(1.0, max(0.0, inside))
            if target == self.bounds[index]:
                low_count = high_count  # on an edge nothing is interpolated
        return Estimate(value / self.count, low_count / self.count, high_count / self.count)

    def percentile(self, percent: float) -> Estimate | None:
        """Value that `percent` per cent of the samples do not exceed, None without samples; ValueError outside 0..100.

        In the +Inf bucket the last finite bound is returned, with an infinite upper edge: "at least".
        """
        if not 0.0 <= percent <= 100.0:
            raise ValueError(f"percentile {percent}: must be within 0 and 100")
        if self.count <= 0:
            return None
        rank = self.count * percent / 100.0
        index = bisect_left(self.cumulative, rank)
        while index < len(self.bounds) and self.cumulative[index] <= 0:
            index += 1  # rank 0: the first bucket that holds anything
        if index == len(self.bounds):
            edge = self.bounds[-1] if self.bounds else 0.0
            return Estimate(edge, edge, math.inf)
        upper = self.bounds[index]
        lower = self.bounds[index - 1] if index else min(0.0, upper)
        below = self.cumulative[index - 1] if index else 0.0
        inside = self.cumulative[index] - below
        part = (rank - below) / inside if inside > 0 else 1.0
        return Estimate(lower + (upper - lower) * min(1.0, max(0.0, part)), lower, upper)

    def masses(self) -> list[tuple[float, float, float]]:
        """(low, high, share) of every finite bucket that holds samples; samples beyond the last bound are missing."""
        result = []
        lower, below = min(0.0, self.bounds[0]) if self.bounds else 0.0, 0.0
        for bound, count in zip(self.bounds, self.cumulative, strict=True):
            if count > below:
                result.append((lower, bound, (count - below) / self.count))
            lower, below = bound, count
        return result


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """Add histograms of the same quantity. Different bounds (engine versions differ) meet by interpolation at their union."""
    parts = [item for item in histograms if item.count > 0]
    if not parts:
        return Histogram((), (), 0.0)
    if len({item.bounds for item in parts}) == 1:
        summed = tuple(math.fsum(column) for column in zip(*(item.cumulative for item in parts), strict=True))
        return Histogram(parts[0].bounds, summed, math.fsum(item.count for item in parts))
    bounds = sorted({bound for item in parts for bound in item.bounds})
    cumulative = []
    for bound in bounds:
        shares = ((item.share_within(bound), item.count) for item in parts)
        cumulative.append(math.fsum(share.value * count for share, count in shares if share is not None))
    return Histogram.from_buckets([*zip(bounds, cumulative, strict=True), (math.inf, math.fsum(item.count for item in parts))])
