from __future__ import annotations

import random

import pytest

from equipoise.api.identity import Phase
from equipoise.perf.calibrate import (
    Calibration,
    Sample,
    calibrate,
    calibrated_times,
    expected_prefill_slope,
    expected_step_seconds,
)
from equipoise.perf.types import StepTimes, Workload

TRAFFIC = Workload(1000, 200)
TIMES = StepTimes(0.004, 20e-6, 0.6e-9, 0.007, 12e-6, 45e-9, "table")
NOW = 10_000.0


def run(phase: Phase, samples: list[Sample], *, queue_free: bool = False) -> Calibration:
    return calibrate(phase, samples, TIMES, TRAFFIC, now_seconds=NOW, queue_free=queue_free)


def decode(factor: float, loads: list[float], noise: float = 0.0, **more: float) -> list[Sample]:
    """Windows of an engine that is `factor` times as fast as the table."""
    chance = random.Random(1)
    return [
        Sample(
            NOW - 15 * index,
            load,
            expected_step_seconds(TIMES, TRAFFIC, load) / factor * (1 + chance.uniform(-noise, noise)),
            **more,
        )
        for index, load in enumerate(loads)
    ]


def prefill(factor: float, loads: list[float]) -> list[Sample]:
    slope = expected_prefill_slope(TIMES, TRAFFIC) / factor
    return [Sample(NOW - 15 * index, load, 0.02 + slope * load) for index, load in enumerate(loads)]


LOADS = [20_000.0 + 5_000.0 * index for index in range(20)]


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.0, 1.4, 1.9])
def test_finds_how_fast_the_engine_is(factor: float) -> None:
    assert run(Phase.DECODE, decode(factor, LOADS)).factor == pytest.approx(factor, rel=0.01)
    assert run(Phase.DECODE, decode(factor, LOADS, noise=0.05)).factor == pytest.approx(factor, rel=0.05)
    found = run(Phase.PREFILL, prefill(factor, LOADS))
    assert found.accepted
    assert found.factor == pytest.approx(factor, rel=0.01)
    assert found.intercept_seconds == pytest.approx(0.02, rel=0.05)
    assert "prompt tokens/s measured" in found.reason


def test_a_quarter_of_nonsense_does_not_move_it() -> None:
    samples = decode(1.2, LOADS)
    spoiled = [
        Sample(one.at_seconds, one.load_tokens, one.seconds * (9 if index % 4 == 0 else 1)) for index, one in enumerate(samples)
    ]
    assert run(Phase.DECODE, spoiled).factor == pytest.approx(1.2, rel=0.1)


def test_stays_within_half_and_double_and_says_so() -> None:
    slow, fast = run(Phase.DECODE, decode(0.1, LOADS)), run(Phase.DECODE, decode(10, LOADS))
    assert (slow.factor, fast.factor) == (0.5, 2.0)
    assert "0.10 is outside 0.5 to 2.0: check model, device and metrics" in slow.reason


def test_warm_up_and_old_samples_are_left_out() -> None:
    cold = decode(0.5, LOADS, ready_seconds=30.0)
    warm = decode(1.5, LOADS)
    assert run(Phase.DECODE, cold + warm).factor == pytest.approx(1.5, rel=0.01)
    assert not run(Phase.DECODE, cold).accepted
    old = [Sample(one.at_seconds - 3601, one.load_tokens, one.seconds) for one in warm]
    ahead = [Sample(one.at_seconds + 3600, one.load_tokens, one.seconds) for one in warm]
    found = run(Phase.DECODE, old + ahead)
    assert (found.factor, found.accepted, found.samples) == (1.0, False, 0)
    assert found.reason == "table kept: 0 usable samples in the window, 8 needed"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 0.0])
def test_senseless_values_are_left_out(bad: float) -> None:
    good = decode(1.5, LOADS)
    spoiled = [*good, Sample(NOW, bad, 0.01), Sample(NOW, 1e4, bad)]
    assert run(Phase.DECODE, spoiled).factor == pytest.approx(1.5, rel=0.01)


def test_keeps_the_table_when_nothing_can_be_told() -> None:
    flat = run(Phase.PREFILL, [Sample(NOW - index, 1000 + index, 0.03) for index in range(20)])
    assert not flat.accepted
    assert "load hardly varied (1,002 to 1,017 tokens)" in flat.reason
    falling = run(Phase.DECODE, [Sample(NOW - index, 1e4 * (index + 1), 0.05 - 0.001 * index) for index in range(20)])
    assert (falling.factor, falling.accepted) == (1.0, False)
    assert "latency did not rise with load" in falling.reason
    bent = run(Phase.DECODE, [Sample(NOW - index, 1e4 * (index + 1), 1e-5 * (index + 1) ** 4) for index in range(20)])
    assert (bent.factor, bent.accepted) == (1.0, False)
    assert "not a straight line" in bent.reason


def test_steady_traffic_is_enough_when_no_queue_is_in_the_times() -> None:
    steady = decode(1.3, [50_000.0 + index for index in range(20)])
    assert not run(Phase.DECODE, steady).accepted
    found = run(Phase.DECODE, steady, queue_free=True)
    assert found.accepted
    assert found.factor == pytest.approx(1.3, rel=0.01)
    alone = [Sample(NOW - index, 1000, TIMES.prefill_seconds(1000, 2e6) / 0.8) for index in range(20)]
    assert run(Phase.PREFILL, alone, queue_free=True).factor == pytest.approx(0.8, rel=0.01)


def test_own_prefill_time_rises_without_the_constant_part() -> None:
    samples = [
        Sample(NOW - index, length, TIMES.prefill_constant + length * expected_prefill_slope(TIMES, TRAFFIC, constant=False))
        for index, length in enumerate(range(500, 2500, 100))
    ]
    assert run(Phase.PREFILL, samples, queue_free=True).factor == pytest.approx(1, rel=0.01)


def test_calibrated_times_change_one_phase() -> None:
    faster = calibrated_times(TIMES, Phase.DECODE, 2.0)
    assert faster.decode_step_seconds(10, 1e4) == pytest.approx(TIMES.decode_step_seconds(10, 1e4) / 2)
    assert faster.prefill_seconds(100, 1e4) == TIMES.prefill_seconds(100, 1e4)
    assert faster.source == "table; decode calibrated x 2.00"
    slower = calibrated_times(TIMES, Phase.PREFILL, 0.5)
    assert slower.prefill_seconds(100, 1e4) == pytest.approx(TIMES.prefill_seconds(100, 1e4) * 2)
    assert calibrated_times(TIMES, Phase.PREFILL, 1.0) is TIMES
