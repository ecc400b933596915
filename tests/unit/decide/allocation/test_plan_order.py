"""Which pods may be created together, held to a scheduler that does its worst."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.decide.world import Setting, message, names, observation, pool, service, table

from equipoise.api.identity import Phase, Shape
from equipoise.decide.allocation.order import any_order_works, widths_that_may_start
from equipoise.decide.types import MoveKind, PhasePolicy


def worst_case_fails(free: tuple[int, ...], pods: tuple[tuple[int, int], ...]) -> bool:
    """Whether some order and some choice of nodes leaves a pod without a node: by trying all."""
    for place, (width, count) in enumerate(pods):
        if count == 0:
            continue
        fits = {gpus for gpus in free if gpus >= width}
        if not fits:
            return True
        left = (*pods[:place], (width, count - 1), *pods[place + 1 :])
        for gpus in fits:
            at = free.index(gpus)
            if worst_case_fails(tuple(sorted((*free[:at], gpus - width, *free[at + 1 :]))), left):
                return True
    return False


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.dictionaries(st.sampled_from((1, 2, 3, 4)), st.integers(1, 2), min_size=1, max_size=3),
)
def test_what_is_called_safe_is_safe(free: list[int], pods: dict[int, int]) -> None:
    if any_order_works(free, pods):
        assert not worst_case_fails(tuple(sorted(free)), tuple(pods.items()))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=3),
    st.dictionaries(st.sampled_from((1, 2, 4)), st.integers(1, 2), min_size=1, max_size=3),
)
def test_started_in_turn_what_fits_always_finds_its_nodes(free: list[int], pods: dict[int, int]) -> None:
    """Round by round, whatever the scheduler does with the pods of a round."""
    fits = all(sum(gpus // w for gpus in free) >= sum(w2 // w * n for w2, n in pods.items() if w2 >= w) for w in pods)
    left = dict(pods)
    nodes = tuple(sorted(free))
    while fits and left:
        now = widths_that_may_start(nodes, {}, left)
        assert now
        wave = tuple((width, left.pop(width)) for width in sorted(now))
        assert not worst_case_fails(nodes, wave)
        nodes = emptiest_first(nodes, wave)


def emptiest_first(free: tuple[int, ...], pods: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Nodes after pods were spread as the scheduler does by default."""
    nodes = sorted(free)
    for width, count in pods:
        for _ in range(count):
            nodes[-1] -= width
            nodes.sort()
    return tuple(nodes)


def test_the_example_of_two_nodes() -> None:
    assert widths_that_may_start([4, 4], {}, {4: 1, 1: 2}) == {4}  # two of one GPU on two nodes would leave no node of four
    assert widths_that_may_start([4, 4], {4: 1}, {1: 2}) == frozenset()
    assert widths_that_may_start([4, 4, 4], {}, {4: 1, 1: 2}) == {4, 1}  # a third node is out of their reach
    assert widths_that_may_start([4, 4], {1: 2}, {4: 1}) == frozenset()  # they will have their nodes in a moment
    assert widths_that_may_start([4, 3], {}, {1: 3, 2: 1}) == {2, 1}


def test_a_round_starts_the_wide_replicas_and_the_next_the_narrow_ones() -> None:
    four = Shape(4)
    setting = Setting(
        pools=(pool("h100", nodes=2, gpus=4),),
        performance=table((Shape(), four), h100=(10_000.0, 1_000.0)),
        service=service(
            phases={Phase.PREFILL: PhasePolicy(minimum=2, shape=Shape()), Phase.DECODE: PhasePolicy(shape=four)},
            flip_supported=False,
        ),
        shapes={(Phase.DECODE, "h100"): four},
        seen=observation(service().key),
    )
    first = setting.decide()
    assert {variant.shape: n for variant, n in first.allocation.items()} == {four: 1}
    assert "have their nodes" in message(first, "WaitingForGPUs")
    assert [move.kind for move in first.moves] == [MoveKind.GROW]
    assert not [reason for reason in first.reasons if "started" in reason.message and "tp1" in reason.message]
    second = replace(setting, memory=first.memory, ready={(Phase.DECODE, "h100"): 1}).decide()
    assert sum(n for variant, n in second.allocation.items() if variant.phase is Phase.PREFILL) == 2
    assert "WaitingForGPUs" not in names(second)
