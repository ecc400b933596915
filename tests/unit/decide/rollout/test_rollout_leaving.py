"""Replicas on a node that is about to go: successors first where there is room, one at a time, and never fewer that serve."""

from __future__ import annotations

import pytest

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.rollout.leaving import kept_on_top
from equipoise.decide.rollout.types import Replica

DECODE = Variant(ServiceKey("prod", "chat"), Phase.DECODE, "h100-80gb", Shape())


def on_top(staying: int, starting: int, going: int, live: int, room: int | None, count: int = 3) -> int:
    """What is kept on top with so many replicas that stay and serve, that start, and that leave."""
    replicas = [Replica(f"stay-{n}", DECODE, "r1", serving=True) for n in range(staying)]
    replicas += [Replica(f"start-{n}", DECODE, "r1") for n in range(starting)]
    replicas += [Replica(f"go-{n}", DECODE, "r1", serving=True) for n in range(going)]
    leaving = {f"go-{n}" for n in range(going)}
    rooms = None if room is None else {DECODE: room}
    return kept_on_top({DECODE: count}, {DECODE: live}, replicas, leaving, rooms).get(DECODE, 0)


@pytest.mark.parametrize(
    ("staying", "starting", "going", "live", "room", "expected"),
    [
        (1, 0, 2, 3, None, 2),  # all that is wanted, to ask for room
        (1, 0, 2, 3, 1, 1),  # as far as there is room
        (1, 0, 2, 3, 0, 0),  # without room it stays until its node goes
        (1, 1, 2, 4, 0, 1),  # a successor on its way is kept
        (1, 0, 2, 4, 0, 1),  # also one that is counted and not created yet
        (2, 0, 2, 4, 1, 0),  # it serves: one of those that leave goes, and only then the next successor starts
        (2, 0, 1, 3, 1, 1),
        (3, 0, 1, 4, 0, 0),  # all successors serve
        (3, 0, 0, 3, 5, 0),
    ],
)
def test_successors_come_first(staying: int, starting: int, going: int, live: int, room: int | None, expected: int) -> None:
    assert on_top(staying, starting, going, live, room) == expected


def test_it_ends_with_every_replica_elsewhere_and_none_missing() -> None:
    """Played out with a node of two out of three, and one free GPU at first, then one for each that went."""
    staying, starting, going, room = 1, 0, 2, 1
    for _ in range(10):
        target = 3 + on_top(staying, starting, going, staying + starting + going, room)
        total = staying + starting + going
        if target > total:
            starting, room = starting + target - total, room - (target - total)
        elif target < total:
            going, room = going - (total - target), room + 1
        staying, starting = staying + starting, 0
        assert staying + going >= 3
    assert (staying, going) == (3, 0)
