"""From the command line to a world."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from equipoise.api.identity import Phase
from equipoise.api.values import parse_duration
from equipoise.cli.simulate.recorded import read_recording, recording_request
from equipoise.perf.types import Targets
from equipoise.simulate.loop.setup import PoolSetup, SignalSource, World
from equipoise.simulate.scenarios.basics import resource, service
from equipoise.simulate.scenarios.catalogue import scenario
from equipoise.simulate.traffic.parse import Traffic, parse_traffic
from equipoise.simulate.traffic.recorded import Recorded, Recording, recorded_traffic

_POOL = re.compile(r"(?P<device>[^:@]+):(?P<gpus>[0-9]+)(@(?P<price>[0-9.]+))?")


def pool(text: str) -> PoolSetup:
    """`H100:8` or `L40S:6@0.72`: a device of the catalogue, GPUs (each with its own link), USD per GPU hour. ValueError."""
    match = _POOL.fullmatch(text)
    if match is None:
        raise ValueError(f"pool {text!r} is not DEVICE:GPUS or DEVICE:GPUS@PRICE, such as H100:8@2.57")
    name = re.sub(r"[^a-z0-9]+", "-", match["device"].lower()).strip("-")
    price = float(match["price"]) if match["price"] else None
    found = PoolSetup(name, match["device"], int(match["gpus"]), 1, price, network_bytes_per_second=25e9)
    try:
        _ = found.catalogue_device
    except KeyError as error:
        raise ValueError(f"pool {text!r}: {error.args[0]}") from None
    return found


def traffic_world(text: str, pools: Sequence[str], ttft: str, tpot: str, model: str) -> World:
    """A world around traffic of one's own: half of the first pool prefills, half decodes when it begins."""
    traffic: Traffic = parse_traffic(text)
    if traffic.seconds is None:
        raise ValueError(f"traffic {text!r} never ends: leave repeat=forever out")
    setups = tuple(pool(entry) for entry in pools)
    gpus = setups[0].nodes
    if gpus < 2:
        raise ValueError(f"pool {pools[0]!r} needs at least two GPUs: one for each phase")
    initial = {(Phase.PREFILL, setups[0].name): gpus - gpus // 2, (Phase.DECODE, setups[0].name): gpus // 2}
    given = resource("service", ttft=ttft, tpot=tpot, model=model)
    return World(setups, (service(traffic, initial, given),), traffic.seconds)


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """What `--from-prometheus` and the options beside it say."""

    url: str
    service: str
    since: str
    step: str
    engine: str


def recorded_world(
    given: RecordingOptions, pools: Sequence[str], ttft: str, tpot: str, model: str, say: Callable[[str], None]
) -> World:
    """A world around traffic that Prometheus recorded; it begins with as many replicas as were seen, where the first pool holds
    them.
    """
    targets = Targets(parse_duration(ttft, "--ttft"), parse_duration(tpot, "--tpot"))
    request = recording_request(given.url, given.service, given.since, given.step, given.engine, targets)
    recording = read_recording(request)
    found = recorded_traffic(recording)
    setups = tuple(pool(entry) for entry in pools)
    counts = {phase: max(1, recording.replicas(phase)) for phase in Phase}
    gpus = setups[0].nodes
    if gpus < 2:
        raise ValueError(f"pool {pools[0]!r} needs at least two GPUs: one for each phase")
    if sum(counts.values()) > gpus:
        share = counts[Phase.PREFILL] / sum(counts.values())
        prefill = max(1, min(gpus - 1, round(gpus * share)))
        counts = {Phase.PREFILL: prefill, Phase.DECODE: gpus - prefill}
    say(describe_recording(given.service, recording, found))
    resource_given = resource("service", ttft=ttft, tpot=tpot, model=model)
    initial = {(phase, setups[0].name): count for phase, count in counts.items()}
    seconds = found.traffic.seconds
    if seconds is None:
        raise ValueError("recorded traffic has an end")
    return World(setups, (service(found.traffic, initial, resource_given),), seconds)


def describe_recording(name: str, recording: Recording, found: Recorded) -> str:
    """What was recorded, for people: the figures that the replay is to be compared with."""
    shares = [
        f"{phase} attainment " + ("not measured" if share is None else f"{share:.1%}")
        for phase, share in (("TTFT", found.ttft_attainment), ("TPOT", found.tpot_attainment))
    ]
    gaps = f"; {found.gaps} with gaps, in which the last known figure stands" if found.gaps else ""
    return (
        f"Recorded of {name}: {len(recording.windows)} windows of {recording.window_seconds:g} s{gaps}\n"
        f"  {found.requests_per_second:.3g} requests/s, {found.prompt_tokens:,.0f} prompt tokens ({found.prefix_hit_share:.0%} "
        f"from the prefix cache), {found.output_tokens:,.0f} answer tokens in the mean\n"
        f"  {recording.replicas(Phase.PREFILL)} prefill and {recording.replicas(Phase.DECODE)} decode pods at the beginning; "
        f"{', '.join(shares)}\n"
    )


def adjusted(
    world: World, startup: float | None, flips: bool, bounded: bool, interval: float | None, source: SignalSource | None
) -> World:
    """The world with what the command line says otherwise."""
    world = replace(world, flips=world.flips and flips, bounded_queues=world.bounded_queues and bounded)
    if startup is not None:
        world = replace(world, startup_seconds=startup)
    if interval is not None:
        world = replace(world, interval_seconds=interval)
    return world if source is None else replace(world, source=source)


def named_world(name: str, data: Path | None) -> World:
    """A scenario's world; ValueError lists the names there are."""
    return scenario(name).build(data)
