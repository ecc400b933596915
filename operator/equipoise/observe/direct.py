"""Observation without Prometheus: the engine pods' own pages, fetched once per round.

For five-second freshness where Prometheus is slow or absent. The arithmetic is the same from the readings on. It costs one
request per pod and round, some 3 ms of processor time each, so it suits up to some hundred pods; and only arrivals at the
engines are seen, none at the router. It forgets its rounds on a restart, and after one says "too few samples" until the
second round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Self

import aiohttp

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.assemble import assemble, unreadable
from equipoise.observe.census import take_census
from equipoise.observe.engines import ENGINES
from equipoise.observe.engines.table import EngineTable
from equipoise.observe.exposition import parse_page, wanted_names
from equipoise.observe.health import NOT_YET, ObserverHealth, source_health
from equipoise.observe.ring import PodKey, PodPage, Ring, Round
from equipoise.observe.scope import PodScope, ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import ServiceObservation, Unknown, UnknownReason
from equipoise.observe.windows import learn_intervals


@dataclass(frozen=True, slots=True)
class DirectSettings:
    """How pods are asked. A page of vLLM 0.32 has 60 kB."""

    path: str = "/metrics"
    timeout_seconds: float = 3.0
    maximum_concurrency: int = 32
    maximum_page_bytes: int = 8 << 20


@dataclass(frozen=True, slots=True)
class _Page:
    key: PodKey
    page: PodPage | None
    error: str = ""
    size: int = 0


class DirectObserver:
    """Scrapes every pod that has an address, once per call of `observe`. An asynchronous context manager, as it needs closing."""

    def __init__(
        self,
        settings: ObserveSettings | None = None,
        direct: DirectSettings | None = None,
        engines: Mapping[str, EngineTable] = ENGINES,
        monotonic_seconds: Callable[[], float] = monotonic,
    ) -> None:
        self._settings = settings or ObserveSettings()
        self._direct = direct or DirectSettings()
        self._engines = engines
        self._monotonic_seconds = monotonic_seconds
        self._ring = Ring(self._settings.minimum_window_seconds)
        self._names = {engine: wanted_names(table) for engine, table in engines.items()}
        self._slots = asyncio.Semaphore(self._direct.maximum_concurrency)
        self._session: aiohttp.ClientSession | None = None
        self._intervals: dict[ServiceKey, float] = {}
        self._health = NOT_YET

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def health(self) -> ObserverHealth:
        """The last round's state: how many pods answered."""
        return self._health

    async def observe(self, services: Iterable[ServiceScope], now_seconds: float) -> dict[ServiceKey, ServiceObservation]:
        """Scrape once, and observe the window of the rounds kept so far. A pod that does not answer is missing, no more."""
        started = self._monotonic_seconds()
        scopes = list(services)
        pages = await self._scrape(scopes)
        self._ring.add(Round(now_seconds, {item.key: item.page for item in pages if item.page is not None}))
        roll_call = self._ring.roll_call()
        intervals = learn_intervals(scopes, roll_call, self._intervals, self._settings, now_seconds)
        self._intervals = intervals
        windows = dict.fromkeys(intervals, self._ring.window_seconds)
        census = take_census(scopes, roll_call, intervals, windows, self._settings, now_seconds)
        readings = {
            engine: self._ring.read(self._engines[engine], census.cold_pods)
            for engine in {scope.engine for scope in scopes}
            if engine in self._engines
        }
        result = {}
        for scope in scopes:
            table = self._engines.get(scope.engine)
            if table is None:
                reason = Unknown(UnknownReason.NOT_EXPOSED, f"no metric table for engine {scope.engine}")
                result[scope.key] = unreadable(scope, reason, self._ring.window_seconds, now_seconds)
                continue
            phases = {phase: census.phases[scope.key, phase] for phase in Phase}
            result[scope.key] = assemble(
                scope,
                table,
                readings[scope.engine],
                phases,
                census.problems[scope.key],
                intervals[scope.key],
                self._settings,
                now_seconds,
            )
        self._health = source_health(
            {f"{item.key[0]} {item.key[1]}": item.error for item in pages if item.error},
            len(pages),
            sum(item.size for item in pages),
            self._monotonic_seconds() - started,
            (self._ring.window_seconds,),
        )
        return result

    async def _scrape(self, scopes: Iterable[ServiceScope]) -> list[_Page]:
        fetches = [
            self._fetch(scope, phase, pod)
            for scope in scopes
            if scope.engine in self._engines
            for phase in Phase
            for pod in scope.pods_of(phase)
            if pod.address
        ]
        return list(await asyncio.gather(*fetches))

    async def _fetch(self, scope: ServiceScope, phase: Phase, pod: PodScope) -> _Page:
        key = (scope.key, pod.name)
        url = f"http://{pod.address}{self._direct.path}"
        try:
            async with self._slots, self._open().get(url, allow_redirects=False) as response:
                if response.status != 200:
                    return _Page(key, None, f"{url} answered HTTP {response.status}")
                body = await response.content.read(self._direct.maximum_page_bytes + 1)
                while chunk := await response.content.read(self._direct.maximum_page_bytes + 1 - len(body)):
                    body += chunk
            if len(body) > self._direct.maximum_page_bytes:
                return _Page(key, None, f"the page of {url} exceeds {self._direct.maximum_page_bytes >> 20} MiB")
            series = parse_page(body.decode("utf-8", "replace"), self._names[scope.engine])
        except TimeoutError:
            return _Page(key, None, f"{url} did not answer within {self._direct.timeout_seconds:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _Page(key, None, f"{url} cannot be read: {str(error) or type(error).__name__}")
        return _Page(key, PodPage(phase, pod.variant, series), size=len(body))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._direct.timeout_seconds)
            connector = aiohttp.TCPConnector(limit=self._direct.maximum_concurrency)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, trust_env=False)
        return self._session
