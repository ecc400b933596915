"""Durations, quantities and counts: what they mean, and what their errors say."""

from __future__ import annotations

import pytest

from equipoise.api.values import (
    format_duration,
    format_quantity,
    parse_count_or_percent,
    parse_duration,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1.5s", 1.5), ("1m30s", 90.0), ("2h", 7200.0), ("1h1m1s1ms", 3661.001), ("0s", 0.0), ("0.5ms", 0.0005)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "ms", "5 s", "-5s", "5d", "1,5s", "5s ", "٥s", "1e3s"])
def test_what_is_no_duration_is_named_with_its_field(text: str) -> None:
    with pytest.raises(ValueError, match=r"spec\.targets\.ttft: .*no duration; write numbers with a unit") as error:
        parse_duration(text, "spec.targets.ttft")
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.00004, "0s"), (0.0042, "4.2ms"), (0.041, "41ms"),
     (0.09994, "99.9ms"), (0.09996, "100ms"), (0.4104, "410ms"), (0.9996, "1s"),
     (1.0, "1s"), (1.25, "1.25s"), (90.0, "1m30s"), (3600.0, "1h"),
     (3661.5, "1h1m1.5s"), (120.0, "2m")],
)  # fmt: skip
def test_durations_are_written_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_not_written(seconds: float) -> None:
    with pytest.raises(ValueError, match="cannot be written as a duration"):
        format_duration(seconds)


@pytest.mark.parametrize(
    ("value", "number"),
    [("12.5", 12.5), (3, 3.0), ("80Gi", 80 * 2**30), ("8.03G", 8.03e9), ("250m", 0.25),
     ("5u", 5e-6), ("5n", 5e-9), ("1e12", 1e12), ("1E3", 1e3),
     ("2E", 2e18), ("450G", 4.5e11)],
)  # fmt: skip
def test_quantities_are_read(value: str | int, number: float) -> None:
    assert parse_quantity(value) == pytest.approx(number)


@pytest.mark.parametrize("value", ["", "-1", -1, "1.", ".5", "1GB", "1 G", "1e123", "12,5", "1ki"])
def test_what_is_no_quantity_is_named_with_its_field(value: str | int) -> None:
    with pytest.raises(ValueError, match=r"spec\.capacity\.maxCostPerHour: .*no quantity; write a number"):
        parse_quantity(value, "spec.capacity.maxCostPerHour")


def test_quantities_are_written_without_trailing_zeros() -> None:
    assert [format_quantity(value) for value in (0.0, 12.5, 100.0, 0.9731, 1 / 3)] == ["0", "12.5", "100", "0.973", "0.333"]
    with pytest.raises(ValueError, match="cannot be written as a quantity"):
        format_quantity(float("nan"))


@pytest.mark.parametrize(
    ("value", "total", "up", "count"),
    [("1", 8, True, 1), (2, 8, False, 2), ("25%", 8, False, 2), ("25%", 3, False, 0), ("25%", 3, True, 1),
     ("0%", 8, True, 0), ("100%", 7, True, 7)],
)  # fmt: skip
def test_percentages_are_of_the_total(value: str | int, total: int, up: bool, count: int) -> None:
    assert parse_count_or_percent(value, total, round_up=up) == count


@pytest.mark.parametrize("value", ["101%", "-1", "1.5", "%", "", "01", "00%"])
def test_what_is_no_count_is_named_with_its_field(value: str) -> None:
    with pytest.raises(ValueError, match=r"spec\.rollout\.maxSurge: .*neither a count such as 1 nor a percentage"):
        parse_count_or_percent(value, 1, round_up=True, field="spec.rollout.maxSurge")
