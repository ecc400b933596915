"""Changing a stream of arrivals: faster, denser, thinner, one after another, side by side. Deterministic by seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, merge
from itertools import count
from random import Random

from equipoise.simulate.traffic.arrival import Arrival


def compress_time(arrivals: Iterable[Arrival], factor: float) -> Iterator[Arrival]:
    """The same requests in 1/`factor` of the time: the rate rises by the factor."""
    _positive("time factor", factor)
    for arrival in arrivals:
        yield arrival._replace(at_seconds=arrival.at_seconds / factor)


def scale_rate(arrivals: Iterable[Arrival], factor: float, seed: int = 0, spread_seconds: float = 1.0) -> Iterator[Arrival]:
    """`factor` times the requests in the same time.

    Below 1 each request stays with that probability. Above 1 each comes that often (the fraction by chance), the copies spread
    over the following `spread_seconds`, so that bursts keep their place without arriving all at once.
    """
    _positive("rate factor", factor)
    random = Random(seed)
    whole, fraction = int(factor), factor - int(factor)
    copies: list[tuple[float, int, Arrival]] = []
    order = count()
    for arrival in arrivals:
        while copies and copies[0][0] <= arrival.at_seconds:
            yield heappop(copies)[2]
        number = whole + (random.random() < fraction)
        for copy in range(number):
            at = arrival.at_seconds + (random.random() * spread_seconds if copy else 0.0)
            heappush(copies, (at, next(order), arrival._replace(at_seconds=at)))
    while copies:
        yield heappop(copies)[2]


def clip(arrivals: Iterable[Arrival], start_seconds: float = 0.0, end_seconds: float = float("inf")) -> Iterator[Arrival]:
    """The part from `start_seconds` up to `end_seconds`, beginning at 0."""
    for arrival in arrivals:
        if arrival.at_seconds >= end_seconds:
            return
        if arrival.at_seconds >= start_seconds:
            yield arrival._replace(at_seconds=arrival.at_seconds - start_seconds)


def one_after_another(parts: Iterable[tuple[float, Iterable[Arrival]]]) -> Iterator[Arrival]:
    """Streams in sequence; each has its own length in seconds, at which it is cut and the next begins."""
    offset = 0.0
    for seconds, arrivals in parts:
        for arrival in clip(arrivals, 0.0, seconds):
            yield arrival._replace(at_seconds=arrival.at_seconds + offset)
        offset += seconds


def side_by_side(*streams: Iterable[Arrival]) -> Iterator[Arrival]:
    """Several streams at once."""
    return merge(*streams, key=lambda arrival: arrival.at_seconds)


def _positive(what: str, factor: float) -> None:
    if not 0.0 < factor < float("inf"):
        raise ValueError(f"the {what} must be positive, got {factor}")
