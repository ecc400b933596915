"""What one service holds while a plan is made: its budget, the replicas it may keep, and the choice of the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Phase, Shape, Variant
from equipoise.decide import reasons
from equipoise.decide.allocation.space import PoolSpace, chunks_of
from equipoise.decide.allocation.types import PhaseDemand, ServiceDemand
from equipoise.decide.types import VariantOption

FLIP_SHARE = 0.1  # a flip costs this share of a cold change: seconds instead of a start-up
COVER_TOLERANCE = 0.03  # see Settings.cover_tolerance

_Place = tuple[int, ...]


@dataclass(slots=True)
class Group:
    """Current replicas of one service on one pool in one shape, both phases together: what a plan may keep or flip."""

    current: dict[Phase, int]
    slots: list[int]  # node positions, one per chunk


@dataclass(slots=True)
class PhaseFill:
    """One phase while it is filled."""

    demand: PhaseDemand
    shadow: Mapping[str, float]  # USD per GPU and hour that a pool is worth to others beyond its price
    counts: dict[Variant, int] = field(default_factory=dict)
    places: dict[Variant, list[_Place]] = field(default_factory=dict)
    replicas: int = 0
    capacity: float = 0.0
    blocked: dict[Variant, str] = field(default_factory=dict)  # why an option cannot give another replica
    alone: bool = False  # it had room, but the other phase had none

    @property
    def needed(self) -> float:
        """Tokens per second to cover; 0 where it is not known, since then nothing is added beyond the minimum."""
        return self.demand.needed_tokens_per_second or 0.0

    @property
    def load(self) -> float:
        """Demand over capacity, infinite before the first replica."""
        if self.needed <= 0.0:
            return 0.0
        return self.needed / self.capacity if self.capacity > 0.0 else float("inf")

    @property
    def covered(self) -> bool:
        """Whether the capacity does."""
        return self.load <= 1.0 + COVER_TOLERANCE

    def add(self, option: VariantOption, place: _Place) -> None:
        """Count one more replica."""
        variant = option.variant
        self.counts[variant] = self.counts.get(variant, 0) + 1
        self.places.setdefault(variant, []).append(place)
        self.replicas += 1
        self.capacity += option.capacity.tokens_per_second

    def drop(self, option: VariantOption) -> _Place:
        """Uncount the replica that was added last on this option, and say where it was."""
        variant = option.variant
        self.counts[variant] -= 1
        self.replicas -= 1
        self.capacity = max(0.0, self.capacity - option.capacity.tokens_per_second)
        return self.places[variant].pop()


class ServiceFill:
    """One service while it is filled."""

    def __init__(self, demand: ServiceDemand, spaces: Mapping[str, PoolSpace], shadow: Mapping[str, float]) -> None:
        self.demand = demand
        self.spaces = spaces
        self.gpus = 0
        self.cost = 0.0
        self.phases = {phase: PhaseFill(entry, shadow) for phase, entry in sorted(demand.phases.items())}
        self.groups: dict[tuple[str, Shape], Group] = {}
        for phase, entry in demand.phases.items():
            for variant, count in entry.current.items():
                group = self.groups.setdefault((variant.pool, variant.shape), Group({}, []))
                group.current[phase] = group.current.get(phase, 0) + count

    def next_option(self, fill: PhaseFill) -> VariantOption | None:
        """The option whose next replica costs least per useful token; replicas that exist come before new ones.

        Greedy covering: price over min(capacity, what is still missing), so that the last replica may be a small cheap one. A
        replica that must start carries the price of the change, one that flips a tenth of it. A user's order of pools goes before
        price, but does not move replicas that run: nothing would be gained by a start-up.
        """
        missing = fill.needed - fill.capacity
        ordered = any(option.preference for option in fill.demand.options)
        best: VariantOption | None = None
        best_key: tuple[int, float, float] | None = None
        blocked = fill.blocked
        for option in fill.demand.options:
            variant = option.variant
            if blocked and variant in blocked:
                continue
            change = self.change_price(fill.demand.phase, variant)
            rate = option.capacity.tokens_per_second
            useful = min(rate, missing) if missing > 0.0 else 1.0
            worth = fill.shadow.get(variant.pool, 0.0) * variant.shape.gpus_per_replica
            cost = (option.price_usd_per_hour + worth + change) / useful
            tier = 1 + option.preference if ordered and change >= self.demand.change_price_usd > 0.0 else 0
            key = (tier, cost, -rate)
            if best_key is None or key < best_key:
                best, best_key = option, key
        return best

    def change_price(self, phase: Phase, variant: Variant) -> float:
        """What the next replica of this variant costs beyond its running price."""
        group = self.groups.get((variant.pool, variant.shape)) if self.groups else None
        if group is not None:
            if group.current.get(phase, 0) > 0:
                return 0.0
            if self.demand.flips and group.current.get(phase.other, 0) > 0:
                return self.demand.change_price_usd * FLIP_SHARE
        return self.demand.change_price_usd

    def add_one(self, fill: PhaseFill) -> bool:
        """Give the phase one more replica by the best option that has room; False when none has."""
        while (option := self.next_option(fill)) is not None:
            refusal = self._over_limit(fill, option)
            if not refusal:
                place = self.place(fill.demand.phase, option.variant)
                if place is not None:
                    fill.add(option, place)
                    self.gpus += option.variant.shape.gpus_per_replica
                    self.cost += option.price_usd_per_hour
                    return True
                refusal = self._no_room(option.variant)
            fill.blocked[option.variant] = refusal
        return False

    def hold(self, fill: PhaseFill, variant: Variant, option: VariantOption | None, place: _Place) -> None:
        """Count a replica that stays as it is, also one that no option describes any more."""
        if option is not None:
            fill.add(option, place)
            self.cost += option.price_usd_per_hour
        else:
            fill.counts[variant] = fill.counts.get(variant, 0) + 1
            fill.places.setdefault(variant, []).append(place)
            fill.replicas += 1
        self.gpus += variant.shape.gpus_per_replica

    def drop_one(self, fill: PhaseFill, option: VariantOption) -> None:
        """Take a replica out of the plan; its GPUs are free for others."""
        for place in fill.drop(option):
            self.spaces[option.variant.pool].give_back(place, self.chunk(option.variant)[1])
        self.gpus -= option.variant.shape.gpus_per_replica
        self.cost -= option.price_usd_per_hour

    def place(self, phase: Phase, variant: Variant, *, displace: bool = True) -> _Place | None:
        """Where one more replica goes: where it runs already, else where there is room; None when there is none."""
        space = self.spaces.get(variant.pool)
        if space is None:
            return None
        chunks, gpus = self.chunk(variant)
        group = self.groups.get((variant.pool, variant.shape))
        kept: list[int] = []
        if group is not None:
            donor = phase if group.current.get(phase, 0) > 0 else phase.other
            if group.current.get(donor, 0) > 0 and (donor is phase or self.demand.flips):
                group.current[donor] -= 1
                while group.slots and len(kept) < chunks:
                    node = group.slots.pop()
                    if space.keep(node, gpus):
                        kept.append(node)
                if len(kept) == chunks:
                    return tuple(kept)
                for node in kept:
                    space.give_back(node, gpus)
        return space.take(chunks, gpus, displace=displace)

    def chunk(self, variant: Variant) -> tuple[int, int]:
        """(chunks, GPUs per chunk) of one replica on its pool."""
        return chunks_of(variant.shape, self.spaces[variant.pool].largest)

    def _over_limit(self, fill: PhaseFill, option: VariantOption) -> str:
        if fill.demand.maximum is not None and fill.replicas >= fill.demand.maximum:
            return reasons.MAX_REPLICAS
        limit = self.demand.max_gpus
        if limit is not None and self.gpus + option.variant.shape.gpus_per_replica > limit:
            return reasons.MAX_GPUS
        most = self.demand.max_cost_usd_per_hour
        if most is not None and self.cost + option.price_usd_per_hour > most + 1e-9:
            return reasons.MAX_COST
        return ""

    def _no_room(self, variant: Variant) -> str:
        space = self.spaces.get(variant.pool)
        if space is not None and space.total_gpus >= variant.shape.gpus_per_replica:
            return reasons.FRAGMENTED
        return reasons.POOLS_FULL
