"""Durations and quantities survive writing and reading, and whatever the CRD's patterns admit can be read."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.api.values import (
    COUNT_OR_PERCENT_PATTERN,
    DURATION_PATTERN,
    QUANTITY_PATTERN,
    format_duration,
    format_quantity,
    parse_count_or_percent,
    parse_duration,
    parse_quantity,
)

ASCII = st.characters(codec="ascii")


@given(st.integers(min_value=0, max_value=10**10))
def test_durations_round_trip_to_the_millisecond(milliseconds: int) -> None:
    text = format_duration(milliseconds / 1000)
    assert math.isclose(parse_duration(text), milliseconds / 1000, abs_tol=1e-6)
    assert len(text) <= 24


@given(st.floats(min_value=0, max_value=0.0999))
def test_short_durations_round_trip_to_a_tenth_of_a_millisecond(seconds: float) -> None:
    assert math.isclose(parse_duration(format_duration(seconds)), seconds, abs_tol=0.0000501)


@given(st.floats(min_value=0, max_value=1e12, allow_nan=False), st.integers(min_value=0, max_value=6))
def test_quantities_round_trip_to_their_decimals(value: float, decimals: int) -> None:
    text = format_quantity(value, decimals)
    assert math.isclose(parse_quantity(text), value, abs_tol=0.5000001 * 10**-decimals, rel_tol=1e-9)
    assert len(text) <= 24


@given(st.from_regex(DURATION_PATTERN, fullmatch=True, alphabet=ASCII))
def test_every_admitted_duration_is_read(text: str) -> None:
    assert parse_duration(text) >= 0


@given(st.from_regex(QUANTITY_PATTERN, fullmatch=True, alphabet=ASCII))
def test_every_admitted_quantity_is_read(text: str) -> None:
    assert parse_quantity(text) >= 0


@given(st.from_regex(COUNT_OR_PERCENT_PATTERN, fullmatch=True, alphabet=ASCII), st.integers(min_value=0, max_value=1000))
def test_rounding_up_is_never_below_rounding_down(text: str, total: int) -> None:
    down = parse_count_or_percent(text, total, round_up=False)
    up = parse_count_or_percent(text, total, round_up=True)
    assert 0 <= down <= up <= down + 1
    assert not text.endswith("%") or up <= total


@given(st.text())
def test_any_other_text_is_an_error_and_never_a_number(text: str) -> None:
    for pattern, parse in ((DURATION_PATTERN, parse_duration), (QUANTITY_PATTERN, parse_quantity)):
        if not re.fullmatch(pattern, text, re.ASCII):
            with pytest.raises(ValueError, match=re.escape(repr(text))):
                parse(text)
