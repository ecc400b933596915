"""Small services, roll calls and readings for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from tests.unit.observe.recordings import MODEL, Frame, frames

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.assemble import assemble
from equipoise.observe.census import take_census
from equipoise.observe.engines.table import EngineTable, Reading
from equipoise.observe.engines.vllm import VLLM
from equipoise.observe.exposition import parse_page, wanted_names
from equipoise.observe.readings import Failure, Group, Outcome, PodSighting, Readings, RollCall, Row
from equipoise.observe.ring import PodPage, Ring, Round
from equipoise.observe.scope import PodScope, ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import Known, ServiceObservation, Signal
from equipoise.observe.windows import learn_intervals
from equipoise.perf.types import Targets

KEY = ServiceKey("prod", "chat")
NOW = 10_000.0
NAMES = wanted_names(VLLM)


def scope(
    prefill: Mapping[str, float | None] | None = None,
    decode: Mapping[str, float | None] | None = None,
    *,
    key: ServiceKey = KEY,
    model: str = MODEL,
    engine: str = "vllm",
    ttft_seconds: float = 1.0,
    tpot_seconds: float = 0.05,
) -> ServiceScope:
    """A service whose pods (name -> serving since) are of one variant per phase; by default one pod each, serving for long."""
    pods = {
        Phase.PREFILL: prefill if prefill is not None else {"p0": 0.0},
        Phase.DECODE: decode if decode is not None else {"d0": 0.0},
    }
    return ServiceScope(
        key,
        engine,
        model,
        Targets(ttft_seconds, tpot_seconds),
        {
            phase: tuple(PodScope(name, since, f"{key.name}-{phase.value}") for name, since in members.items())
            for phase, members in pods.items()
        },
    )


def sighting(
    pod: str,
    phase: Phase,
    *,
    age: float | None = 1.0,
    samples: float = 8.0,
    model: str = MODEL,
    role: str | None = None,
    key: ServiceKey = KEY,
) -> PodSighting:
    """One pod of the roll call, scraped `age` seconds ago (None: not there any more)."""
    last = None if age is None else NOW - age
    return PodSighting(key, pod, phase.value if role is None else role, model, f"{key.name}-{phase.value}", last, samples)


def roll_call(*sightings: PodSighting) -> RollCall:
    """A roll call over two minutes; by default one prefill and one decode pod."""
    everyone = sightings or (sighting("p0", Phase.PREFILL), sighting("d0", Phase.DECODE))
    return RollCall(everyone, 120.0)


def group(phase: Phase, model: str = MODEL) -> Group:
    """Whose rows they are."""
    return Group(KEY.namespace, KEY.name, phase.value, model)


def rows(prefill: float | None = None, decode: float | None = None) -> Outcome:
    """One row per phase that has a value."""
    values = {Phase.PREFILL: prefill, Phase.DECODE: decode}
    return {group(phase): [Row(f"chat-{phase.value}", 0.0, value)] for phase, value in values.items() if value is not None}


def buckets(prefill: Mapping[float, float] | None = None, decode: Mapping[float, float] | None = None) -> Outcome:
    """Cumulative counts by bound, per phase."""
    values = {Phase.PREFILL: prefill or {}, Phase.DECODE: decode or {}}
    return {group(phase): [Row("", edge, count) for edge, count in item.items()] for phase, item in values.items() if item}


def quiet() -> dict[Reading, Outcome]:
    """All readings of a vLLM pair that does nothing: every family is there, with zero."""
    result: dict[Reading, Outcome] = {}
    for item in VLLM.instruments:
        zero = {phase: 0.0 if phase in item.phases else None for phase in Phase}
        result[item.reading] = rows(zero[Phase.PREFILL], zero[Phase.DECODE])
    return result


def observe(
    outcomes: Mapping[Reading, Outcome],
    *,
    of: ServiceScope | None = None,
    seen: RollCall | Failure | None = None,
    window_seconds: float = 60.0,
    table: EngineTable = VLLM,
    settings: ObserveSettings | None = None,
) -> ServiceObservation:
    """The observation that these readings and that roll call come to."""
    service, chosen = of or scope(), settings or ObserveSettings()
    called = seen if seen is not None else roll_call()
    intervals = learn_intervals([service], called if isinstance(called, RollCall) else None, {}, chosen, NOW)
    census = take_census([service], called, intervals, {service.key: window_seconds}, chosen, NOW)
    phases = {phase: census.phases[service.key, phase] for phase in Phase}
    problems = census.problems[service.key]
    readings = Readings(window_seconds, outcomes)
    return assemble(service, table, readings, phases, problems, intervals[service.key], chosen, NOW)


def replay(load: str, *, ttft_seconds: float = 1.0) -> ServiceObservation:
    """The observation of a recorded load as the direct scrape computes it, over the whole load."""
    return observe_ring(_recorded_ring(load), scope(ttft_seconds=ttft_seconds))


@cache
def _recorded_ring(load: str) -> Ring:
    return ring_of(frames(load, every=2))


def ring_of(played: Iterable[Frame]) -> Ring:
    """These frames as rounds of a direct scrape."""
    ring = Ring(1e6)
    for frame in played:
        pages = {
            (KEY, "p0"): PodPage(Phase.PREFILL, "chat-prefill", parse_page(frame.prefill, NAMES)),
            (KEY, "d0"): PodPage(Phase.DECODE, "chat-decode", parse_page(frame.decode, NAMES)),
        }
        ring.add(Round(NOW + frame.seconds, pages))
    return ring


def observe_ring(ring: Ring, service: ServiceScope) -> ServiceObservation:
    """The observation over these rounds."""
    at = ring.rounds[-1].at_seconds
    settings = ObserveSettings()
    called = ring.roll_call()
    intervals = learn_intervals([service], called, {}, settings, at)
    census = take_census([service], called, intervals, {service.key: ring.window_seconds}, settings, at)
    phases = {phase: census.phases[service.key, phase] for phase in Phase}
    readings = ring.read(VLLM, census.cold_pods)
    return assemble(service, VLLM, readings, phases, (), intervals[service.key], settings, at)


def value(signal: Signal) -> float:
    """The signal's value; fails the test when there is none."""
    assert isinstance(signal, Known), signal
    return signal.value
