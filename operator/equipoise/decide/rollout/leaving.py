"""Replicas on nodes that are about to go: where a GPU is free, their successors start before they are lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from equipoise.api.identity import Variant
from equipoise.decide.rollout.types import Replica


def kept_on_top(
    allocation: Mapping[Variant, int],
    live: Mapping[Variant, int],
    replicas: Sequence[Replica],
    leaving: AbstractSet[str],
    room: Mapping[Variant, int] | None,
) -> dict[Variant, int]:
    """Replicas of each variant to have besides the allocation: those that leave and still serve for a successor.

    A replica on such a node does not count for the allocation, so its successor is wanted now, as far as `room` goes (None: as
    far as is wanted, to ask how much); it serves until that one does, and goes before another successor starts. Without room
    nothing is gained by giving one up early: it stays until its node goes. `live` are the Deployments' counts.
    """
    result: dict[Variant, int] = {}
    for variant, count in sorted(allocation.items()):
        mine = [item for item in replicas if item.variant == variant and not item.terminating]
        going = sum(item.name in leaving and item.serving for item in mine)
        if not going:
            continue
        staying = [item for item in mine if item.name not in leaving and not item.draining]
        counted = live.get(variant, 0) - going - sum(item.draining for item in mine)  # some may not be created yet
        present = max(len(staying), counted)
        kept = min(going, max(0, count - sum(item.serving for item in staying)))
        starts = 0
        if going <= kept:
            missing = max(0, count - present)
            starts = missing if room is None else min(missing, room.get(variant, 0))
        extra = present + kept + starts - count
        if extra > 0:
            result[variant] = extra
    return result
