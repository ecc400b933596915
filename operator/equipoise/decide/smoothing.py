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
    return {
        f"{name}.level": short(level.value),
        f"{name}.trend": short(level.trend),
        f"{name}.deviation": short(level.deviation),
        f"{name}.at": level.at_seconds,
    }


def short(value: float) -> float:
    """Five significant digits."""
    return float(f"{value:.5g}")
