"""Arrivals: what was offered, not what was served. Pure.

A phase that starves completes little, so completions make it look idle exactly when it is short. Requests are conserved:
what arrived in the window either finished, was refused, or still waits or runs. Two independent counts of that are taken, at
the engines and at the router. Each misses something (the engines what the router holds back or what never reached them; the
router what goes around it, and its first request), none counts anything twice, so the larger one is nearer the truth.
"""

from __future__ import annotations

import math

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.engines.table import Reading
from equipoise.observe.reader import COUNT_EPSILON, Number, PhaseReader
from equipoise.observe.readings import Group, Readings
from equipoise.observe.types import Idle, Signal, Unknown, UnknownReason

_WAITING = (Reading.WAITING_NOW, Reading.WAITING_BEFORE)
_GAUGES = {Phase.PREFILL: (_WAITING,), Phase.DECODE: (_WAITING, (Reading.RUNNING_NOW, Reading.RUNNING_BEFORE))}


def engine_arrivals(reader: PhaseReader) -> Number:
    """Finished + growth of what waits and runs + refused, over the window, at the pods of one phase."""
    finished = reader.total(reader.finished)
    if isinstance(finished, Unknown):
        return finished
    refused = reader.total(Reading.REFUSED)
    if isinstance(refused, Unknown):
        if refused.reason is not UnknownReason.NOT_EXPOSED:
            return refused
        refused = 0.0  # an engine without an admission limit refuses nothing
    growth = backlog_growth(reader)
    if isinstance(growth, Unknown):
        return growth
    return max(refused, finished + growth + refused)


def backlog_growth(reader: PhaseReader) -> Number:
    """How many more requests wait or run at the end of the window than at its start; negative while a backlog drains.

    What runs on a prefill pod is left out: it is nearly always 0 there, and otherwise answers that a pod brought along when
    it flipped.
    """
    growth = 0.0
    for now, before in _GAUGES[reader.phase]:
        end = reader.total(now)
        if isinstance(end, Unknown):
            return end
        start = reader.total(before)
        if isinstance(start, Unknown):
            if start.reason is UnknownReason.QUERY_FAILED:
                return start
            if reader.census.covers_start:
                message = f"no sample of {reader.phase.value} pods at the start of the window, though they ran then"
                return Unknown(UnknownReason.TOO_FEW_SAMPLES, message)
            start = 0.0  # every pod is younger than the window
        growth += end - start
    return growth


def router_arrivals(readings: Readings, service: ServiceKey) -> Number:
    """Answered + growth of what the router holds in the prefill leg, over the window; unknown without a router that counts."""
    group = Group(service.namespace, service.name)
    values: list[float | None] = []
    for reading in (Reading.ROUTER_ANSWERED, Reading.ROUTER_HELD_NOW, Reading.ROUTER_HELD_BEFORE):
        failure = readings.failure(reading)
        if failure is not None:
            return Unknown(UnknownReason.QUERY_FAILED, f"{reading.value}: {failure.message}")
        rows = readings.rows(reading, group)
        values.append(math.fsum(row.value for row in rows) if rows else None)
    answered, held, held_before = values
    if answered is None and held is None:
        return Unknown(UnknownReason.NOT_EXPOSED, "no router of this service counts requests")
    if any(value is not None and not math.isfinite(value) for value in values):
        return Unknown(UnknownReason.NOT_A_NUMBER, "the router's count is not a number")
    # The gauge appears with the first request; a router that is asked for the first time may have held all along.
    growth = held - held_before if held is not None and held_before is not None else 0.0
    return max(0.0, (answered or 0.0) + growth)


def offered(prefill: PhaseReader, decode: PhaseReader) -> tuple[Signal, Signal]:
    """Offered requests per second of the prefill and of the decode phase.

    Decode is offered at least what prefill is: what a short prefill phase holds back will come to decode. The reverse does
    not hold, since a router may send short prompts straight to decode.
    """
    at_router = router_arrivals(prefill.readings, prefill.scope.key)
    at_prefill = engine_arrivals(prefill)
    at_decode = engine_arrivals(decode)
    return _largest(prefill, (at_prefill, at_router)), _largest(decode, (at_decode, at_prefill, at_router))


def _largest(reader: PhaseReader, counts: tuple[Number, ...]) -> Signal:
    known = [count for count in counts if not isinstance(count, Unknown)]
    own = counts[0]
    if not known:
        return own if isinstance(own, Unknown) else Idle()
    largest = max(known)
    if largest <= COUNT_EPSILON:
        # Nothing counted elsewhere proves nothing about pods that could not be read.
        return own if isinstance(own, Unknown) else reader.per_second(0.0)
    return reader.known(largest / reader.window_seconds, samples=largest)
