"""A rollout stays inside its bounds at every moment and comes to its end, wherever the operator is interrupted.

The model stands for the real controllers: a ReplicaSet per variant and revision that deletes by Kubernetes' own ranking, and a
scheduler with a fixed number of GPUs. Writes are those of `moves.plan` for what `decide.rollout` says, cut off at random.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.rollout.plan import plan_rollout, unavailable
from equipoise.decide.rollout.types import Allowance, Replica, RolloutInput, RolloutStep
from equipoise.reconcile.moves.plan import MoveInput, plan_moves
from equipoise.reconcile.rollout.view import replica
from equipoise.reconcile.view.pods import DRAINING_COST, RELEASED_COST, EnginePod

SERVICE = ServiceKey("prod", "chat")
PREFILL = Variant(SERVICE, Phase.PREFILL, "h100-80gb", Shape())
DECODE = Variant(SERVICE, Phase.DECODE, "h100-80gb", Shape())
OTHER = Variant(SERVICE, Phase.DECODE, "l40s-48gb", Shape())
OLD, NEW = "v1-old", "v1-new"


@dataclass
class World:
    """Deployments of two revisions, pods and GPUs of one service."""

    gpus: dict[str, int]
    allocation: dict[Variant, int]
    allowances: dict[Phase, Allowance]
    target: str = NEW
    broken: str = ""  # the revision whose pods never become ready
    counts: dict[tuple[str, Variant], int] = field(default_factory=dict)
    pods: dict[str, EnginePod] = field(default_factory=dict)
    cost: dict[str, int] = field(default_factory=dict)
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 1000.0
    serial: int = 0
    lost: list[str] = field(default_factory=list)
    peak: int = 0
    last: RolloutStep = field(default_factory=lambda: RolloutStep({}))

    def serving(self, phase: Phase, revision: str | None = None) -> int:
        return sum(p.serving and p.variant.phase is phase and revision in (None, p.revision) for p in self.pods.values())

    def controllers(self) -> None:
        for (revision, variant), want in sorted(self.counts.items()):
            mine = [pod for pod in self.pods.values() if pod.variant == variant and pod.revision == revision]
            for _ in range(want - len(mine)):
                self.serial += 1
                name = f"pod-{self.serial}"
                self.pods[name] = _pod(name, variant, revision, self.now)
            ranked = sorted(mine, key=lambda pod: (pod.bound, pod.ready, self.cost.get(pod.name, 0), -pod.created_seconds))
            for pod in ranked[: max(0, len(mine) - want)]:
                if pod.serving and not pod.released:  # one that was let go while it started may be ready in its last moment
                    self.lost.append(pod.name)
                del self.pods[pod.name]
        for pod in sorted(self.pods.values(), key=lambda pod: (pod.created_seconds, pod.name)):
            if not pod.bound:
                room = self.free(pod.variant) > 0
                why = "" if room else "Insufficient nvidia.com/gpu"
                self.pods[pod.name] = replace(pod, bound=room, node="n" if room else "", unschedulable_message=why)
        self.peak = max(self.peak, sum(pod.bound for pod in self.pods.values()))

    def free(self, variant: Variant) -> int:
        return self.gpus[variant.pool] - sum(pod.bound and pod.variant.pool == variant.pool for pod in self.pods.values())

    def start_pods(self) -> None:
        for pod in list(self.pods.values()):
            if pod.bound and not pod.ready and pod.revision != self.broken:
                self.pods[pod.name] = replace(pod, ready=True, ready_since_seconds=self.now)

    def given(self) -> RolloutInput:
        live: dict[str, dict[Variant, int]] = {}
        for (revision, variant), count in self.counts.items():
            live.setdefault(revision, {})[variant] = count
        promised = Counter[str]()
        for variant in self.allocation:
            bound = sum(pod.bound for pod in self.pods.values() if pod.variant == variant)
            promised[variant.pool] += max(0, sum(n for (_, v), n in self.counts.items() if v == variant) - bound)
        room = {variant: self.free(variant) - promised[variant.pool] for variant in self.allocation}
        return RolloutInput(
            target=self.target,
            allocation=self.allocation,
            live=live,
            replicas=tuple(replica(pod, self.now) for pod in self.pods.values()),
            allowances=self.allowances,
            room=room,
            stable=OLD,
        )

    def operator(self, stop_after: int = 1000) -> None:
        """One pass that dies after so many writes."""
        self.last = plan_rollout(self.given())
        writes = iter(range(stop_after))
        idle = frozenset(pod.name for pod in self.pods.values() if pod.draining)
        for revision in sorted({*self.last.counts, *(name for name, _ in self.counts)}):
            live = {variant: n for (name, variant), n in self.counts.items() if name == revision}
            pods = [pod for pod in self.pods.values() if pod.revision == revision]
            plan = plan_moves(MoveInput(self.last.counts.get(revision, {}), live, pods, False, self.now, 60.0, idle))
            for variant, count in plan.first_counts.items():
                if not self.set_count(revision, variant, count, writes):
                    return
            for pod in (*plan.undrains, *plan.drains):
                if next(writes, None) is None:
                    return
                self.pods[pod.name] = replace(pod, draining=not pod.draining, released=False)
                self.cost[pod.name] = 0 if pod.draining else DRAINING_COST
            for pod in plan.releases:
                if next(writes, None) is None:
                    return
                self.pods[pod.name] = replace(self.pods[pod.name], released=True)
                self.cost[pod.name] = RELEASED_COST
            for variant, count in plan.final_counts.items():
                if not self.set_count(revision, variant, count, writes):
                    return

    def set_count(self, revision: str, variant: Variant, count: int, writes: object) -> bool:
        if self.counts.get((revision, variant), 0) == count:
            return True
        if next(writes, None) is None:  # type: ignore[call-overload]
            return False
        self.counts[revision, variant] = count
        return True

    def turn(self, stop_after: int = 1000) -> None:
        """A pass, then controllers and engines, quick or slow."""
        self.operator(stop_after)
        if self.chance.random() < 0.8:
            self.controllers()
        if self.chance.random() < 0.6:
            self.start_pods()
        self.now += 11.0


def _pod(name: str, variant: Variant, revision: str, created: float) -> EnginePod:
    return EnginePod(
        "prod", name, f"uid-{name}", "d", variant, revision, False, False, False, False, "", "", created, None, None, None
    )


def running(allocation: dict[Variant, int], spare: int, allowance: Allowance, seed: int = 0) -> World:
    """Everything serves in the old revision; `spare` GPUs of each pool are free."""
    pools = {variant.pool for variant in allocation}
    gpus = {pool: sum(n for v, n in allocation.items() if v.pool == pool) + spare for pool in pools}
    world = World(gpus, allocation, dict.fromkeys(Phase, allowance), chance=random.Random(seed))
    world.counts = {(OLD, variant): count for variant, count in allocation.items()}
    world.controllers()
    world.start_pods()
    world.now += 100.0
    return world


def wanted(world: World, phase: Phase) -> int:
    return sum(count for variant, count in world.allocation.items() if variant.phase is phase)


def check_bounds(world: World) -> None:
    for phase in Phase:
        count, allowance = wanted(world, phase), world.allowances[phase]
        holding = sum(pod.bound and pod.variant.phase is phase for pod in world.pods.values())
        assert holding <= count + allowance.surge, f"{holding} {phase.value} replicas for {count}"
        least = count - unavailable(allowance, count)
        assert world.serving(phase) >= least, f"{world.serving(phase)} of {count} {phase.value} serve"
    assert world.lost == []


counts = st.integers(1, 6)
allowances = st.builds(Allowance, surge=st.integers(0, 2), unavailable=st.integers(0, 2)).filter(
    lambda a: a.surge + a.unavailable
)


@given(
    split=st.tuples(counts, counts, st.integers(0, 3)),
    spare=st.integers(0, 2),
    allowance=allowances,
    stops=st.lists(st.integers(0, 5), max_size=8),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_a_rollout_stays_in_bounds_and_ends(
    split: tuple[int, int, int], spare: int, allowance: Allowance, stops: list[int], seed: int
) -> None:
    """From any split, with and without spare GPUs, interrupted anywhere: in bounds throughout, in lockstep, and done."""
    world = running(dict(zip((PREFILL, DECODE, OTHER), split, strict=True)), spare, allowance, seed)
    alone = any(wanted(world, phase) == 1 for phase in Phase)
    waits = alone if spare == 0 or allowance.surge == 0 else False  # the last one that serves a phase stays
    waits = waits or (spare == 0 and allowance.unavailable == 0 and allowance.surge > 0)
    for number in range(12 if waits else 200):
        world.turn(stops[number] if number < len(stops) else 1000)
        check_bounds(world)
        shares = [world.serving(phase, NEW) / wanted(world, phase) for phase in Phase]
        slack = (1 + allowance.surge + allowance.unavailable) / min(wanted(world, phase) for phase in Phase)
        assert abs(shares[0] - shares[1]) <= slack
        if world.last.complete:
            break
    assert world.last.complete is not waits, world.last.waiting
    assert waits or all(pod.revision == NEW for pod in world.pods.values())


@given(split=st.tuples(counts, counts), spare=st.integers(0, 1), seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_a_revision_that_never_starts_costs_its_allowance_and_goes_again(split: tuple[int, int], spare: int, seed: int) -> None:
    """Held up in bounds for as long as it takes; then back, both phases together, with nothing of it left."""
    world = running(dict(zip((PREFILL, DECODE), split, strict=True)), spare, Allowance(1, 1), seed)
    world.broken = NEW
    for _ in range(15):
        world.turn()
        check_bounds(world)
    assert world.serving(Phase.PREFILL, NEW) == 0
    world.target = OLD
    for _ in range(40):
        world.turn()
        check_bounds(world)
    assert world.last.complete
    assert all(pod.revision == OLD for pod in world.pods.values())


@given(before=st.tuples(counts, counts), after=st.tuples(counts, counts), when=st.integers(0, 12), seed=st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_capacity_may_change_in_the_middle(before: tuple[int, int], after: tuple[int, int], when: int, seed: int) -> None:
    """Grown or shrunk by a decision while the rollout is on its way: it ends with the counts decided last."""
    world = running(dict(zip((PREFILL, DECODE), before, strict=True)), 1, Allowance(1, 1), seed)
    world.gpus["h100-80gb"] = max(sum(before), sum(after)) + 1
    for _ in range(when):
        world.turn()
    world.allocation = dict(zip((PREFILL, DECODE), after, strict=True))
    for _ in range(120):
        world.turn()
        if world.last.complete:
            break
    for _ in range(12):
        world.turn()
    assert world.last.complete
    assert world.lost == []
    assert {v: sum(p.variant == v for p in world.pods.values()) for v in world.allocation} == world.allocation
    assert all(pod.revision == NEW for pod in world.pods.values())


def test_five_and_two_with_one_spare_gpu_never_hold_more_than_eight() -> None:
    world = running({PREFILL: 5, DECODE: 2}, 1, Allowance(1, 1))
    while not world.last.complete:
        world.turn()
        assert world.serving(Phase.PREFILL) >= 5
        assert world.serving(Phase.DECODE) >= 2, "with room, nothing is missing at any time"
    assert world.peak == 8


def test_five_and_two_on_a_full_pool_end_with_one_missing_at_most() -> None:
    world = running({PREFILL: 5, DECODE: 2}, 0, Allowance(1, 1))
    least = 7
    while not world.last.complete:
        world.turn()
        least = min(least, world.serving(Phase.PREFILL) + world.serving(Phase.DECODE))
    assert world.peak == 7
    assert least == 6


def test_the_last_replica_that_serves_stays_until_a_gpu_is_free_and_the_wait_is_explained() -> None:
    world = running({PREFILL: 1, DECODE: 1}, 0, Allowance(1, 1))
    for _ in range(10):
        world.turn()
        check_bounds(world)
    assert "no GPU is free" in world.last.waiting[0]
    assert "only one replica" in world.last.waiting[0]
    world.gpus["h100-80gb"] += 1
    for _ in range(40):
        world.turn()
    assert world.last.complete


def test_a_phase_may_stop_where_that_is_asked_for() -> None:
    world = running({PREFILL: 1, DECODE: 1}, 0, Allowance(1, 1, may_stop=True))
    for _ in range(40):
        world.turn()
    assert world.last.complete


def test_what_does_not_serve_goes_first_and_at_once() -> None:
    """A broken revision is replaced in one go, however many may be missing: nothing is lost by it."""
    world = running({PREFILL: 4, DECODE: 2}, 0, Allowance(0, 1))
    for name, pod in list(world.pods.items()):
        if pod.variant == PREFILL:
            world.pods[name] = replace(pod, ready=False, ready_since_seconds=None, unready_since_seconds=0.0)
    world.operator()
    world.controllers()
    world.operator()
    world.controllers()
    assert [pod.revision for pod in world.pods.values() if pod.variant == PREFILL] == [NEW] * 4
    assert world.serving(Phase.DECODE) == 2


def test_readiness_that_blinks_is_no_reason_to_give_a_loaded_model_up() -> None:
    pod = replace(_pod("a", PREFILL, OLD, 0.0), bound=True, unready_since_seconds=995.0)
    found: Replica = replica(pod, 1000.0)
    assert not found.broken
    assert replica(replace(pod, trouble="CrashLoopBackOff"), 1000.0).broken
