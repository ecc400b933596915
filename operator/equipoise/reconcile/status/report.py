"""Gathers the facts of one service, writes its status when it is news, and tells metrics and Events."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.api.service import InferenceService
from equipoise.api.status import InferenceServiceStatus
from equipoise.api.values import format_duration
from equipoise.decide.types import Decision, Verdict
from equipoise.reconcile.clock import rfc3339
from equipoise.reconcile.contract import Context
from equipoise.reconcile.events import EventType
from equipoise.reconcile.kube.errors import NotFound
from equipoise.reconcile.kube.kinds import DEPLOYMENT, INFERENCE_SERVICE
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.record import Record, Records
from equipoise.reconcile.status.compose import compose
from equipoise.reconcile.status.facts import Facts, phase_facts
from equipoise.reconcile.status.meaning import write_due_seconds
from equipoise.reconcile.status.moves import short
from equipoise.reconcile.status.scales import write_scales
from equipoise.reconcile.status.series import tell_metrics
from equipoise.reconcile.view.variants import variant_statuses
from equipoise.reconcile.workload.world import World
from equipoise.render.names import deployment_name

logger = logging.getLogger(__name__)

_STUCK_SECONDS: Final = 5.0  # a pod may be without a node for a moment while the scheduler works


class Reporter:
    """Writes status. One per process: it remembers when each service's status was last written."""

    def __init__(self, context: Context, records: Records) -> None:
        self._context = context
        self._records = records
        self._written: dict[ServiceKey, float] = {}
        self._told: dict[ServiceKey, object] = {}
        self._leaving: dict[ServiceKey, tuple[str, ...]] = {}

    def forget(self, key: ServiceKey) -> None:
        """The service is gone: its series too."""
        self._written.pop(key, None)
        self._told.pop(key, None)
        self._leaving.pop(key, None)
        self._context.metrics.forget(key)

    async def report(self, key: ServiceKey, resource: InferenceService, world: World, waiting: Sequence[str]) -> float | None:
        """Compose the status from what is, and write it if it is worth a write; returns when a write that can wait is due."""
        context, record = self._context, self._records.of(key)
        now = context.clock.wall_seconds()
        facts = self._facts(resource, record, world, waiting, now)
        old = self._latest_status(key, resource)
        new = compose(old, facts, rfc3339(now))
        tell_metrics(context.metrics, key, facts, new.conditions)
        self._events(key, resource, record)
        # A new process counts from its first look: taking over is no reason to write.
        since = context.clock.monotonic_seconds() - self._written.setdefault(key, context.clock.monotonic_seconds())
        due = write_due_seconds(old, new, since)
        if due == 0.0:
            body = {
                "apiVersion": INFERENCE_SERVICE.api_version,
                "kind": INFERENCE_SERVICE.kind,
                "metadata": {"namespace": key.namespace, "name": key.name, "uid": resource.metadata.uid},
                "status": new.to_dict(),
            }
            try:
                context.store.upsert(INFERENCE_SERVICE, await context.api.apply_status(body))
            except NotFound:
                return None
            self._written[key], due = context.clock.monotonic_seconds(), None
        await write_scales(context, key, facts)
        return due

    def _latest_status(self, key: ServiceKey, resource: InferenceService) -> InferenceServiceStatus:
        raw = self._context.store.service(key)
        return self._records.parse(key, raw).status if raw is not None else resource.status

    def _facts(self, resource: InferenceService, record: Record, world: World, waiting: Sequence[str], now: float) -> Facts:
        spec = resource.spec
        variants = variant_statuses(world.live, world.pods, now)
        allocation = record.allocation or {}
        messages = {item.variant: _message(item.variant, world, now) for item in variants}
        return Facts(
            generation=resource.metadata.generation,
            percentile=spec.targets.percentile,
            targets_text={
                Phase.PREFILL: format_duration(spec.targets.ttft_seconds),
                Phase.DECODE: format_duration(spec.targets.tpot_seconds),
            },
            phases={
                phase: phase_facts(
                    variants, allocation, phase, spec.phases.of(phase).min,
                    [text for variant, text in messages.items() if text and variant.phase is phase],
                )
                for phase in Phase
            },
            variants=variants,
            names={item.variant: deployment_name(item.variant) for item in variants},
            variant_messages=messages,
            decision=record.decision,
            observation=record.observation,
            problem=record.problem or record.trouble,
            metrics_trouble=self._records.metrics_troubles.get(spec.metrics.source),
            waiting=tuple(waiting),
            goodput_percent=spec.targets.goodput,
            revision=record.rollout.state.target if record.rollout is not None else "",
            rollout=record.rollout,
            drain_grace_seconds=spec.drain.grace_seconds,
            progress_deadline_seconds=spec.rollout.progress_deadline_seconds,
            endpoint=self._records.endpoint(resource),
        )  # fmt: skip

    def _events(self, key: ServiceKey, resource: InferenceService, record: Record) -> None:
        """One Event per decision that changed something or says something new; holds that repeat say nothing."""
        decision = record.decision
        if record.problem is not None:
            self._tell(key, resource, (record.problem.name,), EventType.WARNING, record.problem.name, record.problem.message)
            return
        if decision is None:
            return
        limited = decision.infeasible or decision.capacity_limited
        told = (
            decision.verdict,
            tuple((m.kind, m.donor, m.receiver, m.replicas) for m in decision.moves),
            limited and limited.name,
        )
        if decision.verdict is Verdict.MOVE and decision.moves:
            kinds = decision.moves[0].kind.value.capitalize()
            # The counts belong to it: the same step taken twice in a row is two pieces of news.
            told_move = (*told, tuple(sorted(decision.allocation.items())))
            self._tell(key, resource, told_move, EventType.NORMAL, kinds, _sentence(decision))
        elif limited is not None:
            self._tell(key, resource, told, EventType.WARNING, limited.name, limited.message)
        else:
            self._told[key] = told

    def tell_leaving(self, key: ServiceKey, world: World, nodes: tuple[str, ...]) -> None:
        """One Event when replicas turn out to be on nodes that are about to go, and one when they are replaced."""
        before = self._leaving.pop(key, ())
        if nodes:
            self._leaving[key] = nodes
        if nodes == before:
            return
        reference = self._reference(key)
        if reference is None:
            return
        if nodes:
            names = ", ".join(sorted(pod.name for pod in world.pods if pod.node in nodes))
            text = f"{', '.join(nodes)} is about to go; replicas there: {names}. Successors start first where a GPU is free"
            self._context.events.emit(reference, EventType.WARNING, "NodeLeaving", text[:1000])
        else:
            text = f"no replica is left on {', '.join(before)}: {sum(pod.serving for pod in world.pods)} serve elsewhere"
            self._context.events.emit(reference, EventType.NORMAL, "Replaced", text[:1000])

    def _reference(self, key: ServiceKey) -> Object | None:
        raw = self._context.store.service(key)
        return None if raw is None else {"apiVersion": INFERENCE_SERVICE.api_version, "kind": INFERENCE_SERVICE.kind} | raw

    def _tell(
        self, key: ServiceKey, resource: InferenceService, told: object, kind: EventType, reason: str, message: str
    ) -> None:
        if self._told.get(key) == told:
            return
        self._told[key] = told
        reference = self._reference(key)
        if reference is not None:
            self._context.events.emit(reference, kind, reason, message)
            logger.info("%s %s: %s", key, reason, message)


def _sentence(decision: Decision) -> str:
    return "; ".join(
        f"{move.kind.value} {move.replicas}: "
        + " → ".join(short(side) for side in (move.donor, move.receiver) if side is not None)
        + (f" ({move.reason})" if move.reason else "")
        for move in decision.moves
    )


def _message(variant: Variant, world: World, now: float) -> str:
    """What keeps a variant from its count: a pod without a node, a container that does not run, a Deployment that is refused."""
    for pod in world.pods:
        if pod.variant != variant or pod.terminating:
            continue
        if pod.trouble:
            return f"{pod.name}: {pod.trouble}"
        if not pod.bound and pod.unschedulable_message and now - pod.created_seconds > _STUCK_SECONDS:
            return f"{pod.name} has no node: {pod.unschedulable_message}"
    for deployment in world.deployments:
        if deployment["metadata"]["name"] != deployment_name(variant):
            continue
        conditions: Sequence[Mapping[str, str]] = (deployment.get("status") or {}).get("conditions") or ()
        for condition in conditions:
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
                return f"{DEPLOYMENT.kind} {deployment_name(variant)}: {condition.get('message', '')}"
    return ""
