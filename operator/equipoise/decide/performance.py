"""What decide() needs to know of speed: which shapes a model can take on a pool, and what one replica sustains there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol

from equipoise.api.identity import Phase, Shape, Variant
from equipoise.decide.types import VariantOption
from equipoise.fleet.types import Pool
from equipoise.perf import memory
from equipoise.perf.calibrate import LARGEST_FACTOR, SMALLEST_FACTOR
from equipoise.perf.capacity import LARGEST_GROUP, member_capacity, replica_capacity
from equipoise.perf.step_times import step_times
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, StepTimes, Targets, Workload

SEPARATE_SHAPES_GAIN: Final = 0.7  # one shape for both phases, unless it serves them this much worse: only equal shapes can flip
NEED_STEP: Final = 0.05  # needs are rounded up to this, so that capacities do not follow every request


def seen_by(phase: Phase, workload: Workload, targets: Targets) -> tuple[Workload, Targets]:
    """What a phase sees of the traffic and the targets; the rest has one value for all, so that answers are found again.

    Prefill does not know how long answers get. Decode holds whole prompts whether they were cached or not, and has no part in the
    first token. A TPOT target does concern prefill: the first token waits for a decode step of that length.
    """
    prompt, squared = workload.mean_prompt_tokens, workload.prompt_tokens_second_moment
    if phase is Phase.PREFILL:
        return Workload(prompt, 1.0, workload.prefix_hit_share, squared), targets
    return Workload(prompt, workload.mean_output_tokens, 0.0, squared), Targets(1.0, targets.tpot_seconds, targets.percentile)


class Performance(Protocol):
    """A pure source of capacities: equal arguments give equal answers, so that answers may be remembered.

    Of traffic and targets an answer depends on nothing but what the phase sees (`seen_by`).
    """

    def shapes(self, model: ModelFacts, pool: Pool, gpus_per_node: int) -> tuple[Shape, ...] | Refusal:
        """Shapes in which the weights fit on the pool's device, inside a node of so many GPUs, or why none does."""
        ...

    def capacity(
        self,
        phase: Phase,
        model: ModelFacts,
        pool: Pool,
        shape: Shape,
        workload: Workload,
        targets: Targets,
        *,
        sharing: int = 1,
        speed: float = 1.0,
    ) -> ReplicaCapacity | Refusal:
        """What one replica sustains inside the targets, or why it cannot.

        `sharing` replicas take arrivals in turn by load, so that their fluctuations even out; `speed` is what calibration found.
        """
        ...

    def times(self, model: ModelFacts, pool: Pool, shape: Shape) -> StepTimes | Refusal:
        """Step times that the capacities rest on, for calibration to compare with."""
        ...

    def __hash__(self) -> int:
        """Two sources that hash and compare equal give equal answers."""
        ...


@dataclass(frozen=True, slots=True)
class EnginePerformance:
    """The performance model of `equipoise.perf`: fitted step times, else a roofline."""

    def shapes(self, model: ModelFacts, pool: Pool, gpus_per_node: int) -> tuple[Shape, ...] | Refusal:
        """Shapes that memory allows."""
        return memory.shapes(model, pool.device, gpus_per_node=gpus_per_node)

    def capacity(
        self,
        phase: Phase,
        model: ModelFacts,
        pool: Pool,
        shape: Shape,
        workload: Workload,
        targets: Targets,
        *,
        sharing: int = 1,
        speed: float = 1.0,
    ) -> ReplicaCapacity | Refusal:
        """Inside the targets, KV transfer over the pool's network included. A replica is one pod, so it must fit on one node."""
        largest = max((node.allocatable_gpus for node in pool.nodes), default=0)
        if shape.gpus_per_replica > largest:
            return Refusal(
                "SpansNodes",
                f"{shape} takes {shape.gpus_per_replica} GPUs, the largest node has {largest}: no replica spans nodes; "
                "use a lower precision, fewer stages or larger nodes",
            )
        return replica_capacity(
            phase,
            model,
            pool.device,
            shape,
            workload,
            targets,
            network_bytes_per_second=pool.network_bytes_per_second,
            replicas_sharing_queue=sharing,
            speed=speed,
        )

    def times(self, model: ModelFacts, pool: Pool, shape: Shape) -> StepTimes | Refusal:
        """From the fitted table, else from the roofline."""
        return step_times(model, pool.device, shape)


def group_of(
    performance: Performance,
    phase: Phase,
    model: ModelFacts,
    pool: Pool,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    *,
    largest: int = LARGEST_GROUP,
    speed: float = 1.0,
) -> tuple[ReplicaCapacity, ...] | Refusal:
    """What a replica sustains alone, as one of two that share arrivals, and so on up to `largest`.

    A calibrated speed leaves capacities within half and twice the model's, and never refuses what the model offers: near a target
    a little speed is much capacity, and a few odd windows must not take a running variant off the list.
    """
    plain = _group(performance, phase, model, pool, shape, workload, targets, largest, 1.0)
    if speed == 1.0 or isinstance(plain, Refusal):
        return plain
    found = _group(performance, phase, model, pool, shape, workload, targets, largest, speed)
    if isinstance(found, Refusal):
        return tuple(_times(entry, SMALLEST_FACTOR) for entry in plain)
    return tuple(
        _times(entry, min(LARGEST_FACTOR, max(SMALLEST_FACTOR, other.tokens_per_second / entry.tokens_per_second)), other)
        for entry, other in zip(plain, found, strict=True)
    )


def _times(plain: ReplicaCapacity, factor: float, found: ReplicaCapacity | None = None) -> ReplicaCapacity:
    return replace(found or plain, tokens_per_second=plain.tokens_per_second * factor)


def _group(
    performance: Performance,
    phase: Phase,
    model: ModelFacts,
    pool: Pool,
    shape: Shape,
    workload: Workload,
    targets: Targets,
    largest: int,
    speed: float,
) -> tuple[ReplicaCapacity, ...] | Refusal:
    found = []
    for sharing in range(1, max(1, largest) + 1):
        capacity = performance.capacity(phase, model, pool, shape, workload, targets, sharing=sharing, speed=speed)
        if isinstance(capacity, Refusal):
            return capacity
        if capacity.tokens_per_second <= 0.0:
            return Refusal("NoCapacity", f"{shape} sustains nothing inside the target")
        found.append(capacity)
    return tuple(found)


def at_need(options: Mapping[Variant, VariantOption], needed: float | None) -> dict[Variant, VariantOption]:
    """The options with the capacity to count per replica when the phase has to carry `needed` tokens/s.

    Replicas that share arrivals sustain more each (`perf.capacity.group`), so the figure depends on how many the need takes. Not
    known: what a replica sustains alone. Rounding the need up never makes a count too small (`member_capacity` does not exceed
    what the fewest replicas sustain).
    """
    if needed is None or not math.isfinite(needed) or needed <= 0.0:
        return {variant: _alone(option) for variant, option in options.items()}
    rounded = math.exp(math.ceil(math.log(needed) / math.log1p(NEED_STEP) - 1e-9) * math.log1p(NEED_STEP))
    result = {}
    for variant, option in options.items():
        if option.group and option.group[0].tokens_per_second < needed:
            capacity = _member(option.group, max(rounded, needed))
            option = option if capacity == option.capacity else replace(option, capacity=capacity)
        else:
            option = _alone(option)
        result[variant] = option
    return result


def _alone(option: VariantOption) -> VariantOption:
    if not option.group or option.capacity is option.group[0]:
        return option
    return replace(option, capacity=option.group[0])


@lru_cache(maxsize=16384)
def _member(group: tuple[ReplicaCapacity, ...], needed: float) -> ReplicaCapacity:
    return member_capacity(group, needed)


def best_shape(own: Mapping[Shape, ReplicaCapacity], other: Mapping[Shape, ReplicaCapacity] | None) -> Shape:
    """The shape with the most tokens per GPU where several share the load; with flips, one that suits both phases if that costs
    little.

    Only replicas of equal shape can change phase, and a flip keeps nearly all the value of a free move, so up to
    30 % of a phase's efficiency is given for it (`docs/concepts/deciding.md`).
    """

    def efficiency(table: Mapping[Shape, ReplicaCapacity], shape: Shape) -> float:
        return table[shape].tokens_per_second / shape.gpus_per_replica

    best = max(own, key=lambda shape: (efficiency(own, shape), -shape.gpus_per_replica, shape))
    common = sorted(set(own) & set(other or {}))
    if not other or not common:
        return best
    best_other = max(other, key=lambda shape: (efficiency(other, shape), -shape.gpus_per_replica, shape))

    def joint(shape: Shape) -> tuple[float, int, Shape]:
        share = efficiency(own, shape) / efficiency(own, best)
        share_other = efficiency(other, shape) / efficiency(other, best_other)
        return (min(share, share_other), -shape.gpus_per_replica, shape)

    shared = max(common, key=joint)
    return shared if joint(shared)[0] >= SEPARATE_SHAPES_GAIN else best
