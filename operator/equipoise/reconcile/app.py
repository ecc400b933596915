"""The application: what a key, a round and a change mean. Ties the two loops to one memory."""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import replace

import aiohttp
from pydantic import ValidationError

from equipoise.api import labels
from equipoise.api.identity import ServiceKey, Variant
from equipoise.api.service import InferenceService
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.policy import ServicePolicy, service_policy
from equipoise.decide.types import Reason, Scaling
from equipoise.observe.direct import DirectObserver
from equipoise.observe.observer import Observer
from equipoise.observe.prometheus import PrometheusClient, PrometheusSettings
from equipoise.reconcile.capacity.loop import CapacityLoop, Member
from equipoise.reconcile.capacity.signals import Signals
from equipoise.reconcile.contract import Context
from equipoise.reconcile.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    GPU_POOL,
    INFERENCE_SERVICE,
    NODE,
    PHASE_SCALE,
    RESOURCE_QUOTA,
    Kind,
)
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.moves.leaving import is_leaving
from equipoise.reconcile.queue import Result
from equipoise.reconcile.record import Record, Records
from equipoise.reconcile.status.report import Reporter
from equipoise.reconcile.view.pods import variant_of_pod
from equipoise.reconcile.workload.reconciler import WorkloadReconciler
from equipoise.reconcile.workload.world import read_world
from equipoise.render.names import phase_name

logger = logging.getLogger(__name__)


class EquipoiseApp:
    """What the process runs while it leads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._records = Records(context.store)
        self._reporter = Reporter(context, self._records)
        self._session: aiohttp.ClientSession | None = None
        self._pods: DirectObserver | None = None
        self._prometheus: PrometheusClient | None = None
        self._capacity: CapacityLoop | None = None
        self._workload: WorkloadReconciler | None = None

    async def reconcile(self, key: ServiceKey) -> Result:
        """Bring one service to what its spec and its last decision ask for."""
        raw = self._context.store.service(key)
        if raw is None:
            self._forget(key)
            return Result()
        if raw["metadata"].get("deletionTimestamp"):
            return Result()  # children follow by garbage collection
        try:
            resource = self._records.parse(key, raw)
        except ValidationError as error:
            # The API server's own validation lets nothing through that cannot be read, unless the CRD is older or newer than
            # this operator. What runs is left alone.
            logger.error("%s cannot be read, is the CRD of another version? %s", key, error)
            return Result()
        self._loop().ensure_fleet()
        member = self._admit(key, resource)
        if member is not None and self._wants_placement(key, member):
            self._loop().place(key, member)
        return await self._worker().reconcile(key, resource)

    async def capacity_round(self) -> float:
        """One round over all services."""
        members: dict[ServiceKey, Member] = {}
        for key in self._context.store.services():
            raw = self._context.store.service(key)
            if raw is None or raw["metadata"].get("deletionTimestamp"):
                continue
            try:
                resource = self._records.parse(key, raw)
            except ValidationError:
                continue  # reported when the key is reconciled
            member = self._admit(key, resource)
            if member is not None:
                members[key] = member
        for key in self._records.services() - set(self._context.store.services()):
            self._forget(key)
        await self._loop().round(members)
        return self._context.settings.capacity.interval_seconds

    def affected_keys(self, kind: Kind, obj: Object) -> Set[ServiceKey]:
        """The service itself, the owner of a child, all of them when kinds come or go."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or ""
        if kind == INFERENCE_SERVICE:
            return {ServiceKey(namespace, metadata["name"])}
        if kind == CUSTOM_RESOURCE_DEFINITION:
            return set(self._context.store.services())  # an optional kind may have come or gone
        if kind == NODE:  # capacity is read by the next round; replicas on a node that is about to go are looked at now
            pods = self._context.store.pods_on_node(metadata["name"]) if is_leaving(obj) else ()
            found = (variant_of_pod(pod) for pod in pods)
            return {variant.service for variant in found if variant is not None}
        if kind in (GPU_POOL, RESOURCE_QUOTA):
            return set()  # the next round reads them
        service = (metadata.get("labels") or {}).get(labels.SERVICE)
        names = {ref["name"] for ref in metadata.get("ownerReferences") or () if ref.get("kind") == INFERENCE_SERVICE.kind}
        return {ServiceKey(namespace, name) for name in {*names, service} if name}

    async def close(self) -> None:
        """Let go of connections."""
        for held in (self._session, self._pods, self._prometheus):
            if held is not None:
                await held.close()

    def _admit(self, key: ServiceKey, resource: InferenceService) -> Member | None:
        """Make sure that the service has a record, restored from status in a new process; None when its spec is impossible."""
        record = self._records.of(key)
        if record.uid != resource.metadata.uid:
            self._forget(key)
            record = self._restore(key, resource)
        policy = service_policy(resource)
        if isinstance(policy, ServicePolicy):
            self._records.put(key, replace(record, problem=None, flips=policy.flip_supported, model=policy.model))
            return Member(resource, policy)
        names = ", ".join(sorted({problem.name for problem in policy}))
        message = "; ".join(problem.message for problem in policy)
        self._records.put(key, replace(record, problem=Reason(names.split(", ")[0], message)))
        return None

    def _restore(self, key: ServiceKey, resource: InferenceService) -> Record:
        """What an earlier process left in status; without that, what the Deployments ask for."""
        uid, status = resource.metadata.uid, resource.status
        allocation: dict[Variant, int] = {}
        for entry in status.allocation:
            try:
                allocation[entry.variant(key)] = entry.replicas
            except ValueError:
                logger.warning("%s: status.allocation holds a shape that cannot be read: %s", key, entry.shape)
        live = read_world(self._context.store, key, uid).live
        found: dict[Variant, int] | None = allocation or live or None
        return Record(uid=uid, allocation=found, memory=ServiceMemory.from_dict(status.memory))

    def _wants_placement(self, key: ServiceKey, member: Member) -> bool:
        """Nothing decided yet, or an autoscaler asks for another count than was decided: not worth waiting for the next round."""
        record = self._records.of(key)
        if record.allocation is None:
            return True
        for phase, policy in member.policy.phases.items():
            if policy.scaling is not Scaling.EXTERNAL or record.decision is None:
                continue
            scale = self._context.store.get(PHASE_SCALE, key.namespace, phase_name(key, phase))
            wanted = ((scale or {}).get("spec") or {}).get("replicas")
            decided = sum(count for variant, count in record.decision.wanted.items() if variant.phase is phase)
            if wanted is not None and wanted != decided:
                return True
        return False

    def _forget(self, key: ServiceKey) -> None:
        self._records.forget(key)
        self._reporter.forget(key)
        if self._capacity is not None:
            self._capacity.forget(key)
        if self._workload is not None:
            self._workload.forget(key)

    def _loop(self) -> CapacityLoop:
        if self._capacity is None:
            self._capacity = CapacityLoop(self._context, self._records, self._signals())
        return self._capacity

    def _worker(self) -> WorkloadReconciler:
        if self._workload is None:
            self._session = aiohttp.ClientSession()
            self._workload = WorkloadReconciler(self._context, self._records, self._reporter, self._session)
        return self._workload

    def _signals(self) -> Signals:
        found = self._context.settings.prometheus
        self._pods = DirectObserver()
        if not found.url:
            return Signals(None, self._pods)
        self._prometheus = PrometheusClient(
            PrometheusSettings(
                url=found.url,
                timeout_seconds=found.timeout_seconds,
                ca_file=found.ca_file,
                bearer_token_file=found.bearer_token_file,
            )
        )
        return Signals(Observer(self._prometheus), self._pods)
