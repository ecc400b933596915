"""What no decision may ever do, whatever the fleet, the policies, the signals and the memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.decide.decide import decide
from equipoise.decide.explain import event_message, explain
from equipoise.decide.memory import PhaseMemory, ServiceMemory, variant_key
from equipoise.decide.types import CapacityMode, DecideInput, Decision, PhasePolicy, Scaling, ServiceInput, VariantStatus, Verdict
from equipoise.fleet.types import Device, Fleet, NodeCapacity, Pool
from equipoise.observe.types import Idle, Known, PhaseObservation, ServiceObservation, Signal, Unknown, UnknownReason
from equipoise.perf.types import ModelFacts, Refusal, ReplicaCapacity, StepTimes, Targets, Workload

NOW = 1_000_000.0
MODEL = ModelFacts("m", 8e9, 8e9, 32, 4096, 32, 8, 128, 131072)
SHAPES = (Shape(1), Shape(2), Shape(4))
POOLS = ("a", "b", "c")


@dataclass(frozen=True)
class Speeds:
    """Tokens/s per GPU by pool and phase; None: refused."""

    rates: tuple[tuple[str, Phase, float | None], ...]
    sizes: tuple[Shape, ...]

    def shapes(self, model: ModelFacts, pool: Pool, gpus_per_node: int) -> tuple[Shape, ...] | Refusal:
        fitting = tuple(shape for shape in self.sizes if shape.gpus_per_replica <= gpus_per_node)
        return fitting or Refusal("DoesNotFit", "no shape fits")

    def capacity(
        self, phase: Phase, model: ModelFacts, pool: Pool, shape: Shape, workload: Workload, targets: Targets,
        *, sharing: int = 1, speed: float = 1.0,
    ) -> ReplicaCapacity | Refusal:  # fmt: skip
        rate = next((r for name, p, r in self.rates if (name, p) == (pool.name, phase)), None)
        if rate is None:
            return Refusal("MissesTarget", f"{phase.value} misses the target on {pool.name}")
        return ReplicaCapacity(phase, rate * speed * shape.gpus_per_replica, 64, 10_000, 0.1, "compute", "test")

    def times(self, model: ModelFacts, pool: Pool, shape: Shape) -> StepTimes | Refusal:
        return StepTimes(0.01, 1e-4, 0.0, 0.02, 1e-4, 1e-7, "test")


def signals(most: float) -> st.SearchStrategy[Signal]:
    return st.one_of(
        st.floats(0, most).map(Known),
        st.just(Idle()),
        st.sampled_from(list(UnknownReason)).map(Unknown),
        st.sampled_from([Known(math.nan), Known(math.inf)]),
    )


phases_seen = st.builds(
    PhaseObservation,
    requests_per_second=signals(200),
    served_requests_per_second=signals(200),
    tokens_per_second=signals(1e5),
    mean_tokens=signals(5000),
    prefix_hit_share=signals(1.5),
    latency_mean_seconds=signals(5),
    latency_percentile_seconds=signals(5),
    attainment=signals(1),
    running_requests=signals(500),
    waiting_requests=signals(500),
    waiting_for_capacity_requests=signals(500),
    kv_usage_share=signals(1),
    kv_usage_share_peak=signals(1),
)


@st.composite
def policies(draw: st.DrawFn) -> dict[Phase, PhasePolicy]:
    zero = draw(st.booleans())
    result = {}
    for phase in Phase:
        minimum = 0 if zero else draw(st.integers(1, 3))
        scaling = draw(st.sampled_from([Scaling.AUTO, Scaling.AUTO, Scaling.AUTO, Scaling.EXTERNAL, Scaling.FIXED]))
        result[phase] = PhasePolicy(
            minimum=minimum,
            maximum=draw(st.none() | st.integers(max(1, minimum), 8)) if scaling is Scaling.AUTO else None,
            pools=draw(st.just(()) | st.lists(st.sampled_from([*POOLS, "gone"]), unique=True, max_size=3).map(tuple)),
            shape=draw(st.none() | st.sampled_from(SHAPES)),
            scaling=scaling,
            external_replicas=draw(st.none() | st.integers(0, 6)) if scaling is Scaling.EXTERNAL else None,
        )
    return result


@dataclass(frozen=True)
class Node:
    name: str
    gpus: int
    foreign: int
    usable: bool


@dataclass(frozen=True)
class Case:
    fleet: Fleet
    inputs: DecideInput
    speeds: Speeds


def _memory(draw: st.DrawFn, counts: dict[Variant, int]) -> ServiceMemory:
    remembered = draw(st.booleans())
    return ServiceMemory(
        allocation={variant_key(v): n for v, n in counts.items()} if remembered else {},
        last_flip_seconds=draw(st.sampled_from([0.0, NOW - 10, NOW - 1000])),
        last_grow_seconds=draw(st.sampled_from([0.0, NOW - 10])),
        phases={
            phase: PhaseMemory(
                trim=draw(st.sampled_from([1.0, 1.3])),
                pressed_rounds=draw(st.integers(0, 20)),
                short_rounds=draw(st.integers(0, 3)),
                low_since_seconds=draw(st.sampled_from([0.0, NOW - 1000])),
            )
            for phase in Phase
        },
        extra=draw(
            st.dictionaries(
                st.sampled_from(
                    [
                        "prefill.demand.level",
                        "decode.demand.level",
                        "prefill.peak",
                        "lengths.output_tokens",
                        "shift.at",
                        "shift.mean",
                    ]
                ),
                st.floats(0, 1e6),
            )
        ),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes = {
        name: [
            Node(f"{name}{i}", draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(0, 2)), draw(st.integers(0, 9)) > 0)
            for i in range(draw(st.integers(1, 3)))
        ]
        for name in POOLS[: draw(st.integers(1, 3))]
    }
    own: dict[str, dict[Variant, int]] = {}
    free = {node.name: max(0, node.gpus - node.foreign) for entries in nodes.values() for node in entries}
    services, observations, memories = [], {}, {}
    for index in range(draw(st.integers(1, 3))):
        key = ServiceKey("prod", f"s{index}")
        statuses, counts = [], {}
        for _ in range(draw(st.integers(0, 3))):
            name = draw(st.sampled_from(sorted(nodes)))
            variant = Variant(key, draw(st.sampled_from(list(Phase))), name, draw(st.sampled_from(SHAPES)))
            if variant in counts:
                continue
            bound = dict.fromkeys(("ready", "starting", "draining"), 0)
            for state in bound:
                for _ in range(draw(st.integers(0, 3))):
                    place = next((n.name for n in nodes[name] if free[n.name] >= variant.shape.gpus_per_replica), None)
                    if place is not None:
                        free[place] -= variant.shape.gpus_per_replica
                        own.setdefault(place, {})[variant] = own.get(place, {}).get(variant, 0) + variant.shape.gpus_per_replica
                        bound[state] += 1
            pending = draw(st.sampled_from([0, 0, 0, 1, 2]))
            desired = bound["ready"] + bound["starting"] + pending
            counts[variant] = desired
            waited = draw(st.sampled_from([0.0, 10.0, 1000.0])) if pending else 0.0
            statuses.append(
                VariantStatus(
                    variant, desired, bound["ready"], bound["starting"], pending, bound["draining"], oldest_pending_seconds=waited
                )
            )
        services.append(
            ServiceInput(
                key, MODEL, Targets(1.0, 0.05), draw(policies()),
                mode=draw(st.sampled_from([CapacityMode.AUTO] * 4 + [CapacityMode.RECOMMEND, CapacityMode.OFF])),
                priority=draw(st.integers(-1, 1)),
                max_gpus=draw(st.none() | st.integers(1, 20)),
                max_cost_usd_per_hour=draw(st.none() | st.floats(1, 50)),
                max_quota_gpus=draw(st.none() | st.integers(0, 20)),
                cooldown_grow_seconds=draw(st.sampled_from([0.0, 60.0])),
                flip_supported=draw(st.booleans()),
                variants=tuple(statuses),
                created_seconds=draw(st.sampled_from([1.0, 2.0])),
                deleting=draw(st.integers(0, 9)) == 0,
            )
        )  # fmt: skip
        if draw(st.integers(0, 4)):
            observations[key] = ServiceObservation(
                key, NOW, draw(st.sampled_from([15.0, 60.0])), draw(phases_seen), draw(phases_seen),
                ttft_decode_leg_mean_seconds=draw(signals(3)), ttft_attainment=draw(signals(1)),
            )  # fmt: skip
        if draw(st.booleans()):
            memories[key] = _memory(draw, counts)
    device = Device("d", 80 * 10**9, 2e12, {Precision.BF16: 3e14}, 3e11, 8, 0.7, 0.7, 0.7, "test")
    pools = tuple(
        Pool(
            name, device,
            tuple(NodeCapacity(n.name, n.gpus, min(n.foreign, n.gpus), own.get(n.name, {}), n.usable) for n in entries),
            draw(st.sampled_from([1.0, 2.5, 4.0])),
        )
        for name, entries in nodes.items()
    )  # fmt: skip
    rates = tuple((name, phase, draw(st.none() | st.floats(100, 20_000))) for name in nodes for phase in Phase)
    sizes = draw(st.sampled_from([SHAPES[:1], SHAPES[1:2], SHAPES]))
    inputs = DecideInput(tuple(services), observations, memories, NOW, draw(st.sampled_from([5.0, 15.0])))
    return Case(Fleet(pools), inputs, Speeds(rates, sizes))


def before(service: ServiceInput, case: Case) -> dict[Variant, int]:
    """Counts that were set when the round began."""
    return {status.variant: status.desired for status in service.variants if status.desired}


def check_growth_never_exceeds_what_is_free_on_the_nodes(case: Case, decisions: dict[ServiceKey, Decision]) -> None:
    wanted: dict[str, list[int]] = {}
    for service in case.inputs.services:
        was = before(service, case)
        pending = {status.variant: status.pending for status in service.variants}
        for variant, count in decisions[service.key].allocation.items():
            flipped = sum(
                move.replicas for move in decisions[service.key].moves if move.receiver == variant and move.kind == "flip"
            )
            grown = count - was.get(variant, 0) - flipped
            if grown > 0:
                assert pending.get(variant, 0) == 0 or grown <= sum(
                    node.free_gpus for pool in case.fleet.pools for node in pool.nodes
                )
                wanted.setdefault(variant.pool, []).extend([variant.shape.gpus_per_replica] * grown)
    for pool in case.fleet.pools:
        free = sorted((node.free_gpus for node in pool.nodes), reverse=True)
        assert sum(wanted.get(pool.name, [])) <= sum(free)
        for width in sorted(wanted.get(pool.name, []), reverse=True):
            # Best fit of the widest first: what fits in any order fits in this one, widths being powers of two.
            place = min((i for i, left in enumerate(free) if left >= width), key=lambda i: free[i], default=None)
            assert place is not None, f"a replica of {width} GPUs fits on no node of {pool.name}"
            free[place] -= width


def check_bounds_of_the_user_hold(case: Case, decisions: dict[ServiceKey, Decision]) -> None:
    prices = {pool.name: pool.price_usd_per_gpu_hour for pool in case.fleet.pools}
    for service in case.inputs.services:
        decision = decisions[service.key]
        if service.mode is not CapacityMode.AUTO or service.deleting:
            assert dict(decision.allocation) == before(service, case)
            assert not decision.moves
            continue
        gpus = sum(v.shape.gpus_per_replica * n for v, n in decision.allocation.items())
        cost = sum(v.shape.gpus_per_replica * n * prices[v.pool] for v, n in decision.allocation.items())
        assert decision.gpus == gpus
        assert service.max_gpus is None or gpus <= service.max_gpus
        assert service.max_cost_usd_per_hour is None or cost <= service.max_cost_usd_per_hour + 1e-6
        capped = service.max_gpus is not None or service.max_cost_usd_per_hour is not None
        for phase, policy in service.phases.items():
            count = sum(n for v, n in decision.allocation.items() if v.phase is phase)
            was = sum(n for v, n in before(service, case).items() if v.phase is phase)
            assert policy.maximum is None or count <= policy.maximum
            overdue = any(s.pending and s.oldest_pending_seconds >= 300 for s in service.variants if s.variant.phase is phase)
            if policy.scaling is Scaling.AUTO and not capped and not overdue:
                assert count >= min(was, policy.minimum)
            if policy.scaling is Scaling.EXTERNAL:
                given_count = policy.minimum if policy.external_replicas is None else policy.external_replicas
                assert count <= max(given_count, 0)


def check_an_unknown_demand_changes_nothing_but_a_missing_floor(case: Case, decisions: dict[ServiceKey, Decision]) -> None:
    for service in case.inputs.services:
        decision = decisions[service.key]
        capped = service.max_gpus is not None or service.max_cost_usd_per_hour is not None
        for phase, figures in decision.phases.items():
            policy = service.phases[phase]
            overdue = any(s.pending and s.oldest_pending_seconds >= 300 for s in service.variants if s.variant.phase is phase)
            if figures.demand_tokens_per_second is not None or policy.scaling is not Scaling.AUTO or capped or overdue:
                continue
            was = {v: n for v, n in before(service, case).items() if v.phase is phase}
            now = {v: n for v, n in decision.allocation.items() if v.phase is phase}
            if sum(was.values()) >= max(1, policy.minimum) and (policy.maximum is None or sum(was.values()) <= policy.maximum):
                assert now == was


def check_equal_input_gives_equal_decisions_in_any_order(case: Case, decisions: dict[ServiceKey, Decision]) -> None:
    services = reversed(case.inputs.services)
    pools = tuple(replace(pool, nodes=tuple(reversed(pool.nodes))) for pool in reversed(case.fleet.pools))
    assert decide(Fleet(pools), replace(case.inputs, services=tuple(services)), case.speeds) == decisions


def check_every_decision_can_be_told_and_kept(case: Case, decisions: dict[ServiceKey, Decision]) -> None:
    for decision in decisions.values():
        assert decision.reasons
        assert all(reason.message and reason.name.isalpha() for reason in decision.reasons)
        assert str(decision.service) in explain(decision)
        assert len(event_message(decision)) <= 1000
        assert ServiceMemory.from_dict(decision.memory.to_dict()) == ServiceMemory.from_dict(
            ServiceMemory.from_dict(decision.memory.to_dict()).to_dict()
        )
        assert all(count > 0 for count in decision.allocation.values())
        for variant, count in decision.allocation.items():
            assert decision.memory.allocation[variant_key(variant)] == count
        if decision.verdict is Verdict.HOLD:
            assert not decision.moves


def check_a_second_round_with_the_same_signals_flips_nothing_back(case: Case, decisions: dict[ServiceKey, Decision]) -> None:
    memories = {key: decision.memory for key, decision in decisions.items()}
    again = decide(case.fleet, replace(case.inputs, memories=memories, now_seconds=NOW + 1.0), case.speeds)
    for key, decision in decisions.items():
        flips = {(move.donor, move.receiver) for move in decision.moves if move.kind == "flip"}
        back = {(move.receiver, move.donor) for move in again[key].moves if move.kind == "flip"}
        assert not flips & back


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(cases())
def test_no_decision_breaks_a_rule(case: Case) -> None:
    decisions = decide(case.fleet, case.inputs, case.speeds)
    assert set(decisions) == {service.key for service in case.inputs.services}
    check_growth_never_exceeds_what_is_free_on_the_nodes(case, decisions)
    check_bounds_of_the_user_hold(case, decisions)
    check_an_unknown_demand_changes_nothing_but_a_missing_floor(case, decisions)
    check_equal_input_gives_equal_decisions_in_any_order(case, decisions)
    check_every_decision_can_be_told_and_kept(case, decisions)
    check_a_second_round_with_the_same_signals_flips_nothing_back(case, decisions)
