"""Scrape intervals learned from the data, and the windows that follow from them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from equipoise.api.identity import ServiceKey
from equipoise.observe.readings import PodSighting, RollCall
from equipoise.observe.scope import ServiceScope
from equipoise.observe.settings import ObserveSettings

# Windows come in these multiples of the shortest one (15, 20, 30, 45 s, ... by default), so that estimates that differ by a
# hair share a query.
_STEPS = (1.0, 4 / 3, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 20.0)
_TOLERANCE = 0.95  # a window of 60 s counts as four scrapes of 15.7 s: a count over a fixed probe is off by up to one sample


def learn_intervals(
    scopes: Sequence[ServiceScope],
    roll_call: RollCall | None,
    remembered: Mapping[ServiceKey, float],
    settings: ObserveSettings,
    now_seconds: float,
) -> dict[ServiceKey, float]:
    """Scrape interval per service, in seconds.

    Samples in the probe window of pods that are older than it give the interval (the fullest count: a lost scrape must not
    lengthen it). A service without such pods takes, in this order, what was learned before, the fleet's median, the count of
    its youngest pods over their age, the default.
    """
    if roll_call is None or roll_call.probe_seconds <= 0:
        return {scope.key: remembered.get(scope.key, settings.default_interval_seconds) for scope in scopes}
    by_service: dict[ServiceKey, list[PodSighting]] = {}
    for sighting in roll_call.sightings:
        by_service.setdefault(sighting.service, []).append(sighting)
    learned: dict[ServiceKey, float] = {}
    guesses: dict[ServiceKey, float] = {}
    for scope in scopes:
        since = {pod.name: pod.serving_since_seconds for pods in scope.pods.values() for pod in pods}
        full, young = 0.0, math.inf
        for sighting in by_service.get(scope.key, ()):
            start = since.get(sighting.pod)
            if start is None or sighting.samples <= 0:
                continue
            age = now_seconds - start
            if age >= roll_call.probe_seconds:
                full = max(full, sighting.samples)
            elif sighting.samples >= 3:
                young = min(young, age / sighting.samples)
        if full:
            learned[scope.key] = roll_call.probe_seconds / full
        elif young < math.inf:
            guesses[scope.key] = young
    usual = median(learned.values()) if learned else None
    result = dict(learned)
    for scope in scopes:
        if scope.key not in result:
            fallback = usual if usual is not None else settings.default_interval_seconds
            # Young pods look scraped more rarely than they are (their age includes the time until they were discovered), so the
            # shorter of two estimates is the better one; the default must not outlive the first real one.
            guess = guesses.get(scope.key, math.inf)
            result[scope.key] = min(guess, remembered.get(scope.key, fallback))
    return result


def window_for(interval_seconds: float, settings: ObserveSettings) -> float:
    """The shortest window of the ladder that holds enough scrapes, within the configured bounds."""
    wanted = interval_seconds * settings.scrapes_per_window * _TOLERANCE
    for step in _STEPS:
        window = settings.minimum_window_seconds * step
        if window >= wanted or window >= settings.maximum_window_seconds:
            return min(window, settings.maximum_window_seconds)
    return settings.maximum_window_seconds


def window_classes(
    intervals: Mapping[ServiceKey, float], services: Iterable[ServiceKey], settings: ObserveSettings
) -> dict[float, list[ServiceKey]]:
    """Services by window. With more different windows than allowed, the rarest join the next longer one (the longest: the
    next shorter).

    So the number of queries in a round depends on how many different scrape intervals there are, never on how many services.
    """
    windows = {key: window_for(intervals[key], settings) for key in services}
    counts = Counter(windows.values())
    while len(counts) > settings.maximum_window_classes:
        ordered = sorted(counts)
        rarest = min(ordered, key=lambda window: (counts[window], window))
        index = ordered.index(rarest)
        target = ordered[index + 1] if index + 1 < len(ordered) else ordered[index - 1]
        for key, window in windows.items():
            if window == rarest:
                windows[key] = target
        counts[target] += counts.pop(rarest)
    classes: dict[float, list[ServiceKey]] = {}
    for key, window in windows.items():
        classes.setdefault(window, []).append(key)
    return classes
