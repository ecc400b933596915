from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.observe.builders import observe, quiet, rows, value

from equipoise.api.identity import Phase
from equipoise.observe.engines.table import Reading
from equipoise.observe.prometheus import parse_answer
from equipoise.observe.promql import one_of, quote
from equipoise.observe.readings import Failure
from equipoise.observe.settings import LabelNames
from equipoise.observe.vectors import to_roll_call, to_table

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
label_maps = st.dictionaries(
    st.sampled_from(["le", "pod", "namespace", "equipoise_dev_service", "llm_d_ai_role"]), st.text(max_size=4)
)
elements = st.fixed_dictionaries(
    {"metric": json_values | label_maps, "value": json_values | st.tuples(st.integers(), st.text(max_size=4))}
)
answers = st.fixed_dictionaries(
    {"status": st.sampled_from(["success", "error"]) | json_values},
    optional={
        "warnings": json_values | st.lists(st.text(), max_size=2),
        "data": json_values | st.fixed_dictionaries({"resultType": st.just("vector"), "result": st.lists(elements, max_size=3)}),
    },
)


@given(st.integers(200, 599), answers | json_values)
def test_whatever_a_server_answers_becomes_rows_or_a_sentence(status: int, answer: object) -> None:
    parsed = parse_answer(status, json.dumps(answer).encode(), "host")
    table = to_table(parsed, LabelNames())
    roll = to_roll_call(parsed, parsed, LabelNames(), 60.0)
    for outcome in (parsed, table, roll):
        assert not isinstance(outcome, Failure) or outcome.message


@given(st.binary(max_size=40))
def test_bytes_that_are_no_json_become_a_sentence(body: bytes) -> None:
    parsed = parse_answer(200, body, "host")
    assert isinstance(parsed, Failure)
    assert "host" in parsed.message


@given(
    st.sets(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,10}[a-z0-9])?", fullmatch=True), min_size=1, max_size=5), st.text(max_size=8)
)
def test_an_alternation_matches_its_members_and_nothing_else(members: set[str], other: str) -> None:
    pattern = json.loads(one_of(members))
    for member in members:
        assert re.fullmatch(pattern, member)
    assert bool(re.fullmatch(pattern, other)) == (other in members)


@given(st.text(st.characters(blacklist_categories=("Cc", "Cs")), max_size=20))
def test_a_quoted_literal_reads_back(text: str) -> None:
    assert json.loads(quote(text)) == text


@given(st.integers(0, 500), st.integers(0, 500), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_demand_is_what_arrived_however_little_was_served(
    arrived: int, before: int, refused_share: float, served_share: float
) -> None:
    """A queue over one window: some arrivals are refused, some of the rest and of the backlog is served, the remainder waits."""
    refused = int(arrived * refused_share)
    present = before + arrived - refused
    served = int(present * served_share)
    readings = quiet()
    readings[Reading.REFUSED] = rows(float(refused), 0.0)
    readings[Reading.PREFILLED] = rows(float(served))
    readings[Reading.WAITING_BEFORE] = rows(float(before), 0.0)
    readings[Reading.WAITING_NOW] = rows(float(present - served), 0.0)
    seen = observe(readings)
    for phase in Phase:
        demand = seen.phase(phase).requests_per_second
        if arrived:
            assert abs(value(demand) * 60.0 - arrived) < 1e-6
