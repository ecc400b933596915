"""What the process knows of each service between rounds. Everything in it comes back from status after a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from equipoise.api.engine import RouterType
from equipoise.api.identity import ServiceKey, Variant
from equipoise.api.policy import MetricsSource, Switch
from equipoise.api.service import InferenceService
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.queues import queue_bound_tokens
from equipoise.decide.types import Decision, Reason
from equipoise.fleet.types import Fleet
from equipoise.observe.types import ServiceObservation
from equipoise.perf.types import ModelFacts
from equipoise.reconcile.kube.kinds import DEPLOYMENT, INFERENCE_POOL, POD_MONITOR
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.rollout.memory import RolloutMemory
from equipoise.reconcile.store import Store
from equipoise.render.names import router_name
from equipoise.render.options import Rendering, RenderOptions


@dataclass(frozen=True, slots=True)
class Record:
    """One service. `allocation` None: nothing is decided and nothing was found in status."""

    uid: str = ""
    allocation: Mapping[Variant, int] | None = None
    decision: Decision | None = None
    observation: ServiceObservation | None = None
    memory: ServiceMemory = field(default_factory=ServiceMemory)
    problem: Reason | None = None  # the spec cannot be carried out: what runs is left alone
    trouble: Reason | None = None  # a child could not be written
    flips: bool = False
    model: ModelFacts | None = None
    rollout: RolloutMemory | None = None  # None: not looked at yet


class Records:
    """All services, the fleet as last read, and what is wrong with the metrics."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records: dict[ServiceKey, Record] = {}
        self._parsed: dict[ServiceKey, tuple[Object, InferenceService]] = {}
        self.fleet = Fleet(())
        self.metrics_troubles: Mapping[MetricsSource, Reason] = {}

    def parse(self, key: ServiceKey, raw: Object) -> InferenceService:
        """The resource, read once for each version of it. pydantic's ValidationError where it cannot be read."""
        known = self._parsed.get(key)
        if known is not None and known[0] is raw:
            return known[1]
        parsed = InferenceService.parse(raw)
        self._parsed[key] = (raw, parsed)
        return parsed

    def of(self, key: ServiceKey) -> Record:
        """The record of a service; an empty one when nothing is known."""
        return self._records.get(key, Record())

    def put(self, key: ServiceKey, record: Record) -> None:
        """Replace a record."""
        self._records[key] = record

    def note_trouble(self, key: ServiceKey, trouble: Reason | None) -> None:
        """Remember why a child could not be written, or that all is well."""
        record = self.of(key)
        if record.trouble != trouble:
            self._records[key] = replace(record, trouble=trouble)

    def note_rollout(self, key: ServiceKey, memory: RolloutMemory) -> None:
        """Remember what the last look at the service's revisions found."""
        self._records[key] = replace(self.of(key), rollout=memory)

    def note_problems(self, key: ServiceKey, rendering: Rendering) -> None:
        """Remember what could not be rendered, or that all could."""
        problems = [str(problem) for problem in rendering.problems if rendering.refused or problem.variant is not None]
        name = "SpecRefused" if rendering.refused else "VariantRefused"
        self.note_trouble(key, Reason(name, "; ".join(problems)) if problems else None)

    def forget(self, key: ServiceKey) -> None:
        """The service is gone."""
        self._records.pop(key, None)
        self._parsed.pop(key, None)

    def services(self) -> set[ServiceKey]:
        """Services with a record."""
        return set(self._records)

    def render_options(self, resource: InferenceService, variants: Iterable[Variant]) -> RenderOptions:
        """What rendering needs besides the resource: optional kinds that are served, and the Deployments as they are."""
        record = self.of(resource.key)
        live = {item["metadata"]["name"]: item for item in self._store.owned_by(DEPLOYMENT, resource.metadata.uid)}
        return RenderOptions(
            available_kinds=served_kinds(self._store),
            queue_bounds=self._queue_bounds(resource, variants),
            live=live,
            model=record.model,
            saved=record.rollout.saved if record.rollout is not None else {},
        )

    def _queue_bounds(self, resource: InferenceService, variants: Iterable[Variant]) -> dict[Variant, int]:
        """The same bound in both phases of a place: a flipped replica keeps its start-up flags."""
        model = self.of(resource.key).model
        if model is None or resource.spec.capacity.bounded_queues is Switch.DISABLED:
            return {}
        bounds = {}
        for variant in variants:
            pool = self.fleet.pool(variant.pool)
            if pool is not None:
                bound = queue_bound_tokens(model, pool.device, variant.shape, resource.spec.targets.ttft_seconds)
                if bound is not None:
                    bounds[variant] = bound
        return bounds

    def endpoint(self, resource: InferenceService) -> str:
        """URL at which the model is served inside the cluster; empty without a router of ours."""
        if resource.spec.router_type not in (RouterType.VLLM_ROUTER, RouterType.SGLANG_ROUTER):
            return ""
        return f"http://{router_name(resource.key)}.{resource.key.namespace}.svc/v1"


def served_kinds(store: Store) -> frozenset[str]:
    """Names of the optional kinds that the cluster serves now, as their CustomResourceDefinitions are named."""
    return frozenset(str(kind) for kind in (POD_MONITOR, INFERENCE_POOL) if store.listed(kind))
