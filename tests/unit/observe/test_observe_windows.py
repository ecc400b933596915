from __future__ import annotations

import pytest
from tests.unit.observe.builders import KEY, NOW, roll_call, scope, sighting

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.readings import RollCall
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.windows import learn_intervals, window_classes, window_for

SETTINGS = ObserveSettings()


def learn(seen: RollCall | None, **decode: float) -> float:
    service = scope(decode=decode or {"d0": 0.0})
    return learn_intervals([service], seen, {}, SETTINGS, NOW)[KEY]


def test_the_interval_is_the_probe_over_the_fullest_count() -> None:
    seen = roll_call(sighting("p0", Phase.PREFILL, samples=7), sighting("d0", Phase.DECODE, samples=8))
    assert learn(seen) == 15.0


def test_pods_younger_than_the_probe_do_not_shorten_it() -> None:
    seen = roll_call(sighting("p0", Phase.PREFILL, samples=8), sighting("d0", Phase.DECODE, samples=4))
    assert learn(seen, d0=NOW - 60.0) == 15.0


def test_a_service_of_young_pods_takes_the_fleets_interval() -> None:
    other = ServiceKey("prod", "new")
    services = [scope(), scope({"x0": NOW - 10.0}, {}, key=other)]
    seen = roll_call(sighting("p0", Phase.PREFILL, samples=24), sighting("x0", Phase.PREFILL, samples=2, key=other))
    assert learn_intervals(services, seen, {}, SETTINGS, NOW)[other] == 5.0


def test_what_was_learned_before_outlives_a_failed_roll_call() -> None:
    assert learn_intervals([scope()], None, {KEY: 5.0}, SETTINGS, NOW) == {KEY: 5.0}
    assert learn_intervals([scope()], None, {}, SETTINGS, NOW) == {KEY: SETTINGS.default_interval_seconds}


def test_young_pods_alone_give_a_guess() -> None:
    seen = roll_call(sighting("d0", Phase.DECODE, samples=10))
    assert learn(seen, d0=NOW - 50.0) == 5.0


@pytest.mark.parametrize(
    ("interval", "window"),
    [(1.0, 15.0), (3.7, 15.0), (5.0, 20.0), (15.0, 60.0), (15.7, 60.0), (30.0, 120.0), (60.0, 240.0), (600.0, 300.0)],
)
def test_windows_hold_four_scrapes_within_the_bounds(interval: float, window: float) -> None:
    assert window_for(interval, SETTINGS) == window


def test_services_scraped_alike_share_a_window_and_few_windows_are_asked_for() -> None:
    intervals = {ServiceKey("n", f"s{index}"): 15.0 for index in range(50)}
    odd = {ServiceKey("odd", f"s{index}"): interval for index, interval in enumerate((5.0, 7.0, 30.0, 60.0))}
    everything = {**intervals, **odd}
    classes = window_classes(everything, everything, SETTINGS)
    assert len(classes) == SETTINGS.maximum_window_classes
    assert sum(len(keys) for keys in classes.values()) == 54
    for window, keys in classes.items():
        for key in keys:
            fits = window >= everything[key] * SETTINGS.scrapes_per_window * 0.95
            assert fits or window == max(classes), "only the slowest may get a shorter window than four scrapes"
