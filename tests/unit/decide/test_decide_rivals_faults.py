"""One test for each fault of a rival's deciding that `docs/concepts/deciding.md` lists: the kind must be impossible here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.decide.world import ONE, Setting, World, message, names, observation, pool, service, table

from equipoise.api.identity import Phase, ServiceKey, Shape
from equipoise.decide.memory import PhaseMemory, ServiceMemory
from equipoise.decide.types import Decision, MoveKind, PhasePolicy
from equipoise.observe.types import Idle, Known, PhaseObservation, ServiceObservation, Unknown, UnknownReason

P, D = Phase.PREFILL, Phase.DECODE
KEY = ServiceKey("prod", "chat")
NO_FLIPS = service(flip_supported=False)
CONFIRMED = ServiceMemory(phases={phase: PhaseMemory(pressed_rounds=9) for phase in Phase})


def traffic(prefill_work: float, decode_work: float, **changes: Any) -> ServiceObservation:
    """Replicas' worth of work: a prefill replica does 10,000 prompt tokens/s, a decode replica 1,000 output tokens/s."""
    rate = 10.0 * prefill_work
    return observation(KEY, rate=rate, prompt=1000.0, output=1000.0 * decode_work / rate, **changes)


def setting(prefill: float, decode: float, **changes: Any) -> Setting:
    return replace(Setting(ready={(P, "h100"): 4, (D, "h100"): 4}, seen=traffic(prefill, decode)), **changes)


def counts(decision: Decision) -> tuple[int, int]:
    prefill, decode = (sum(n for v, n in decision.allocation.items() if v.phase is phase) for phase in Phase)
    return prefill, decode


@pytest.mark.parametrize("flips", [True, False])
def test_shrink_and_grow_are_decided_together_on_a_full_cluster(flips: bool) -> None:
    """One switch "does any role need more" kept prefill from shrinking whenever decode had to grow: nothing moved, ever."""
    decision = setting(1.6, 5.5, service=service(flip_supported=flips), memory=CONFIRMED).decide()
    assert counts(decision)[0] == 2
    assert sum(n for v, n in decision.wanted.items() if v.phase is D) == 6


def test_a_blocked_phase_never_blocks_the_other() -> None:
    """Paired allocation gave up when one role had no candidate, even a role that needed nothing."""
    given = Setting(
        pools=(pool("h100"), pool("l40s")),
        performance=table(h100=(10_000.0, None), l40s=(None, None)),
        ready={(P, "h100"): 2, (D, "l40s"): 2},
        seen=traffic(3.5, 1.0),
    )
    decision = given.decide()
    assert counts(decision) == (4, 2)
    assert decision.infeasible is not None
    assert decision.infeasible.phase is D


def test_slack_in_decode_never_costs_a_saturated_prefill_a_replica() -> None:
    """Spare capacity was summed over the roles, and a saturated prefill replica was removed."""
    low = ServiceMemory(phases={phase: PhaseMemory(low_since_seconds=1.0) for phase in Phase}, extra={"decode.peak": 500.0})
    decision = setting(4.0, 0.5, memory=low, service=NO_FLIPS).decide()
    assert counts(decision)[0] == 4
    assert counts(decision)[1] < 4


def test_ttft_that_decode_causes_is_not_blamed_on_prefill() -> None:
    """Prefill was grown although decode could not take the KV, so that prefill pods held it and queued."""
    seen = traffic(
        2.0,
        3.8,
        prefill={
            "attainment": Known(0.2),
            "latency_percentile_seconds": Known(9.0),
            "waiting_requests": Known(29.0),
            "kv_usage_share": Known(0.6),
            "kv_usage_share_peak": Known(0.99),
        },
        decode={"running_requests": Known(4.0), "waiting_requests": Known(4.0), "waiting_for_capacity_requests": Known(4.0)},
    )
    decision = setting(2.0, 3.8, seen=seen).decide()
    assert decision.lagging is D
    assert "DecodeStarvesPrefill" in names(decision)
    assert counts(decision)[1] > 4


def test_kv_use_of_prefill_alone_is_no_signal() -> None:
    """One threshold served both roles, with KV fill as a signal of prefill."""
    seen = traffic(2.0, 2.0, prefill={"kv_usage_share": Known(0.95), "kv_usage_share_peak": Known(1.0)})
    decision = setting(2.0, 2.0, seen=seen).decide()
    assert counts(decision) == (4, 4)
    assert decision.lagging is None


def test_unequal_widths_never_deadlock() -> None:
    """Steps of one: a decode of one GPU never freed enough for a prefill of four."""
    wide = Shape(4)
    decision = Setting(
        pools=(pool("h100", gpus=12),),
        performance=table((ONE, wide), h100=(2_500.0, 1_000.0)),
        ready={(P, "h100"): 1, (D, "h100"): 8},
        shapes={(P, "h100"): wide},
        service=service(flip_supported=False, phases={P: PhasePolicy(shape=wide), D: PhasePolicy(shape=ONE)}),
        seen=traffic(1.9, 3.5),
        memory=CONFIRMED,
    ).decide()
    [move] = decision.moves
    assert (move.kind, move.replicas, move.donor_replicas) == (MoveKind.HANDOVER, 1, 4)


def test_a_full_budget_is_never_exceeded_in_between() -> None:
    """The growth was applied, the shrink failed: over budget, with a Pending pod, and stuck."""
    decision = setting(1.6, 5.5, pools=(pool("h100", nodes=2),), service=replace(NO_FLIPS, max_gpus=8), memory=CONFIRMED).decide()
    assert sum(counts(decision)) < 8
    status = {(P, "h100"): {"desired": 2, "ready": 2, "draining": 2}}
    draining = setting(
        1.6, 5.5, pools=(pool("h100", nodes=2),), service=replace(NO_FLIPS, max_gpus=8), memory=decision.memory, status=status
    ).decide()
    assert counts(draining) == (2, 4)
    gone = setting(
        1.6,
        5.5,
        ready={(P, "h100"): 2, (D, "h100"): 4},
        pools=(pool("h100", nodes=2),),
        service=replace(NO_FLIPS, max_gpus=8),
        memory=draining.memory,
    ).decide()
    assert counts(gone) == (2, 6)


def test_the_cap_wins_over_a_floor_and_says_so() -> None:
    """min = max = 5 of two GPUs each: 6 GPUs more than the hard cap."""
    phases = {phase: PhasePolicy(minimum=5, maximum=5) for phase in Phase}
    decision = Setting(pools=(pool("h100", nodes=2),), service=service(phases=phases, max_gpus=6)).decide()
    assert sum(counts(decision)) == 6
    assert decision.capacity_limited is not None
    assert "limit of 6 GPUs" in decision.capacity_limited.message
    assert "of at least 5 replicas" in decision.capacity_limited.message


def test_a_pod_that_can_never_be_scheduled_stops_nothing_but_itself() -> None:
    """A Pending pod froze all scaling for an hour."""
    status = {(P, "h100"): {"desired": 5, "pending": 1, "oldest_pending_seconds": 3600.0}}
    decision = setting(2.0, 4.5, pools=(pool("h100", nodes=2),), status=status).decide()
    assert counts(decision)[1] == 5
    assert "PendingCancelled" in names(decision)


def test_a_starving_phase_does_not_look_idle() -> None:
    """Sized from completed requests, a phase that completes nothing seems to need nothing."""
    starved = {
        "requests_per_second": Known(0.5),
        "served_requests_per_second": Idle(),
        "tokens_per_second": Known(100.0),
        "mean_tokens": Idle(),
    }
    memory = ServiceMemory(
        extra={"lengths.completed_tokens": 100.0, "lengths.output_tokens.level": 100.0, "lengths.output_tokens.at": 990.0}
    )
    decision = setting(3.9, 3.9, seen=traffic(3.9, 3.9, decode=starved), memory=memory).decide()
    needed = decision.phases[D].needed_tokens_per_second
    assert needed is not None
    assert needed >= 3_000.0
    assert counts(decision)[1] >= 4


def test_a_good_mean_does_not_hide_slow_tails() -> None:
    """With the mean as the signal tail users suffered."""
    seen = traffic(2.0, 2.0, decode={"latency_mean_seconds": Known(0.02), "attainment": Known(0.85)})
    decision = setting(2.0, 2.0, seen=seen).decide()
    assert decision.lagging is D


def test_a_model_that_does_not_fit_is_never_placed() -> None:
    """40 and 80 GB cards became one pool, and nobody checked that the model fits."""
    decision = Setting(
        pools=(pool("a100-40gb", memory_gb=40), pool("a100-80gb")), performance=table(a100_80gb=(10_000.0, 1_000.0))
    ).decide()
    assert {variant.pool for variant in decision.allocation} == {"a100-80gb"}


def test_gpus_of_others_and_of_cordoned_nodes_are_not_free() -> None:
    """Free GPUs were computed without other tenants' pods and cordoned nodes."""
    entry = pool("h100", nodes=3, gpus=4)
    first, second, third = entry.nodes
    entry = replace(entry, nodes=(first, replace(second, foreign_gpus=3), replace(third, usable=False)))
    decision = Setting(pools=(entry,), ready={(P, "h100"): 2, (D, "h100"): 2}, seen=traffic(6.0, 6.0)).decide()
    assert sum(counts(decision)) == 5


def test_cold_start_rounds_do_not_raise_the_floor() -> None:
    """Samples of a cold start polluted the capacity model."""
    seen = traffic(2.0, 2.0, decode={"attainment": Known(0.5)})
    memory = ServiceMemory(phases={D: PhaseMemory(short_rounds=3)})
    status = {(D, "h100"): {"desired": 4, "ready": 3, "starting": 1}}
    decision = setting(2.0, 2.0, seen=seen, memory=memory, status=status).decide()
    assert decision.phases[D].trim == 1.0


def test_shrinking_takes_the_highest_of_the_window() -> None:
    """Scale-down used the minimum of the recommendation window."""
    memory = ServiceMemory(
        phases={phase: PhaseMemory(low_since_seconds=600.0) for phase in Phase},
        extra={"prefill.peak": 27_000.0, "decode.peak": 500.0},
    )
    assert counts(setting(0.5, 0.5, memory=memory).decide()) == (3, 1)


def test_replicas_that_start_are_counted_so_that_nothing_cascades() -> None:
    """2, 4, 8, 16: pending replicas were not counted."""
    world = World(
        (pool("h100", nodes=4),),
        table(h100=(10_000.0, 1_000.0)),
        {KEY: service()},
        {KEY: lambda _: (35.0, 1000.0, 100.0)},
        start_up=300.0,
    )
    world.place(KEY, P, "h100", 1)
    world.place(KEY, D, "h100", 1)
    world.run(290.0)
    most = max(len(decisions[KEY].allocation) and decisions[KEY].gpus for _, decisions in world.history)
    assert most <= 10  # eight are needed


def test_a_missing_series_is_not_idleness() -> None:
    """A missing series read as 0 scaled down under load; one failed length query halved prefill."""
    gone = PhaseObservation()
    memory = ServiceMemory(phases={phase: PhaseMemory(low_since_seconds=1.0) for phase in Phase})
    blind = setting(3.0, 3.0, seen=replace(traffic(3.0, 3.0), prefill=gone, decode=gone), memory=memory).decide()
    assert counts(blind) == (4, 4)
    failed = Unknown(UnknownReason.QUERY_FAILED, "HTTP 503")
    lengths = setting(3.0, 3.0, seen=traffic(3.0, 3.0, prefill={"mean_tokens": failed}), memory=memory)
    remembered = ServiceMemory(extra={"lengths.prompt_tokens.level": 1000.0, "lengths.prompt_tokens.at": 985.0})
    needed = replace(lengths, memory=remembered).decide().phases[P].needed_tokens_per_second
    assert needed == pytest.approx(30_000.0, rel=0.05)


def test_losing_the_last_decode_pod_is_impossible() -> None:
    """Losing the only decode pod kills the model."""
    memory = ServiceMemory(phases={phase: PhaseMemory(low_since_seconds=1.0) for phase in Phase})
    decision = setting(9.0, 0.001, memory=memory).decide()
    assert counts(decision)[1] == 1


def test_both_phases_short_and_no_gpu_free_is_said_and_nothing_is_shuffled() -> None:
    """Shuffling between two short phases loses a start-up each time and gains nothing."""
    seen = traffic(5.0, 5.0, prefill={"attainment": Known(0.4)}, decode={"attainment": Known(0.4)})
    memory = ServiceMemory()
    for tick in range(20):
        given = setting(
            5.0, 5.0, seen=seen, memory=memory, now=1000.0 + 15.0 * tick, service=service(flip_supported=bool(tick % 2))
        )
        decision = given.decide()
        assert counts(decision) == (4, 4)
        assert decision.capacity_limited is not None
        assert "would help" in message(decision, "CapacityLimited")
        memory = decision.memory
