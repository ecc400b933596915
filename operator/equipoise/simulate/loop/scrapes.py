"""All scrapes of a service's pods, and the readings that a window of them gives: what Prometheus, or the operator's own direct
scrape, would hand to `observe`.

A pod that changes phase changes its labels, so its samples begin a new series; the counters go on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.engines.table import EngineTable, Instrument, Kind, Reading
from equipoise.observe.readings import Group, Outcome, PodSighting, Readings, RollCall, Row
from equipoise.simulate.loop.samples import COUNTER_INDEX, HISTOGRAM_INDEX, Sample, extrapolated_increase

_LOOKBACK_SECONDS = 300.0  # Prometheus' own
_KEEP_SECONDS = 700.0


@dataclass(slots=True)
class Series:
    """The samples of one pod in one phase."""

    pod: str
    phase: Phase
    variant: str
    samples: list[Sample]


class ScrapeStore:
    """`exact`: scrapes happen at the rounds themselves, so windows run from scrape to scrape and nothing is extrapolated."""

    def __init__(self, key: ServiceKey, model_name: str, bounds: tuple[tuple[float, ...], ...], exact: bool) -> None:
        self._key = key
        self._model_name = model_name
        self._edges = [(*found, math.inf) for found in bounds]
        self._exact = exact
        self._series: dict[tuple[str, Phase], Series] = {}

    def add(self, pod: str, phase: Phase, variant: str, sample: Sample) -> None:
        """One scrape that succeeded."""
        series = self._series.get((pod, phase))
        if series is None:
            series = self._series[pod, phase] = Series(pod, phase, variant, [])
        samples = series.samples
        if samples and sample.at_seconds - samples[-1].at_seconds > _LOOKBACK_SECONDS:
            samples.clear()
        samples.append(sample)
        if len(samples) > 8 and samples[0].at_seconds < sample.at_seconds - _KEEP_SECONDS:
            del samples[: len(samples) // 2]

    def forget(self, pods: Iterable[str]) -> None:
        """Pods that are gone for good."""
        gone = set(pods)
        self._series = {name: series for name, series in self._series.items() if name[0] not in gone}

    def end_series(self, pod: str, phase: Phase) -> None:
        """The pod has left that phase."""
        self._series.pop((pod, phase), None)

    def roll_call(self, now: float, probe_seconds: float) -> RollCall:
        """When each pod was last seen, and how often lately."""
        sightings = []
        for series in self._series.values():
            last = series.samples[-1].at_seconds
            count = sum(1 for sample in reversed(series.samples) if sample.at_seconds > now - probe_seconds)
            seen = last if now - last <= _LOOKBACK_SECONDS else None
            if count or seen is not None:
                sightings.append(
                    PodSighting(self._key, series.pod, series.phase.value, self._model_name, series.variant, seen, count)
                )
        return RollCall(tuple(sightings), probe_seconds)

    def read(
        self, table: EngineTable, window: float, now: float, unknown_pods: frozenset[str], cold_pods: frozenset[str]
    ) -> Readings:
        """Every reading of the table over the window that ends now."""
        views = [_View(series, window, now, self._exact) for series in self._series.values() if series.pod not in unknown_pods]
        views = [view for view in views if view.latest is not None]
        outcomes: dict[Reading, Outcome] = {}
        for instrument in table.instruments:
            chosen = [
                view
                for view in views
                if view.series.phase in instrument.phases and not (instrument.warm_only and view.series.pod in cold_pods)
            ]
            outcomes[instrument.reading] = self._table(instrument, chosen)
        return Readings(window, outcomes)

    def _table(self, instrument: Instrument, views: Sequence[_View]) -> Outcome:
        by_group: dict[tuple[Phase, str], list[float]] = defaultdict(list)
        if instrument.kind is Kind.BUCKETS:
            return self._buckets(HISTOGRAM_INDEX[instrument.reading], views)
        for view in views:
            value = view.value(instrument)
            if value is not None:
                by_group[view.series.phase, view.series.variant].append(value)
        rows: dict[Group, list[Row]] = {}
        for (phase, variant), values in by_group.items():
            rows.setdefault(self._group(phase), []).append(Row(variant, 0.0, _combine(instrument.kind, values)))
        return rows

    def _buckets(self, index: int, views: Sequence[_View]) -> Outcome:
        sums: dict[Phase, list[int]] = {}
        for view in views:
            grown = view.bucket_growth(index)
            if grown is not None:
                total = sums.get(view.series.phase)
                sums[view.series.phase] = grown if total is None else [a + b for a, b in zip(total, grown, strict=True)]
        rows: dict[Group, list[Row]] = {}
        for phase, counts in sums.items():
            below = 0.0
            listed = rows[self._group(phase)] = []
            for edge, count in zip(self._edges[index], counts, strict=True):
                below += count
                listed.append(Row("", edge, below))
        return rows

    def _group(self, phase: Phase) -> Group:
        return Group(self._key.namespace, self._key.name, phase.value, self._model_name)


class _View:
    """One series in one window."""

    def __init__(self, series: Series, window: float, now: float, exact: bool) -> None:
        self.series = series
        self._start, self._now, self._exact = now - window, now, exact
        samples = series.samples
        self.latest: Sample | None = samples[-1] if samples and now - samples[-1].at_seconds <= _LOOKBACK_SECONDS else None
        self.inside: list[Sample] = []
        self.before: Sample | None = None
        edge = self._start + (-1e-6 if exact else 1e-6)
        for sample in reversed(samples):
            if sample.at_seconds > edge:
                self.inside.append(sample)
            else:
                self.before = sample if self._start - sample.at_seconds <= _LOOKBACK_SECONDS else None
                break
        self.inside.reverse()
        if exact:
            self.before = self.inside[0] if self.inside and self.inside[0].at_seconds <= self._start + 1e-6 else None

    def value(self, instrument: Instrument) -> float | None:
        """One number of the instrument's kind; None where there is none."""
        kind, reading, latest = instrument.kind, instrument.reading, self.latest
        if latest is None:
            return None
        if kind in (Kind.INCREASE, Kind.DIFFERENCE):
            index = COUNTER_INDEX[reading]
            if self._exact:
                grown = self._between(index, self.inside[0] if len(self.inside) >= 2 else None)
            elif kind is Kind.INCREASE:
                grown = extrapolated_increase(self.inside, index, self._start, self._now)
            else:
                grown = self._between(index, self.before)
            return grown
        gauge = _GAUGES[reading]
        if kind is Kind.NOW:
            return gauge(latest) if self._is_current() else None
        if kind is Kind.BEFORE:
            return None if self.before is None else gauge(self.before)
        if not self.inside or not self._is_current():
            return None
        values = [gauge(sample) for sample in self.inside]
        return max(values) if kind is Kind.PEAK else math.fsum(values) / len(values)

    def bucket_growth(self, index: int) -> list[int] | None:
        """Samples per bucket since the window's start."""
        start = (self.inside[0] if len(self.inside) >= 2 else None) if self._exact else self.before
        if start is None or self.latest is None or start is self.latest:
            return None
        return [a - b for a, b in zip(self.latest.buckets[index], start.buckets[index], strict=True)]

    def _is_current(self) -> bool:
        return not self._exact or (self.latest is not None and self.latest.at_seconds >= self._now - 1e-6)

    def _between(self, index: int, start: Sample | None) -> float | None:
        if start is None or self.latest is None:
            return None
        return max(0.0, self.latest.counters[index] - start.counters[index])


_GAUGES: Final[Mapping[Reading, Callable[[Sample], float]]] = {
    Reading.RUNNING: lambda sample: sample.running,
    Reading.WAITING: lambda sample: sample.waiting,
    Reading.WAITING_FOR_CAPACITY: lambda sample: sample.waiting_for_capacity,
    Reading.KV_USAGE: lambda sample: sample.kv_usage,
    Reading.KV_USAGE_PEAK: lambda sample: sample.kv_usage,
    Reading.RUNNING_NOW: lambda sample: sample.running,
    Reading.RUNNING_BEFORE: lambda sample: sample.running,
    Reading.WAITING_NOW: lambda sample: sample.waiting,
    Reading.WAITING_BEFORE: lambda sample: sample.waiting,
}


def _combine(kind: Kind, values: list[float]) -> float:
    if kind is Kind.PEAK:
        return max(values)
    return math.fsum(values) / len(values) if kind is Kind.AVERAGE else math.fsum(values)
