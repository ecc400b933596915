"""One round of observation through Prometheus: a roll call, then one query per reading for the whole fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.assemble import assemble, unreadable
from equipoise.observe.census import Census, take_census
from equipoise.observe.engines import ENGINES
from equipoise.observe.engines.router import ROUTER
from equipoise.observe.engines.table import EngineTable, Reading
from equipoise.observe.health import NOT_YET, ObserverHealth, source_health
from equipoise.observe.promql import Selection, instrument_query, last_sample_query, router_query, sample_count_query
from equipoise.observe.readings import Failure, Outcome, Readings, RollCall, Sample, acyclic
from equipoise.observe.scope import ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import ServiceObservation, Unknown, UnknownReason
from equipoise.observe.vectors import to_roll_call, to_table
from equipoise.observe.windows import learn_intervals, window_classes, window_for


class SignalSource(Protocol):
    """What the capacity loop needs of an observer, whichever way it measures."""

    @property
    def health(self) -> ObserverHealth:
        """The last round's state of the source."""
        ...

    async def observe(self, services: Iterable[ServiceScope], now_seconds: float) -> dict[ServiceKey, ServiceObservation]:
        """One observation per service, ending now (seconds since the epoch). Never raises for what the source does wrong."""
        ...


class QueryClient(Protocol):
    """Evaluates instant vectors."""

    queries: int
    received_bytes: int

    async def query(self, expression: str, at_seconds: float) -> list[Sample] | Failure:
        """The vector at that time, or why there is none."""
        ...


@dataclass
class _Round:
    """What one round has learned so far."""

    scopes: Sequence[ServiceScope]
    now_seconds: float
    failures: dict[str, str] = field(default_factory=dict)
    windows: set[float] = field(default_factory=set)
    observations: dict[ServiceKey, ServiceObservation] = field(default_factory=dict)


class Observer:
    """Reads all services in bulk. The number of queries depends on engines and scrape intervals in use, never on services.

    It remembers scrape intervals between rounds, and nothing else.
    """

    def __init__(
        self,
        client: QueryClient,
        settings: ObserveSettings | None = None,
        engines: Mapping[str, EngineTable] = ENGINES,
        monotonic_seconds: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self._settings = settings or ObserveSettings()
        self._engines = engines
        self._monotonic_seconds = monotonic_seconds
        self._intervals: dict[ServiceKey, float] = {}
        self._health = NOT_YET

    @property
    def health(self) -> ObserverHealth:
        """The last round's state of the source."""
        return self._health

    @property
    def scrape_intervals_seconds(self) -> Mapping[ServiceKey, float]:
        """What has been learned of the services of the last round."""
        return self._intervals

    async def observe(self, services: Iterable[ServiceScope], now_seconds: float) -> dict[ServiceKey, ServiceObservation]:
        """One observation per service, in the window that ends now (seconds since the epoch).

        What cannot be read is Unknown with its reason: a failed query costs the signals that stand on it, and no others.
        """
        started, queries, received = self._monotonic_seconds(), self._client.queries, self._client.received_bytes
        scopes = list(services)
        state = _Round(scopes, now_seconds)
        by_engine: dict[str, list[ServiceScope]] = {}
        for scope in scopes:
            by_engine.setdefault(scope.engine, []).append(scope)
        for engine, members in by_engine.items():
            table = self._engines.get(engine)
            if table is None:
                message = f"no metric table for engine {engine}; known: {', '.join(sorted(self._engines))}"
                for scope in members:
                    reason = Unknown(UnknownReason.NOT_EXPOSED, message)
                    window = self._settings.minimum_window_seconds
                    state.observations[scope.key] = unreadable(scope, reason, window, now_seconds)
                continue
            await self._observe_engine(table, members, state)
        self._intervals = {key: value for key, value in self._intervals.items() if key in state.observations}
        self._health = source_health(
            state.failures,
            self._client.queries - queries,
            self._client.received_bytes - received,
            self._monotonic_seconds() - started,
            tuple(sorted(state.windows)),
        )
        return state.observations

    async def _observe_engine(self, table: EngineTable, scopes: list[ServiceScope], state: _Round) -> None:
        settings = self._settings
        roll_call = await self._call_roll(table, state)
        answered = roll_call if isinstance(roll_call, RollCall) else None
        intervals = learn_intervals(scopes, answered, self._intervals, settings, state.now_seconds)
        self._intervals.update(intervals)
        classes = window_classes(intervals, [scope.key for scope in scopes], settings)
        windows = {key: window for window, keys in classes.items() for key in keys}
        census = take_census(scopes, roll_call, intervals, windows, settings, state.now_seconds)
        state.windows.update(classes)
        by_key = {scope.key: scope for scope in scopes}
        usual = max(classes, key=lambda window: len(classes[window]))
        for window, keys in classes.items():
            # The largest class is asked for without naming its services; what belongs to others is dropped on arrival.
            only = None if window == usual else frozenset((key.namespace, key.name) for key in keys)
            readings = await self._read(table, census, window, only, state)
            for key in keys:
                phases = {phase: census.phases[key, phase] for phase in Phase}
                state.observations[key] = assemble(
                    by_key[key], table, readings, phases, census.problems[key], intervals[key], settings, state.now_seconds
                )
                await asyncio.sleep(0)  # a thousand services are some hundred milliseconds of arithmetic: let others in

    async def _call_roll(self, table: EngineTable, state: _Round) -> RollCall | Failure:
        settings = self._settings
        selection = self._selection(table, window_for(settings.default_interval_seconds, settings))
        last, counts = await asyncio.gather(
            self._client.query(last_sample_query(table, selection), state.now_seconds),
            self._client.query(sample_count_query(table, selection, settings.probe_seconds), state.now_seconds),
        )
        for name, outcome in (("last samples", last), ("sample counts", counts)):
            if isinstance(outcome, Failure):
                state.failures[f"{table.engine} {name}"] = outcome.message
        return to_roll_call(last, counts, settings.labels, settings.probe_seconds)

    async def _read(
        self,
        table: EngineTable,
        census: Census,
        window: float,
        only: frozenset[tuple[str, str]] | None,
        state: _Round,
    ) -> Readings:
        selection = self._selection(table, window, census, only)
        expressions = {item.reading: instrument_query(item, selection) for item in table.instruments}
        expressions.update({item.reading: router_query(item, selection) for item in ROUTER})
        outcomes = await asyncio.gather(*(self._table(text, state.now_seconds) for text in expressions.values()))
        result: dict[Reading, Outcome] = dict(zip(expressions, outcomes, strict=True))
        for reading, outcome in result.items():
            if isinstance(outcome, Failure):
                state.failures[f"{table.engine} {reading.value} over {window:g} s"] = outcome.message
        return Readings(window, result)

    async def _table(self, expression: str, at_seconds: float) -> Outcome:
        samples = await self._client.query(expression, at_seconds)
        with acyclic():
            return to_table(samples, self._settings.labels)

    def _selection(
        self,
        table: EngineTable,
        window: float,
        census: Census | None = None,
        only: frozenset[tuple[str, str]] | None = None,
    ) -> Selection:
        return Selection(
            labels=self._settings.labels,
            rank_label=table.rank_label,
            window_seconds=window,
            extra_matchers=self._settings.extra_matchers,
            unknown_pods=census.unknown_pods if census else frozenset(),
            cold_pods=census.cold_pods if census else frozenset(),
            services=only,
        )
