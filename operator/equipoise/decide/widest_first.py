"""Replicas that start in one round must not take one another's nodes: the widest of a pool first, where that matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from equipoise.api.identity import ServiceKey, Variant
from equipoise.decide import reasons
from equipoise.decide.allocation.order import widths_that_may_start
from equipoise.decide.allocation.space import chunks_of
from equipoise.decide.state import ServiceState, unbound
from equipoise.decide.types import Move, MoveKind
from equipoise.fleet.types import Fleet

PATIENCE_SECONDS: Final = 60.0
"""A pod that has found no node for so long will not find one soon, and holds up nobody: schedulers bind within seconds."""


def widest_first(states: Mapping[ServiceKey, ServiceState], fleet: Fleet) -> None:
    """Put off the growth of this round that could take the node of a wider replica of the same pool.

    See `allocation.order` for why. What is put off starts in the round that sees the wider ones on their nodes.
    """
    largest = {pool.name: max((node.allocatable_gpus for node in pool.nodes), default=0) for pool in fleet.pools}

    def pods(counts: Iterable[tuple[Variant, int]]) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for variant, count in counts:
            if count > 0 and variant.pool in largest:
                chunks, width = chunks_of(variant.shape, largest[variant.pool])
                widths = found.setdefault(variant.pool, {})
                widths[width] = widths.get(width, 0) + chunks * count
        return found

    new = pods(
        (move.receiver, move.replicas) for state in states.values() for move in state.moves if _starts(move) and move.receiver
    )
    if not new:
        return
    waiting = pods(entry for state in states.values() for entry in _waiting(state))
    held: set[tuple[str, int]] = set()
    for pool in fleet.pools:
        if len({*new.get(pool.name, ()), *waiting.get(pool.name, ())}) > 1:
            free = [node.free_gpus for node in pool.nodes]
            starts = widths_that_may_start(free, waiting.get(pool.name, {}), new.get(pool.name, {}))
            held |= {(pool.name, width) for width in new.get(pool.name, {}) if width not in starts}
    for state in states.values() if held else ():
        for move in list(state.moves):
            receiver = move.receiver
            if _starts(move) and receiver and (receiver.pool, chunks_of(receiver.shape, largest[receiver.pool])[1]) in held:
                _put_off(state, move, receiver)


def _starts(move: Move) -> bool:
    return move.kind is MoveKind.GROW and move.receiver is not None


def _waiting(state: ServiceState) -> Iterable[tuple[Variant, int]]:
    for phase in state.phases.values():
        for variant, count in phase.current.items():
            status = phase.statuses.get(variant)
            if status is None or status.oldest_pending_seconds < PATIENCE_SECONDS:
                yield variant, min(unbound(status, count), phase.next.get(variant, 0))


def _put_off(state: ServiceState, move: Move, receiver: Variant) -> None:
    phase = state.phases[receiver.phase]
    phase.next[receiver] -= move.replicas
    if phase.next[receiver] <= 0:
        del phase.next[receiver]
    state.waiting[receiver] = state.waiting.get(receiver, 0) + move.replicas
    state.moves.remove(move)
    state.reasons = [reason for reason in state.reasons if reason.message != move.reason]
    state.say(
        reasons.WAITING_FOR_GPUS,
        f"{receiver.phase.value}: {move.replicas} × {receiver.pool}/{receiver.shape} start when pods of other widths in "
        f"{receiver.pool} have their nodes, so that none takes the place that another needs whole",
        receiver.phase,
    )
