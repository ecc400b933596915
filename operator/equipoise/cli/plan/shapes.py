"""Every way to put a replica of a service on the fleet: capacity, price per token, what binds, and why others are out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from equipoise.api.identity import Phase, Shape, Variant
from equipoise.cli.plan.services import Service
from equipoise.cli.plan.traffic import Traffic, needed
from equipoise.decide.options import GRID, FleetView, PhaseOptions, PoolRefusal, service_options
from equipoise.decide.performance import EnginePerformance, at_need, group_of
from equipoise.decide.settings import Settings
from equipoise.decide.types import VariantOption
from equipoise.perf.capacity import LARGEST_GROUP
from equipoise.perf.types import Refusal, ReplicaCapacity

ENGINES: Final = EnginePerformance()
_PER_MILLION_HOUR: Final = 1e6 / 3600.0
NOT_WISHED: Final = "NotWished"


@dataclass(frozen=True, slots=True)
class Side:
    """One phase of a row: a capacity or why there is none; `offered`: the shape that the plan may use on this pool."""

    capacity: ReplicaCapacity | None
    refusal: PoolRefusal | None
    offered: bool = False


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """One shape on one pool. `shape` None: no shape of the model fits there at all."""

    pool: str
    shape: Shape | None
    price_usd_per_hour: float
    sides: Mapping[Phase, Side] = field(default_factory=dict)

    def usd_per_million(self, phase: Phase) -> float | None:
        """Price of a million tokens of this phase at full use."""
        capacity = self.sides[phase].capacity
        return None if capacity is None else self.price_usd_per_hour / capacity.tokens_per_second * _PER_MILLION_HOUR

    @property
    def decode_per_prefill(self) -> float | None:
        """Decode tokens/s that a replica gives per prefill token/s: who has more than others should decode, who less prefill.

        Comparative advantage. The price of the device cancels out: it is the same in both phases.
        """
        prefill, decode = (self.sides[phase].capacity for phase in Phase)
        return None if prefill is None or decode is None else decode.tokens_per_second / prefill.tokens_per_second


@dataclass(frozen=True, slots=True)
class Ways:
    """What can serve a service, as the allocation sees it (`options`) and in full (`rows`); `left_out` by the spec itself."""

    options: Mapping[Phase, PhaseOptions]
    rows: tuple[ShapeRow, ...]
    left_out: tuple[str, ...] = ()


def options_at(service: Service, view: FleetView, traffic: Traffic, settings: Settings) -> dict[Phase, PhaseOptions]:
    """The options of `decide`, at the capacities that this traffic makes them count with."""
    found = service_options(service.policy.service_input(), view, traffic.workload, ENGINES, settings)
    return {
        phase: replace(
            options,
            options=tuple(
                at_need({option.variant: option for option in options.options}, needed(traffic, phase, settings)).values()
            ),
        )
        for phase, options in found.items()
    }


def ways_to_serve(service: Service, view: FleetView, traffic: Traffic, settings: Settings) -> Ways:
    """All shapes on all pools. The options are those of `decide`, the rows show besides what it leaves out."""
    options = options_at(service, view, traffic, settings)
    rows = []
    for name, pool in view.pools.items():
        answer = ENGINES.shapes(service.policy.model, pool, view.largest_node[name])
        wished = {policy.shape for policy in service.policy.phases.values() if policy.shape is not None}
        shapes: list[Shape] = sorted({*(() if isinstance(answer, Refusal) else answer), *wished})
        for shape in shapes or (None,):
            sides = {
                phase: _side(service, phase, view, name, shape, answer, traffic, options[phase], settings) for phase in Phase
            }
            width = 1 if shape is None else shape.gpus_per_replica
            if not all(side.refusal is not None and side.refusal.reason == NOT_WISHED for side in sides.values()):
                rows.append(ShapeRow(name, shape, pool.price_usd_per_gpu_hour * width, sides))
    return Ways(options, tuple(rows), _left_out(service, view, options))


def _left_out(service: Service, view: FleetView, options: Mapping[Phase, PhaseOptions]) -> tuple[str, ...]:
    """What the spec keeps out of the table, and pools that it names and the fleet does not have."""
    lines = []
    for phase, policy in service.policy.phases.items():
        lines += [f"{item.pool}: {item.message}" for item in options[phase].refusals if item.reason == "NoSuchPool"]
        if policy.shape is not None:
            lines.append(f"other shapes than {policy.shape} for {phase.value}: spec.phases.{phase.value}.shape asks for it")
    named = [set(policy.pools) for policy in service.policy.phases.values()]
    if all(named):
        others = sorted(view.pools.keys() - set().union(*named))
        if others:
            lines.append(f"{', '.join(others)}: named neither in spec.phases.prefill.pools nor in spec.phases.decode.pools")
    return tuple(lines)


def _side(
    service: Service,
    phase: Phase,
    view: FleetView,
    name: str,
    shape: Shape | None,
    answer: tuple[Shape, ...] | Refusal,
    traffic: Traffic,
    options: PhaseOptions,
    settings: Settings,
) -> Side:
    policy, pool = service.policy.phases[phase], view.pools[name]
    if policy.pools and name not in policy.pools:
        text = f"spec.phases.{phase.value}.pools names {', '.join(policy.pools)} only"
        return Side(None, PoolRefusal(name, NOT_WISHED, text))
    if shape is None:
        refusal = answer if isinstance(answer, Refusal) else Refusal("NoShape", "no shape fits")
        return Side(None, PoolRefusal(name, refusal.reason, refusal.message))
    if policy.shape is not None and shape != policy.shape:
        return Side(None, PoolRefusal(name, NOT_WISHED, f"spec.phases.{phase.value}.shape is {policy.shape}"))
    if shape.tensor_parallel > view.largest_node[name]:
        text = f"{shape} needs {shape.tensor_parallel} GPUs on one node, the largest has {view.largest_node[name]}"
        return Side(None, PoolRefusal(name, "NodeTooSmall", text))
    largest = LARGEST_GROUP if service.policy.shares_arrivals else 1
    group = group_of(
        ENGINES, phase, service.policy.model, pool, shape, traffic.workload.rounded(GRID), service.policy.targets, largest=largest
    )
    if isinstance(group, Refusal):
        return Side(None, PoolRefusal(name, group.reason, group.message))
    variant = Variant(service.key, phase, name, shape)
    option = VariantOption(variant, group[0], 0.0, 0.0, group=group)
    found = at_need({variant: option}, needed(traffic, phase, settings))[variant].capacity
    return Side(found, None, any(option.variant == variant for option in options.options))
