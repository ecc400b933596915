"""status of an InferenceService: what there is, what was decided and why. Written by Equipoise only."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from equipoise.api.base import ApiModel, FreeObject, shortened
from equipoise.api.conditions import Condition
from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.api.status_rollout import RevisionRecord, RolloutStatus
from equipoise.api.values import Duration, Figure

Text = Annotated[str, BeforeValidator(shortened(253)), Field(max_length=253)]
Message = Annotated[str, BeforeValidator(shortened(4096)), Field(max_length=4096)]
Count = Annotated[int, Field(ge=0)]


def _map_list(*keys: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}


class VariantState(ApiModel):
    """One variant: a Deployment and its pods."""

    name: Text
    """Name of the Deployment."""
    pool: Text = ""
    """Pool whose nodes it runs on."""
    shape: Text = ""
    """Shape of a replica, such as `tp2-fp8`."""
    desired: Count = 0
    """Replicas asked for, a count."""
    ready: Count = 0
    """Replicas that serve, a count."""
    starting: Count = 0
    """Replicas that hold GPUs and are loading, a count."""
    pending: Count = 0
    """Replicas without a node, a count."""
    draining: Count = 0
    """Replicas out of routing that still hold GPUs, a count."""
    startup: Duration | None = None
    """Start-up time learned from its own pods, scheduled to ready, as a duration; absent until one has started."""
    speed: Figure | None = None
    """Measured speed of a replica over what the performance model says, as a factor from 0.5 to 2; absent while the model's own
    figure is used. Capacities follow it."""
    calibration: Message = ""
    """What the speed was found from, as a sentence with numbers."""
    message: Message = ""
    """What keeps it from its count, if anything does."""


class PhaseStatus(ApiModel):
    """One phase now. What is not known is absent."""

    desired: Count = 0
    """Replicas asked for over all variants, a count."""
    ready: Count = 0
    """Replicas that serve, a count."""
    capacity_tokens_per_second: Count | None = None
    """What the ready replicas sustain inside the target, in uncached prompt tokens per second (prefill) or output tokens per
    second (decode)."""
    demand_tokens_per_second: Count | None = None
    """Offered work, forecast one start-up time ahead, in the unit of the capacity."""
    needed_tokens_per_second: Count | None = None
    """Demand with headroom and correction, in the unit of the capacity: what the allocation has to cover."""
    latency: Duration | None = None
    """Observed latency at the target percentile, as a duration: TTFT for prefill, TPOT for decode."""
    target: Duration | None = None
    """The latency to hold, as a duration."""
    attainment: Figure | None = None
    """Share of requests inside the target, from 0 to 1."""
    lag: Figure | None = None
    """How far the phase is past its target: 1 is exactly at it, above 1 is late."""
    utilisation: Figure | None = None
    """Demand over capacity, as a share: 1 is all that the ready replicas sustain."""
    variants: Annotated[tuple[VariantState, ...], Field(max_length=256, json_schema_extra=_map_list("name"))] = ()
    """The Deployments of this phase."""


class PhasesStatus(ApiModel):
    """Both phases."""

    prefill: PhaseStatus = PhaseStatus()
    """The phase that reads the prompt."""
    decode: PhaseStatus = PhaseStatus()
    """The phase that writes the answer."""

    def of(self, phase: Phase) -> PhaseStatus:
        """The part of that phase."""
        return self.prefill if phase is Phase.PREFILL else self.decode


class AllocationEntry(ApiModel):
    """Replicas decided for one variant."""

    phase: Phase
    """prefill or decode."""
    pool: Text
    """Name of the pool."""
    shape: Text
    """Shape of a replica, such as `tp2-fp8`."""
    replicas: Count
    """Replicas to have now, a count: never more than the GPUs that are really free."""
    wanted: Count | None = None
    """Replicas this leads to once GPUs are free, a count; absent when it is the same."""

    @classmethod
    def of(cls, variant: Variant, replicas: int, wanted: int | None = None) -> AllocationEntry:
        """The entry of a variant."""
        return cls(
            phase=variant.phase, pool=variant.pool, shape=str(variant.shape), replicas=replicas,
            wanted=None if wanted == replicas else wanted,
        )  # fmt: skip

    def variant(self, service: ServiceKey) -> Variant:
        """The variant, as the value that all rooms use; ValueError when the shape cannot be read."""
        return Variant(service, self.phase, self.pool, Shape.parse(self.shape))


class DecisionReason(ApiModel):
    """One rule that spoke."""

    name: Text
    """The rule, as one CamelCase word."""
    message: Message = ""
    """What it found, as a sentence with numbers."""
    phase: Phase | None = None
    """The phase it is about, if it is about one."""


class MoveStatus(ApiModel):
    """One step from the current allocation to the wanted one."""

    kind: Text
    """grow, shrink, handover or flip."""
    donor: Text | None = None
    """Variant that gives replicas up, as phase@pool/shape."""
    receiver: Text | None = None
    """Variant that gains replicas, as phase@pool/shape."""
    replicas: Count = 0
    """Replicas gained (given up, for a shrink), a count."""
    donor_replicas: Count = 0
    """Replicas of the donor given up for them, a count."""
    reason: Message = ""
    """Why, as a sentence."""


Reasons = Annotated[tuple[DecisionReason, ...], BeforeValidator(shortened(64)), Field(max_length=64, json_schema_extra=ATOMIC)]
Moves = Annotated[tuple[MoveStatus, ...], BeforeValidator(shortened(64)), Field(max_length=64, json_schema_extra=ATOMIC)]


class LastDecision(ApiModel):
    """The last decision and the numbers behind it."""

    verdict: Text
    """Move or Hold."""
    at_time: Text = ""
    """When the decision last changed in meaning, as an RFC 3339 time in UTC."""
    reasons: Reasons = ()
    """The rules that decided, the weightiest first."""
    moves: Moves = ()
    """The steps taken."""


class Transaction(ApiModel):
    """A move in flight, recorded step by step so that any operator process can resume it."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})

    id: Text
    """Name of the transaction, unique within the service."""
    kind: Text
    """rollout, handover, flip, grow, shrink or drain."""
    step: Text
    """Where it is: begin, drain or start; replace or return for a rollout."""
    started_at: Text = ""
    """When it began, as an RFC 3339 time in UTC."""
    deadline: Text = ""
    """When it should be done, as an RFC 3339 time in UTC. A rollout is rolled back then, a pod without a node is given up."""
    moves: Moves = ()
    """The moves it carries out."""
    counts: Annotated[
        tuple[AllocationEntry, ...], BeforeValidator(shortened(64)), Field(max_length=64, json_schema_extra=ATOMIC)
    ] = ()
    """What it changes, per variant: `replicas` before and `wanted` after."""
    message: Message = ""
    """What it waits for."""


class Goodput(ApiModel):
    """Bounds of the share of requests that met both targets; the phases are measured apart, so only bounds are known."""

    least: Figure
    """Share that must have met both, from 0 to 1."""
    most: Figure
    """Share that can have met both, from 0 to 1."""


class Summary(ApiModel):
    """What `kubectl get` shows, ready to print."""

    ttft: Text = ""
    """Observed TTFT over its target, such as `410ms/500ms`."""
    tpot: Text = ""
    """Observed TPOT over its target, such as `31ms/50ms`."""
    prefill: Text = ""
    """Ready over desired prefill replicas."""
    decode: Text = ""
    """Ready over desired decode replicas."""
    gpus: Text = ""
    """GPUs held."""
    lagging: Text = ""
    """The phase that lags, or `-`."""


class InferenceServiceStatus(ApiModel):
    """What there is and what was decided."""

    observed_generation: Count | None = None
    """The metadata.generation that this status was written for."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32, json_schema_extra=_map_list("type"))] = ()
    """Ready (requests are answered), Progressing (replicas are changing), PrefillReady and DecodeReady (at least the phase's
    minimum serves), MetricsAvailable (every signal that decisions rest on is known), TargetsMet (both targets are kept),
    CapacityLimited (more would be needed than pools and budget hold; the message says what would help) and Rebalancing (capacity
    is moving from one phase to the other)."""
    endpoint: Text | None = None
    """URL inside the cluster at which the model is served; absent with router type none and inference-pool."""
    revision: Text | None = None
    """Revision of the engine template that both phases run or roll out to: a digest of image, flags and model."""
    rollout: RolloutStatus | None = None
    """The rollout in progress, or the one that was rolled back; absent while the revision that the spec asks for runs alone."""
    revisions: Annotated[
        tuple[RevisionRecord, ...], BeforeValidator(shortened(4)), Field(max_length=4, json_schema_extra=_map_list("revision"))
    ] = ()
    """The last revisions that served as a whole, the newest first, with what it takes to return to them."""
    phases: PhasesStatus = PhasesStatus()
    """Each phase now."""
    allocation: Annotated[
        tuple[AllocationEntry, ...], Field(max_length=512, json_schema_extra=_map_list("phase", "pool", "shape"))
    ] = ()
    """Replicas decided per variant."""
    last_decision: LastDecision | None = None
    """The last decision, also when it was to hold."""
    transaction: Transaction | None = None
    """The move in flight, if there is one."""
    memory: FreeObject | None = None
    """What one round of deciding hands to the next; read by Equipoise only."""
    goodput: Goodput | None = None
    """Share of requests that met both targets, as bounds."""
    gpus: Count | None = None
    """GPUs that the allocation holds, a count."""
    cost_per_hour: Figure | None = None
    """What those GPUs cost, in USD per hour, at the pools' prices."""
    lagging: Phase | None = None
    """The phase that lags, if one does."""
    summary: Summary | None = None
    """What `kubectl get` shows."""


def summarise(status: InferenceServiceStatus) -> Summary:
    """The columns of `kubectl get` from the rest of the status; `?` where something is not known."""

    def latency(phase: PhaseStatus) -> str:
        return f"{phase.latency or '?'}/{phase.target or '?'}"

    prefill, decode = status.phases.prefill, status.phases.decode
    return Summary(
        ttft=latency(prefill),
        tpot=latency(decode),
        prefill=f"{prefill.ready}/{prefill.desired}",
        decode=f"{decode.ready}/{decode.desired}",
        gpus="?" if status.gpus is None else str(status.gpus),
        lagging=status.lagging.value if status.lagging else "-",
    )
