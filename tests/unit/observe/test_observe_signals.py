"""Known, idle, unknown: each signal by itself."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from tests.unit.observe.builders import KEY, NOW, buckets, group, observe, quiet, roll_call, rows, scope, sighting, value
from tests.unit.observe.recordings import MODEL

from equipoise.api.identity import Phase
from equipoise.observe.engines.router import ROUTER
from equipoise.observe.engines.table import Reading
from equipoise.observe.engines.vllm import VLLM
from equipoise.observe.health import metrics_condition, unknown_signals
from equipoise.observe.readings import Failure, Group, Outcome, RollCall, Row
from equipoise.observe.types import Idle, Known, PhaseObservation, Signal, Unknown, UnknownReason

TPOT = {0.01: 20.0, 0.025: 60.0, 0.05: 90.0, math.inf: 100.0}


def reason(signal: Signal) -> UnknownReason:
    assert isinstance(signal, Unknown), signal
    return signal.reason


def test_nothing_counted_and_nothing_waiting_is_idle() -> None:
    seen = observe(quiet())
    for phase in (seen.prefill, seen.decode):
        for name in (
            "requests_per_second",
            "served_requests_per_second",
            "tokens_per_second",
            "mean_tokens",
            "latency_mean_seconds",
        ):
            assert getattr(phase, name) == Idle(), name
        assert value(phase.waiting_requests) == 0.0
        assert value(phase.refused_requests_per_second) == 0.0
    assert seen.ttft_mean_seconds == Idle()


def test_nothing_counted_while_requests_wait_is_not_idle() -> None:
    readings = quiet()
    readings[Reading.WAITING] = rows(0.0, 7.0)
    seen = observe(readings)
    assert value(seen.decode.served_requests_per_second) == 0.0
    assert reason(seen.decode.latency_mean_seconds) is UnknownReason.TOO_FEW_SAMPLES
    assert seen.prefill.latency_mean_seconds == Idle()


def test_no_scrape_is_not_idle() -> None:
    seen = observe({name: {} for name in quiet()}, seen=RollCall((), 120.0))
    for phase in (seen.prefill, seen.decode):
        own = {name: item for name, item in unknown_signals(phase).items() if item.message != "not queried"}
        assert not any(isinstance(getattr(phase, item.name), Idle | Known) for item in fields(PhaseObservation))
        assert {item.reason for name, item in own.items() if name != "prefix_hit_share"} == {UnknownReason.NO_SERIES_WHILE_READY}
    condition = metrics_condition(seen)
    assert not condition.ok
    assert condition.reason == "NoSeriesWhilePodsReady"
    assert "all signals" in condition.message


@pytest.mark.parametrize("failed", [item.reading for item in (*VLLM.instruments, *ROUTER)])
def test_one_failed_query_voids_only_what_stands_on_it(failed: Reading) -> None:
    readings = busy()
    before = observe(readings)
    readings[failed] = Failure("connection refused")
    after = observe(readings)
    changed = set()
    for phase in Phase:
        for item in fields(PhaseObservation):
            old, new = getattr(before.phase(phase), item.name), getattr(after.phase(phase), item.name)
            if old != new:
                changed.add(item.name)
                if isinstance(new, Unknown):
                    assert new.reason is UnknownReason.QUERY_FAILED, (item.name, new)
                    assert "connection refused" in new.message
    assert len(changed - {"per_variant", "per_variant_tokens_per_second", "latency_source", "attainment_bounds"}) <= 6, changed


def test_latency_is_told_with_its_percentile_bucket_and_share() -> None:
    seen = observe(busy()).decode
    assert value(seen.latency_mean_seconds) == pytest.approx(0.03)
    assert isinstance(seen.latency_percentile_seconds, Known)
    assert seen.latency_percentile_seconds.samples == 100.0
    assert value(seen.latency_percentile_bucket_seconds) == math.inf
    assert value(seen.attainment) == pytest.approx(0.9)
    assert seen.attainment_bounds == (0.9, 0.9)


def test_fewer_samples_than_needed_say_nothing_of_a_percentile() -> None:
    readings = busy()
    readings[Reading.REQUEST_TPOT_COUNT] = rows(None, 3.0)
    readings[Reading.REQUEST_TPOT_BUCKETS] = buckets(None, {0.05: 3.0, math.inf: 3.0})
    readings[Reading.TOKEN_LATENCY_COUNT] = rows(None, 2.0)
    seen = observe(readings).decode
    assert reason(seen.latency_percentile_seconds) is UnknownReason.TOO_FEW_SAMPLES
    assert reason(seen.attainment) is UnknownReason.TOO_FEW_SAMPLES


def test_while_too_few_answers_have_finished_the_time_between_tokens_stands_in() -> None:
    readings = busy()
    readings[Reading.REQUEST_TPOT_COUNT] = rows(None, 3.0)
    seen = observe(readings).decode
    assert seen.latency_source == "vllm:inter_token_latency_seconds"
    assert value(seen.latency_mean_seconds) == pytest.approx(0.04)


def test_not_a_number_is_its_own_reason() -> None:
    readings = busy()
    readings[Reading.KV_USAGE] = rows(math.nan, 0.5)
    readings[Reading.TTFT_SUM] = rows(math.nan, 10.0)
    readings[Reading.TTFT_COUNT] = rows(math.nan, 100.0)
    seen = observe(readings)
    assert reason(seen.prefill.kv_usage_share) is UnknownReason.NOT_A_NUMBER
    assert reason(seen.prefill.latency_mean_seconds) is UnknownReason.NOT_A_NUMBER
    assert value(seen.decode.kv_usage_share) == 0.5


def test_a_family_that_scraped_pods_do_not_have_is_not_exposed() -> None:
    readings = busy()
    readings[Reading.WAITING_FOR_CAPACITY] = {}
    seen = observe(readings)
    signal = seen.decode.waiting_for_capacity_requests
    assert reason(signal) is UnknownReason.NOT_EXPOSED
    assert isinstance(signal, Unknown)
    assert "vllm:num_requests_waiting_by_reason" in signal.message


def test_cold_pods_alone_give_amounts_but_no_latency() -> None:
    readings = busy()
    for name in (Reading.TTFT_SUM, Reading.TTFT_COUNT, Reading.TTFT_BUCKETS):
        readings[name] = {}
    seen = observe(readings, of=scope({"p0": NOW - 20.0}, {"d0": 0.0}))
    assert reason(seen.prefill.latency_mean_seconds) is UnknownReason.TOO_FEW_SAMPLES
    assert value(seen.prefill.tokens_per_second) > 0


def test_sums_are_scaled_to_pods_that_are_not_scraped_and_means_are_not() -> None:
    service = scope(decode={f"d{index}": 0.0 for index in range(4)})
    called = roll_call(sighting("p0", Phase.PREFILL), *(sighting(f"d{index}", Phase.DECODE) for index in range(3)))
    seen, whole = observe(busy(), of=service, seen=called), observe(busy())
    assert value(seen.decode.tokens_per_second) == pytest.approx(value(whole.decode.tokens_per_second) * 4 / 3)
    assert value(seen.decode.running_requests) == pytest.approx(value(whole.decode.running_requests) * 4 / 3)
    assert value(seen.decode.latency_mean_seconds) == value(whole.decode.latency_mean_seconds)
    assert value(seen.decode.kv_usage_share) == value(whole.decode.kv_usage_share)
    assert seen.decode.pods_missing == ("d3",)
    condition = metrics_condition(seen)
    assert condition.ok
    assert condition.reason == "Partial"


def test_without_a_roll_call_values_count_and_idleness_cannot_be_told() -> None:
    seen = observe(busy(), seen=Failure("down"))
    assert value(seen.decode.tokens_per_second) > 0
    idle = observe(quiet(), seen=Failure("down"))
    assert not isinstance(idle.decode.latency_mean_seconds, Idle)
    assert not isinstance(idle.prefill.requests_per_second, Idle)


def test_rows_of_another_served_name_or_role_are_not_counted() -> None:
    readings = busy()
    readings[Reading.OUTPUT_TOKENS] = {
        group(Phase.DECODE): [Row("v", 0.0, 600.0)],
        group(Phase.DECODE, "other"): [Row("v", 0.0, 1e6)],
        Group(KEY.namespace, KEY.name, "draining", MODEL): [Row("v", 0.0, 1e6)],
    }
    assert value(observe(readings).decode.tokens_per_second) == 10.0


def test_two_spellings_of_one_bound_add_up() -> None:
    readings = busy()
    readings[Reading.REQUEST_TPOT_BUCKETS] = {
        group(Phase.DECODE): [Row("", edge, count) for edge, count in TPOT.items() for _ in range(2)]
    }
    signal = observe(readings).decode.attainment
    assert isinstance(signal, Known)
    assert signal.samples == 200.0


def test_kv_usage_is_averaged_over_pods_and_not_over_variants() -> None:
    readings = busy()
    readings[Reading.KV_USAGE] = {group(Phase.DECODE): [Row("big", 0.0, 0.9), Row("chat-decode", 0.0, 0.3)]}
    called = RollCall(
        (
            *(sighting(f"d{index}", Phase.DECODE) for index in range(2)),
            sighting("d2", Phase.DECODE)._replace(variant="big"),
        ),
        120.0,
    )
    service = scope(decode={f"d{index}": 0.0 for index in range(3)})
    assert value(observe(readings, of=service, seen=called).decode.kv_usage_share) == pytest.approx((2 * 0.3 + 0.9) / 3)


def test_every_known_signal_carries_the_age_of_its_data() -> None:
    called = roll_call(sighting("p0", Phase.PREFILL, age=4.0), sighting("d0", Phase.DECODE, age=11.0))
    seen = observe(busy(), seen=called)
    for phase, age in ((seen.prefill, 4.0), (seen.decode, 11.0)):
        known = [signal for item in fields(phase) if isinstance(signal := getattr(phase, item.name), Known)]
        assert len(known) > 10
        assert {signal.age_seconds for signal in known} <= {age, max(4.0, 11.0)}


def busy() -> dict[Reading, Outcome]:
    """A pair under load in 60 s: 100 requests of 500 prompt and 60 output tokens."""
    readings = quiet()
    readings[Reading.PREFILLED] = rows(100.0)
    readings[Reading.FINISHED] = rows(None, 100.0)
    readings[Reading.PROMPT_TOKENS] = rows(50_000.0)
    readings[Reading.PROMPT_TOKENS_COMPUTED] = rows(40_000.0, 0.0)
    readings[Reading.OUTPUT_TOKENS] = rows(None, 6_000.0)
    readings[Reading.PROMPT_LENGTH_SUM] = rows(50_000.0)
    readings[Reading.PROMPT_LENGTH_COUNT] = rows(100.0)
    readings[Reading.OUTPUT_LENGTH_SUM] = rows(None, 6_000.0)
    readings[Reading.OUTPUT_LENGTH_COUNT] = rows(None, 100.0)
    readings[Reading.TTFT_SUM] = rows(30.0, 10.0)
    readings[Reading.TTFT_COUNT] = rows(100.0, 100.0)
    readings[Reading.TTFT_BUCKETS] = buckets(
        {0.25: 40.0, 0.5: 95.0, 1.0: 100.0, math.inf: 100.0}, {0.1: 60.0, 0.25: 100.0, math.inf: 100.0}
    )
    readings[Reading.REQUEST_TPOT_SUM] = rows(None, 3.0)
    readings[Reading.REQUEST_TPOT_COUNT] = rows(None, 100.0)
    readings[Reading.REQUEST_TPOT_BUCKETS] = buckets(None, TPOT)
    readings[Reading.TOKEN_LATENCY_SUM] = rows(None, 240.0)
    readings[Reading.TOKEN_LATENCY_COUNT] = rows(None, 6_000.0)
    readings[Reading.TOKEN_LATENCY_BUCKETS] = buckets(None, {0.05: 5_000.0, math.inf: 6_000.0})
    readings[Reading.QUEUE_SUM] = rows(10.0, 5.0)
    readings[Reading.QUEUE_COUNT] = rows(100.0, 100.0)
    readings[Reading.COMPUTE_SUM] = rows(20.0)
    readings[Reading.COMPUTE_COUNT] = rows(100.0)
    readings[Reading.RUNNING] = rows(0.0, 5.0)
    readings[Reading.RUNNING_NOW] = rows(0.0, 6.0)
    readings[Reading.RUNNING_BEFORE] = rows(0.0, 4.0)
    readings[Reading.KV_USAGE] = rows(0.1, 0.5)
    readings[Reading.KV_USAGE_PEAK] = rows(0.2, 0.7)
    return readings
