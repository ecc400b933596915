"""What a phase does not get, in a sentence: what it needs, what there is, and the cheapest thing that would help."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from equipoise.decide import reasons
from equipoise.decide.allocation.fill import PhaseFill, ServiceFill
from equipoise.decide.allocation.space import PoolSpace
from equipoise.decide.allocation.types import Shortfall
from equipoise.decide.types import VariantOption

MOST_CHARACTERS: Final = 260  # of a message, so that with a target that would do (`decide`) it stays below 300
_MOST_NAME: Final = 60  # characters of "namespace/name"
_MOST_POOLS: Final = 3  # that are named one by one
_GRAVEST = (reasons.MAX_REPLICAS, reasons.MAX_GPUS, reasons.MAX_COST, reasons.FRAGMENTED, reasons.POOLS_FULL)


def shortfall(service: ServiceFill, fill: PhaseFill, spaces: Mapping[str, PoolSpace], missing_held: int) -> Shortfall | None:
    """None when the phase has what it needs and its minimum. `spaces` are the pools as the whole plan leaves them."""
    demand = fill.demand
    below = max(0, demand.minimum - fill.replicas, missing_held)
    missing = 0.0 if fill.covered else fill.needed - fill.capacity
    if missing <= 0.0 and below == 0:
        return None
    key, phase = service.demand.key, demand.phase
    name = f"{_shortened(str(key))} {phase.value}"
    if not demand.options:
        return Shortfall(key, phase, missing, below, reasons.NOTHING_FITS, f"{name}: no pool can serve this phase")
    reason = next((found for found in _GRAVEST if found in fill.blocked.values()), reasons.POOLS_FULL)
    option, count = _cheapest(fill, reason, missing, below)
    if missing > 0.0:
        purpose = f" for {missing:,.0f} tokens/s"
    elif missing_held:
        purpose = f" for {missing_held} of the replicas asked for"
    else:
        purpose = f", has {fill.replicas} of at least {demand.minimum} replicas"
    needs = f"{name} needs {_gpus(count * option.variant.shape.gpus_per_replica)} ({_place(option)} × {count}){purpose}"
    limit, cure = _limit_and_cure(service, fill, option, count, reason, spaces)
    there = _what_is_there(service, fill, option, spaces)
    message = f"{needs}: {limit}{there}; cheapest cure: {cure}"
    if len(message) > MOST_CHARACTERS:  # long names: what may be known from elsewhere is left out
        message = f"{needs}: {limit}cheapest cure: {cure}".replace(f" in {option.variant.pool}", " there")
    return Shortfall(key, phase, missing, below, reason, message)


def _cheapest(fill: PhaseFill, reason: str, missing: float, below: int) -> tuple[VariantOption, int]:
    """The option whose replicas would make up for what is missing at the least price, and how many it takes.

    Of those that the reason keeps from growing: another pool's full nodes are not what a limit is about.
    """
    counts = {
        option.variant: max(below, math.ceil(missing / option.capacity.tokens_per_second), 1) for option in fill.demand.options
    }
    concerned = [option for option in fill.demand.options if fill.blocked.get(option.variant) == reason]
    best = min(
        concerned or fill.demand.options,
        key=lambda option: (
            option.preference,
            counts[option.variant] * option.price_usd_per_hour,
            counts[option.variant] * option.variant.shape.gpus_per_replica,
            option.variant,
        ),
    )
    return best, counts[best.variant]


def _limit_and_cure(
    service: ServiceFill, fill: PhaseFill, option: VariantOption, count: int, reason: str, spaces: Mapping[str, PoolSpace]
) -> tuple[str, str]:
    """The limit that binds (empty: it is the GPUs that there are), and the least that would help."""
    demand, pool = service.demand, option.variant.pool
    gpus = count * option.variant.shape.gpus_per_replica
    usd = count * option.price_usd_per_hour
    if fill.alone:
        other = fill.demand.phase.other.value
        return f"it is not started alone, {other} has no room; ", f"GPUs for {other}"
    more = f"{_gpus(gpus)} in {pool}{f' ({usd:,.2f} USD/h)' if usd > 0.0 else ''}"
    left = spaces[pool].total_gpus if pool in spaces else 0
    too = f", with {more}" if left < gpus else ""
    if reason == reasons.MAX_REPLICAS:
        field = f"spec.phases.{fill.demand.phase.value}.max"
        return f"{field} is {fill.demand.maximum}; ", f"{fill.replicas + count} would do{too}"
    if reason == reasons.MAX_GPUS:
        limit = f"the limit of {demand.max_gpus} GPUs is reached ({service.gpus} planned); "
        return limit, f"{service.gpus + gpus} would do{too}"
    if reason == reasons.MAX_COST:
        limit = f"maxCostPerHour {demand.max_cost_usd_per_hour:g} is reached ({service.cost:.2f} planned); "
        return limit, f"{service.cost + usd:.2f} would do{too}"
    if reason == reasons.FRAGMENTED:
        chunks, wide = service.chunk(option.variant)
        nodes = f"{count * chunks} nodes" if count * chunks > 1 else "a node"
        each = " each" if count * chunks > 1 else ""
        wanted = f"{wide} GPUs on one node" if chunks == 1 else f"{wide} GPUs on each of {chunks} nodes"
        return f"a replica needs {wanted}; ", f"{nodes} of {pool} with {wide} free GPUs{each} would help"
    return "", f"{more} would help"


def _what_is_there(service: ServiceFill, fill: PhaseFill, option: VariantOption, spaces: Mapping[str, PoolSpace]) -> str:
    """GPUs that the plan leaves in the pools of the phase, the named one first, and how many of them lie on one node."""
    own = option.variant.pool
    pools = sorted({entry.variant.pool for entry in fill.demand.options} & set(spaces), key=lambda name: (name != own, name))
    named, others = pools[:_MOST_POOLS], len(pools) - _MOST_POOLS
    rest = f" and {others} more pool{'s' if others > 1 else ''}" if others > 0 else ""
    closed = spaces[own].open.count(False) if own in spaces else 0
    shut = f"; {closed} node{'s' if closed > 1 else ''} of {own} take{'' if closed > 1 else 's'} no pods" if closed else ""
    if not any(spaces[name].total_gpus for name in pools):
        return f"free: 0, no GPU is left in {', '.join(named)}{rest}{shut}"
    listed = []
    for name in named:
        space = spaces[name]
        wide = service.chunk(option.variant)[1] if name == own else 0
        at_most = f" (at most {space.roomiest} on one node)" if space.roomiest < min(wide, space.total_gpus) else ""
        listed.append(f"{space.total_gpus} in {name}{at_most}")
    return f"free: {', '.join(listed)}{rest}{shut}"


def _place(option: VariantOption) -> str:
    return f"{option.variant.pool}/{option.variant.shape}"


def _gpus(count: int) -> str:
    return f"{count:,} more GPU{'s' if count != 1 else ''}"


def _shortened(name: str) -> str:
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"
