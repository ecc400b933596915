"""One round for all services together: observe, read the world, decide, record. The workload loop carries it out.

Between reading the world and recording the decisions nothing waits, so no service can slip in between and be given a GPU
twice. Decisions are made by `decide`; nothing here weighs anything.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from equipoise.api.identity import ServiceKey, Variant
from equipoise.api.policy import MetricsSource
from equipoise.api.service import InferenceService
from equipoise.decide.decide import decide
from equipoise.decide.policy import ServicePolicy
from equipoise.decide.types import DecideInput, Decision, Reason, ServiceInput, Verdict
from equipoise.fleet.types import Fleet
from equipoise.observe.health import metrics_condition
from equipoise.observe.scope import ServiceScope
from equipoise.observe.types import Known
from equipoise.reconcile.capacity.inputs import read_fleet, service_input
from equipoise.reconcile.capacity.reserve import reserve, unbound_gpus
from equipoise.reconcile.capacity.scopes import scope_of
from equipoise.reconcile.capacity.signals import Signals
from equipoise.reconcile.contract import Context
from equipoise.reconcile.kube.kinds import POD
from equipoise.reconcile.record import Record, Records
from equipoise.reconcile.status.deciding import deciding_reason
from equipoise.reconcile.status.meaning import FIGURES_EVERY_SECONDS
from equipoise.reconcile.view.pods import variant_of_pod
from equipoise.reconcile.workload.world import World, read_world

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """One service that takes part: its resource and what its spec means."""

    resource: InferenceService
    policy: ServicePolicy


class CapacityLoop:
    """Decides for all services, or places a single new one."""

    def __init__(self, context: Context, records: Records, signals: Signals) -> None:
        self._context = context
        self._records = records
        self._signals = signals
        self._told_seconds: dict[ServiceKey, float] = {}
        self._decided_seconds: dict[ServiceKey, float] = {}
        self._verdicts: dict[ServiceKey, object] = {}

    async def round(self, members: Mapping[ServiceKey, Member]) -> None:
        """One round over `members`; each service whose decision is news is queued."""
        await self._observe(members)
        context, records = self._context, self._records
        now, store = context.clock.wall_seconds(), context.store
        members = {key: item for key, item in members.items() if store.service(key) is not None and records.of(key).uid}
        fleet = records.fleet = read_fleet(store, lambda key: key in members)
        self._pool_metrics(fleet)
        worlds = {key: read_world(store, key, records.of(key).uid) for key in members}
        inputs = [self._input(key, item, worlds[key], fleet, now) for key, item in members.items()]
        decisions = self._decide(fleet, inputs, now)
        for key, decision in decisions.items():
            if self._is_due(key, members[key], now):
                self._record(key, members[key], decision, now)

    def ensure_fleet(self) -> None:
        """Read the fleet if no round has done so yet: after a restart, children are looked at before the first round ends."""
        if not self._records.fleet.pools:
            known = set(self._context.store.services())
            self._records.fleet = read_fleet(self._context.store, lambda key: key in known)

    def place(self, key: ServiceKey, member: Member) -> None:
        """Decide for one service at once, as if every other one were fixed: what they hold or were promised is not free."""
        context, records = self._context, self._records
        now, store = context.clock.wall_seconds(), context.store
        fleet = read_fleet(store, lambda other: other == key)
        others = records.services() - {key}
        bound: Counter[Variant] = Counter()
        for pod in store.all(POD):
            variant = variant_of_pod(pod) if pod["spec"].get("nodeName") else None
            if variant is not None and variant.service in others:
                bound[variant] += 1
        promised = unbound_gpus((records.of(other).allocation or {} for other in others), bound)
        fleet = reserve(fleet, promised)
        world = read_world(store, key, member.resource.metadata.uid)
        decisions = self._decide(fleet, [self._input(key, member, world, fleet, now)], now)
        self._record(key, member, decisions[key], now, queue=False)

    async def _observe(self, members: Mapping[ServiceKey, Member]) -> None:
        records, context = self._records, self._context
        scopes: list[tuple[MetricsSource, ServiceScope]] = []
        for key, item in members.items():
            world = read_world(context.store, key, item.resource.metadata.uid)
            scopes.append((item.resource.spec.metrics.source, scope_of(item.resource, item.policy.served_model_name, world)))
        answers = await self._signals.observe(scopes, context.clock.wall_seconds())
        records.metrics_troubles = answers.troubles
        for key, observation in answers.observations.items():
            if records.of(key).uid:
                records.put(key, replace(records.of(key), observation=observation))

    def _input(self, key: ServiceKey, member: Member, world: World, fleet: Fleet, now: float) -> ServiceInput:
        record = self._records.of(key)
        return service_input(self._context.store, member.resource, member.policy, record, world, fleet, now)

    def _decide(self, fleet: Fleet, inputs: Iterable[ServiceInput], now: float) -> dict[ServiceKey, Decision]:
        services = tuple(inputs)
        records = self._records
        observed = {item.key: records.of(item.key).observation for item in services}
        return decide(
            fleet,
            DecideInput(
                services=services,
                observations={key: found for key, found in observed.items() if found is not None},
                memories={item.key: records.of(item.key).memory for item in services},
                now_seconds=now,
                interval_seconds=self._context.settings.capacity.interval_seconds,
            ),
        )

    def _is_due(self, key: ServiceKey, member: Member, now: float) -> bool:
        """A service may ask for decisions further apart than the operator's rounds."""
        interval = member.resource.spec.capacity.interval_seconds
        return interval is None or now - self._decided_seconds.get(key, 0.0) >= interval - 0.5

    def _record(self, key: ServiceKey, member: Member, decision: Decision, now: float, *, queue: bool = True) -> None:
        context, record = self._context, self._records.of(key)
        old = record.decision
        self._decided_seconds[key] = now
        self._records.put(key, replace(record, decision=decision, allocation=dict(decision.allocation), memory=decision.memory))
        context.metrics.decisions.labels(key.namespace, key.name, decision.verdict.value, deciding_reason(decision)).inc()
        for move in decision.moves if decision.verdict is Verdict.MOVE else ():
            context.metrics.moves.labels(key.namespace, key.name, move.kind.value).inc(max(move.replicas, 1))
        if not queue:
            return
        trouble = self._records.metrics_troubles.get(member.resource.spec.metrics.source)
        verdicts = _verdicts(self._records, key, trouble, member.policy.targets.percentile / 100.0)
        seen_anew = self._verdicts.get(key) != verdicts
        self._verdicts[key] = verdicts
        figures_due = now - self._told_seconds.get(key, 0.0) >= FIGURES_EVERY_SECONDS
        if old is None or seen_anew or figures_due or _news(record, decision):
            self._told_seconds[key] = now
            context.enqueue(key)

    def forget(self, key: ServiceKey) -> None:
        """The service is gone."""
        self._told_seconds.pop(key, None)
        self._decided_seconds.pop(key, None)
        self._verdicts.pop(key, None)

    def _pool_metrics(self, fleet: Fleet) -> None:
        self._context.metrics.set_pools(
            {
                pool.name: {
                    "total": sum(node.allocatable_gpus for node in pool.nodes),
                    "usable": pool.usable_gpus,
                    "free": pool.free_gpus,
                }
                for pool in fleet.pools
            }
        )


def _news(record: Record, decision: Decision) -> bool:
    old = record.decision
    if old is None:
        return True
    return (
        dict(record.allocation or {}) != dict(decision.allocation)
        or dict(old.wanted) != dict(decision.wanted)
        or old.verdict is not decision.verdict
        or [item.name for item in old.reasons] != [item.name for item in decision.reasons]
        or old.lagging is not decision.lagging
    )


def _verdicts(records: Records, key: ServiceKey, trouble: Reason | None, share: float) -> object:
    """What the conditions would say of the metrics and the targets, without figures."""
    observation = records.of(key).observation
    if observation is None:
        return trouble and trouble.name
    found = metrics_condition(observation)
    shares = [
        signal.value >= share if isinstance(signal, Known) else type(signal).__name__
        for signal in (observation.ttft_attainment, observation.decode.attainment)
    ]
    return trouble and trouble.name, found.ok, found.reason, *shares
