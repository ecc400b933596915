"""What goes into a decision and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.memory import ServiceMemory
from equipoise.observe.types import ServiceObservation
from equipoise.perf.types import ModelFacts, ReplicaCapacity, Targets


class Scaling(StrEnum):
    """Who owns a phase's replica count."""

    AUTO = "Auto"
    EXTERNAL = "External"  # an HPA, KEDA or a person through PhaseScale
    FIXED = "Fixed"  # the spec's min, never changed by load


class CapacityMode(StrEnum):
    """How far Equipoise may go."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"  # decide and explain, change nothing
    OFF = "Off"


@dataclass(frozen=True, slots=True)
class PhasePolicy:
    """The user's bounds of one phase. `maximum` None: as many as the pools hold. `pools` empty: all that fit."""

    minimum: int = 1
    maximum: int | None = None
    pools: tuple[str, ...] = ()
    shape: Shape | None = None
    scaling: Scaling = Scaling.AUTO
    external_replicas: int | None = None  # what PhaseScale asks for, when scaling is External


@dataclass(frozen=True, slots=True)
class VariantStatus:
    """What the cluster has of one variant now.

    `desired` is the Deployment's count. `ready` pods serve; `starting` pods are bound and loading; `pending` pods have no node;
    `draining` pods are out of routing or terminating and still hold their GPUs.
    """

    variant: Variant
    desired: int = 0
    ready: int = 0
    starting: int = 0
    pending: int = 0
    draining: int = 0
    oldest_pending_seconds: float = 0.0
    startup_seconds: float | None = None  # learned from its own pods: scheduled to Ready, the upper median; None: never seen
    name: str = ""  # of its Deployment, under which its metrics are; empty: its speed is not calibrated


@dataclass(frozen=True, slots=True)
class ServiceInput:
    """One InferenceService as decide() sees it: policy from the spec, actual state from the cluster, memory from status."""

    key: ServiceKey
    model: ModelFacts
    targets: Targets
    phases: Mapping[Phase, PhasePolicy]
    mode: CapacityMode = CapacityMode.AUTO
    priority: int = 0
    max_gpus: int | None = None
    max_cost_usd_per_hour: float | None = None
    max_quota_gpus: int | None = None  # what the namespace's ResourceQuota leaves for this service in all
    cooldown_grow_seconds: float = 0.0
    cooldown_shrink_seconds: float = 300.0
    flip_supported: bool = True
    flip_reason: str = ""  # why flips are (not) possible: engine, version, connector
    shares_arrivals: bool = True  # the router sends requests where fewer run; else no replica gains from others beside it
    variants: tuple[VariantStatus, ...] = ()
    created_seconds: float = 0.0  # creation time, the last word in ties between services
    deleting: bool = False
    engine: str = ""  # names what runs in the pods (image, flags, model): with another one, calibration begins anew


class MoveKind(StrEnum):
    """One step from the current allocation to the wanted one."""

    GROW = "grow"
    SHRINK = "shrink"
    HANDOVER = "handover"  # donor released, then receiver grown
    FLIP = "flip"  # a running replica changes phase without reloading weights


@dataclass(frozen=True, slots=True)
class Move:
    """`replicas` that the receiver gains (a shrink: that the donor loses). `donor_replicas` differs where shapes differ."""

    kind: MoveKind
    donor: Variant | None
    receiver: Variant | None
    replicas: int
    donor_replicas: int = 0
    reason: str = ""
    nodes: tuple[str, ...] = ()  # where donors must go for a receiver that needs several GPUs on one node; empty: anywhere


@dataclass(frozen=True, slots=True)
class Reason:
    """One rule that spoke: a CamelCase name for metrics and conditions, a sentence with numbers for people."""

    name: str
    message: str
    phase: Phase | None = None


class Verdict(StrEnum):
    """What the round came to, per service."""

    MOVE = "Move"
    HOLD = "Hold"


@dataclass(frozen=True, slots=True)
class PhaseDecision:
    """The numbers behind one phase. None where they are not known; then a reason says why."""

    phase: Phase
    demand_tokens_per_second: float | None
    capacity_tokens_per_second: float | None  # of ready replicas
    needed_tokens_per_second: float | None  # demand with headroom and trim: what the allocation must cover
    lag: float | None  # 1.0 = exactly at the target; above: past it
    utilisation: float | None
    trim: float = 1.0
    latency_seconds: float | None = None  # at the target percentile
    attainment: float | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """What calibration found for a variant: above 1.0 is faster than the performance model says; with the numbers behind it."""

    factor: float
    message: str


@dataclass(frozen=True, slots=True)
class VariantOption:
    """One way to serve a phase: where, at what capacity and price."""

    variant: Variant
    capacity: ReplicaCapacity
    price_usd_per_hour: float  # per replica
    startup_seconds: float
    preference: int = 0  # index in the user's ordered pools, 0 when there is no order
    group: tuple[ReplicaCapacity, ...] = ()  # what a replica sustains alone, as one of two that share arrivals, and so on


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with one service now, and why.

    `allocation` is what the Deployments must be set to now: always inside what is free. `wanted` is where it leads; the two
    differ while GPUs of donors are still held. `moves` are the steps taken in this round. `memory` goes into status and comes
    back with the next round.
    """

    service: ServiceKey
    verdict: Verdict
    allocation: Mapping[Variant, int]
    wanted: Mapping[Variant, int]
    moves: tuple[Move, ...]
    phases: Mapping[Phase, PhaseDecision]
    reasons: tuple[Reason, ...]
    memory: ServiceMemory
    capacity_limited: Reason | None = None  # the CapacityLimited condition, with what would help
    infeasible: Reason | None = None  # nothing can serve a phase at all: no pool fits, no device meets the target
    lagging: Phase | None = None
    cost_usd_per_hour: float = 0.0
    gpus: int = 0
    options: tuple[VariantOption, ...] = ()
    speeds: Mapping[Variant, Speed] = field(default_factory=dict)  # of variants whose calibrated speed is not the model's
    goodput_bounds: tuple[float, float] | None = None  # least and most share of requests that can have met both targets


@dataclass(frozen=True, slots=True)
class DecideInput:
    """Everything one round of decide() may know. `now_seconds` is the only time there is."""

    services: tuple[ServiceInput, ...]
    observations: Mapping[ServiceKey, ServiceObservation]
    memories: Mapping[ServiceKey, ServiceMemory]
    now_seconds: float
    interval_seconds: float = 15.0
    settings: Mapping[str, float] = field(default_factory=dict)  # overrides of decide.settings.Settings, by name
