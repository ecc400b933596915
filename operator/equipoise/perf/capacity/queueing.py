"""Queueing in closed form: how busy a server may be when waiting must stay inside a budget at a percentile."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

MAXIMUM_UTILISATION: Final = (
    0.9  # beyond it, small errors of any model cost more than the capacity gained (.95: 9.5 service times of queue)
)
_SMALLEST_MISS_SHARE: Final = 1e-3
_ITERATIONS: Final = 30  # bisection: 1e-9 of the interval
_MAXIMUM_SERVERS: Final = 64
_NORMAL: Final = NormalDist()


def miss_share(percentile: float) -> float:
    """Share of requests that may miss: 0.05 at the 95th percentile, never below one in a thousand."""
    return min(1.0 - _SMALLEST_MISS_SHARE, max(_SMALLEST_MISS_SHARE, 1.0 - percentile / 100.0))


@lru_cache(maxsize=256)
def normal_quantile(percentile: float) -> float:
    """Standard deviations above the mean at a percentile; zero at and below the median."""
    return max(0.0, _NORMAL.inv_cdf(1.0 - miss_share(percentile)))


def utilisation_for_wait(budget_seconds: float, residual_seconds: float, percentile: float, servers: int = 1) -> float:
    """Largest utilisation of a queue (M/G/1, or M/G/k when `servers` share it) whose waiting time at `percentile` fits the
    budget.

    Waiting is a share of requests that wait at all, with an exponential tail (Kingman's heavy-traffic form, exact for M/M/1):

        P(W > t) = C x exp(-t x servers x (1 - rho) / residual),  hence  W_p = residual / (servers x (1 - rho)) x ln(C / (1 - p))

    with C = rho for one server (Pollaczek-Khinchine gives the mean of W that goes with it) and Erlang's C for more (Lee and
    Longton's approximation). `residual_seconds` = E[S^2] / (2 E[S]) is what an arrival finds left of the request in service.
    Never above 0.9.
    """
    allowed = miss_share(percentile)
    servers = max(1, min(servers, _MAXIMUM_SERVERS))
    if budget_seconds < 0:
        return 0.0
    ratio = budget_seconds * servers / residual_seconds if residual_seconds > 0 else math.inf
    low, high = 0.0, MAXIMUM_UTILISATION
    if _wait_factor(high, allowed, servers) <= ratio:
        return high
    for _ in range(_ITERATIONS):
        middle = 0.5 * (low + high)
        if _wait_factor(middle, allowed, servers) <= ratio:
            low = middle
        else:
            high = middle
    return low


def _wait_factor(utilisation: float, allowed: float, servers: int) -> float:
    """W_p in units of residual / servers: rises with utilisation, zero while fewer than `allowed` wait at all."""
    waiting = utilisation if servers == 1 else _erlang_c(utilisation, servers)
    if waiting <= allowed:
        return 0.0
    return math.log(waiting / allowed) / (1.0 - utilisation)


def _erlang_c(utilisation: float, servers: int) -> float:
    load = utilisation * servers
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1.0 - utilisation * (1.0 - blocked))


def mean_load_for_limit(limit: float, variability: float, percentile: float) -> float:
    """Largest mean number of sequences whose load stays under `limit` (in mean sequences) at the percentile.

    Sequences in a replica come and go like a Poisson count (M/G/infinity). With `variability` = E[X^2] / E[X]^2 of what one
    sequence weighs, load has mean m and variance m x variability, so m + z sqrt(m x variability) <= limit: square-root
    staffing, solved for m.
    """
    if limit <= 0:
        return 0.0
    half = 0.5 * normal_quantile(percentile) * math.sqrt(variability)
    return (math.sqrt(half * half + limit) - half) ** 2


def share_below(value: float, mean: float, second_moment: float) -> float:
    """Share of a gamma-distributed quantity with these moments that lies below `value` (Wilson and Hilferty's normal
    approximation).
    """
    if value <= 0 or mean <= 0:
        return 0.0
    variance = max(second_moment - mean * mean, 1e-6 * mean * mean)
    shape = mean * mean / variance
    return _NORMAL.cdf((math.cbrt(value / mean) - 1.0 + 1.0 / (9.0 * shape)) * math.sqrt(9.0 * shape))
