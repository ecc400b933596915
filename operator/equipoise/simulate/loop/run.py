"""The loop itself: traffic and engines run on, a round looks and decides, the pods follow."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from time import process_time

from equipoise.api.identity import Phase, ServiceKey, Shape
from equipoise.simulate.loop.hardware import Hardware
from equipoise.simulate.loop.policy import Policy, ServiceView, View
from equipoise.simulate.loop.score import RunResult
from equipoise.simulate.loop.service import SimulatedService
from equipoise.simulate.loop.setup import SignalSource, Trouble, World

_AFTERWARDS_SECONDS = 600.0  # that answers may take after the last request came


def run(world: World, policy: Policy, seed: int = 0) -> RunResult:
    """One policy through one world. Deterministic by seed: traffic, start-up times and lost scrapes come from it alone."""
    world = _world_of(world, policy)
    hardware = Hardware(world.pools)
    services = {
        setup.key: SimulatedService(setup, hardware, world, world.bounded_queues and policy.bounded, seed)
        for setup in world.services
    }
    _begin(services, world, policy)
    collecting = gc.isenabled()
    gc.disable()  # requests refer to replicas and back: looking for cycles among them costs a tenth and frees nothing
    started = process_time()
    try:
        _go(world, policy, hardware, services)
    finally:
        if collecting:
            gc.enable()
    spent = process_time() - started
    # What is still being answered is played to its end, for the score; hardware is paid for up to the end of the world.
    gpu_seconds, cost_usd = dict(hardware.gpu_seconds), hardware.cost_usd
    for service in services.values():
        service.finish(_AFTERWARDS_SECONDS)
    result = RunResult(
        policy=policy.name,
        seed=seed,
        seconds=world.seconds,
        scores={key: service.score for key, service in services.items()},
        gpu_hours={pool: seconds / 3600.0 for pool, seconds in gpu_seconds.items()},
        cost_usd=cost_usd,
        flips=sum(service.pods.moves.flips for service in services.values()),
        starts=sum(service.pods.moves.starts for service in services.values()),
        stops=sum(service.pods.moves.stops for service in services.values()),
        moments={key: service.moments for key, service in services.items()},
        turns={key: service.setup.turns for key, service in services.items()},
        reasons=dict(getattr(policy, "reasons", Counter())),
    )
    result.requests_per_second = result.requests / spent if spent > 0.0 else 0.0
    return result


def _world_of(world: World, policy: Policy) -> World:
    if not policy.instant:
        return replace(world, flips=world.flips and policy.flips)
    pools = tuple(replace(pool, startup_seconds=0.0) for pool in world.pools)
    return replace(world, pools=pools, startup_seconds=0.0, flip_seconds=0.0, schedule_seconds=0.0, flips=True)


def _begin(services: Mapping[ServiceKey, SimulatedService], world: World, policy: Policy) -> None:
    initial = policy.initial(world)
    for key, service in services.items():
        first = initial.get(key, service.setup.initial)
        shapes: dict[tuple[Phase, str], Shape] = {}
        for phase, pool in first:
            wished = service.policy.phases[phase].shape
            if wished is not None:
                shapes[phase, pool] = wished
        service.begin(first, shapes)
    if len(services) > 1:
        every = list(services.values())

        def freed(_now: float) -> None:
            for service in every:
                service.pods.bind_pending(service.cluster.now)

        for service in every:
            service.pods.freed = freed


def _go(world: World, policy: Policy, hardware: Hardware, services: Mapping[ServiceKey, SimulatedService]) -> None:
    troubles = sorted(world.troubles, key=lambda trouble: trouble.at_seconds)
    rounds = int(world.seconds / world.interval_seconds + 1e-9)
    for number in range(1, rounds + 1):
        now = number * world.interval_seconds
        while troubles and troubles[0].at_seconds <= now:
            trouble = troubles.pop(0)
            _run_until(world, services, trouble.at_seconds)
            _happen(trouble, hardware, services)
        _run_until(world, services, now)
        views = {
            key: ServiceView(service.given(now), service.observe(now), service.pods.allocation, service.gauges())
            for key, service in services.items()
        }
        for key, allocation in policy.decide(View(now, hardware.fleet(), views)).items():
            services[key].pods.apply(allocation, now)
        for service in services.values():
            service.note(now)
    for service in services.values():
        service.run_until(world.seconds)
    hardware.pay_until(world.seconds)


def _run_until(world: World, services: Mapping[ServiceKey, SimulatedService], now: float) -> None:
    """Services share no engine, so each runs on its own; of several, a GPU that one frees is seen by another within a second."""
    slice_seconds = float("inf") if len(services) == 1 else 1.0
    at = min(service.cluster.now for service in services.values())
    while at < now:
        at = min(now, at + slice_seconds)
        for service in services.values():
            if world.source is SignalSource.PROMETHEUS:
                while (due := service.next_scrape(service.cluster.now)) < at:
                    service.run_until(due)
                    service.scrape_until(due)
            service.run_until(at)
    if now % world.interval_seconds < 1e-9 or world.source is SignalSource.PROMETHEUS:
        for service in services.values():
            service.scrape_until(now)


def _happen(trouble: Trouble, hardware: Hardware, services: Mapping[ServiceKey, SimulatedService]) -> None:
    now = trouble.at_seconds
    if trouble.kind == "replica-lost":
        for service in services.values():
            serving = [pod for pod in service.pods.pods.values() if pod.serves(now) and pod.variant.pool == trouble.pool]
            chosen = next((pod for pod in serving if trouble.phase in (None, pod.variant.phase)), None)
            if chosen is not None:
                service.pods.lose(chosen, now)
                return
    elif trouble.kind == "node-lost":
        node = next(node for node in hardware.nodes if node.pool == trouble.pool and node.usable)
        node.usable = False
        for service in services.values():
            for pod in [pod for pod in service.pods.pods.values() if pod.node is node]:
                service.pods.lose(pod, now)
    else:
        raise ValueError(f"trouble {trouble.kind!r} is none of replica-lost, node-lost")
