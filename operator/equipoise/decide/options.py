"""The ways to serve each phase of a service: pools × shapes, with capacity and price, and why the others are out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from equipoise.api.identity import Phase, Shape, Variant
from equipoise.decide import reasons
from equipoise.decide.performance import Performance, best_shape, group_of, seen_by
from equipoise.decide.settings import Settings
from equipoise.decide.types import PhasePolicy, Reason, ServiceInput, VariantOption
from equipoise.fleet.types import Fleet, NodeCapacity, Pool
from equipoise.perf.capacity import LARGEST_GROUP
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, Targets, Workload

GRID: Final = 0.05  # lengths are rounded to this for capacity, so that it changes with the traffic and not with every request


@dataclass(frozen=True, slots=True)
class PoolRefusal:
    """Why a pool cannot serve a phase."""

    pool: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PhaseOptions:
    """What can serve a phase, the preferred pools first, and what cannot."""

    options: tuple[VariantOption, ...]
    refusals: tuple[PoolRefusal, ...]


class FleetView:
    """A fleet with a cheap identity, so that options of one round can be found again in the next.

    Of a pool's nodes only the largest is kept: capacities depend on nothing else of them, and an answer that is remembered
    must not keep a thousand nodes of its round.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.largest_node: dict[str, int] = {
            pool.name: max((node.allocatable_gpus for node in pool.nodes), default=0) for pool in fleet.pools
        }
        self.pools: dict[str, Pool] = {pool.name: _with_largest_node(pool, self.largest_node[pool.name]) for pool in fleet.pools}
        self.gpu_prices: dict[str, float] = {pool.name: pool.price_usd_per_gpu_hour for pool in fleet.pools}
        self.names: tuple[str, ...] = tuple(sorted(self.pools))
        self._domains = {pool.name: pool.network_domain for pool in fleet.pools}
        self._identity = tuple(
            (
                pool.name,
                repr(pool.device),
                pool.price_usd_per_gpu_hour,
                self.largest_node[pool.name],
                pool.network_bytes_per_second,
                pool.network_domain,
            )
            for pool in fleet.pools
        )
        self._hash = hash(self._identity)

    def domain(self, pool: str) -> str:
        """The pool's network domain, empty when none is known."""
        return self._domains.get(pool, "")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FleetView) and self._identity == other._identity


def _with_largest_node(pool: Pool, gpus: int) -> Pool:
    return replace(pool, nodes=(NodeCapacity("largest", gpus),) if pool.nodes else ())


@dataclass(frozen=True, slots=True)
class _Template:
    pool: str
    shape: Shape
    group: tuple[ReplicaCapacity, ...]
    price_usd_per_hour: float
    preference: int


_Group = tuple[ReplicaCapacity, ...]
_PhaseTemplates = tuple[tuple[_Template, ...], tuple[PoolRefusal, ...]]


def service_options(
    service: ServiceInput,
    fleet: FleetView,
    workload: Workload,
    performance: Performance,
    settings: Settings,
    speeds: Mapping[Variant, float] | None = None,
) -> dict[Phase, PhaseOptions]:
    """Options of both phases, with the capacity of a replica alone (`performance.at_need` counts on those beside it).

    `speeds` are those of calibrated variants. They change a variant's capacity, not which shape stands for a pool: else a pool's
    shape would change whenever its speed is found out.
    """
    rounded = workload.rounded(GRID)
    largest_group = LARGEST_GROUP if service.shares_arrivals else 1
    kept = tuple(
        sorted({(status.variant.pool, status.variant.shape) for status in service.variants if status.desired or status.ready})
    )
    policies = tuple((phase, service.phases[phase]) for phase in Phase if phase in service.phases)
    templates = _templates(
        fleet,
        performance,
        service.model,
        service.targets,
        rounded,
        tuple((phase, policy.pools, policy.shape) for phase, policy in policies),
        service.flip_supported,
        largest_group,
        kept,
    )
    startups = {status.variant: status.startup_seconds for status in service.variants if status.startup_seconds is not None}
    result = {}
    for phase, _ in policies:
        entries, refusals = templates[phase]
        options = []
        for entry in entries:
            variant = Variant(service.key, phase, entry.pool, entry.shape)
            group = entry.group
            speed = 1.0 if speeds is None else speeds.get(variant, 1.0)
            if speed != 1.0:
                found = group_of(
                    performance, phase, service.model, fleet.pools[entry.pool], entry.shape, rounded, service.targets,
                    largest=largest_group, speed=speed,
                )  # fmt: skip
                group = group if isinstance(found, Refusal) else found
            startup = startups.get(variant)
            if startup is None:
                startup = startups.get(variant.with_phase(phase.other), settings.startup_seconds)
            options.append(VariantOption(variant, group[0], entry.price_usd_per_hour, startup, entry.preference, group))
        result[phase] = PhaseOptions(tuple(options), refusals)
    return result


def infeasible(phase: Phase, policy: PhasePolicy, refusals: Sequence[PoolRefusal]) -> Reason:
    """Nothing can serve the phase: name every pool with its reason, and what to change."""
    if not refusals:
        return Reason(
            reasons.INFEASIBLE,
            f"nothing can serve {phase.value}: no GPU pool was found; add nodes with GPUs, or check the pool labels",
            phase,
        )
    each = "; ".join(f"{refusal.pool}: {refusal.message}" for refusal in refusals)
    limits = (
        " or widen spec.phases." + phase.value + (".pools" if policy.pools else ".shape") if policy.pools or policy.shape else ""
    )
    return Reason(
        reasons.INFEASIBLE,
        f"nothing can serve {phase.value}: {each}. Add a pool with more memory or speed, relax the target, "
        f"or use smaller weights{limits}",
        phase,
    )


@lru_cache(maxsize=16384)
def _templates(
    fleet: FleetView,
    performance: Performance,
    model: ModelFacts,
    targets: Targets,
    workload: Workload,
    wishes: tuple[tuple[Phase, tuple[str, ...], Shape | None], ...],
    flips: bool,
    largest_group: int,
    kept: tuple[tuple[str, Shape], ...],
) -> dict[Phase, _PhaseTemplates]:
    """Options without the service's name: a pure function, remembered because little of it changes from round to round."""
    beyond = tuple((name, shape) for name, shape in kept if shape not in _fitting(fleet, performance, model, name))
    seen = {phase: seen_by(phase, workload, targets) for phase, _, _ in wishes}
    found = {
        phase: _phase_capacities(
            fleet, performance, model, *seen[phase], phase, wished or fleet.names, shape, largest_group, beyond
        )
        for phase, wished, shape in wishes
    }  # fmt: skip
    result = {}
    for phase, wished, _ in wishes:
        entries = []
        capacities, refused = found[phase]
        for position, name in enumerate(wished or fleet.names):
            if name not in capacities:
                continue
            own = capacities[name]
            other = found[phase.other][0].get(name) if flips and phase.other in found else None
            best = best_shape(own, other)
            for shape in sorted(own):
                if shape == best or (name, shape) in kept:
                    price = fleet.pools[name].price_usd_per_gpu_hour * shape.gpus_per_replica
                    group = _group(fleet, performance, model, *seen[phase], phase, name, shape, largest_group)
                    if not isinstance(group, Refusal):
                        entries.append(_Template(name, shape, group, price, position if wished else 0))
        result[phase] = (tuple(entries), refused)
    return result


@lru_cache(maxsize=4096)
def _shapes(fleet: FleetView, performance: Performance, model: ModelFacts, name: str) -> tuple[Shape, ...] | Refusal:
    return performance.shapes(model, fleet.pools[name], fleet.largest_node[name])


def _fitting(fleet: FleetView, performance: Performance, model: ModelFacts, name: str) -> tuple[Shape, ...]:
    """Shapes that are looked at on a pool whether a replica runs in them or not."""
    answer = _shapes(fleet, performance, model, name) if name in fleet.pools else ()
    return () if isinstance(answer, Refusal) else answer


@lru_cache(maxsize=65536)
def _group(
    fleet: FleetView,
    performance: Performance,
    model: ModelFacts,
    workload: Workload,
    targets: Targets,
    phase: Phase,
    name: str,
    shape: Shape,
    largest_group: int,
) -> _Group | Refusal:
    """`group_of` on a pool of the fleet: services that a phase cannot tell apart share the answer."""
    return group_of(performance, phase, model, fleet.pools[name], shape, workload, targets, largest=largest_group)


@lru_cache(maxsize=16384)
def _phase_capacities(
    fleet: FleetView,
    performance: Performance,
    model: ModelFacts,
    workload: Workload,
    targets: Targets,
    phase: Phase,
    names: tuple[str, ...],
    shape: Shape | None,
    largest_group: int,
    kept: tuple[tuple[str, Shape], ...],
) -> tuple[Mapping[str, Mapping[Shape, ReplicaCapacity]], tuple[PoolRefusal, ...]]:
    """What one of many replicas sustains, by pool and shape, and the pools that cannot serve the phase."""
    found, refused = {}, []
    for name in names:
        capacities = _pool_capacities(fleet, performance, model, targets, workload, phase, name, shape, largest_group, kept)
        if isinstance(capacities, PoolRefusal):
            refused.append(capacities)
        else:
            found[name] = capacities
    return found, tuple(refused)


def _pool_capacities(
    fleet: FleetView,
    performance: Performance,
    model: ModelFacts,
    targets: Targets,
    workload: Workload,
    phase: Phase,
    name: str,
    wished: Shape | None,
    largest_group: int,
    kept: tuple[tuple[str, Shape], ...],
) -> dict[Shape, ReplicaCapacity] | PoolRefusal:
    """What one of many replicas sustains, by shape."""
    pool = fleet.pools.get(name)
    if pool is None:
        there = ", ".join(sorted(fleet.pools)) or "none"
        return PoolRefusal(
            name, "NoSuchPool", f"there is no pool of this name (found: {there}); correct spec.phases.{phase.value}.pools"
        )
    if wished is not None:
        shapes: tuple[Shape, ...] = (wished,)
    else:
        answer = _shapes(fleet, performance, model, name)
        if isinstance(answer, Refusal):
            return PoolRefusal(name, answer.reason, answer.message)
        shapes = tuple(sorted({*answer, *(shape for place, shape in kept if place == name)}))
    capacities: dict[Shape, ReplicaCapacity] = {}
    refusal = PoolRefusal(name, "NoShape", "no shape fits")
    for shape in shapes:
        if shape.tensor_parallel > (largest := fleet.largest_node[name]):
            refusal = PoolRefusal(
                name, "NodeTooSmall", f"{shape} needs {shape.tensor_parallel} GPUs on one node, the largest has {largest}"
            )
            continue
        capacity = performance.capacity(phase, model, pool, shape, workload, targets, sharing=largest_group)
        if isinstance(capacity, Refusal):
            refusal = PoolRefusal(name, capacity.reason, capacity.message)
        elif capacity.tokens_per_second > 0.0:
            capacities[shape] = capacity
    return capacities or refusal
