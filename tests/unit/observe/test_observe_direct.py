"""The direct scrape over real HTTP: the recorded pages served as two pods."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from tests.unit.observe.builders import KEY, NOW, scope, value
from tests.unit.observe.recordings import frames

from equipoise.api.identity import Phase
from equipoise.observe.direct import DirectObserver, DirectSettings
from equipoise.observe.health import metrics_condition
from equipoise.observe.scope import ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.starvation import Bottleneck, decode_starves_prefill
from equipoise.observe.types import Unknown, UnknownReason


class Pods:
    """Two pods' pages, each at a path-less address of its own."""

    def __init__(self) -> None:
        self.pages = {"p0": "", "d0": ""}
        self.addresses: dict[str, str] = {}
        self.runners: dict[str, web.AppRunner] = {}

    async def start(self, name: str) -> None:
        async def metrics(_: web.Request) -> web.Response:
            return web.Response(text=self.pages[name])

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.runners[name] = runner
        self.addresses[name] = f"127.0.0.1:{runner.addresses[0][1]}"

    async def stop(self, name: str) -> None:
        await self.runners.pop(name).cleanup()

    def scope(self) -> ServiceScope:
        plain = scope()
        pods = {phase: tuple(replace(pod, address=self.addresses[pod.name]) for pod in plain.pods_of(phase)) for phase in Phase}
        return replace(plain, pods=pods)


@pytest.fixture
async def pods() -> AsyncIterator[Pods]:
    started = Pods()
    for name in started.pages:
        await started.start(name)
    yield started
    for runner in started.runners.values():
        await runner.cleanup()


async def test_a_recorded_load_over_http_gives_the_measured_means(pods: Pods) -> None:
    settings = ObserveSettings(minimum_window_seconds=60.0)
    async with DirectObserver(settings) as observer:
        for frame in frames("overdecode", every=4):
            pods.pages.update(p0=frame.prefill, d0=frame.decode)
            seen = (await observer.observe([pods.scope()], NOW + frame.seconds))[KEY]
        assert observer.health.ok, observer.health
        assert observer.health.queries == 2
    assert value(seen.prefill.latency_mean_seconds) == pytest.approx(1.2307, rel=0.01)
    assert value(seen.ttft_decode_leg_mean_seconds) == pytest.approx(3.6476, rel=0.01)
    assert decode_starves_prefill(seen).bottleneck is Bottleneck.DECODE_STARVES_PREFILL


async def test_the_first_round_knows_gauges_and_asks_for_a_second(pods: Pods) -> None:
    frame = frames("overdecode", every=4)[5]
    pods.pages.update(p0=frame.prefill, d0=frame.decode)
    async with DirectObserver() as observer:
        seen = (await observer.observe([pods.scope()], NOW))[KEY]
    assert value(seen.decode.running_requests) > 0
    assert isinstance(seen.decode.tokens_per_second, Unknown)
    assert seen.decode.tokens_per_second.reason is UnknownReason.TOO_FEW_SAMPLES


async def test_a_pod_that_stops_answering_turns_stale_and_the_other_phase_stays(pods: Pods) -> None:
    played = frames("overdecode", every=2)
    async with DirectObserver() as observer:
        for index, frame in enumerate(played):
            pods.pages.update(p0=frame.prefill, d0=frame.decode)
            if index == len(played) // 2:
                await pods.stop("d0")
            seen = (await observer.observe([pods.scope()], NOW + frame.seconds))[KEY]
        assert not observer.health.ok
        assert "prod/chat d0" in observer.health.message
    assert isinstance(seen.decode.tokens_per_second, Unknown)
    assert seen.decode.tokens_per_second.reason is UnknownReason.STALE
    assert value(seen.prefill.tokens_per_second) > 0
    assert metrics_condition(seen).reason == "Stale"


async def test_pages_that_are_no_metrics_are_a_sentence(pods: Pods) -> None:
    pods.pages.update(p0="vllm:num_requests_running{oops", d0="x" * 4096)
    async with DirectObserver(direct=DirectSettings(maximum_page_bytes=1024)) as observer:
        seen = (await observer.observe([pods.scope()], NOW))[KEY]
    assert observer.health.failed == 2
    assert "cannot be read" in observer.health.message
    assert isinstance(seen.decode.running_requests, Unknown)


async def test_a_clock_set_back_starts_the_rounds_anew(pods: Pods) -> None:
    frame = frames("overdecode", every=4)[5]
    pods.pages.update(p0=frame.prefill, d0=frame.decode)
    async with DirectObserver() as observer:
        for at in (NOW, NOW + 5.0, NOW - 100.0, NOW - 95.0):
            seen = (await observer.observe([pods.scope()], at))[KEY]
    assert seen.window_seconds == 5.0
    assert value(seen.decode.tokens_per_second) == 0.0
