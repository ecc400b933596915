from __future__ import annotations

import csv
import math

import pytest
from tests.unit.observe.builders import replay, value
from tests.unit.observe.recordings import BEFORE, metrics_folder

from equipoise.observe.histogram import Histogram
from equipoise.observe.legs import SumOfLegs, goodput_bounds

UNIT = Histogram.from_buckets({1.0: 10.0, math.inf: 10.0})


def test_two_uniform_legs_make_a_triangle() -> None:
    legs = SumOfLegs(UNIT, UNIT)
    assert legs.share_within(1.0) == pytest.approx(0.5)
    assert legs.share_within(0.5) == pytest.approx(0.125)
    assert legs.share_within(1.5) == pytest.approx(0.875)
    assert legs.share_within(2.0) == pytest.approx(1.0)
    assert legs.percentile(50.0) == pytest.approx(1.0, abs=1e-3)


def test_bounds_of_two_uniform_legs_are_those_of_any_coupling() -> None:
    # Run together (A = B) the share within 1 is a half; run against each other (B = 1 - A) it is all or nothing.
    bounded = SumOfLegs(UNIT, UNIT).attainment(1.0)
    assert (bounded.low, bounded.high) == (0.0, 1.0)
    assert bounded.value == pytest.approx(0.5)


def test_a_leg_of_exact_zeros_changes_nothing() -> None:
    zeros = Histogram.from_buckets({0.0: 5.0, 1.0: 5.0, math.inf: 5.0})
    assert SumOfLegs(zeros, UNIT).share_within(0.25) == pytest.approx(0.25)
    assert SumOfLegs(UNIT, zeros).share_within(0.25) == pytest.approx(0.25)


def test_samples_beyond_the_last_bound_are_outside_and_their_percentile_is_not_told() -> None:
    tail = Histogram.from_buckets({1.0: 9.0, math.inf: 10.0})
    legs = SumOfLegs(tail, UNIT)
    assert legs.share_within(100.0) == pytest.approx(0.9)
    assert legs.percentile(95.0) is None
    assert legs.attainment(100.0).high == 1.0


def test_legs_without_samples_have_no_sum() -> None:
    with pytest.raises(ValueError, match="samples of both"):
        SumOfLegs(UNIT, Histogram.from_buckets({}))


def test_goodput_lies_between_the_bounds_of_frechet() -> None:
    assert goodput_bounds(0.9, 0.8) == pytest.approx((0.7, 0.8))
    assert goodput_bounds(0.3, 0.4) == (0.0, 0.3)


@pytest.mark.parametrize("load", sorted(BEFORE))
@pytest.mark.parametrize("target", [0.5, 1.0, 2.5, 5.0, 10.0, 20.0])
def test_what_clients_really_saw_lies_inside_the_bounds(load: str, target: float) -> None:
    """The clients' own TTFT of every recorded request, against what the engines' histograms allow to say of it."""
    with (metrics_folder() / f"pd-{load}-client.csv").open(encoding="utf-8") as file:
        times = [float(row["ttft"]) for row in csv.DictReader(file)]
    truth = sum(time <= target for time in times) / len(times)
    seen = replay(load, ttft_seconds=target)
    assert seen.ttft_attainment_bounds is not None
    low, high = seen.ttft_attainment_bounds
    one_request = 1.0 / len(times)  # the clients' clock adds the router's 8 to 122 ms, which moves one over an edge at most
    assert low - one_request <= truth <= high + one_request
    assert value(seen.ttft_attainment) == pytest.approx(truth, abs=0.12)
