from __future__ import annotations

import pytest
from tests.unit.observe.builders import KEY, NOW, roll_call, scope, sighting

from equipoise.api.identity import Phase
from equipoise.observe.census import Census, PhaseCensus, take_census
from equipoise.observe.readings import Failure, RollCall
from equipoise.observe.scope import ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import UnknownReason


def count(seen: RollCall | Failure, service: ServiceScope | None = None) -> Census:
    return take_census([service or scope()], seen, {KEY: 15.0}, {KEY: 60.0}, ObserveSettings(), NOW)


def decode(seen: RollCall | Failure, service: ServiceScope | None = None) -> PhaseCensus:
    return count(seen, service).phases[KEY, Phase.DECODE]


def reason(census: PhaseCensus) -> tuple[UnknownReason, str]:
    assert census.unknown is not None
    return census.unknown.reason, census.unknown.message


def test_pods_with_fresh_samples_are_counted_with_the_age_of_the_oldest() -> None:
    seen = roll_call(sighting("d0", Phase.DECODE, age=3.0), sighting("d1", Phase.DECODE, age=9.0))
    census = decode(seen, scope(decode={"d0": 0.0, "d1": 0.0}))
    assert census.unknown is None
    assert census.sampled == ("d0", "d1")
    assert census.age_seconds == 9.0
    assert census.variant_pods == {"chat-decode": 2}
    assert census.scale == 1.0


def test_no_ready_pod_is_no_fault() -> None:
    assert reason(decode(roll_call(), scope(decode={}))) == (UnknownReason.NO_SERIES, "no decode pod is ready")
    assert count(roll_call(), scope(decode={})).problems[KEY] == ()


def test_a_pod_that_was_scraped_until_lately_is_stale() -> None:
    why, message = reason(decode(roll_call(sighting("d0", Phase.DECODE, age=None, samples=5))))
    assert why is UnknownReason.STALE
    assert "d0" in message


def test_old_samples_are_stale_by_the_interval() -> None:
    assert decode(roll_call(sighting("d0", Phase.DECODE, age=44.0))).unknown is None
    why, message = reason(decode(roll_call(sighting("d0", Phase.DECODE, age=46.0))))
    assert why is UnknownReason.STALE
    assert "46 s old" in message


def test_a_served_name_that_differs_is_named() -> None:
    why, message = reason(decode(roll_call(sighting("d0", Phase.DECODE, model="meta/llama"))))
    assert why is UnknownReason.NO_SERIES_WHILE_READY
    assert "model_name meta/llama, not the served name tiny" in message


def test_a_missing_role_label_is_named() -> None:
    why, message = reason(decode(roll_call(sighting("d0", Phase.DECODE, role=""))))
    assert why is UnknownReason.NO_SERIES_WHILE_READY
    assert "role none, not decode" in message


def test_nothing_at_all_points_at_the_scrape_configuration() -> None:
    why, message = reason(decode(RollCall((), 120.0)))
    assert why is UnknownReason.NO_SERIES_WHILE_READY
    assert "PodMonitor" in message


def test_pods_without_a_pod_label_match_nothing() -> None:
    why, message = reason(decode(roll_call(sighting("", Phase.DECODE))))
    assert why is UnknownReason.NO_SERIES_WHILE_READY
    assert "label for the pod's name" in message


def test_the_first_scrape_of_a_new_pod_is_waited_for() -> None:
    service = scope(decode={"d0": NOW - 20.0})
    assert reason(decode(RollCall((), 120.0), service))[0] is UnknownReason.NO_SERIES
    service = scope(decode={"d0": NOW - 40.0})
    assert reason(decode(RollCall((), 120.0), service))[0] is UnknownReason.NO_SERIES_WHILE_READY


def test_one_missing_pod_of_four_scales_the_rest_and_is_named() -> None:
    service = scope(decode={f"d{index}": 0.0 for index in range(4)})
    seen = roll_call(*(sighting(f"d{index}", Phase.DECODE) for index in range(3)))
    census = count(seen, service)
    phase = census.phases[KEY, Phase.DECODE]
    assert phase.unknown is None
    assert phase.missing == ("d3",)
    assert phase.scale == pytest.approx(4 / 3)
    assert any("1 of 4 ready decode pods" in text and "d3" in text for text in census.problems[KEY])


def test_most_pods_missing_is_unknown() -> None:
    service = scope(decode={f"d{index}": 0.0 for index in range(4)})
    why, message = reason(decode(roll_call(sighting("d0", Phase.DECODE)), service))
    assert why is UnknownReason.NO_SERIES_WHILE_READY
    assert "only 1 of 4" in message


def test_series_of_pods_that_are_gone_are_left_out_and_other_services_are_not_mine_to_judge() -> None:
    census = count(roll_call(sighting("d0", Phase.DECODE), sighting("d9", Phase.DECODE), sighting("p0", Phase.PREFILL)))
    assert census.unknown_pods == {"d9"}


def test_cold_pods_stay_out_until_the_window_holds_nothing_of_their_warm_up() -> None:
    service = scope(decode={"d0": NOW - 95.0, "d1": NOW - 85.0, "d2": None})
    census = count(roll_call(sighting("d0", Phase.DECODE), sighting("d1", Phase.DECODE)), service)
    assert census.cold_pods == {"d1", "d2"}
    assert census.phases[KEY, Phase.DECODE].warm
    only = scope(decode={"d1": NOW - 85.0})
    assert not decode(roll_call(sighting("d1", Phase.DECODE)), only).warm


def test_one_phase_without_series_does_not_touch_the_other() -> None:
    census = count(roll_call(sighting("p0", Phase.PREFILL)))
    assert census.phases[KEY, Phase.PREFILL].unknown is None
    assert census.phases[KEY, Phase.DECODE].unknown is not None


def test_a_failed_roll_call_leaves_the_pods_unverified_and_readable() -> None:
    census = decode(Failure("down"))
    assert census.unknown is None
    assert not census.verified
    assert census.variant_pods == {"chat-decode": 1}


def test_a_flipped_pod_whose_labels_have_not_reached_the_scrape_is_neither_gone_nor_missing() -> None:
    service = scope({"p0": 0.0, "x": NOW - 5.0}, {"d0": 0.0})
    seen = roll_call(sighting("p0", Phase.PREFILL), sighting("d0", Phase.DECODE), sighting("x", Phase.DECODE))
    census = count(seen, service)
    assert census.unknown_pods == frozenset()
    assert census.phases[KEY, Phase.PREFILL].missing == ()
    assert census.phases[KEY, Phase.DECODE].sampled == ("d0",)
