"""The last few rounds of directly scraped pages, and the instruments evaluated on them. Pure.

All pods are scraped in the same rounds, so the window runs from one round to another and nothing has to be extrapolated to
its edges.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.engines.table import EngineTable, Instrument, Kind, Metric
from equipoise.observe.exposition import Labels, Series
from equipoise.observe.histogram import Histogram, merge
from equipoise.observe.readings import Group, Outcome, PodSighting, Readings, RollCall, Row

_LE = "le"
_MODEL = "model_name"


@dataclass(frozen=True, slots=True)
class PodPage:
    """One pod's series in one round, and what the pod was then."""

    phase: Phase
    variant: str
    series: Series


PodKey = tuple[ServiceKey, str]


@dataclass(frozen=True, slots=True)
class Round:
    """All pages of one round; pods that did not answer are missing."""

    at_seconds: float
    pages: Mapping[PodKey, PodPage]


class Ring:
    """Rounds of the last `keep_seconds`, and the one before them: the start of the window."""

    def __init__(self, keep_seconds: float) -> None:
        self._keep_seconds = keep_seconds
        self._rounds: deque[Round] = deque()

    def add(self, new: Round) -> None:
        """Append a round; rounds that are no longer needed go.

        One at the same time replaces the last; a clock set back starts anew.
        """
        if self._rounds and new.at_seconds < self._rounds[-1].at_seconds:
            self._rounds.clear()
        if self._rounds and new.at_seconds == self._rounds[-1].at_seconds:
            self._rounds.pop()
        self._rounds.append(new)
        while len(self._rounds) > 2 and self._rounds[1].at_seconds <= new.at_seconds - self._keep_seconds:
            self._rounds.popleft()

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Oldest first."""
        return tuple(self._rounds)

    @property
    def window_seconds(self) -> float:
        """From the oldest kept round to the newest, 0 with fewer than two."""
        return self._rounds[-1].at_seconds - self._rounds[0].at_seconds if self._rounds else 0.0

    def roll_call(self) -> RollCall:
        """Who answered in the last round, and how often before."""
        counts: dict[tuple[PodKey, Phase], int] = {}
        latest: dict[tuple[PodKey, Phase], PodPage] = {}
        for item in self._rounds:
            for key, page in item.pages.items():
                counts[key, page.phase] = counts.get((key, page.phase), 0) + 1
                latest[key, page.phase] = page
        last = self._rounds[-1] if self._rounds else None
        sightings = []
        for (key, phase), page in latest.items():
            now = last.pages.get(key) if last is not None else None
            seen = last.at_seconds if last is not None and now is not None and now.phase is phase else None
            models = {dict(labels).get(_MODEL, "") for group in page.series.values() for labels in group}
            sightings += [
                PodSighting(*key, phase.value, model, page.variant, seen, counts[key, phase]) for model in sorted(models)
            ]
        spans = len(self._rounds) - 1
        return RollCall(tuple(sightings), self.window_seconds * len(self._rounds) / spans if spans > 0 else 0.0)

    def read(self, table: EngineTable, cold_pods: frozenset[str]) -> Readings:
        """All of the table's readings over the kept rounds."""
        outcomes: dict[str, Outcome] = {}
        for item in table.instruments:
            outcomes[item.reading] = self._evaluate(item, cold_pods if item.warm_only else frozenset())
        return Readings(max(self.window_seconds, 1e-3), {item.reading: outcomes[item.reading] for item in table.instruments})

    def _evaluate(self, instrument: Instrument, without: frozenset[str]) -> Outcome:
        groups: dict[tuple[Group, str], list[float]] = {}
        histograms: dict[Group, list[Histogram]] = {}
        for (service, pod), phase in self._members():
            if pod in without or phase not in instrument.phases:
                continue
            pages = [
                (item.at_seconds, item.pages[service, pod])
                for item in self._rounds
                if (service, pod) in item.pages and item.pages[service, pod].phase is phase
            ]
            for metric in instrument.metrics:
                keys = [key for key in pages[-1][1].series.get(metric.name, ()) if _matches(key, metric)]
                buckets: dict[tuple[Group, str], dict[float, float]] = {}
                for key in keys:
                    value = self._over_window(instrument.kind, metric.name, key, pages)
                    if value is None:
                        continue
                    labels = dict(key)
                    group = Group(service.namespace, service.name, phase.value, labels.get(_MODEL, ""))
                    if instrument.kind is Kind.BUCKETS:
                        edge = float(labels.pop(_LE))
                        buckets.setdefault((group, str(sorted(labels.items()))), {})[edge] = value
                    else:
                        groups.setdefault((group, pages[-1][1].variant), []).append(value)
                for (group, _), counts in buckets.items():
                    histograms.setdefault(group, []).append(Histogram.from_buckets(counts))
                if keys:
                    break  # a pod that has the newer name is read by it alone
        if instrument.kind is Kind.BUCKETS:
            return {group: _rows_of(merge(parts)) for group, parts in histograms.items()}
        table: dict[Group, list[Row]] = {}
        for (group, variant), values in groups.items():
            table.setdefault(group, []).append(Row(variant, 0.0, _combine(instrument.kind, values)))
        return table

    def _members(self) -> list[tuple[PodKey, Phase]]:
        return list({(key, page.phase): None for item in self._rounds for key, page in item.pages.items()})

    def _over_window(self, kind: Kind, name: str, key: Labels, pages: list[tuple[float, PodPage]]) -> float | None:
        values = [(at, page.series[name][key]) for at, page in pages if key in page.series.get(name, ())]
        if kind in (Kind.INCREASE, Kind.DIFFERENCE, Kind.BUCKETS):
            return _increase([value for _, value in values]) if len(values) >= 2 else None
        if kind is Kind.BEFORE:
            return values[0][1] if values[0][0] == self._rounds[0].at_seconds else None
        if values[-1][0] != self._rounds[-1].at_seconds:
            return None  # the pod did not answer in the last round: its gauges are those of the past
        if kind is Kind.NOW:
            return values[-1][1]
        if kind is Kind.PEAK:
            return max(value for _, value in values)
        return math.fsum(value for _, value in values) / len(values)


def _matches(key: Labels, metric: Metric) -> bool:
    return not metric.labels or metric.labels.items() <= dict(key).items()


def _increase(values: Iterable[float]) -> float:
    """Growth of a counter; after a fall it started again from zero."""
    total, last = 0.0, None
    for value in values:
        if last is not None:
            total += value - last if value >= last else value
        last = value
    return total


def _combine(kind: Kind, values: list[float]) -> float:
    if kind is Kind.PEAK:
        return max(values)
    return math.fsum(values) / len(values) if kind is Kind.AVERAGE else math.fsum(values)


def _rows_of(histogram: Histogram) -> list[Row]:
    finite = zip(histogram.bounds, histogram.cumulative, strict=True)
    return [Row("", edge, count) for edge, count in (*finite, (math.inf, histogram.count))]
