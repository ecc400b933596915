"""Two latencies that add up, known only as two separate distributions: what can be said about their sum.

Means add; percentiles do not (measured on a vLLM pair: client p95 8.92 s against 4.46 + 7.25 s of its legs). Per-request pairs
are not to be had, so the sum is estimated as if the legs were independent, and bounded without any such assumption.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from equipoise.observe.histogram import Histogram


@dataclass(frozen=True, slots=True)
class Bounded:
    """An estimate, and the bounds that hold whatever the dependence."""

    value: float
    low: float
    high: float


class _Integral:
    """The integral of a histogram's distribution function from its lowest edge: piecewise quadratic, exact."""

    def __init__(self, histogram: Histogram) -> None:
        self._edges: list[float] = []
        self._shares: list[float] = []
        self._slopes: list[float] = []
        self._areas: list[float] = []
        share = area = 0.0
        last = None
        for low, high, mass in histogram.masses():
            if last is not None and low > last:
                self._push(last, share, 0.0, area)
                area += share * (low - last)
            if high > low:
                self._push(low, share, mass / (high - low), area)
                area += (share + mass / 2) * (high - low)
            share += mass
            last = high
        if last is not None:
            self._push(last, share, 0.0, area)

    def _push(self, edge: float, share: float, slope: float, area: float) -> None:
        self._edges.append(edge)
        self._shares.append(share)
        self._slopes.append(slope)
        self._areas.append(area)

    def __call__(self, x: float) -> float:
        index = bisect_right(self._edges, x) - 1
        if index < 0:
            return 0.0
        step = x - self._edges[index]
        return self._areas[index] + step * (self._shares[index] + self._slopes[index] * step / 2)


class SumOfLegs:
    """The sum of two latencies, each evenly spread inside its buckets. Beyond a last finite bound is outside any target."""

    def __init__(self, first: Histogram, second: Histogram) -> None:
        if first.count <= 0 or second.count <= 0:
            raise ValueError("a sum of legs needs samples of both")
        self._first, self._second = first, second
        self._masses = first.masses()
        self._integral = _Integral(second)

    def share_within(self, target: float) -> float:
        """Share of requests whose sum is at or below `target`, the legs taken as independent. Exact for evenly filled buckets."""
        integral = self._integral
        total = 0.0
        for low, high, mass in self._masses:
            if high == low:  # a bucket that ends at 0 holds exact zeros
                total += mass * self._share(self._second, target - low)
                continue
            if low >= target:
                break
            total += mass * (integral(target - low) - integral(target - high)) / (high - low)
        return min(1.0, max(0.0, total))

    def percentile(self, percent: float, steps: int = 14) -> float | None:
        """Value at `percent` per cent by bisection; None when it lies beyond the last finite bounds.

        The sum is at least either leg, so the search starts at the larger percentile of the two; 14 halvings leave less than a
        ten-thousandth of the range, far below the width of the buckets.
        """
        wanted = percent / 100.0
        high = sum(max((edge for _, edge, _ in leg.masses()), default=0.0) for leg in (self._first, self._second))
        if self.share_within(high) < wanted:
            return None
        tails = (self._first.percentile(percent), self._second.percentile(percent))
        low = min(high, max((tail.value for tail in tails if tail is not None), default=0.0))
        for _ in range(steps):
            middle = (low + high) / 2
            if self.share_within(middle) < wanted:
                low = middle
            else:
                high = middle
        return high

    def attainment(self, target: float) -> Bounded:
        """Share within `target`: the independent estimate, and bounds that hold for any dependence and any spread in buckets.

        The bounds are Makarov's (1981) at the buckets' edges: for every split x of the target the share is at least
        P(A <= x) + P(B <= target - x) - 1 and at most P(A <= x) + P(B <= target - x). Where a split falls inside a bucket, the
        lower edge's share goes into the lower bound and the upper edge's into the upper bound.
        """
        splits = {0.0, target}
        splits.update(bound for bound in self._first.bounds if 0.0 <= bound <= target)
        splits.update(target - bound for bound in self._second.bounds if 0.0 <= target - bound <= target)
        low, high = 0.0, 1.0
        for split in splits:
            first, second = self._first.share_within(split), self._second.share_within(target - split)
            if first is not None and second is not None:
                low = max(low, first.low + second.low - 1.0)
                high = min(high, first.high + second.high)
        value = self.share_within(target)
        return Bounded(min(max(value, low), high), low, high)

    @staticmethod
    def _share(histogram: Histogram, target: float) -> float:
        estimate = histogram.share_within(target)
        return estimate.value if estimate is not None else 0.0


def goodput_bounds(ttft_attainment: float, tpot_attainment: float) -> tuple[float, float]:
    """Least and most share of requests inside both targets, from the shares inside each (Fréchet's bounds).

    Which request missed which target is not to be had from histograms; the truth lies between these for any dependence.
    """
    return max(0.0, ttft_attainment + tpot_attainment - 1.0), min(ttft_attainment, tpot_attainment)
