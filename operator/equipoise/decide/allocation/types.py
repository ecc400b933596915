"""The allocation problem and its answer, free of any solver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide.types import VariantOption


@dataclass(frozen=True, slots=True)
class NodeSpace:
    """GPUs of one node that Equipoise may plan with: allocatable less what others hold; 0 where no pod may go.

    `own_gpus` says which of them its own variants hold now, so that a plan can keep replicas where they are.
    """

    name: str
    gpus: int
    own_gpus: Mapping[Variant, int] = field(default_factory=dict)
    open: bool = True  # new pods may go here; on a closed (cordoned, tainted) node replicas may stay, none may come


@dataclass(frozen=True, slots=True)
class PhaseDemand:
    """What one phase of one service must be given.

    `needed_tokens_per_second` holds headroom and trim already. None: the demand is unknown, keep what there is (`held`
    replicas are then fixed). `held` are replicas that this round may not change: External or Fixed scaling, or a hold.
    """

    phase: Phase
    needed_tokens_per_second: float | None
    minimum: int
    maximum: int | None
    options: tuple[VariantOption, ...]
    current: Mapping[Variant, int]
    held: bool = False


@dataclass(frozen=True, slots=True)
class ServiceDemand:
    """One service in the problem. A higher `priority` is served first; ties go to the older service, then by name."""

    key: ServiceKey
    priority: int
    created_seconds: float
    phases: Mapping[Phase, PhaseDemand]
    max_gpus: int | None = None
    max_cost_usd_per_hour: float | None = None
    change_price_usd: float = (
        0.0  # added to the hourly price of a replica that would have to start: keeps small savings from moving things
    )
    flips: bool = True  # replicas of equal pool and shape may change phase, at a tenth of that price


@dataclass(frozen=True, slots=True)
class AllocationProblem:
    """All services and all pools of one round."""

    pools: Mapping[str, tuple[NodeSpace, ...]]
    services: tuple[ServiceDemand, ...]
    time_limit_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a phase does not get, why, and what would help, with numbers."""

    service: ServiceKey
    phase: Phase
    missing_tokens_per_second: float
    missing_replicas: int  # below the minimum
    reason: str  # PoolsFull, MaxReplicas, MaxGPUs, MaxCost, NothingFits, Fragmented
    message: str


@dataclass(frozen=True, slots=True)
class Allocation:
    """Replicas per variant (zeros left out), what is missing, and how good the answer is known to be."""

    replicas: Mapping[Variant, int]
    shortfalls: tuple[Shortfall, ...] = ()
    placements: Mapping[Variant, tuple[str, ...]] = field(default_factory=dict)  # a node per replica that fits it
    gap: float = 0.0  # proven relative distance from the optimum; NaN where the solver proves nothing
    method: str = ""
