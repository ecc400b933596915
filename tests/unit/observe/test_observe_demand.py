from __future__ import annotations

import math

import pytest
from tests.unit.observe.builders import KEY, NOW, observe, quiet, rows, scope, value

from equipoise.observe.engines.table import Reading
from equipoise.observe.readings import Failure, Group, Outcome, Row
from equipoise.observe.types import Idle, Known, Signal, Unknown, UnknownReason


def router(answered: float, held: float, held_before: float | None = 0.0) -> dict[Reading, Outcome]:
    def row(amount: float) -> Outcome:
        return {Group(KEY.namespace, KEY.name): [Row("", 0.0, amount)]}

    result = {Reading.ROUTER_ANSWERED: row(answered), Reading.ROUTER_HELD_NOW: row(held)}
    if held_before is not None:
        result[Reading.ROUTER_HELD_BEFORE] = row(held_before)
    return result


def offered(changes: dict[Reading, Outcome]) -> tuple[Signal, Signal]:
    seen = observe({**quiet(), **changes})
    return seen.prefill.requests_per_second, seen.decode.requests_per_second


def test_arrivals_are_finished_and_refused_and_the_growth_of_the_queue() -> None:
    prefill, _ = offered(
        {
            Reading.PREFILLED: rows(60.0),
            Reading.FINISHED: rows(None, 0.0),
            Reading.REFUSED: rows(30.0, 0.0),
            Reading.WAITING_NOW: rows(50.0, 0.0),
            Reading.WAITING_BEFORE: rows(20.0, 0.0),
        }
    )
    assert value(prefill) == pytest.approx((60 + 30 + 30) / 60)


def test_a_backlog_that_drains_is_not_offered_again() -> None:
    prefill, _ = offered(
        {
            Reading.PREFILLED: rows(100.0),
            Reading.FINISHED: rows(None, 0.0),
            Reading.WAITING_NOW: rows(10.0, 0.0),
            Reading.WAITING_BEFORE: rows(70.0, 0.0),
        }
    )
    assert value(prefill) == pytest.approx(40 / 60)


def test_a_starving_phase_that_finishes_nothing_still_shows_its_demand() -> None:
    prefill, decode = offered({Reading.WAITING_NOW: rows(120.0, 0.0)})
    assert value(prefill) == pytest.approx(2.0)
    assert value(decode) == pytest.approx(2.0), "what prefill holds back will come to decode"


def test_decode_traffic_is_not_charged_to_prefill() -> None:
    prefill, decode = offered({Reading.PREFILLED: rows(10.0), Reading.FINISHED: rows(None, 60.0)})
    assert (value(prefill), value(decode)) == pytest.approx((10 / 60, 1.0))


def test_the_router_counts_what_it_holds_because_its_counter_moves_only_at_the_answer() -> None:
    prefill, decode = offered(
        {Reading.PREFILLED: rows(30.0), Reading.FINISHED: rows(None, 30.0), **router(answered=30.0, held=100.0, held_before=10.0)}
    )
    assert value(prefill) == value(decode) == pytest.approx(120 / 60)


def test_a_routers_first_requests_are_taken_from_the_engines() -> None:
    prefill, _ = offered(
        {Reading.PREFILLED: rows(30.0), Reading.FINISHED: rows(None, 30.0), **router(answered=0.0, held=0.0, held_before=None)}
    )
    assert value(prefill) == pytest.approx(0.5)


def test_arrivals_at_the_router_alone_are_enough_when_the_engines_query_failed() -> None:
    prefill, _ = offered({Reading.PREFILLED: Failure("timeout"), **router(60.0, 0.0)})
    assert value(prefill) == pytest.approx(1.0)


def test_without_any_count_the_demand_is_unknown_and_not_zero() -> None:
    prefill, _ = offered({Reading.PREFILLED: Failure("timeout")})
    assert isinstance(prefill, Unknown)
    assert prefill.reason is UnknownReason.QUERY_FAILED


def test_a_router_without_traffic_does_not_make_unread_pods_idle() -> None:
    prefill, _ = offered({Reading.PREFILLED: Failure("timeout"), **router(0.0, 0.0)})
    assert isinstance(prefill, Unknown)


def test_idle_when_nothing_came_and_nothing_waits() -> None:
    assert offered(router(0.0, 0.0)) == (Idle(), Idle())


def test_a_router_that_says_not_a_number_is_not_believed() -> None:
    prefill, _ = offered({Reading.PREFILLED: rows(60.0), Reading.FINISHED: rows(None, 60.0), **router(math.nan, 0.0)})
    assert value(prefill) == pytest.approx(1.0)


def test_no_sample_at_the_start_of_the_window_is_not_an_empty_queue() -> None:
    seen = observe({**quiet(), Reading.WAITING_NOW: rows(500.0, 0.0), Reading.WAITING_BEFORE: {}})
    demand = seen.prefill.requests_per_second
    assert isinstance(demand, Unknown)
    assert "start of the window" in demand.message


def test_pods_younger_than_the_window_had_no_queue_at_its_start() -> None:
    young = scope({"p0": NOW - 40.0}, {"d0": 0.0})
    seen = observe(
        {**quiet(), Reading.WAITING_NOW: rows(60.0, 0.0), Reading.WAITING_BEFORE: {}, Reading.RUNNING_BEFORE: {}}, of=young
    )
    assert value(seen.prefill.requests_per_second) == pytest.approx(1.0)


def test_an_engine_without_an_admission_limit_refuses_nothing() -> None:
    readings = {**quiet(), Reading.PREFILLED: rows(60.0), Reading.FINISHED: rows(None, 60.0), Reading.REFUSED: {}}
    seen = observe(readings)
    assert isinstance(seen.prefill.requests_per_second, Known)
    refused = seen.prefill.refused_requests_per_second
    assert isinstance(refused, Unknown)
    assert refused.reason is UnknownReason.NOT_EXPOSED


def test_answers_that_a_flipped_pod_brings_along_are_no_prompts() -> None:
    """A decode pod with eight answers in progress became prefill: they run there, and finish there."""
    changes = {Reading.RUNNING_NOW: rows(8.0, 20.0), Reading.RUNNING_BEFORE: rows(0.0, 28.0), Reading.PREFILLED: rows(60.0)}
    prefill, decode = offered({**changes, Reading.FINISHED: rows(None, 68.0)})
    assert value(prefill) == pytest.approx(1.0)
    assert value(decode) == pytest.approx(1.0)
