"""One look at a service's revisions: what each shall have now, and what is to be remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from equipoise.api.identity import Variant
from equipoise.api.service import InferenceService
from equipoise.decide.rollout.leaving import kept_on_top
from equipoise.decide.rollout.plan import plan_rollout
from equipoise.decide.rollout.state import advance, turn
from equipoise.decide.rollout.types import RolloutStep
from equipoise.reconcile.moves.leaving import leaving_nodes
from equipoise.reconcile.record import Record, Records
from equipoise.reconcile.rollout.memory import RolloutMemory, remember, restore
from equipoise.reconcile.rollout.room import room_for
from equipoise.reconcile.rollout.view import replica, rollout_input
from equipoise.reconcile.store import Store
from equipoise.reconcile.workload.world import World
from equipoise.render.revision import revision

Counts = dict[str, dict[Variant, int]]
_LOOK_SECONDS: Final = 5.0  # a pod that finds no node, or does not become ready, causes no event


@dataclass(frozen=True, slots=True)
class RolloutLook:
    """`counts` are replicas to have now by revision and variant. `turned`: to be recorded before anything is done about it."""

    memory: RolloutMemory
    counts: Mapping[str, Mapping[Variant, int]]
    turned: bool = False
    look_again_seconds: float | None = None
    leaving_nodes: tuple[str, ...] = ()


def look_at_rollout(
    store: Store, records: Records, resource: InferenceService, record: Record, world: World, now_seconds: float
) -> RolloutLook:
    """Which revision shall have how many replicas. With one revision, as the spec asks, that is the allocation."""
    wanted, allocation = revision(resource), record.allocation or {}
    memory = record.rollout
    if memory is None:
        serving = Counter(pod.revision for pod in world.pods if pod.serving)
        memory = restore(resource.status, wanted, {name: serving[name] for name in world.parts})
    before = memory.state
    memory = replace(memory, state=turn(memory.state, wanted, now_seconds))
    target = memory.state.target
    if not memory.in_flight and set(world.parts) <= {target}:
        memory = replace(remember(memory, resource, now_seconds), step=RolloutStep({}))
        nodes = leaving_nodes(store, world.pods)
        counts = _with_successors(store, records, resource, allocation, world, now_seconds, nodes) if nodes else allocation
        again = _LOOK_SECONDS if nodes else None  # a GPU that becomes free elsewhere causes no event here
        return RolloutLook(memory, {target: counts}, memory.state.stage is not before.stage, again, nodes)
    given = rollout_input(resource, memory, allocation, world, now_seconds, flips=record.flips)
    step = plan_rollout(given)
    if step.asked:
        step = plan_rollout(replace(given, room=room_for(store, records, resource, world, step.asked)))
    allowed = resource.spec.rollout.progress_deadline_seconds
    memory = replace(memory, state=advance(memory.state, step, now_seconds, allowed), step=step)
    if memory.state.target != target:  # given up just now: the other way round
        step = plan_rollout(replace(given, target=memory.state.target))
    memory = remember(memory, resource, now_seconds)
    deadline = memory.state.deadline_seconds(allowed)
    again = _LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, max(0.0, deadline - now_seconds))
    turned = (memory.state.stage, memory.state.wanted) != (before.stage, before.wanted)
    return RolloutLook(memory, step.counts, turned, again if memory.in_flight else None)


def _with_successors(
    store: Store,
    records: Records,
    resource: InferenceService,
    allocation: Mapping[Variant, int],
    world: World,
    now_seconds: float,
    nodes: tuple[str, ...],
) -> Mapping[Variant, int]:
    """The allocation, and on top what still serves on nodes that are about to go until its successor does."""
    leaving = {pod.name for pod in world.pods if pod.node in nodes}
    replicas = [replica(pod, now_seconds) for pod in world.pods]
    wanted = kept_on_top(allocation, world.live, replicas, leaving, None)
    if not wanted:
        return allocation
    room = room_for(store, records, resource, world, wanted)
    extra = kept_on_top(allocation, world.live, replicas, leaving, room)
    return {variant: count + extra.get(variant, 0) for variant, count in allocation.items()}
