"""One pass over one service: what is, what should be, the difference. Level-triggered: no event and no step is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import aiohttp

from equipoise.api.identity import ServiceKey, Variant
from equipoise.api.service import InferenceService
from equipoise.decide.types import Reason
from equipoise.reconcile.contract import Context
from equipoise.reconcile.kube.errors import Conflict, Forbidden, Invalid
from equipoise.reconcile.moves.drained import idle_pods
from equipoise.reconcile.moves.heard import has_room
from equipoise.reconcile.moves.perform import adopt, relabel
from equipoise.reconcile.moves.plan import MoveInput, MovePlan, plan_moves
from equipoise.reconcile.queue import Result
from equipoise.reconcile.record import Record, Records
from equipoise.reconcile.status.report import Reporter
from equipoise.reconcile.workload.children import Children
from equipoise.reconcile.workload.late import SETTLED_SECONDS, unsettled_phases, without_late
from equipoise.reconcile.workload.unchanged import Unchanged
from equipoise.reconcile.workload.world import World, read_world
from equipoise.render import compose
from equipoise.render.names import deployment_name

_DRAIN_LOOK_SECONDS: Final = 1.0  # a draining engine tells nobody when it is empty: look again
_COUNT_SECONDS: Final = 0.05  # from a Deployment's count to its ReplicaSet's: some milliseconds on an idle control plane
_REPLICA_SET_SECONDS: Final = 0.2  # a new Deployment's ReplicaSet follows at once; its event usually comes first


class WorkloadReconciler:
    """Carries out `status.allocation` and `spec`."""

    def __init__(self, context: Context, records: Records, reporter: Reporter, session: aiohttp.ClientSession) -> None:
        self._context = context
        self._records = records
        self._reporter = reporter
        self._session = session
        self._unchanged = Unchanged(context.store)

    def forget(self, key: ServiceKey) -> None:
        """The service is gone."""
        self._unchanged.forget(key)

    async def reconcile(self, key: ServiceKey, resource: InferenceService) -> Result:
        """Bring one service's children to what was decided; returns when to look again without an event."""
        context, record = self._context, self._records.of(key)
        uid = resource.metadata.uid
        world = read_world(context.store, key, uid)
        if record.problem is not None or record.allocation is None:
            return Result(await self._reporter.report(key, resource, world, ()))
        unsettled = unsettled_phases(world.pods, context.clock.wall_seconds())
        children = Children(context.api, context.store, uid, unsettled)
        plan = await self._plan(resource, record, world)
        try:
            requeue = await self._carry_out(resource, record, world, plan, children)
        except (Forbidden, Invalid, Conflict) as error:
            name = f"Child{type(error).__name__}"
            self._records.note_trouble(key, Reason(name, f"{error.request}: {error.message}; nothing that runs was changed"))
            await self._reporter.report(key, resource, read_world(context.store, key, uid), ())
            raise
        if children.foreign:
            self._records.note_trouble(key, Reason("NameTaken", "; ".join(children.foreign)))
        sentences = [item.message for item in plan.waiting]
        due = await self._reporter.report(key, resource, read_world(context.store, key, uid), sentences)
        settling = SETTLED_SECONDS if any(pod.ready and pod.variant.phase in children.unsettled for pod in world.pods) else None
        return Result(min((seconds for seconds in (requeue, due, settling) if seconds is not None), default=None))

    async def _plan(self, resource: InferenceService, record: Record, world: World) -> MovePlan:
        return plan_moves(
            MoveInput(
                allocation=record.allocation or {},
                live=world.live,
                pods=world.pods,
                flips=record.flips,
                now_seconds=self._context.clock.wall_seconds(),
                drain_grace_seconds=resource.spec.drain.grace_seconds,
                idle_pods=await idle_pods(self._session, world.pods),
                unreleased=world.unreleased,
                revisions=world.revisions,
            )
        )

    async def _carry_out(
        self, resource: InferenceService, record: Record, world: World, plan: MovePlan, children: Children
    ) -> float | None:
        context, store = self._context, self._context.store
        now = context.clock.wall_seconds()
        first = _kept(plan.first_counts, world, flips=record.flips)
        # A receiver without a ReplicaSet is made empty first: a placeholder pod must not take a GPU while the label waits.
        unborn = {item.receiver for item in plan.adoptions if item.receiver not in world.template_hashes}
        quiet = not (plan.adoptions or plan.undrains or plan.drains or plan.releases)
        if quiet and plan.final_counts == plan.first_counts:
            await self._settle(resource, first, children, prune=True)
            return _REPLICA_SET_SECONDS if world.unreleased else _DRAIN_LOOK_SECONDS if plan.waiting else None
        await self._settle(resource, first | dict.fromkeys(unborn, 0), children, prune=False)
        if unborn:
            return _REPLICA_SET_SECONDS
        adopted = True
        if plan.adoptions:
            hashes = read_world(store, resource.key, resource.metadata.uid).template_hashes
            if not await self._room_for(plan, hashes):
                return _COUNT_SECONDS
            for adoption in plan.adoptions:
                adopted = await adopt(context.api, store, adoption, hashes, now) and adopted
        await relabel(context.api, store, plan, now)
        # Donors of these flips keep their counts until their ReplicaSets have let the pods go (`moves.plan`).
        final = first if not adopted else _kept(plan.final_counts, world, flips=record.flips)
        await self._settle(resource, final, children, prune=not plan.adoptions)
        if not adopted or plan.adoptions or plan.releases:
            return _REPLICA_SET_SECONDS  # their ReplicaSets hear of it; counts fall in the next pass
        return _DRAIN_LOOK_SECONDS if plan.waiting or plan.drains else None

    async def _room_for(self, plan: MovePlan, hashes: Mapping[Variant, str]) -> bool:
        """Whether every receiver's ReplicaSet knows that it will have more pods (`moves.heard`)."""
        for receiver in sorted({item.receiver for item in plan.adoptions}):
            mark, count = hashes.get(receiver), plan.first_counts[receiver]
            name, namespace = deployment_name(receiver), receiver.service.namespace
            if mark is None or not await has_room(self._context.api, namespace, name, mark, count):
                return False
        return True

    async def _settle(
        self, resource: InferenceService, counts: Mapping[Variant, int], children: Children, *, prune: bool
    ) -> None:
        """Make the children as `counts` say; does nothing at all when a pass over exactly this found nothing to do."""
        key, records = resource.key, self._records
        pools = {pool.name: pool for pool in records.fleet.pools}
        seen = self._unchanged.look(resource, counts, pools, children.unsettled)
        if self._unchanged.is_clean(key, seen):
            return
        children.written.clear()
        rendering = compose(resource, resource.metadata.uid, counts, pools, records.render_options(resource, counts))
        records.note_problems(key, rendering)
        await children.apply(without_late(rendering.children, self._context.store, key, children.unsettled))
        if not prune:
            return
        deletions = 0 if rendering.refused else await children.prune(rendering.children, rendering.kept)
        if not deletions and not children.foreign:
            self._unchanged.note(key, seen, children.written)


def _kept(counts: Mapping[Variant, int], world: World, *, flips: bool) -> dict[Variant, int]:
    """Deployments to have: those that count for something, those with pods, and the empty partner of a flip that exists."""
    with_pods = {pod.variant for pod in world.pods}
    result = {}
    for variant, count in counts.items():
        partner = counts.get(variant.with_phase(variant.phase.other), 0)
        if count or variant in with_pods or (flips and partner and variant in world.live):
            result[variant] = count
    return result
