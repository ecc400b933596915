"""A level that ignores noise and takes a shift at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from equipoise.decide.settings import Settings

_STALE_FACTOR = 10.0  # a level not renewed for this many time constants says nothing about now


@dataclass(frozen=True, slots=True)
class Level:
    """A smoothed value with its trend (per second) and the standard deviation of what the smoothing did not foresee."""

    value: float
    trend: float = 0.0
    deviation: float = 0.0
    at_seconds: float = 0.0

    def forecast(self, horizon_seconds: float, settings: Settings) -> float:
        """The value one horizon ahead, never below the level and at most `forecast_most_growth` above it.

        A falling trend is not believed before it has happened: what it would save is small, what it would cost is an outage.
        """
        growth = max(0.0, self.trend) * max(0.0, horizon_seconds)
        return self.value + min(growth, self.value * settings.forecast_most_growth)


def average(
    previous: Level | None, value: float, requests: float, variability: float, window_seconds: float, now_seconds: float,
    settings: Settings,
) -> Level:  # fmt: skip
    """The value averaged over as many requests as it takes to know it well, and no longer.

    A window that holds enough requests is taken as it is: smoothing would only make a flip late. With few, the time constant
    grows until about `average_requests` stand behind the average. A step that chance does not explain is taken at once:
    `variability` is the variance of one request's contribution over its squared mean, so chance explains
    sqrt(variability / requests) of the value.
    """
    if previous is None:
        return Level(value, at_seconds=now_seconds)
    elapsed = now_seconds - previous.at_seconds
    if elapsed <= 0.0:
        return previous
    few = max(0.0, settings.average_requests / max(requests, 1e-9) - 1.0)
    constant = min(settings.smoothing_seconds, few * window_seconds)
    chance = max(value, previous.value) * math.sqrt(variability / max(1.0, requests))
    if constant <= 0.0 or abs(value - previous.value) > settings.shift_deviations * chance:
        return Level(value, at_seconds=now_seconds)
    weight = 1.0 - math.exp(-elapsed / constant)
    return Level(previous.value + weight * (value - previous.value), at_seconds=now_seconds)


def follow(
    previous: Level | None, value: float, sampling_deviation: float, now_seconds: float, settings: Settings
) -> tuple[Level, bool]:
    """The level after one more observation, and whether that was a shift.

    Holt's linear smoothing (1957) with time constants instead of weights, so that rounds need not come evenly, and with
    Huber's clipping (1964): an error beyond `shift_deviations` standard deviations is no noise. Then the level jumps and the
    trend starts anew. The standard deviation joins what the count of requests in the window explains (`sampling_deviation`)
    with what was seen beyond it, so that bursty traffic stops looking like shifts after a while.
    """
    if previous is None or now_seconds - previous.at_seconds > _STALE_FACTOR * settings.smoothing_seconds:
        return Level(value, 0.0, 0.0, now_seconds), False
    elapsed = now_seconds - previous.at_seconds
    if elapsed <= 0.0:
        return previous, False
    expected = max(0.0, previous.value + previous.trend * elapsed)
    error = value - expected
    sigma = math.hypot(previous.deviation, sampling_deviation)
    limit = settings.shift_deviations * max(sigma, 0.02 * abs(expected))
    beta = 1.0 - math.exp(-elapsed / settings.trend_seconds)
    clipped = max(-limit, min(limit, error))
    unexplained = max(0.0, clipped * clipped - sampling_deviation * sampling_deviation)
    deviation = math.sqrt((1.0 - beta) * previous.deviation**2 + beta * unexplained)
    if abs(error) > limit:
        return Level(value, 0.0, deviation, now_seconds), True
    alpha = 1.0 - math.exp(-elapsed / settings.smoothing_seconds)
    level = max(0.0, expected + alpha * error)
    return Level(level, previous.trend + beta * alpha * error / elapsed, deviation, now_seconds), False


def read_level(extra: Mapping[str, float], name: str) -> Level | None:
    """The level that `write_level` left in memory under that name."""
    if f"{name}.level" not in extra:
        return None
    return Level(
        extra[f"{name}.level"],
        extra.get(f"{name}.trend", 0.0),
        max(0.0, extra.get(f"{name}.deviation", 0.0)),
        extra.get(f"{name}.at", 0.0),
    )


def write_level(level: Level, name: str) -> dict[str, float]:
    """Entries for memory, rounded: status is no place for sixteen digits."""
    entries = {f"{name}.level": short(level.value), f"{name}.at": level.at_seconds}
    if level.trend:
        entries[f"{name}.trend"] = short(level.trend)
    if level.deviation:
        entries[f"{name}.deviation"] = short(level.deviation)
    return entries


def short(value: float) -> float:
    """Five significant digits."""
    return float(f"{value:.5g}")
