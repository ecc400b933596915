from __future__ import annotations

import math
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from equipoise.observe.histogram import Histogram, merge
from equipoise.observe.legs import SumOfLegs, goodput_bounds

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
targets = st.floats(0.001, 25.0)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    counts = draw(st.lists(st.integers(0, 50), min_size=len(BOUNDS) + 1, max_size=len(BOUNDS) + 1).filter(any))
    return Histogram.from_buckets(zip((*BOUNDS, math.inf), map(float, accumulate(counts)), strict=True))


@st.composite
def samples(draw: st.DrawFn) -> list[tuple[float, float]]:
    leg = st.floats(0.0, 9.9)
    return draw(st.lists(st.tuples(leg, leg), min_size=1, max_size=40))


def of(values: list[float]) -> Histogram:
    return Histogram.from_buckets({bound: float(sum(value <= bound for value in values)) for bound in (*BOUNDS, math.inf)})


@given(histograms(), targets, targets)
def test_shares_grow_with_the_target_and_lie_between_their_edges(histogram: Histogram, one: float, two: float) -> None:
    low, high = (histogram.share_within(target) for target in sorted((one, two)))
    assert low is not None
    assert high is not None
    assert low.value <= high.value + 1e-12
    for share in (low, high):
        assert 0.0 <= share.low <= share.value + 1e-12 <= share.high + 2e-12 <= 1.0 + 3e-12


@given(histograms(), st.floats(0.0, 100.0))
def test_the_share_within_a_percentile_is_that_percentile(histogram: Histogram, percent: float) -> None:
    estimate = histogram.percentile(percent)
    assert estimate is not None
    assert estimate.low <= estimate.value <= estimate.high
    share = histogram.share_within(estimate.value)
    assert share is not None
    if estimate.high < math.inf:
        assert share.value >= percent / 100.0 - 1e-9


@given(st.lists(st.floats(0.0, 9.9), min_size=1, max_size=60), st.floats(0.1, 100.0))
def test_the_true_percentile_lies_in_the_bucket_of_the_estimate(values: list[float], percent: float) -> None:
    estimate = of(values).percentile(percent)
    assert estimate is not None
    true = sorted(values)[max(0, math.ceil(len(values) * percent / 100.0 - 1e-9) - 1)]
    assert estimate.low <= true <= estimate.high


@given(st.lists(histograms(), min_size=1, max_size=4), targets)
def test_merging_keeps_counts_and_lies_between_its_parts(parts: list[Histogram], target: float) -> None:
    both = merge(parts)
    assert math.isclose(both.count, sum(part.count for part in parts))
    shares = [share.value for part in parts if (share := part.share_within(target)) is not None]
    merged = both.share_within(target)
    assert merged is not None
    assert min(shares) - 1e-9 <= merged.value <= max(shares) + 1e-9


@given(st.dictionaries(st.sampled_from((*BOUNDS, math.inf)), st.floats(-5.0, 100.0)))
def test_whatever_comes_in_the_counts_never_fall(buckets: dict[float, float]) -> None:
    histogram = Histogram.from_buckets(buckets)
    counts = [0.0, *histogram.cumulative, histogram.count]
    assert counts == sorted(counts)


@given(samples(), targets)
def test_the_bounds_hold_for_any_pairing_of_the_legs(pairs: list[tuple[float, float]], target: float) -> None:
    first, second = of([a for a, _ in pairs]), of([b for _, b in pairs])
    truth = sum(a + b <= target for a, b in pairs) / len(pairs)
    bounded = SumOfLegs(first, second).attainment(target)
    assert bounded.low - 1e-9 <= truth <= bounded.high + 1e-9
    assert bounded.low - 1e-9 <= bounded.value <= bounded.high + 1e-9


@given(histograms(), histograms(), targets)
def test_the_sum_is_symmetric_and_never_better_than_a_leg(one: Histogram, two: Histogram, target: float) -> None:
    both = SumOfLegs(one, two).share_within(target)
    assert math.isclose(both, SumOfLegs(two, one).share_within(target), abs_tol=1e-9)
    for leg in (one, two):
        alone = leg.share_within(target)
        assert alone is not None
        assert both <= alone.value + 1e-9


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_goodput_bounds_are_ordered_and_no_better_than_either(one: float, two: float) -> None:
    low, high = goodput_bounds(one, two)
    assert 0.0 <= low <= high + 1e-12
    assert high == min(one, two)
    assert low <= one * two + 1e-12 <= high + 1e-9
