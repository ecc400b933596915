"""Request rates over time: straight lines between knots, jumps where two knots share a time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True)
class RateCurve:
    """Knots (seconds, requests per second) from 0 on, times never falling. The curve ends at the last knot."""

    knots: tuple[tuple[float, float], ...]
    _totals: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.knots) < 2 or self.knots[0][0] != 0.0:
            raise ValueError("a rate curve needs two knots, the first at 0 seconds")
        totals = [0.0]
        for (start, rate), (end, next_rate) in pairwise(self.knots):
            if end < start or min(rate, next_rate) < 0.0 or not math.isfinite(next_rate):
                raise ValueError(
                    f"rate curve: times must not fall and rates not be negative, found {(start, rate)}, {(end, next_rate)}"
                )
            totals.append(totals[-1] + (end - start) * (rate + next_rate) / 2.0)
        object.__setattr__(self, "_totals", tuple(totals))

    @property
    def seconds(self) -> float:
        """How long the curve is."""
        return self.knots[-1][0]

    @property
    def expected_requests(self) -> float:
        """Requests that the whole curve stands for."""
        return self._totals[-1]

    def rate_at(self, seconds: float) -> float:
        """Requests per second at that time; 0 outside the curve. At a jump, the later rate."""
        if not 0.0 <= seconds <= self.seconds:
            return 0.0
        times = [time for time, _ in self.knots]
        i = min(bisect_right(times, seconds), len(times) - 1)
        (start, rate), (end, next_rate) = self.knots[i - 1], self.knots[i]
        return rate if end == start else rate + (next_rate - rate) * (seconds - start) / (end - start)

    def time_of(self, requests: float) -> float:
        """When that many requests are expected to have come: the inverse of the integral. Infinite beyond the curve's end."""
        if requests > self._totals[-1]:
            return math.inf
        i = max(1, bisect_right(self._totals, requests))
        if i >= len(self._totals):
            return self.seconds
        (start, rate), (end, next_rate) = self.knots[i - 1], self.knots[i]
        rest = requests - self._totals[i - 1]
        slope = (next_rate - rate) / (end - start)
        # rate * t + slope * t^2 / 2 = rest, in the form that stays exact when the slope is small
        return start + 2.0 * rest / (rate + math.sqrt(max(0.0, rate * rate + 2.0 * slope * rest)))

    def scaled(self, factor: float) -> RateCurve:
        """The same shape with `factor` times the requests."""
        return RateCurve(tuple((time, rate * factor) for time, rate in self.knots))

    def compressed(self, factor: float) -> RateCurve:
        """The same rates, passing `factor` times as fast: a day in an hour at 24. The number of requests shrinks with it."""
        return RateCurve(tuple((time / factor, rate) for time, rate in self.knots))

    def then(self, other: RateCurve) -> RateCurve:
        """Both curves, the other one second."""
        return RateCurve(self.knots + tuple((self.seconds + time, rate) for time, rate in other.knots))


def constant(requests_per_second: float, seconds: float) -> RateCurve:
    """The same rate all the time."""
    return RateCurve(((0.0, requests_per_second), (seconds, requests_per_second)))


def steps(parts: Sequence[tuple[float, float]]) -> RateCurve:
    """(seconds, requests per second) one after the other."""
    curve = constant(parts[0][1], parts[0][0])
    for seconds, rate in parts[1:]:
        curve = curve.then(constant(rate, seconds))
    return curve


def sinusoid(
    mean: float, amplitude: float, period_seconds: float, seconds: float, phase_seconds: float = 0.0, knots_per_period: int = 96
) -> RateCurve:
    """`mean` + `amplitude` * sin, cut at zero, in straight pieces."""
    count = max(2, math.ceil(seconds / period_seconds * knots_per_period))
    times = [seconds * i / count for i in range(count + 1)]
    return RateCurve(
        tuple(
            (time, max(0.0, mean + amplitude * math.sin(2.0 * math.pi * (time + phase_seconds) / period_seconds)))
            for time in times
        )
    )


def flash_crowd(
    base: float, peak: float, at_seconds: float, hold_seconds: float, seconds: float, ramp_seconds: float = 5.0
) -> RateCurve:
    """`base`, and from `at_seconds` on a ramp up to `peak`, held, and back down."""
    up, down = at_seconds + ramp_seconds, at_seconds + ramp_seconds + hold_seconds
    if down + ramp_seconds > seconds:
        raise ValueError(f"a flash crowd from {at_seconds:g} to {down + ramp_seconds:g} s does not fit into {seconds:g} s")
    return RateCurve(((0.0, base), (at_seconds, base), (up, peak), (down, peak), (down + ramp_seconds, base), (seconds, base)))
