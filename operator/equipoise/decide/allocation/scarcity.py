"""Comparative advantage: who should have the GPUs that everybody wants."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.decide.allocation.types import AllocationProblem, PhaseDemand

_BEYOND = 1.000001  # the phase that gives way must not be left undecided
_PASSES = 3  # a phase that gives way to others lands on its second choice, which may then be scarce too


def shadow_prices(problem: AllocationProblem, gpus: Mapping[str, int]) -> dict[str, float]:
    """USD per GPU and hour that a scarce pool is worth beyond its price; pools that are not scarce are absent.

    Every phase first wants its cheapest pool. Where that asks for more than there is, the phases that lose least per GPU by
    going elsewhere give way: the price of the pool rises to the gain of the last one that stays. This is the market reading
    of Vogel's regret rule for the transportation problem, and of Ricardo's comparative advantage: with two phases and two pools
    it compares (decode tokens/s) / (prefill tokens/s) of the devices at their prices, and nothing is fixed in advance.
    """
    shadow: dict[str, float] = {}
    demands = [
        entry
        for service in problem.services
        for entry in service.phases.values()
        if entry.needed_tokens_per_second and not entry.held and len({o.variant.pool for o in entry.options}) > 1
    ]
    if not demands:
        return shadow
    for _ in range(_PASSES):
        claims: dict[str, list[tuple[float, float]]] = {}
        for entry in demands:
            pool, regret, wanted = _claim(entry, shadow)
            claims.setdefault(pool, []).append((regret, wanted))
        changed = False
        for pool, wishes in sorted(claims.items()):
            left = float(gpus.get(pool, 0))
            for regret, wanted in sorted(wishes, reverse=True):
                left -= wanted
                if left < 0.0:
                    shadow[pool] = shadow.get(pool, 0.0) + regret * _BEYOND
                    changed = changed or regret > 0.0
                    break
        if not changed:
            break
    return shadow


def _claim(entry: PhaseDemand, shadow: Mapping[str, float]) -> tuple[str, float, float]:
    """(pool wanted most, loss in USD per GPU and hour without it, GPUs wanted)."""
    best_pool, best, best_rate = "", float("inf"), 0.0
    second = float("inf")
    for option in entry.options:
        gpus = option.variant.shape.gpus_per_replica
        rate = option.capacity.tokens_per_second / gpus
        cost = (option.price_usd_per_hour / gpus + shadow.get(option.variant.pool, 0.0)) / rate
        if option.variant.pool == best_pool:
            if cost < best:
                best, best_rate = cost, rate
        elif cost < best:
            second = best
            best_pool, best, best_rate = option.variant.pool, cost, rate
        elif cost < second:
            second = cost
    needed = entry.needed_tokens_per_second or 0.0
    regret = (second - best) * best_rate if second < float("inf") else 0.0
    return best_pool, regret, needed / best_rate
