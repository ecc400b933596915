"""Scrapes in, observations out: the operator's own reading of what was scraped, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.assemble import assemble
from equipoise.observe.census import take_census
from equipoise.observe.engines.vllm import VLLM
from equipoise.observe.readings import RollCall
from equipoise.observe.scope import ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import ServiceObservation
from equipoise.observe.windows import learn_intervals, window_for
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.loop.samples import edges, take_sample
from equipoise.simulate.loop.scrapes import ScrapeStore
from equipoise.simulate.loop.setup import EPOCH_SECONDS, SignalSource, World


class Watcher:
    """The signals of one service. `scrape` when a scrape is due, `observe` once a round."""

    def __init__(self, key: ServiceKey, model_name: str, metrics: ReplicaMetrics, world: World, seed: int) -> None:
        self._key = key
        self._world = world
        self._settings = ObserveSettings()
        self._exact = world.source is SignalSource.PODS
        self._store = ScrapeStore(key, model_name, edges(metrics), self._exact)
        self._interval: dict[ServiceKey, float] = {}
        self._random = Random(f"{seed}/scrapes/{key}")

    @property
    def scrape_seconds(self) -> float:
        """Between two scrapes."""
        return self._world.interval_seconds if self._exact else self._world.scrape_seconds

    def first_scrape_seconds(self, pod: str) -> float:
        """A pod's place in the scrape interval: Prometheus spreads its targets, a direct scrape asks all at once."""
        return 0.0 if self._exact else Random(f"{pod}/offset").random() * self._world.scrape_seconds

    def scrape(self, pod: str, phase: Phase, variant: str, replica: Replica, now: float) -> None:
        """Scrape one pod, unless the scrape is lost."""
        lost = any(start <= now < end for start, end in self._world.outages)
        if lost or (self._world.scrape_loss > 0.0 and self._random.random() < self._world.scrape_loss):
            return
        if replica.metrics is not None:
            self._store.add(pod, phase, variant, take_sample(replica, replica.metrics, now, now + EPOCH_SECONDS))

    def left(self, pod: str, phase: Phase | None = None) -> None:
        """The pod has left a phase, or is gone."""
        for left in (phase,) if phase is not None else Phase:
            self._store.end_series(pod, left)

    def observe(self, scope: ServiceScope, now: float) -> ServiceObservation:
        """The observation of the window that ends now, by the functions of `observe`."""
        wall, settings = now + EPOCH_SECONDS, self._settings
        if self._exact:
            window = settings.minimum_window_seconds
            steps = -(-window // self._world.interval_seconds)
            window = steps * self._world.interval_seconds
            roll_call: RollCall = self._store.roll_call(wall, window + self._world.interval_seconds)
            intervals: Mapping[ServiceKey, float] = {self._key: self._world.interval_seconds}
        else:
            roll_call = self._store.roll_call(wall, settings.probe_seconds)
            intervals = learn_intervals([scope], roll_call, self._interval, settings, wall)
            self._interval.update(intervals)
            window = window_for(intervals[self._key], settings)
        census = take_census([scope], roll_call, intervals, {self._key: window}, settings, wall)
        readings = self._store.read(VLLM, window, wall, census.unknown_pods, census.cold_pods)
        phases = {phase: census.phases[self._key, phase] for phase in Phase}
        return assemble(scope, VLLM, readings, phases, census.problems[self._key], intervals[self._key], settings, wall)
