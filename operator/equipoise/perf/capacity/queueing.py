"""Queueing in closed form: how busy a server may be when a target must hold at a percentile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Final

MAXIMUM_UTILISATION: Final = (
    0.9  # beyond it, small errors of any model cost more than the capacity gained (.95: 9.5 service times of queue)
)
_SMALLEST_MISS_SHARE: Final = 1e-3
_ITERATIONS: Final = 12  # bisection: 2e-4 of utilisation
_MAXIMUM_SERVERS: Final = 64
_NORMAL: Final = NormalDist()
# Survival shares between which a distribution is taken at its middle: narrow in the tail, where percentiles are decided.
_TAIL_EDGES: Final = (1.0, 0.85, 0.7, 0.55, 0.4, 0.28, 0.18, 0.11, 0.065, 0.035, 0.015, 0.004, 0.0)


def miss_share(percentile: float) -> float:
    """Share of requests that may miss: 0.05 at the 95th percentile, never below one in a thousand."""
    return min(1.0 - _SMALLEST_MISS_SHARE, max(_SMALLEST_MISS_SHARE, 1.0 - percentile / 100.0))


@lru_cache(maxsize=256)
def normal_quantile(percentile: float) -> float:
    """Standard deviations above the mean at a percentile; zero at and below the median."""
    return max(0.0, _NORMAL.inv_cdf(1.0 - miss_share(percentile)))


@lru_cache(maxsize=1)
def _tail_points() -> tuple[tuple[float, float], ...]:
    """Normal quantiles in the middle of each cell, with the cell's share."""
    return tuple((_NORMAL.inv_cdf(1.0 - 0.5 * (upper + lower)), upper - lower) for upper, lower in pairwise(_TAIL_EDGES))


def spread(mean: float, second_moment: float) -> tuple[tuple[float, float], ...]:
    """Twelve values with their shares that stand for a gamma distribution with these moments (Wilson and Hilferty's cube)."""
    variance = max(second_moment - mean * mean, 1e-6 * mean * mean)
    ninth = variance / (9.0 * mean * mean)
    root = math.sqrt(ninth)
    return tuple((mean * max(0.0, 1.0 - ninth + point * root) ** 3, share) for point, share in _tail_points())


def utilisation_for_target(
    budget_seconds: float, service_seconds: Sequence[tuple[float, float]], percentile: float, servers: int = 1
) -> float:
    """Largest utilisation at which waiting plus own service fits the budget for `percentile` per cent of requests; at most 0.9.

    M/G/1, or M/G/k when `servers` share the work. `service_seconds` are values with their shares, so that a long prompt misses by
    itself and a short one has more time to wait. Waiting: some wait at all, with an exponential tail (exact for M/M/1):

        P(W > t) = C exp(-t k (1 - rho) / (residual (1 + rho (1 - rho)))),   residual = E[S^2] / (2 E[S])

    C is rho for one server and Erlang's C for more; with the residual it gives the mean of Pollaczek and Khinchine, or Lee and
    Longton. The last factor is what a batch server adds: prompts that come during a step start, and end, together with those
    before them (factor 1 + rho), which saves them the constant part of a step when it is busy. Against a simulated batch server
    it leaves 94 to 99 % inside for a target of 95 % (tests/unit/perf).

    When too many miss even without any waiting, the answer is the utilisation at which no more than the allowed share waits at
    all.
    """
    allowed = miss_share(percentile)
    count = max(1, min(servers, _MAXIMUM_SERVERS))
    mean = sum(value * share for value, share in service_seconds)
    residual = sum(value * value * share for value, share in service_seconds) / (2 * mean)
    rooms = [(budget_seconds - value, share) for value, share in service_seconds if value <= budget_seconds]
    too_long = 1.0 - sum(share for _, share in rooms)

    def fits(utilisation: float) -> bool:
        waiting = _waiting_share(utilisation, count)
        if waiting <= allowed:
            return True
        rate = count * (1.0 - utilisation) / (residual * (1.0 + utilisation * (1.0 - utilisation)))
        missing = too_long
        for room, share in rooms:
            missing += share * waiting * math.exp(-room * rate)
        return missing <= allowed

    if fits(MAXIMUM_UTILISATION):
        return MAXIMUM_UTILISATION
    low, high = 0.0, MAXIMUM_UTILISATION
    for _ in range(_ITERATIONS):
        middle = 0.5 * (low + high)
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _waiting_share(utilisation: float, servers: int) -> float:
    if servers == 1:
        return utilisation
    load = utilisation * servers
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1.0 - utilisation * (1.0 - blocked))


def mean_batch_for_limit(limit: float, variability: float, growth: float, percentile: float, servers: int = 1) -> float:
    """Largest mean number of sequences in a replica whose load stays under `limit` (in mean sequences) at the percentile.

    Sequences share the replica: a step takes a (1 + growth x n) with n of them, so n of them leave at a rate n / (1 + growth
    x n). The birth-death balance around its mean m has variance m (1 + growth x m): the slower the step, the longer all stay,
    the more there are. With `variability` = E[X^2] / E[X]^2 of what one sequence weighs:

        m + z sqrt(variability x m (1 + growth x m) / servers) <= limit

    Square-root staffing, solved for m. Replicas that share arrivals evenly (`servers`) share the fluctuation too.
    """
    if limit <= 0:
        return 0.0
    noise = normal_quantile(percentile) ** 2 * variability / max(1, min(servers, _MAXIMUM_SERVERS))
    square, linear = 1.0 - noise * growth, limit + 0.5 * noise
    # Of (limit - m)^2 = noise (m + growth m^2), the root below the limit, in the form that holds whatever the sign of `square`.
    return limit * limit / (linear + math.sqrt(linear * linear - square * limit * limit))


def share_below(value: float, mean: float, second_moment: float) -> float:
    """Share of a gamma-distributed quantity with these moments that lies below `value` (Wilson and Hilferty's normal
    approximation).
    """
    if value <= 0 or mean <= 0:
        return 0.0
    variance = max(second_moment - mean * mean, 1e-6 * mean * mean)
    shape = mean * mean / variance
    return _NORMAL.cdf((math.cbrt(value / mean) - 1.0 + 1.0 / (9.0 * shape)) * math.sqrt(9.0 * shape))
