"""Hindsight: the best fixed allocation, and the oracle's best choice of room. Every candidate serves the whole traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product

from equipoise.api.identity import Phase, ServiceKey
from equipoise.simulate.loop.policy import Policy
from equipoise.simulate.loop.run import run
from equipoise.simulate.loop.score import RunResult
from equipoise.simulate.loop.setup import World
from equipoise.simulate.rivals.oracle import OraclePolicy
from equipoise.simulate.rivals.static import Split, StaticPolicy, describe

_TIE = 0.002  # goodput within this much counts as equal, and the cheaper one wins
Splits = dict[ServiceKey, dict[tuple[Phase, str], int]]


def full_splits(world: World) -> list[Splits]:
    """Every way to use all GPUs of every pool, one GPU a replica, at least one replica per phase and service."""
    keys = [setup.key for setup in world.services]
    slots = [(key, phase) for key in keys for phase in Phase]
    per_pool = [list(_shares(pool.nodes * pool.gpus_per_node, len(slots))) for pool in world.pools]
    found = []
    for combination in product(*per_pool):
        splits: Splits = {key: {} for key in keys}
        for pool, shares in zip(world.pools, combination, strict=True):
            for (key, phase), count in zip(slots, shares, strict=True):
                splits[key][phase, pool.name] = count
        if all(sum(count for (found_phase, _), count in splits[key].items() if found_phase is phase) for key, phase in slots):
            found.append(splits)
    return found


def _shares(total: int, slots: int) -> Iterable[tuple[int, ...]]:
    if slots == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _shares(total - first, slots - 1):
            yield (first, *rest)


def best_static(
    world: World, seed: int, *, bounded: bool = True, candidates: Sequence[Splits] | None = None, trim: bool = True
) -> tuple[RunResult, Splits]:
    """The split with the highest goodput; then, with `trim`, replicas are dropped as long as goodput does not fall: the cheapest
    fixed allocation that does as well.
    """
    chosen = candidates if candidates is not None else _climbing(world, seed, bounded)
    results = [(serve(world, splits, seed, bounded), splits) for splits in chosen]
    best, splits = max(results, key=lambda item: (item[0].goodput, -item[0].cost_usd))
    least = best.goodput - _TIE
    improving = trim
    while improving:
        improving = False
        for owner, place in [(key, place) for key in splits for place in splits[key]]:
            fewer = {key: dict(split) for key, split in splits.items()}
            fewer[owner][place] -= 1
            left = sum(count for (phase, _), count in fewer[owner].items() if phase is place[0])
            if fewer[owner][place] < 0 or left < 1:
                continue
            result = serve(world, fewer, seed, bounded)
            if result.goodput >= least:
                best, splits, improving = result, fewer, True
                break
    best.policy = f"best-static{'' if bounded else '-unbounded'}"
    best.detail = " ".join(describe(split) for split in splits.values())
    return best, splits


def frontier(world: World, seed: int, *, bounded: bool = True) -> list[RunResult]:
    """The best fixed allocations at falling cost: the best of all (`best-static`), and one for each replica less (`static`), each
    the better of its neighbours. What a controller did at some cost is compared with what a fixed allocation does for no more.
    """
    best, splits = best_static(world, seed, bounded=bounded, trim=False)
    found = [(best, splits)]
    while True:
        smaller = []
        for owner, place in [(key, place) for key in splits for place in splits[key]]:
            fewer = {key: dict(split) for key, split in splits.items()}
            fewer[owner][place] -= 1
            left = sum(count for (phase, _), count in fewer[owner].items() if phase is place[0])
            if fewer[owner][place] >= 0 and left >= 1:
                smaller.append((serve(world, fewer, seed, bounded), fewer))
        if not smaller:
            break
        result, splits = max(smaller, key=lambda item: item[0].goodput)
        found.append((result, splits))
        if result.goodput < 0.8 * best.goodput:
            break
    for result, chosen in found:
        result.policy, result.detail = "static", " ".join(describe(split) for split in chosen.values())
    trimmed = min((result for result, _ in found if result.goodput >= best.goodput - _TIE), key=lambda item: item.cost_usd)
    return [replace(trimmed, policy="best-static"), *(result for result, _ in found)]


def _climbing(world: World, seed: int, bounded: bool) -> list[Splits]:
    """All full splits where they are few; else those on the way of a hill climb from the world's own first split."""
    every = full_splits(world)
    if len(every) <= 12:
        return every
    seen: dict[str, float] = {}

    def goodput(splits: Splits) -> float:
        name = str(splits)
        if name not in seen:
            seen[name] = serve(world, splits, seed, bounded).goodput
        return seen[name]

    middle = every[len(every) // 2]
    start: Splits = {setup.key: {place: setup.initial.get(place, 0) for place in middle[setup.key]} for setup in world.services}
    current = min(every, key=lambda splits: _distance(splits, start))
    while True:
        near = [splits for splits in every if 0 < _distance(splits, current) <= 2]
        best = max(near, key=goodput)
        if goodput(best) <= goodput(current) + 1e-9:
            return [current]
        current = best


def _distance(one: Splits, other: Splits) -> int:
    return sum(abs(count - other[key].get(place, 0)) for key, split in one.items() for place, count in split.items())


def serve(world: World, splits: Splits, seed: int, bounded: bool) -> RunResult:
    """One fixed allocation."""
    text = " ".join(describe(split) for split in splits.values())
    return run(world, StaticPolicy(splits, bounded=bounded, name=f"static {text}"), seed)


def best_oracle(
    world: World, seed: int, rooms: Sequence[tuple[float, float]] = ((0.6, 0.7), (0.75, 0.85), (0.85, 0.95))
) -> RunResult:
    """The oracle with the room that suits the traffic best, the cheapest of equals."""
    makers: list[Callable[[], Policy]] = [lambda room=room: OraclePolicy(seed, room) for room in rooms]  # type: ignore[misc]
    makers.append(lambda: OraclePolicy(seed, spare=True))
    results = [run(world, make(), seed) for make in makers]
    highest = max(result.goodput for result in results)
    return min((result for result in results if result.goodput >= highest - _TIE), key=lambda result: result.cost_usd)


__all__ = ["Split", "Splits", "best_oracle", "best_static", "frontier", "full_splits", "serve"]
