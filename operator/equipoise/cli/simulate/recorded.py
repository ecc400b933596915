"""A recorded production window: the project's own queries, asked of Prometheus for times that have passed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from equipoise.api.identity import Phase, ServiceKey
from equipoise.api.values import parse_duration
from equipoise.observe.engines import ENGINES
from equipoise.observe.observer import Observer
from equipoise.observe.prometheus import PrometheusClient, PrometheusSettings
from equipoise.observe.promql import Selection, last_sample_query
from equipoise.observe.readings import Failure
from equipoise.observe.scope import PodScope, ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import ServiceObservation
from equipoise.observe.vectors import to_roll_call
from equipoise.perf.types import Targets
from equipoise.simulate.traffic.recorded import Recording

MOST_WINDOWS = 2000  # each asks about thirty queries


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """What to read. `until_seconds` None: now. Times are seconds since the epoch."""

    url: str
    service: ServiceKey
    engine: str
    targets: Targets
    since_seconds: float
    step_seconds: float
    until_seconds: float | None = None


def recording_request(
    url: str, service: str, since: str, step: str, engine: str, targets: Targets, until_seconds: float | None = None
) -> RecordingRequest:
    """From what the command line says. ValueError names the option, what was found and what is expected."""
    namespace, slash, name = service.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise ValueError(f"--service {service!r} is not NAMESPACE/NAME, which --from-prometheus needs")
    if engine not in ENGINES:
        raise ValueError(f"--engine {engine!r} is none of {', '.join(sorted(ENGINES))}")
    back, seconds = parse_duration(since, "--since"), parse_duration(step, "--step")
    if seconds < ObserveSettings().minimum_window_seconds:
        least = ObserveSettings().minimum_window_seconds
        raise ValueError(f"--step {step} is too short: a window of less than {least:g} s holds too few requests")
    if not seconds <= back <= seconds * MOST_WINDOWS:
        raise ValueError(f"--since {since} and --step {step}: 1 to {MOST_WINDOWS} steps can be read")
    PrometheusSettings(url)  # says what is wrong with the address
    return RecordingRequest(url, ServiceKey(namespace, name), engine, targets, back, seconds, until_seconds)


def read_recording(request: RecordingRequest) -> Recording:
    """Ask Prometheus. ValueError with its own words when it does not answer, or never saw the service."""
    return asyncio.run(fetch(request))


async def fetch(request: RecordingRequest, settings: ObserveSettings | None = None) -> Recording:
    """As `read_recording`, in an event loop that runs."""
    step = request.step_seconds
    base = settings or ObserveSettings()
    settings = replace(base, minimum_window_seconds=step, maximum_window_seconds=step)
    until = time.clock_gettime(time.CLOCK_REALTIME) if request.until_seconds is None else request.until_seconds
    steps = int(request.since_seconds / step + 1e-9)
    windows: list[ServiceObservation] = []
    async with PrometheusClient(PrometheusSettings(request.url)) as client:
        observer = Observer(client, settings)
        for number in range(steps):
            at = until - (steps - 1 - number) * step
            scope = await _scope(client, request, settings, at)
            seen = (await observer.observe([scope], at))[request.service]
            windows.append(replace(seen, window_seconds=step))
            if not observer.health.ok:
                raise ValueError(f"Prometheus at {request.url}: {observer.health.message}")
    if not any(window.prefill.pods_sampled or window.decode.pods_sampled for window in windows):
        raise ValueError(
            f"{request.service} has no series of {request.engine} in Prometheus at {request.url} in the last "
            f"{request.since_seconds:g} s; the name, --engine or the scrape configuration is wrong"
        )
    return Recording(tuple(windows), step)


async def _scope(client: PrometheusClient, request: RecordingRequest, settings: ObserveSettings, at: float) -> ServiceScope:
    """The service with the pods that had samples then: no cluster remembers them, Prometheus does. All count as warm."""
    table = ENGINES[request.engine]
    only = frozenset(((request.service.namespace, request.service.name),))
    selection = Selection(settings.labels, table.rank_label, request.step_seconds, settings.extra_matchers, services=only)
    answer = await client.query(last_sample_query(table, selection), at)
    roll_call = to_roll_call(answer, answer, settings.labels, settings.probe_seconds)
    if isinstance(roll_call, Failure):
        raise ValueError(f"Prometheus at {request.url}: {roll_call.message}")
    mine = [sighting for sighting in roll_call.sightings if sighting.service == request.service]
    models = sorted({sighting.model for sighting in mine})
    if len(models) > 1:
        raise ValueError(f"{request.service} served several models: {', '.join(models)}; record a time with one")
    pods = {phase: tuple(PodScope(s.pod, 0.0, s.variant) for s in sorted(mine) if s.role == phase.value) for phase in Phase}
    return ServiceScope(request.service, request.engine, models[0] if models else "", request.targets, pods)
