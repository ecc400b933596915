"""One phase's readings with their reasons: a number, or why there is none. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from equipoise.api.identity import Phase
from equipoise.observe.census import PhaseCensus
from equipoise.observe.engines.table import EngineTable, Kind, Reading
from equipoise.observe.histogram import Histogram
from equipoise.observe.readings import Group, Readings, Row
from equipoise.observe.scope import ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import Idle, Known, Signal, Unknown, UnknownReason

Number = float | Unknown
COUNT_EPSILON = 1e-9  # increases are extrapolated floats: below this nothing was counted


@dataclass(frozen=True, slots=True)
class PhaseReader:
    """Everything known of one phase of one service in one window."""

    scope: ServiceScope
    phase: Phase
    table: EngineTable
    readings: Readings
    census: PhaseCensus
    settings: ObserveSettings
    group: Group = field(init=False)

    def __post_init__(self) -> None:
        key = self.scope.key
        group = Group(key.namespace, key.name, self.phase.value, self.scope.served_model_name)
        object.__setattr__(self, "group", group)  # frozen, but asked for a hundred times per round

    @property
    def finished(self) -> Reading:
        """What counts as one request done by the phase."""
        return Reading.PREFILLED if self.phase is Phase.PREFILL else Reading.FINISHED

    @property
    def window_seconds(self) -> float:
        """The window's length."""
        return self.readings.window_seconds

    def rows(self, reading: Reading) -> list[Row]:
        """The phase's rows of that reading under the served model name."""
        return self.readings.rows(reading, self.group)

    def absence(self, reading: Reading) -> Unknown | None:
        """Why that reading has no rows, None when it has some."""
        failure = self.readings.failure(reading)
        if failure is not None:
            return Unknown(UnknownReason.QUERY_FAILED, f"{reading.value}: {failure.message}")
        if self.census.unknown is not None:
            return self.census.unknown
        if self.rows(reading):
            return None
        metric = self.table.metric_name(reading)
        if not metric:
            return Unknown(UnknownReason.NOT_EXPOSED, f"{self.table.engine} has no metric for {reading.value}")
        if not self.census.warm and self._warm_only(reading):
            return Unknown(
                UnknownReason.TOO_FEW_SAMPLES,
                f"every {self.phase.value} pod is still warming up ({self.settings.warm_up_seconds:.0f} s and one window)",
            )
        if not self.census.countable:
            return Unknown(UnknownReason.TOO_FEW_SAMPLES, f"{self.phase.value} pods have been scraped only once")
        if self._needs_start(reading) and not self.rows(Reading.RUNNING_BEFORE):
            message = f"{self.phase.value} pods had no sample at the start of the window, {self.window_seconds:.0f} s ago"
            return Unknown(UnknownReason.TOO_FEW_SAMPLES, message)
        if not self.census.verified:
            return Unknown(UnknownReason.NO_SERIES_WHILE_READY, f"no series of {metric}, and the roll call of pods failed")
        return Unknown(UnknownReason.NOT_EXPOSED, f"{self.phase.value} pods are scraped, but {metric} is not among their metrics")

    def total(self, reading: Reading, *, scaled: bool = True) -> Number:
        """Sum over variants, for all ready pods when `scaled`."""
        absent = self.absence(reading)
        if absent is not None:
            return absent
        value = math.fsum(row.value for row in self.rows(reading))
        if not math.isfinite(value):
            return Unknown(UnknownReason.NOT_A_NUMBER, f"{self.table.metric_name(reading)} is {value}")
        return value * self.census.scale if scaled else value

    def histogram(self, reading: Reading) -> Histogram | Unknown:
        """The merged histogram of the phase's warm pods."""
        absent = self.absence(reading)
        if absent is not None:
            return absent
        return Histogram.from_buckets(add_buckets(self.rows(reading)))

    def rate(self, reading: Reading) -> Signal:
        """Per second over the window. Nothing counted is idle only where nothing waits or runs."""
        total = self.total(reading)
        return total if isinstance(total, Unknown) else self.per_second(total)

    def per_second(self, total: float) -> Signal:
        """A count of the window as a rate."""
        if total <= COUNT_EPSILON and self.idle():
            return Idle()
        return self.known(total / self.window_seconds, samples=total)

    def mean(self, total: Reading, count: Reading, minimum: float) -> Signal:
        """Mean per sample, when at least `minimum` samples were counted."""
        samples = self.total(count, scaled=False)
        if isinstance(samples, Unknown):
            return samples
        short = self.too_few(samples, minimum)
        if short is not None:
            return short
        value = self.total(total, scaled=False)
        return value if isinstance(value, Unknown) else self.known(value / samples, samples=samples)

    def gauge(self, reading: Reading) -> Signal:
        """A gauge's mean over the window, summed over all ready pods."""
        value = self.total(reading)
        return value if isinstance(value, Unknown) else self.known(value)

    def average(self, reading: Reading) -> Signal:
        """A gauge that is averaged over pods: variants weigh by their pods."""
        absent = self.absence(reading)
        if absent is not None:
            return absent
        weights = [(row.value, self.census.variant_pods.get(row.variant, 1)) for row in self.rows(reading)]
        value = math.fsum(value * weight for value, weight in weights) / sum(weight for _, weight in weights)
        return self._finite(value, reading)

    def peak(self, reading: Reading) -> Signal:
        """The highest over pods and window."""
        absent = self.absence(reading)
        return absent if absent is not None else self._finite(max(row.value for row in self.rows(reading)), reading)

    def backlog(self) -> Number:
        """Requests that wait or run, the larger of the window's mean and its end; unknown unless both are known."""
        largest = 0.0
        for pair in ((Reading.WAITING, Reading.RUNNING), (Reading.WAITING_NOW, Reading.RUNNING_NOW)):
            both = [self.total(reading) for reading in pair]
            for part in both:
                if isinstance(part, Unknown):
                    return part
            largest = max(largest, math.fsum(part for part in both if not isinstance(part, Unknown)))
        return largest

    def idle(self) -> bool:
        """Whether it is certain that nothing was there to do: the pods were seen, and nothing waits or runs."""
        backlog = self.backlog()
        return self.census.verified and not isinstance(backlog, Unknown) and backlog <= COUNT_EPSILON

    def too_few(self, samples: float, minimum: float) -> Signal | None:
        """Idle or the reason, when there are fewer samples than needed; None when there are enough."""
        if not math.isfinite(samples):
            return Unknown(UnknownReason.NOT_A_NUMBER, f"the count of samples is {samples}")
        if samples > COUNT_EPSILON and samples >= minimum:
            return None
        if samples <= COUNT_EPSILON and self.idle():
            return Idle()
        backlog = self.backlog()
        waiting = "" if isinstance(backlog, Unknown) or backlog < 0.5 else f" while {backlog:.0f} wait or run"
        return Unknown(
            UnknownReason.TOO_FEW_SAMPLES,
            f"{max(0.0, samples):.0f} {self.phase.value} requests in {self.window_seconds:.0f} s{waiting},"
            f" {minimum:.0f} are needed",
        )

    def known(self, value: float, samples: float | None = None) -> Known:
        """A value with the age of the data behind it."""
        return Known(value, samples, self.census.age_seconds)

    def _finite(self, value: float, reading: Reading) -> Signal:
        if not math.isfinite(value):
            return Unknown(UnknownReason.NOT_A_NUMBER, f"{self.table.metric_name(reading)} is {value}")
        return self.known(value)

    def _needs_start(self, reading: Reading) -> bool:
        kinds = {item.kind for item in self.table.instruments if item.reading is reading}
        return bool(kinds & {Kind.DIFFERENCE, Kind.BUCKETS})

    def _warm_only(self, reading: Reading) -> bool:
        return any(item.warm_only for item in self.table.instruments if item.reading is reading)


def add_buckets(rows: Iterable[Row]) -> dict[float, float]:
    """Cumulative counts by bound. One bound may come in two spellings ("1" and "1.0"): they add up."""
    buckets: dict[float, float] = {}
    for row in rows:
        buckets[row.edge] = buckets.get(row.edge, 0.0) + row.value
    return buckets
