"""Demand, lengths, lag and trim: what is read out of an observation."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.unit.decide.world import TARGETS, observation

from equipoise.api.identity import Phase, ServiceKey
from equipoise.decide.demand import Demand, DemandUnknown, estimate_demand, offered_requests
from equipoise.decide.lag import Lag, decode_leg_dominates, estimate_lags
from equipoise.decide.memory import PhaseMemory
from equipoise.decide.settings import Settings
from equipoise.decide.sizing import needed_tokens_per_second
from equipoise.decide.smoothing import Level, average, follow, read_level, write_level
from equipoise.decide.trim import adjust_trim
from equipoise.decide.workload import answer_tokens, estimate_workload
from equipoise.observe.types import Idle, Known, ServiceObservation, Signal, Unknown, UnknownReason
from equipoise.perf.types import Workload

KEY = ServiceKey("prod", "chat")
DEFAULTS = Settings()
PROMISED = dict.fromkeys(Phase, 0.95)
FAILED = Unknown(UnknownReason.QUERY_FAILED, "timeout")
HIDDEN = Unknown(UnknownReason.NOT_EXPOSED)


def demand(
    seen: ServiceObservation | None, phase: Phase = Phase.PREFILL, extra: dict[str, float] | None = None, **changes: float | bool
) -> Demand | DemandUnknown:
    given = {"startup_seconds": 60.0, "decode_starves": False, "decode_slots": 0.0, "now_seconds": 1000.0, **changes}
    return estimate_demand(seen, phase, Workload(1000.0, 200.0), extra or {}, settings=DEFAULTS, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prefill", "decode", "wanted"),
    [
        (Known(10.0), Known(4.0), Known(10.0)),  # what prefill holds back will come
        (Known(10.0), Known(12.0), Known(12.0)),  # some requests skip prefill
        (Idle(), Idle(), Idle()),
        (Idle(), Known(2.0), Known(2.0)),
        (Known(3.0), Idle(), Known(3.0)),
        (FAILED, Known(2.0), Known(2.0)),  # an unknown prefill does not blind decode
        (FAILED, Idle(), FAILED),  # but "nothing here" is no proof when prefill may be starving
        (Known(3.0), FAILED, FAILED),
        (Known(3.0), HIDDEN, Known(3.0)),  # the engine has no such metric: arrivals at prefill do
    ],
)
def test_requests_offered_to_decode(prefill: Signal, decode: Signal, wanted: Signal) -> None:
    seen = observation(KEY, prefill={"requests_per_second": prefill}, decode={"requests_per_second": decode})
    assert offered_requests(seen, Phase.DECODE) == wanted
    assert offered_requests(seen, Phase.PREFILL) == prefill


def test_prefill_demand_is_uncached_prompt_tokens() -> None:
    found = estimate_demand(
        observation(KEY, rate=10.0), Phase.PREFILL, Workload(1000.0, 200.0, 0.4), {}, 60.0, False, 0.0, 1000.0, DEFAULTS
    )
    assert isinstance(found, Demand)
    assert found.now == pytest.approx(6000.0)


def test_decode_demand_comes_from_what_is_offered_not_from_what_is_served() -> None:
    starving = observation(
        KEY,
        rate=10.0,
        decode={"requests_per_second": Known(2.0), "served_requests_per_second": Known(2.0), "tokens_per_second": Known(400.0)},
    )
    found = demand(starving, Phase.DECODE)
    assert isinstance(found, Demand)
    assert found.now == pytest.approx(2000.0)


@pytest.mark.parametrize("signal", [FAILED, Known(float("nan")), Known(-1.0)])
def test_no_number_is_no_zero(signal: Signal) -> None:
    found = demand(observation(KEY, prefill={"requests_per_second": signal}), extra={"prefill.demand.level": 5.0})
    assert isinstance(found, DemandUnknown)
    assert found.memory == {"prefill.demand.level": 5.0}


def test_idle_is_zero_at_once() -> None:
    before = Level(5000.0, at_seconds=985.0)
    extra = write_level(before, "prefill.demand") | write_level(before, "prefill.demand.recent")
    found = demand(observation(KEY, rate=0.0), extra=extra)
    assert isinstance(found, Demand)
    assert found.idle
    assert found.now == 0.0


def test_a_queue_is_added_to_what_is_urgent_and_left_out_of_the_forecast() -> None:
    found = demand(observation(KEY, rate=10.0, prefill={"waiting_requests": Known(30.0)}))
    assert isinstance(found, Demand)
    assert found.backlog == pytest.approx(30 * 1000 / DEFAULTS.backlog_drain_seconds)
    assert found.urgent == pytest.approx(11_000.0)
    assert found.forecast == pytest.approx(10_000.0)


def test_a_prefill_queue_that_decode_causes_is_charged_to_decode() -> None:
    seen = observation(KEY, rate=10.0, prefill={"waiting_requests": Known(30.0)})
    prefill, decode = demand(seen, decode_starves=True), demand(seen, Phase.DECODE, decode_starves=True)
    assert isinstance(prefill, Demand)
    assert isinstance(decode, Demand)
    assert prefill.backlog == 0.0
    assert decode.backlog == pytest.approx(30 * 200 / DEFAULTS.backlog_drain_seconds)


def test_answers_beyond_what_replicas_run_in_time_are_decodes_queue() -> None:
    seen = observation(KEY, rate=10.0, decode={"running_requests": Known(100.0)})
    found = demand(seen, Phase.DECODE, decode_slots=64.0)
    assert isinstance(found, Demand)
    assert found.backlog == pytest.approx(36 * 200 / DEFAULTS.backlog_drain_seconds)


def test_a_trend_reaches_to_the_start_up_time_and_at_most_doubles() -> None:
    level = Level(1000.0, trend=5.0)
    assert level.forecast(60.0, DEFAULTS) == pytest.approx(1300.0)
    assert level.forecast(3600.0, DEFAULTS) == pytest.approx(2000.0)
    assert Level(1000.0, trend=-5.0).forecast(60.0, DEFAULTS) == pytest.approx(1000.0)


def test_a_rising_demand_is_foreseen() -> None:
    level: Level | None = None
    for tick in range(60):
        level, _ = follow(level, 1000.0 + 20.0 * tick, 30.0, 1000.0 + 15.0 * tick, DEFAULTS)
    assert level is not None
    assert level.value == pytest.approx(2180.0, rel=0.1)
    assert level.forecast(120.0, DEFAULTS) > 2250.0


def test_noise_is_smoothed_and_a_shift_is_taken_at_once() -> None:
    source = random.Random(4)
    level: Level | None = None
    shifts = 0
    for tick in range(200):
        level, shifted = follow(level, source.gauss(1000.0, 50.0), 50.0, 1000.0 + 15.0 * tick, DEFAULTS)
        shifts += shifted
    assert level is not None
    assert shifts <= 4
    assert level.value == pytest.approx(1000.0, rel=0.1)
    level, shifted = follow(level, 2000.0, 50.0, 1000.0 + 15.0 * 200, DEFAULTS)
    assert shifted
    assert level.value == 2000.0


def test_a_full_window_is_taken_as_it_is_and_a_thin_one_is_averaged() -> None:
    before = Level(1000.0, at_seconds=1000.0)
    assert average(before, 1100.0, 600.0, 2.0, 15.0, 1015.0, DEFAULTS).value == 1100.0
    thin = average(before, 1100.0, 20.0, 2.0, 15.0, 1015.0, DEFAULTS).value
    assert 1000.0 < thin < 1050.0


def test_a_stale_level_says_nothing() -> None:
    level, shifted = follow(Level(1000.0, at_seconds=0.0), 10.0, 1.0, 10_000.0, DEFAULTS)
    assert level.value == 10.0
    assert not shifted


def test_levels_survive_memory() -> None:
    level = Level(1234.5, 1.5, 20.0, 77.0)
    assert read_level(write_level(level, "x"), "x") == level
    assert read_level({}, "x") is None


def test_lengths_are_observed_then_remembered_then_assumed() -> None:
    first = estimate_workload(observation(KEY, prompt=2000.0, output=300.0), {}, 1000.0, DEFAULTS)
    assert not first.assumed
    assert first.workload.mean_prompt_tokens == pytest.approx(2000.0, rel=0.03)
    blind = observation(KEY, prefill={"mean_tokens": FAILED}, decode={"mean_tokens": FAILED, "tokens_per_second": FAILED})
    second = estimate_workload(blind, first.memory, 1015.0, DEFAULTS)
    assert second.workload == first.workload
    third = estimate_workload(blind, {}, 1015.0, DEFAULTS)
    assert third.assumed == ("prompt tokens 1155", "output tokens 211")


def test_answers_in_progress_count_before_the_first_long_one_ends() -> None:
    # Ten seconds after a shift from 40 to 1,200 tokens: few answers have ended, all of them short.
    seen = observation(
        KEY,
        rate=40.0,
        window=15.0,
        decode={
            "mean_tokens": Known(45.0),
            "served_requests_per_second": Known(8.0),
            "tokens_per_second": Known(8_000.0),
        },
    )
    mean, _ = answer_tokens(seen, 40.0)
    assert mean is not None
    assert 300.0 < mean < 1200.0
    steady, _ = answer_tokens(observation(KEY, rate=40.0, output=200.0), None)
    assert steady == pytest.approx(200.0)


def lags(seen: ServiceObservation, starves: bool = False) -> dict[Phase, Lag]:
    return estimate_lags(seen, TARGETS, PROMISED, starves)


def test_attainment_decides_whether_and_latency_by_how_much() -> None:
    late = observation(KEY, decode={"attainment": Known(0.80), "latency_percentile_seconds": Known(0.075)})
    assert lags(late)[Phase.DECODE].value == pytest.approx(1.5)
    blurred = observation(KEY, decode={"attainment": Known(0.97), "latency_percentile_seconds": Known(0.06)})
    assert lags(blurred)[Phase.DECODE].value == 1.0
    short = observation(KEY, decode={"attainment": Known(0.76), "latency_percentile_seconds": FAILED})
    assert lags(short)[Phase.DECODE].value == pytest.approx(1.2)


def test_unknown_latency_and_attainment_leave_the_lag_unknown() -> None:
    seen = observation(KEY, decode={"attainment": FAILED})
    assert lags(seen)[Phase.DECODE] == Lag(None, None, None)
    assert not lags(seen)[Phase.DECODE].lagging


def test_the_whole_ttft_counts_for_prefill() -> None:
    seen = observation(
        KEY,
        prefill={"latency_percentile_seconds": Known(0.9), "latency_mean_seconds": Known(0.5), "attainment": FAILED},
        ttft_decode_leg_mean_seconds=Known(0.3),
    )
    assert lags(seen)[Phase.PREFILL].value == pytest.approx(1.2)


def test_a_decode_leg_that_dominates_is_decodes_lag() -> None:
    seen = observation(
        KEY,
        prefill={"latency_percentile_seconds": Known(0.4), "latency_mean_seconds": Known(0.2), "attainment": Known(0.5)},
        ttft_decode_leg_mean_seconds=Known(1.5),
    )
    assert decode_leg_dominates(seen, TARGETS)
    found = lags(seen)
    assert not found[Phase.PREFILL].lagging
    assert found[Phase.DECODE].value == pytest.approx(1.9)
    assert not decode_leg_dominates(observation(KEY), TARGETS)


def trimmed(memory: PhaseMemory, attainment: float | None, **changes: float | bool | None) -> PhaseMemory:
    given = {"utilisation": 0.8, "settling": False, "promised": 0.95, "now_seconds": 2000.0, "interval_seconds": 15.0, **changes}
    return adjust_trim(memory, Lag(None, None, attainment), settings=DEFAULTS, **given).memory  # type: ignore[arg-type]


def test_trim_rises_after_some_short_rounds_and_is_bounded() -> None:
    memory = PhaseMemory()
    trims = []
    for _ in range(20):
        memory = trimmed(memory, 0.9)
        trims.append(memory.trim)
    assert trims[:3] == [1.0, 1.0, 1.1]
    assert trims[-1] == DEFAULTS.trim_most


@pytest.mark.parametrize(
    "changes",
    [{"settling": True}, {"utilisation": 1.2}, {"utilisation": None}, {"promised": 0.85}],
    ids=["warm-up or move in flight", "short of capacity anyway", "unknown", "no more is attainable"],
)
def test_trim_does_not_wind_up(changes: dict[str, float | bool | None]) -> None:
    memory = PhaseMemory(short_rounds=3)
    for _ in range(5):
        memory = trimmed(memory, 0.9, **changes)
    assert memory.trim == 1.0


def test_trim_sinks_slowly_after_a_good_while() -> None:
    memory = PhaseMemory(trim=1.5, good_since_seconds=1900.0)
    assert trimmed(memory, 0.99).trim == 1.5
    memory = replace(memory, good_since_seconds=1600.0)
    once = trimmed(memory, 0.99)
    assert 1.48 < once.trim < 1.5  # a hundredth in 15 s
    for tick in range(1000):
        once = trimmed(once, 0.99, now_seconds=2000.0 + 15.0 * tick)
    assert once.trim == 1.0


def test_need_counts_nothing_twice() -> None:
    found = Demand(now=1000.0, backlog=500.0, forecast=1200.0, requests_per_second=1.0)
    assert needed_tokens_per_second(found, 1.0, DEFAULTS) == 1200.0
    assert needed_tokens_per_second(found, 1.5, replace(DEFAULTS, headroom=1.1)) == pytest.approx(1980.0)


def test_settings_name_what_they_do_not_know() -> None:
    assert Settings.from_mapping({"flip_gain": 0.2}).flip_gain == 0.2
    with pytest.raises(ValueError, match=r"flip_gian unknown; there are .*flip_gain"):
        Settings.from_mapping({"flip_gian": 0.2})
