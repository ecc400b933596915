from __future__ import annotations

import math

import pytest

from equipoise.observe.histogram import Histogram, merge

HUNDRED = Histogram.from_buckets({0.1: 20.0, 0.2: 60.0, 0.5: 90.0, math.inf: 100.0})


def test_percentile_lies_on_the_line_between_the_edges_of_its_bucket() -> None:
    estimate = HUNDRED.percentile(40.0)
    assert estimate is not None
    assert estimate.value == pytest.approx(0.15)
    assert (estimate.low, estimate.high) == (0.1, 0.2)
    assert estimate.width == pytest.approx(0.1)


def test_share_within_a_target_carries_the_shares_at_the_bucket_edges() -> None:
    estimate = HUNDRED.share_within(0.35)
    assert estimate is not None
    assert estimate.value == pytest.approx(0.75)
    assert (estimate.low, estimate.high) == (0.6, 0.9)


def test_a_target_on_an_edge_is_exact() -> None:
    estimate = HUNDRED.share_within(0.2)
    assert estimate is not None
    assert (estimate.low, estimate.value, estimate.high) == (0.6, 0.6, 0.6)


def test_percentile_in_the_infinite_bucket_is_at_least_the_last_bound() -> None:
    estimate = HUNDRED.percentile(95.0)
    assert estimate is not None
    assert estimate.value == 0.5
    assert estimate.high == math.inf


def test_a_target_beyond_the_last_bound_counts_only_what_is_known_to_be_inside() -> None:
    estimate = HUNDRED.share_within(3.0)
    assert estimate is not None
    assert (estimate.value, estimate.high) == (0.9, 1.0)


def test_the_first_bucket_starts_at_zero() -> None:
    estimate = HUNDRED.percentile(10.0)
    assert estimate is not None
    assert estimate.value == pytest.approx(0.05)
    share = HUNDRED.share_within(0.05)
    assert share is not None
    assert share.value == pytest.approx(0.1)


def test_buckets_that_fall_are_raised_to_the_one_before() -> None:
    mended = Histogram.from_buckets({0.1: 20.0, 0.2: 19.5, 0.5: 90.0, math.inf: 89.9})
    assert mended.cumulative == (20.0, 20.0, 90.0)
    assert mended.count == 90.0


def test_not_a_number_in_a_bucket_is_left_out() -> None:
    mended = Histogram.from_buckets({0.1: 20.0, 0.2: math.nan, 0.5: 90.0, math.inf: 100.0})
    assert mended.bounds == (0.1, 0.5)


def test_no_samples_means_no_estimate() -> None:
    empty = Histogram.from_buckets({0.1: 0.0, math.inf: 0.0})
    assert empty.percentile(95.0) is None
    assert empty.share_within(1.0) is None
    assert Histogram.from_buckets({}).percentile(95.0) is None


def test_only_the_infinite_bucket() -> None:
    lone = Histogram.from_buckets({math.inf: 10.0})
    estimate = lone.percentile(50.0)
    assert estimate is not None
    assert (estimate.value, estimate.high) == (0.0, math.inf)


def test_an_impossible_percentile_is_refused() -> None:
    with pytest.raises(ValueError, match="percentile 101"):
        HUNDRED.percentile(101.0)


def test_equal_bounds_merge_by_adding() -> None:
    both = merge([HUNDRED, HUNDRED])
    assert both.cumulative == (40.0, 120.0, 180.0)
    assert both.count == 200.0


def test_different_bounds_merge_at_their_union() -> None:
    coarse = Histogram.from_buckets({0.2: 100.0, math.inf: 100.0})
    both = merge([HUNDRED, coarse])
    assert both.bounds == (0.1, 0.2, 0.5)
    assert both.cumulative == pytest.approx((20.0 + 50.0, 60.0 + 100.0, 190.0))
    assert both.count == 200.0


def test_merging_nothing_gives_nothing() -> None:
    assert merge([]).count == 0.0
