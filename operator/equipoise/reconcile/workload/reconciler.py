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
from equipoise.reconcile.rollout.look import RolloutLook, look_at_rollout
from equipoise.reconcile.status.report import Reporter
from equipoise.reconcile.status.transaction import begins
from equipoise.reconcile.workload.children import Children
from equipoise.reconcile.workload.late import SETTLED_SECONDS, unsettled_phases, without_late
from equipoise.reconcile.workload.unchanged import Unchanged
from equipoise.reconcile.workload.world import Part, World, read_world
from equipoise.render import compose, revision

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
        look = await self._look(key, resource, record, world)
        self._reporter.tell_leaving(key, world, look.leaving_nodes)
        plans = await self._plan(resource, record, world, look)
        try:
            requeue = await self._carry_out(resource, record, world, plans, children)
        except (Forbidden, Invalid, Conflict) as error:
            name = f"Child{type(error).__name__}"
            self._records.note_trouble(key, Reason(name, f"{error.request}: {error.message}; nothing that runs was changed"))
            await self._reporter.report(key, resource, read_world(context.store, key, uid), ())
            raise
        if children.foreign:
            self._records.note_trouble(key, Reason("NameTaken", "; ".join(children.foreign)))
        sentences = [item.message for plan in plans.values() for item in plan.waiting]
        due = await self._reporter.report(key, resource, read_world(context.store, key, uid), sentences)
        settling = SETTLED_SECONDS if any(pod.ready and pod.variant.phase in children.unsettled for pod in world.pods) else None
        return Result(_soonest(requeue, due, settling, look.look_again_seconds))

    async def _look(self, key: ServiceKey, resource: InferenceService, record: Record, world: World) -> RolloutLook:
        """What each revision shall have. That a move or a rollout begins, or is given up, is in status before its first step."""
        now = self._context.clock.wall_seconds()
        look = look_at_rollout(self._context.store, self._records, resource, record, world, now)
        self._records.note_rollout(key, look.memory)
        if look.turned or begins(resource.status, record.decision):
            await self._reporter.report(key, resource, world, ())
        return look

    async def _plan(self, resource: InferenceService, record: Record, world: World, look: RolloutLook) -> dict[str, MovePlan]:
        """A plan for each revision: moves never cross them."""
        idle = await idle_pods(self._session, world.pods)
        plans = {}
        for name in sorted({*look.counts, *world.parts}):
            part = world.parts.get(name, Part())
            plans[name] = plan_moves(
                MoveInput(
                    allocation=look.counts.get(name, {}),
                    live=part.live,
                    pods=part.pods,
                    flips=record.flips,
                    now_seconds=self._context.clock.wall_seconds(),
                    drain_grace_seconds=resource.spec.drain.grace_seconds,
                    idle_pods=idle,
                    unreleased=part.unreleased,
                    leaving_nodes=look.leaving_nodes,
                    decided=record.allocation if look.leaving_nodes else None,
                )
            )
        return plans

    async def _carry_out(
        self, resource: InferenceService, record: Record, world: World, plans: Mapping[str, MovePlan], children: Children
    ) -> float | None:
        context, store = self._context, self._context.store
        now = context.clock.wall_seconds()
        first = {name: _kept(plan.first_counts, world.parts.get(name), flips=record.flips) for name, plan in plans.items()}
        quiet = not any(plan.adoptions or plan.undrains or plan.drains or plan.releases for plan in plans.values())
        waiting = any(plan.waiting for plan in plans.values())
        if quiet and all(plan.final_counts == plan.first_counts for plan in plans.values()):
            await self._settle(resource, first, children, prune=True)
            held = any(part.unreleased for part in world.parts.values())
            return _REPLICA_SET_SECONDS if held else _DRAIN_LOOK_SECONDS if waiting else None
        # A receiver without a ReplicaSet is made empty first: a placeholder pod must not take a GPU while the label waits.
        unborn = {
            name: {item.receiver for item in plan.adoptions} - world.parts[name].template_hashes.keys()
            for name, plan in plans.items()
            if plan.adoptions
        }
        empty = {name: dict.fromkeys(receivers, 0) for name, receivers in unborn.items()}
        await self._settle(resource, {name: table | empty.get(name, {}) for name, table in first.items()}, children, prune=False)
        if any(unborn.values()):
            return _REPLICA_SET_SECONDS
        adopting = [name for name, plan in plans.items() if plan.adoptions]
        adopted = True
        if adopting:
            parts = read_world(store, resource.key, resource.metadata.uid).parts
            if not await self._room_for({name: plans[name] for name in adopting}, parts):
                return _COUNT_SECONDS
            for name in adopting:
                for adoption in plans[name].adoptions:
                    adopted = await adopt(context.api, store, adoption, parts[name].template_hashes, now) and adopted
        for plan in plans.values():
            await relabel(context.api, store, plan, now)
        # Donors of these flips keep their counts until their ReplicaSets have let the pods go (`moves.plan`).
        final = {name: _kept(plan.final_counts, world.parts.get(name), flips=record.flips) for name, plan in plans.items()}
        await self._settle(resource, final if adopted else first, children, prune=not adopting)
        if adopting or any(plan.releases for plan in plans.values()):
            return _REPLICA_SET_SECONDS  # their ReplicaSets hear of it; counts fall in the next pass
        return _DRAIN_LOOK_SECONDS if waiting or any(plan.drains for plan in plans.values()) else None

    async def _room_for(self, plans: Mapping[str, MovePlan], parts: Mapping[str, Part]) -> bool:
        """Whether every receiver's ReplicaSet knows that it will have more pods (`moves.heard`)."""
        for name, plan in plans.items():
            part = parts.get(name, Part())
            for receiver in sorted({item.receiver for item in plan.adoptions}):
                mark, deployment = part.template_hashes.get(receiver), part.names.get(receiver)
                if mark is None or deployment is None:
                    return False
                count, namespace = plan.first_counts[receiver], receiver.service.namespace
                if not await has_room(self._context.api, namespace, deployment, mark, count):
                    return False
        return True

    async def _settle(
        self, resource: InferenceService, counts: Mapping[str, Mapping[Variant, int]], children: Children, *, prune: bool
    ) -> None:
        """Make the children as `counts` say; does nothing at all when a pass over exactly this found nothing to do."""
        key, records = resource.key, self._records
        pools = {pool.name: pool for pool in records.fleet.pools}
        seen = self._unchanged.look(resource, counts, pools, children.unsettled)
        if self._unchanged.is_clean(key, seen):
            return
        children.written.clear()
        options = records.render_options(resource, {variant for table in counts.values() for variant in table})
        own = revision(resource)
        former = {name: table for name, table in counts.items() if name != own}
        rendering = compose(resource, resource.metadata.uid, counts.get(own, {}), pools, options, former)
        records.note_problems(key, rendering)
        await children.apply(without_late(rendering.children, self._context.store, key, children.unsettled))
        if not prune:
            return
        deletions = 0 if rendering.refused else await children.prune(rendering.children, rendering.kept)
        if not deletions and not children.foreign:
            self._unchanged.note(key, seen, children.written)


def _kept(counts: Mapping[Variant, int], part: Part | None, *, flips: bool) -> dict[Variant, int]:
    """Deployments to have: those that count for something, those with pods, and the empty partner of a flip that exists."""
    part = part or Part()
    with_pods = {pod.variant for pod in part.pods}
    result = {}
    for variant, count in counts.items():
        partner = counts.get(variant.with_phase(variant.phase.other), 0)
        if count or variant in with_pods or (flips and partner and variant in part.live):
            result[variant] = count
    return result


def _soonest(*seconds: float | None) -> float | None:
    return min((item for item in seconds if item is not None), default=None)
