"""What a phase does not get, in a sentence that says what would help."""

from __future__ import annotations

import math
from collections.abc import Mapping

from equipoise.decide import reasons
from equipoise.decide.allocation.fill import PhaseFill, ServiceFill
from equipoise.decide.allocation.space import PoolSpace
from equipoise.decide.allocation.types import Shortfall
from equipoise.decide.types import VariantOption

_GRAVEST = (reasons.MAX_REPLICAS, reasons.MAX_GPUS, reasons.MAX_COST, reasons.FRAGMENTED, reasons.POOLS_FULL)


def shortfall(service: ServiceFill, fill: PhaseFill, spaces: Mapping[str, PoolSpace], missing_held: int) -> Shortfall | None:
    """None when the phase has what it needs and its minimum."""
    demand = fill.demand
    below = max(0, demand.minimum - fill.replicas, missing_held)
    missing = 0.0 if fill.covered else fill.needed - fill.capacity
    if missing <= 0.0 and below == 0:
        return None
    key, phase = service.demand.key, demand.phase
    if not demand.options:
        message = f"{phase.value}: no pool can serve this phase"
        return Shortfall(key, phase, missing, below, reasons.NOTHING_FITS, message)
    reason = next((name for name in _GRAVEST if name in fill.blocked.values()), reasons.POOLS_FULL)
    option = min(
        demand.options,
        key=lambda option: (option.preference, option.price_usd_per_hour / option.capacity.tokens_per_second, option.variant),
    )
    count = max(below, math.ceil(missing / option.capacity.tokens_per_second))
    lacks = (
        f"{phase.value} lacks {missing:,.0f} tokens/s"
        if missing > 0.0
        else f"{phase.value} has {fill.replicas} of at least {demand.minimum} replicas"
    )
    if missing_held and missing <= 0.0:
        lacks = f"{phase.value}: no room for {missing_held} of the replicas asked for"
    help_text = _help(service, fill, option, count, reason, spaces)
    return Shortfall(key, phase, missing, below, reason, f"{lacks}: {help_text}")


def _help(
    service: ServiceFill, fill: PhaseFill, option: VariantOption, count: int, reason: str, spaces: Mapping[str, PoolSpace]
) -> str:
    shape = option.variant.shape
    gpus = count * shape.gpus_per_replica
    pools = ", ".join(sorted({entry.variant.pool for entry in fill.demand.options}))
    phase = fill.demand.phase.value
    if fill.alone:
        return "it is not started alone, the other phase has no room"
    if reason == reasons.MAX_REPLICAS:
        return f"spec.phases.{phase}.max is {fill.demand.maximum}; {fill.replicas + count} would do"
    if reason == reasons.MAX_GPUS:
        limit = service.demand.max_gpus
        return f"the limit of {limit} GPUs is reached ({service.gpus} planned); {service.gpus + gpus} would do"
    if reason == reasons.MAX_COST:
        more = service.cost + count * option.price_usd_per_hour
        return f"maxCostPerHour {service.demand.max_cost_usd_per_hour:g} is reached; {more:.2f} would do"
    if reason == reasons.FRAGMENTED:
        space = spaces[option.variant.pool]
        return (
            f"a replica needs {shape.gpus_per_replica} GPUs on one node and {space.total_gpus} are left in "
            f"{option.variant.pool}, on different nodes; a node with {shape.gpus_per_replica} free GPUs would help"
        )
    return f"no GPU is left in {pools}; {gpus} more GPU{'s' if gpus != 1 else ''} in {option.variant.pool} would help"
