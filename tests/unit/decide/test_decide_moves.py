"""Flips, growth, handovers, shrinks and everything that keeps them in check: one round each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.world import Setting, message, names, observation, pool, service, table

from equipoise.api.identity import Phase, ServiceKey, Shape
from equipoise.decide.memory import PhaseMemory, ServiceMemory, variant_key
from equipoise.decide.types import CapacityMode, Decision, MoveKind, PhasePolicy, Scaling, Verdict
from equipoise.observe.types import Known, ServiceObservation, Unknown, UnknownReason

P, D = Phase.PREFILL, Phase.DECODE
KEY = ServiceKey("prod", "chat")
FULL = {(P, "h100"): 4, (D, "h100"): 4}
NO_FLIPS = service(flip_supported=False, flip_reason="test")


def counts(decision: Decision) -> tuple[int, int]:
    prefill, decode = (sum(n for v, n in decision.allocation.items() if v.phase is phase) for phase in Phase)
    return prefill, decode


def kinds(decision: Decision) -> list[tuple[str, int]]:
    return [(move.kind.value, move.replicas) for move in decision.moves]


# A prefill replica does 10,000 prompt tokens/s, a decode replica 1,000 output tokens/s; prompts 1,000 tokens, answers 100.
def traffic(prefill_work: float, decode_work: float, **changes: Any) -> ServiceObservation:
    """Replicas' worth of work for each phase."""
    rate = 10.0 * prefill_work
    return observation(KEY, rate=rate, prompt=1000.0, output=1000.0 * decode_work / rate, **changes)


def setting(prefill: float, decode: float, **changes: Any) -> Setting:
    return replace(Setting(ready=FULL, seen=traffic(prefill, decode)), **changes)


class TestFlips:
    def test_all_the_way_at_once_and_at_first_sight(self) -> None:
        decision = setting(1.6, 5.5).decide()
        assert counts(decision) == (2, 6)
        assert kinds(decision) == [("flip", 2)]
        assert decision.verdict is Verdict.MOVE

    @pytest.mark.parametrize(
        ("prefill", "decode", "why"),
        [
            (1.0, 2.9, "below 0.75 nothing is urgent"),
            (3.5, 3.9, "no split is a tenth better"),
            (4.0, 4.0, "in balance"),
        ],
    )
    def test_not_for_little(self, prefill: float, decode: float, why: str) -> None:
        decision = setting(prefill, decode).decide()
        assert counts(decision) == (4, 4), why
        assert not decision.moves

    def test_a_donor_keeps_its_minimum_and_a_receiver_its_maximum(self) -> None:
        phases = {P: PhasePolicy(minimum=3), D: PhasePolicy()}
        assert counts(setting(0.5, 7.0, service=service(phases=phases)).decide()) == (3, 5)
        phases = {P: PhasePolicy(), D: PhasePolicy(maximum=6)}
        assert counts(setting(0.5, 7.0, service=service(phases=phases)).decide()) == (2, 6)

    def test_only_ready_replicas_flip(self) -> None:
        status = {(P, "h100"): {"ready": 2, "starting": 2}}
        assert counts(setting(0.5, 7.0, status=status).decide()) == (3, 5)  # the last one that serves stays

    def test_a_phase_without_any_ready_replica_gets_one_at_once(self) -> None:
        decision = setting(0.5, 0.5, status={(D, "h100"): {"ready": 0, "starting": 4}}).decide()
        assert kinds(decision)[0][0] == "flip"

    def test_not_while_the_last_flips_are_carried_out(self) -> None:
        given = setting(1.6, 5.5)
        allocation = {variant_key(given.variant(P)): 2, variant_key(given.variant(D)): 6}
        memory = ServiceMemory(allocation=allocation, last_flip_seconds=990.0)
        decision = replace(given, memory=memory).decide()
        assert counts(decision) == (2, 6)
        assert "MoveInFlight" in names(decision)

    def test_not_where_the_engine_cannot(self) -> None:
        assert all(kind != "flip" for kind, _ in kinds(setting(1.6, 5.5, service=NO_FLIPS).decide()))

    def test_a_donor_that_misses_its_target_for_no_known_reason_gives_nothing(self) -> None:
        seen = traffic(1.6, 3.9, prefill={"attainment": Known(0.5)})
        memory = ServiceMemory(phases={P: PhaseMemory(short_rounds=2)})
        decision = setting(1.6, 3.9, seen=seen, memory=memory).decide()
        assert counts(decision) == (4, 4)
        assert "LaggingKept" in names(decision)

    def test_the_pool_with_the_comparative_advantage_flips(self) -> None:
        decision = Setting(
            pools=(pool("h100"), pool("l40s")),
            performance=table(h100=(10_000.0, 1_000.0), l40s=(10_000.0, 200.0)),
            ready={(P, "h100"): 2, (P, "l40s"): 4, (D, "h100"): 2},
            seen=traffic(3.0, 3.0),
        ).decide()
        assert [move.donor.pool for move in decision.moves if move.kind is MoveKind.FLIP and move.donor] == ["h100"]


class TestGrowth:
    def test_on_free_gpus_at_once(self) -> None:
        decision = setting(4.5, 4.5, pools=(pool("h100", nodes=2),)).decide()
        assert counts(decision) == (5, 5)

    def test_not_beyond_what_is_free(self) -> None:
        decision = setting(6.0, 6.0, pools=(pool("h100", gpus=9),)).decide()
        assert sum(counts(decision)) == 9
        assert decision.capacity_limited is not None
        assert "would help" in decision.capacity_limited.message

    def test_terminating_pods_still_hold_their_gpus(self) -> None:
        status = {(D, "h100"): {"ready": 4, "draining": 1}}
        decision = setting(6.0, 6.0, pools=(pool("h100", gpus=9),), status=status).decide()
        assert sum(counts(decision)) == 8

    def test_what_is_coming_counts(self) -> None:
        status = {(D, "h100"): {"desired": 6, "starting": 2}}
        decision = setting(3.5, 5.9, pools=(pool("h100", nodes=2),), status=status).decide()
        assert sum(counts(decision)) == 10
        assert all(kind == "flip" for kind, _ in kinds(decision))

    def test_a_cooldown_is_kept_but_not_below_the_floor(self) -> None:
        given = service(cooldown_grow_seconds=60.0, phases={P: PhasePolicy(minimum=5), D: PhasePolicy()})
        memory = ServiceMemory(last_grow_seconds=980.0)
        decision = setting(1.0, 4.5, pools=(pool("h100", nodes=2),), service=given, memory=memory).decide()
        assert counts(decision) == (5, 4)
        assert "40 s of the cooldown are left" in message(decision, "CoolingDown")

    def test_a_service_never_seen_starts_with_one_of_each(self) -> None:
        zero = {phase: PhasePolicy(minimum=0) for phase in Phase}
        for given in (service(), service(phases=zero)):
            decision = Setting(service=given).decide()
            assert counts(decision) == (1, 1)
            assert "MinimumFirst" in names(decision)

    def test_a_full_fleet_starts_no_phase_alone(self) -> None:
        decision = Setting(pools=(pool("h100", gpus=1),)).decide()
        assert counts(decision) == (0, 0)
        assert decision.capacity_limited is not None


class TestHandover:
    def confirmed(self, rounds: int = 9) -> ServiceMemory:
        return ServiceMemory(phases={phase: PhaseMemory(pressed_rounds=rounds) for phase in Phase})

    def test_donors_go_first_and_receivers_only_when_gpus_are_free(self) -> None:
        decision = setting(1.6, 5.5, service=NO_FLIPS, memory=self.confirmed()).decide()
        assert counts(decision) == (2, 4)
        assert kinds(decision) == [("handover", 2)]
        assert sum(n for v, n in decision.wanted.items() if v.phase is D) == 6

    def test_it_is_confirmed_for_half_a_start_up(self) -> None:
        decision = setting(1.6, 5.5, service=NO_FLIPS).decide()
        assert counts(decision) == (4, 4)
        assert "wanted for 1 of 2 rounds" in message(decision, "Confirming")
        again = setting(1.6, 5.5, service=NO_FLIPS, memory=decision.memory, now=1015.0).decide()
        assert counts(again) == (2, 4)

    def test_nothing_more_is_taken_while_donors_drain(self) -> None:
        status = {(P, "h100"): {"desired": 2, "ready": 2, "draining": 2}}
        decision = setting(1.6, 5.5, service=NO_FLIPS, memory=self.confirmed(), status=status).decide()
        assert counts(decision) == (2, 4)
        assert "WaitingForGPUs" in names(decision)

    def test_a_donor_stays_inside_its_target(self) -> None:
        decision = setting(3.9, 4.3, service=NO_FLIPS, memory=self.confirmed()).decide()
        assert counts(decision) == (4, 4)

    def test_it_must_be_worth_it(self) -> None:
        # Demand turns every two minutes: a minute's start-up outlasts it, and the way back costs more than the move wins.
        memory = replace(
            self.confirmed(),
            extra={
                "shift.at": 950.0,
                "shift.mean": 120.0,
                "shift.direction": -1.0,
                "shift.prefill": 38_000.0,
                "shift.decode": 500.0,
            },
        )
        decision = setting(1.6, 4.2, service=NO_FLIPS, memory=memory).decide()
        assert counts(decision) == (4, 4)
        assert "NotWorthIt" in names(decision)
        assert "good requests won" in message(decision, "NotWorthIt")

    def test_k_donors_on_one_node_for_one_wide_receiver(self) -> None:
        wide = Shape(4)
        decision = Setting(
            pools=(pool("h100", nodes=2, gpus=5),),
            performance=table((Shape(1), wide), h100=(10_000.0, 250.0)),
            ready={(D, "h100"): 1, (P, "h100"): 5},
            shapes={(D, "h100"): wide},
            service=service(
                flip_supported=False,
                phases={P: PhasePolicy(shape=Shape(1)), D: PhasePolicy(shape=wide)},
            ),
            seen=observation(KEY, rate=0.5, prompt=100.0, output=3000.0),
            memory=self.confirmed(),
        ).decide()
        [move] = decision.moves
        assert move.kind is MoveKind.HANDOVER
        assert (move.replicas, move.donor_replicas, len(move.nodes)) == (1, 3, 1)  # a GPU of that node is free already
        assert counts(decision) == (2, 1)

    def test_a_service_below_its_minimum_is_served_first(self) -> None:
        newcomer = service("new")
        given = setting(1.0, 1.0, others={"new": (newcomer, None, {})})
        decisions = given.decide_all()
        assert sum(counts(decisions[KEY])) == 6
        assert "handed over to prod/new" in decisions[KEY].moves[0].reason or "HandedOver" in names(decisions[KEY])
        assert counts(decisions[newcomer.key]) == (0, 0)
        assert sum(decisions[newcomer.key].wanted.values()) == 2

    def test_a_higher_priority_takes_from_a_lower_one(self) -> None:
        other = ServiceKey("prod", "vip")
        seen = observation(other, rate=45.0, prompt=1000.0, output=20.0)
        vip = service("vip", priority=10, flip_supported=False)
        given = Setting(
            pools=(pool("h100"),),
            ready={(P, "h100"): 3, (D, "h100"): 2},
            seen=traffic(2.9, 1.9),
            others={"vip": (vip, seen, {(P, "h100"): 2, (D, "h100"): 1})},
        )
        first = given.decide_all()
        assert "Confirming" in names(first[other])


class TestShrink:
    def long_low(self, peak: float = 0.0) -> ServiceMemory:
        return ServiceMemory(
            phases={phase: PhaseMemory(low_since_seconds=600.0) for phase in Phase},
            extra={"prefill.peak": peak, "decode.peak": peak},
        )

    def test_slowly(self) -> None:
        decision = setting(0.9, 0.9).decide()
        assert counts(decision) == (4, 4)
        assert "ShrinkDelayed" in names(decision)
        assert "300 s more" in message(decision, "ShrinkDelayed")

    def test_down_to_the_highest_need_of_the_window(self) -> None:
        assert counts(setting(0.9, 0.9, memory=self.long_low()).decide()) == (1, 1)
        memory = replace(self.long_low(), extra={"prefill.peak": 25_000.0, "decode.peak": 0.0})
        assert counts(setting(0.9, 0.9, memory=memory).decide()) == (3, 1)

    def test_never_a_phase_that_lags(self) -> None:
        seen = traffic(0.9, 0.9, decode={"attainment": Known(0.8)})
        decision = setting(0.9, 0.9, seen=seen, memory=self.long_low()).decide()
        assert counts(decision) == (1, 4)
        assert "gives no replica back" in message(decision, "LaggingKept")

    def test_an_idle_service_with_minimum_zero_goes_to_zero(self) -> None:
        zero = {phase: PhasePolicy(minimum=0) for phase in Phase}
        decision = setting(
            1.0, 1.0, seen=observation(KEY, rate=0.0), service=service(phases=zero), memory=self.long_low()
        ).decide()
        assert counts(decision) == (0, 0)
        assert decision.memory.last_shrink_seconds == 1000.0

    def test_the_dearer_pool_gives_first(self) -> None:
        decision = Setting(
            pools=(pool("h100", price=4.0), pool("a100", price=1.0)),
            performance=table(h100=(10_000.0, 1_000.0), a100=(10_000.0, 1_000.0)),
            ready={(P, "h100"): 2, (P, "a100"): 2, (D, "a100"): 1},
            seen=traffic(1.8, 0.5),
            memory=self.long_low(),
        ).decide()
        assert {v.pool: n for v, n in decision.allocation.items() if v.phase is P} == {"a100": 2}


class TestPending:
    def test_a_pending_pod_counts_until_its_deadline(self) -> None:
        status = {(D, "h100"): {"desired": 6, "pending": 2, "oldest_pending_seconds": 100.0}}
        decision = setting(3.5, 5.9, pools=(pool("h100", nodes=2),), status=status).decide()
        assert sum(counts(decision)) == 10

    def test_after_the_deadline_it_is_given_up_and_its_variant_left_alone(self) -> None:
        status = {(D, "h100"): {"desired": 6, "pending": 2, "oldest_pending_seconds": 400.0}}
        given = setting(3.5, 5.9, pools=(pool("h100", nodes=2),), status=status)
        decision = given.decide()
        assert sum(counts(decision)) == 8
        assert "given up" in message(decision, "PendingCancelled")
        calm = replace(given, status={}, memory=decision.memory, now=1100.0).decide()
        assert sum(counts(calm)) == 8
        later = replace(given, status={}, memory=decision.memory, now=2000.0).decide()
        assert sum(counts(later)) == 10


class TestOwners:
    def test_external_counts_are_followed_and_never_overruled(self) -> None:
        phases = {P: PhasePolicy(scaling=Scaling.EXTERNAL, external_replicas=2), D: PhasePolicy()}
        decision = setting(3.9, 3.9, service=service(phases=phases)).decide()
        assert counts(decision)[0] == 2
        assert "ExternalCount" in names(decision)

    def test_an_external_count_that_does_not_fit_is_capped_and_said(self) -> None:
        phases = {P: PhasePolicy(scaling=Scaling.EXTERNAL, external_replicas=9), D: PhasePolicy()}
        decision = setting(1.0, 1.0, service=service(phases=phases)).decide()
        assert counts(decision) == (4, 1)  # decode gives what it does not need
        assert sum(n for v, n in decision.wanted.items() if v.phase is P) == 7
        assert decision.capacity_limited is not None
        assert "7 of at least 9" in decision.capacity_limited.message

    def test_a_fixed_count_is_the_minimum_whatever_the_load(self) -> None:
        phases = {P: PhasePolicy(minimum=4, scaling=Scaling.FIXED), D: PhasePolicy()}
        decision = setting(0.1, 7.0, service=service(phases=phases)).decide()
        assert counts(decision)[0] == 4

    @pytest.mark.parametrize("mode", [CapacityMode.RECOMMEND, CapacityMode.OFF])
    def test_modes_that_change_nothing(self, mode: CapacityMode) -> None:
        decision = setting(1.6, 5.5, service=service(mode=mode)).decide()
        assert counts(decision) == (4, 4)
        assert not decision.moves
        wanted = sum(n for v, n in decision.wanted.items() if v.phase is D)
        assert wanted == (6 if mode is CapacityMode.RECOMMEND else 4)
        assert {"RecommendOnly", "CapacityOff"} & names(decision)


class TestCaps:
    @pytest.mark.parametrize(
        ("changes", "total"),
        [
            ({"max_gpus": 6}, 6),
            ({"max_cost_usd_per_hour": 10.0}, 5),
            ({"phases": {P: PhasePolicy(maximum=2), D: PhasePolicy()}}, 6),
        ],
    )
    def test_a_cap_that_is_lowered_is_kept_at_once(self, changes: dict[str, Any], total: int) -> None:
        decision = setting(2.0, 3.0, service=service(**changes)).decide()
        assert sum(counts(decision)) <= total
        assert "CapEnforced" in names(decision)

    def test_a_quota_only_limits_growth(self) -> None:
        decision = setting(3.9, 3.9, pools=(pool("h100", nodes=2),), service=service(max_quota_gpus=4)).decide()
        assert counts(decision) == (4, 4)


class TestFeasibility:
    def test_nothing_fits_names_every_pool_and_what_to_change(self) -> None:
        decision = Setting(performance=table(h100=(None, None))).decide()
        assert decision.infeasible is not None
        assert "h100: llama-8b does not fit" in decision.infeasible.message
        assert "Add a pool" in decision.infeasible.message
        assert counts(decision) == (0, 0)

    def test_a_phase_alone_is_not_started_where_the_other_can_be_served_nowhere(self) -> None:
        decision = Setting(pools=(pool("h100"), pool("l4")), performance=table(h100=(10_000.0, None), l4=(None, None))).decide()
        assert decision.infeasible is not None
        assert counts(decision) == (0, 0)

    def test_a_phase_alone_is_not_started_where_only_one_gpu_is_free(self) -> None:
        one = pool("h100", gpus=1)
        decision = Setting(pools=(one,)).decide()
        assert counts(decision) == (0, 0)
        assert decision.capacity_limited is not None

    def test_a_pool_that_is_not_there_is_named(self) -> None:
        phases = {P: PhasePolicy(pools=("h200",)), D: PhasePolicy()}
        decision = Setting(service=service(phases=phases)).decide()
        assert decision.infeasible is not None
        assert "no pool of this name (found: h100)" in decision.infeasible.message

    def test_replicas_that_no_longer_meet_the_target_stay_until_others_serve(self) -> None:
        given = Setting(
            pools=(pool("h100"), pool("l40s")),
            performance=table(h100=(10_000.0, 1_000.0), l40s=(10_000.0, None)),
            ready={(P, "l40s"): 2, (D, "l40s"): 2},
            seen=traffic(1.0, 1.0),
        )
        first = given.decide()
        assert {v.pool: n for v, n in first.allocation.items() if v.phase is D} == {"l40s": 2, "h100": 1}
        second = replace(given, ready={(P, "l40s"): 2, (D, "l40s"): 2, (D, "h100"): 1}).decide()
        assert {v.pool: n for v, n in second.allocation.items() if v.phase is D} == {"h100": 1}
        assert "LeftoverReleased" in names(second)

    def test_both_phases_stay_in_one_network_domain(self) -> None:
        given = Setting(
            pools=(
                replace(pool("h100", price=1.0), network_domain="east"),
                replace(pool("a100", price=0.5), network_domain="west"),
                replace(pool("l40s", price=9.0), network_domain="west"),
            ),
            performance=table(h100=(10_000.0, 1_000.0), a100=(10_000.0, None), l40s=(10_000.0, 1_000.0)),
        )
        assert {v.pool for v in given.decide().allocation} == {"h100"}
        moved = replace(given, ready={(P, "a100"): 1, (D, "l40s"): 1}).decide()
        assert {v.pool for v in moved.allocation} == {"a100", "l40s"}

    def test_the_target_that_would_do_is_named(self) -> None:
        decision = setting(9.0, 1.0).decide()
        assert decision.capacity_limited is not None
        assert "more GPU" in decision.capacity_limited.message


def test_migration_waits_for_calm_and_starts_before_it_stops() -> None:
    given = Setting(
        pools=(pool("h100", price=9.0), pool("a100", price=1.0)),
        performance=table(h100=(10_000.0, 1_000.0), a100=(10_000.0, 1_000.0)),
        ready={(P, "h100"): 1, (D, "h100"): 1},
        seen=traffic(0.9, 0.9),
    )
    first = given.decide()
    assert counts(first) == (1, 1)
    assert not first.moves
    later = replace(given, memory=first.memory, now=1300.0).decide()
    assert {v.pool: n for v, n in later.allocation.items() if v.phase is P} == {"h100": 1, "a100": 1}
    assert "Migrating" in names(later)


def test_an_unknown_phase_is_held_and_the_other_goes_on() -> None:
    blind = {"requests_per_second": Unknown(UnknownReason.QUERY_FAILED, "timeout")}
    decision = setting(3.0, 5.5, seen=traffic(3.0, 5.5, prefill=blind), pools=(pool("h100", nodes=2),)).decide()
    assert counts(decision) == (4, 6)
    assert "timeout" in message(decision, "SignalUnknown")
