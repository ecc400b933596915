"""When requests come: renewal processes whose rate follows a curve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from equipoise.simulate.traffic.curves import RateCurve


def arrival_times(curve: RateCurve, random: Random, variation: float = 1.0) -> Iterator[float]:
    """Times of arrivals along the curve, in order.

    Gaps are gamma distributed with the coefficient of variation `variation` in the curve's own time (1: a Poisson process; 0:
    evenly spaced; Azure's code trace of 2023 has 13), then stretched so that the rate follows the curve.
    """
    if variation < 0.0:
        raise ValueError(f"the variation of arrivals cannot be negative, got {variation}")
    gap = _gaps(random, variation)
    expected = _first(random, variation)
    total = curve.expected_requests
    while expected <= total:
        yield curve.time_of(expected)
        expected += gap()


def _gaps(random: Random, variation: float) -> Callable[[], float]:
    if variation == 0.0:
        return lambda: 1.0
    if variation == 1.0:
        return lambda: random.expovariate(1.0)
    shape = 1.0 / (variation * variation)
    return lambda: random.gammavariate(shape, 1.0 / shape)


def _first(random: Random, variation: float) -> float:
    """From any moment to the next arrival: a share of a gap, and long gaps are met more often than short ones."""
    if variation == 0.0:
        return random.random()
    shape = 1.0 / (variation * variation)
    return random.random() * random.gammavariate(shape + 1.0, 1.0 / shape)
