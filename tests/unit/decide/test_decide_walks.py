"""Walks through scenarios in virtual time, on a fluid model of a fleet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.decide.world import Traffic, World, names, pool, service, table

from equipoise.api.identity import Phase, ServiceKey
from equipoise.decide.types import CapacityMode, MoveKind, ServiceInput, Verdict
from equipoise.observe.types import PhaseObservation, ServiceObservation, Unknown, UnknownReason

P, D = Phase.PREFILL, Phase.DECODE
KEY = ServiceKey("prod", "chat")
SPEEDS = table(h100=(36_500.0, 9_800.0))  # Llama-3.1-8B on one H100, as the control notes have it


def alternate(first: tuple[float, float, float], second: tuple[float, float, float], period: float) -> Traffic:
    return lambda at: first if int(at // period) % 2 == 0 else second


ALT300 = alternate((40.0, 6000.0, 40.0), (40.0, 500.0, 1200.0), 300.0)
CHAT_CODE = alternate((130.0, 1155.0, 211.0), (70.0, 4096.0, 28.0), 300.0)
STEADY: Traffic = lambda at: (60.0, 1155.0, 211.0)  # noqa: E731


def world(traffic: Traffic, given: ServiceInput | None = None, prefill: int = 4, decode: int = 4, **changes: object) -> World:
    made = World((pool("h100"),), SPEEDS, {KEY: given or service()}, {KEY: traffic}, **changes)  # type: ignore[arg-type]
    made.place(KEY, P, "h100", prefill)
    made.place(KEY, D, "h100", decode)
    return made


def best_static_split(traffic: Traffic, seconds: float) -> float:
    """In hindsight, of all splits."""
    found = []
    for prefill in range(1, 8):
        still = world(traffic, service(mode=CapacityMode.OFF), prefill, 8 - prefill, noise_seed=1)
        still.run(seconds)
        found.append(still.goodput(KEY))
    return max(found)


@pytest.mark.parametrize("traffic", [ALT300, CHAT_CODE], ids=["alt300", "chatcode300"])
def test_flips_beat_the_best_static_split_and_reach_the_bar(traffic: Traffic) -> None:
    moving = world(traffic, noise_seed=1, interval=5.0)
    moving.run(1200.0)
    assert moving.goodput(KEY) >= 0.98
    assert moving.goodput(KEY) > best_static_split(traffic, 1200.0)


def test_capacity_follows_a_turn_within_two_rounds_and_returns() -> None:
    moving = world(alternate((40.0, 6000.0, 40.0), (40.0, 500.0, 1200.0), 300.0))
    moving.run(300.0)
    assert moving.counts(KEY) == {P: 7, D: 1}
    moving.run(60.0)
    assert moving.counts(KEY)[D] >= 6
    moving.run(300.0)
    assert moving.counts(KEY)[P] >= 6
    assert all(move.kind is MoveKind.FLIP for _, decisions in moving.history for move in decisions[KEY].moves)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_constant_load_moves_nothing_after_the_first_minutes(seed: int) -> None:
    still = world(STEADY, noise_seed=seed)
    still.run(1800.0)
    settled = still.moves(KEY, after=900.0)
    assert settled == 0
    assert still.goodput(KEY) > 0.99


@pytest.mark.parametrize("rate", [1.0, 4.0, 95.0])
def test_noise_moves_little(rate: float) -> None:
    noisy = world(lambda at: (rate, 1155.0, 211.0), noise_seed=5, window=30.0)
    noisy.run(5400.0)
    moves = noisy.moves(KEY, after=1800.0)
    assert moves <= 4  # in an hour


def test_unknown_signals_hold_what_there_is() -> None:
    blinded = world(STEADY, prefill=2, decode=3)

    def blind(at: float, found: ServiceObservation) -> ServiceObservation:
        lost = PhaseObservation(requests_per_second=Unknown(UnknownReason.STALE, "last sample 300 s ago"))
        return replace(found, prefill=lost, decode=lost) if at > 100.0 else found

    blinded.observation_filter = blind
    blinded.run(100.0)
    before = blinded.counts(KEY)
    blinded.run(1500.0)
    assert blinded.counts(KEY) == before
    _, last = blinded.history[-1]
    assert last[KEY].verdict is Verdict.HOLD
    assert "SignalUnknown" in names(last[KEY])


def test_both_short_holds_the_best_split() -> None:
    flooded = world(lambda at: (120.0, 3000.0, 600.0), prefill=2, decode=6, noise_seed=3)
    flooded.run(1200.0)
    assert flooded.moves(KEY, after=120.0) <= 4
    _, last = flooded.history[-1]
    loads = [figures.utilisation for figures in last[KEY].phases.values() if figures.utilisation is not None]
    assert min(loads) > 1.0
    assert last[KEY].capacity_limited is not None


def test_a_newcomer_grows_from_one_of_each_to_its_need_in_one_step() -> None:
    fresh = World((pool("h100"),), SPEEDS, {KEY: service()}, {KEY: STEADY}, start_up=60.0)
    fresh.run(180.0)
    grown = [move for _, decisions in fresh.history for move in decisions[KEY].moves if move.kind is MoveKind.GROW]
    assert sum(move.replicas for move in grown) == sum(fresh.counts(KEY).values())
    assert len({at for at, decisions in fresh.history if decisions[KEY].moves}) <= 3


def test_without_flips_moves_are_few_and_never_exceed_the_pool() -> None:
    cold = world(alternate((40.0, 6000.0, 40.0), (40.0, 500.0, 1200.0), 900.0), service(flip_supported=False), noise_seed=1)
    cold.run(3600.0)
    assert cold.goodput(KEY) > 0.75
    assert cold.moves(KEY) <= 60


def test_two_services_trade_gpus_of_one_pool() -> None:
    other = ServiceKey("prod", "code")
    busy = alternate((60.0, 1155.0, 211.0), (4.0, 1155.0, 211.0), 1200.0)
    quiet = alternate((4.0, 1155.0, 211.0), (60.0, 1155.0, 211.0), 1200.0)
    shared = World(
        (pool("h100"),),
        SPEEDS,
        {KEY: service(), other: service("code")},
        {KEY: busy, other: quiet},
        noise_seed=2,
        start_up=30.0,
    )
    shared.run(2400.0)
    assert sum(shared.counts(other).values()) > sum(shared.counts(KEY).values())
    assert shared.goodput(KEY) > 0.9
    assert shared.goodput(other) > 0.85


def test_a_ramp_is_met_before_it_arrives() -> None:
    ramp = world(lambda at: (20.0 + 60.0 * min(1.0, at / 1800.0), 1155.0, 211.0), prefill=1, decode=1, noise_seed=4)
    ramp.run(2100.0)
    assert ramp.goodput(KEY) > 0.97


def test_an_idle_service_shrinks_to_its_minimum_only_after_the_delay() -> None:
    idle = world(lambda at: (60.0, 1155.0, 211.0) if at < 300.0 else (0.0, 1155.0, 211.0))
    idle.run(560.0)
    before = sum(idle.counts(KEY).values())
    assert before > 2
    idle.run(800.0)
    assert sum(idle.counts(KEY).values()) == 2
