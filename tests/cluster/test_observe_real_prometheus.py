"""The recorded pages of a real vLLM pair, scraped by a real Prometheus, observed through its query API.

One timeline is played for all tests of this file: each load in turn, then the decode pod goes away. The tests look back at
it, since Prometheus answers for any time. Beside the pair stand targets that must not count, or must count in a certain way.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.unit.observe.recordings import BEFORE, MODEL, Frame, frames, metrics_folder, older_generation, page

from equipoise.api.identity import Phase, ServiceKey
from equipoise.cli.simulate.recorded import RecordingRequest, fetch
from equipoise.observe.health import metrics_condition
from equipoise.observe.observer import Observer
from equipoise.observe.prometheus import PrometheusClient, PrometheusSettings
from equipoise.observe.scope import PodScope, ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.starvation import Bottleneck, decode_starves_prefill
from equipoise.observe.types import Known, ServiceObservation, Signal, Unknown, UnknownReason
from equipoise.perf.types import Targets
from equipoise.simulate.traffic.recorded import recorded_traffic

INTERVAL_SECONDS = 0.25
LOADS = ("low", "overdecode", "overprefill", "overdecodelong", "overdecodelong2")
CHAT, OLD, RANKS, WARMING = (ServiceKey("prod", name) for name in ("chat", "old", "ranks", "warming"))


def now() -> float:
    """Seconds since the epoch, as Prometheus stamps its samples."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class Target:
    """One scraped address. Knows how often its page was fetched."""

    def __init__(self, labels: dict[str, str], of_frame: Callable[[Frame], str]) -> None:
        self.labels, self.of_frame = labels, of_frame
        self.page, self.fetched = "", 0
        self.changed = threading.Condition()
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = target.page.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                with target.changed:
                    target.fetched += 1
                    target.changed.notify_all()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def wait_fetched(self, goal: int) -> None:
        """Wait until the page has been fetched so many times in all."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.fetched >= goal, timeout=30.0), f"{self.labels} is not scraped"

    def stop(self) -> None:
        """Stop listening; a second time does nothing."""
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()


def pod(service: ServiceKey, name: str, phase: Phase, of_frame: Callable[[Frame], str]) -> Target:
    labels = {"namespace": service.namespace, "equipoise_dev_service": service.name, "pod": name}
    labels |= {"llm_d_ai_role": phase.value, "equipoise_dev_variant": f"{service.name}-{phase.value}"}
    return Target(labels, of_frame)


def two_ranks(text: str) -> str:
    """A page with a second data-parallel rank that did the same as the first."""
    lines = text.splitlines()
    return "\n".join([*lines, *(line.replace('engine="0"', 'engine="1"') for line in lines if 'engine="0"' in line)]) + "\n"


def slow_first_answers(text: str) -> str:
    """A page whose TPOT is a hundredfold: a pod that is still compiling."""
    name = "vllm:request_time_per_output_token_seconds_sum"
    lines = []
    for line in text.splitlines():
        if line.startswith(name):
            key, _, number = line.rpartition(" ")
            line = f"{key} {float(number) * 100}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def stuck(_: Frame) -> str:
    """A page that never changes, of a pod that had a long queue."""
    lines = []
    for line in page("overdecode", "decode").splitlines():
        if line.startswith(("vllm:num_requests_waiting", "vllm:num_requests_running")):
            line = f"{line.rpartition(' ')[0]} 50"
        lines.append(line)
    return "\n".join(lines) + "\n"


@dataclass
class Timeline:
    """When each load was played, and where Prometheus is."""

    url: str
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    alone: float = 0.0  # when the decode pod had been away for some scrapes

    async def observe(self, load: str, *services: ServiceScope) -> dict[ServiceKey, ServiceObservation]:
        """What an operator would have seen at the end of that load, in a window that spans it."""
        start, end = self.spans[load]
        return await self.at(end, end - start, *services)

    async def at(self, seconds: float, window_seconds: float, *services: ServiceScope) -> dict[ServiceKey, ServiceObservation]:
        async with PrometheusClient(PrometheusSettings(self.url)) as client:
            observer = Observer(client, settings(window_seconds))
            seen = await observer.observe(services, seconds)
            assert observer.health.ok, observer.health
            return seen


def settings(window_seconds: float) -> ObserveSettings:
    return ObserveSettings(
        minimum_window_seconds=window_seconds,
        maximum_window_seconds=window_seconds,
        probe_seconds=5.0,
        minimum_stale_seconds=2 * INTERVAL_SECONDS,
    )


def service(key: ServiceKey, decode: dict[str, float] | None = None) -> ServiceScope:
    """The service with one prefill pod and these decode pods (name -> serving since), by default one, since ever."""
    members = {Phase.PREFILL: {f"{key.name}-p0": 0.0}, Phase.DECODE: decode or {f"{key.name}-d0": 0.0}}
    pods = {
        phase: tuple(PodScope(name, since, f"{key.name}-{phase.value}") for name, since in items.items())
        for phase, items in members.items()
    }
    return ServiceScope(key, "vllm", MODEL, Targets(1.0, 0.025), pods)


@pytest.fixture(scope="module")
def prometheus_binary() -> str:
    from local_cluster import ensure_built

    return ensure_built().program("prometheus")


def start_prometheus(stack: ExitStack, binary: str, folder: Path, targets: list[Target], copied: list[Target]) -> str:
    from local_cluster import wait_until

    def job(name: str, members: list[Target], **labels: str) -> dict[str, object]:
        return {
            "job_name": name,
            "static_configs": [{"targets": [item.address], "labels": {**item.labels, **labels}} for item in members],
        }

    interval = f"{round(INTERVAL_SECONDS * 1000)}ms"
    config = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        # A second scrape of the same pods, as of a second Prometheus behind one query front.
        "scrape_configs": [job("pods", targets, prometheus_replica="a"), job("again", copied, prometheus_replica="b")],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    log = stack.enter_context((folder / "prometheus.log").open("w"))
    port = free_port()
    command = [binary, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)

    def stop() -> None:
        process.terminate()
        process.wait(timeout=30)

    stack.callback(stop)
    first = targets[0]
    wait_until(lambda: first.fetched > 0, description="Prometheus' first scrape")
    return f"http://127.0.0.1:{port}"


def free_port() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return int(server.server_address[1])


@pytest.fixture(scope="module")
def timeline(prometheus_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Timeline]:
    metrics_folder()  # skips before anything is started
    prefill, decode = (
        pod(CHAT, "chat-p0", Phase.PREFILL, lambda frame: frame.prefill),
        pod(CHAT, "chat-d0", Phase.DECODE, lambda frame: frame.decode),
    )
    router = Target({"namespace": "prod", "equipoise_dev_service": "chat", "pod": "chat-router-0"}, lambda frame: frame.router)
    draining = pod(CHAT, "chat-d8", Phase.DECODE, stuck)
    draining.labels["llm_d_ai_role"] = "draining"
    pair = [prefill, decode, router]
    others = [
        pod(CHAT, "chat-d9", Phase.DECODE, stuck),
        draining,
        pod(OLD, "old-p0", Phase.PREFILL, lambda frame: older_generation(frame.prefill)),
        pod(OLD, "old-d0", Phase.DECODE, lambda frame: older_generation(frame.decode)),
        pod(RANKS, "ranks-p0", Phase.PREFILL, lambda frame: frame.prefill),
        pod(RANKS, "ranks-d0", Phase.DECODE, lambda frame: two_ranks(frame.decode)),
        pod(WARMING, "warming-p0", Phase.PREFILL, lambda frame: frame.prefill),
        pod(WARMING, "warming-d0", Phase.DECODE, lambda frame: frame.decode),
        pod(WARMING, "warming-d1", Phase.DECODE, lambda frame: slow_first_answers(frame.decode)),
    ]
    targets = pair + others

    def show(frame: Frame, scrapes: int = 1) -> None:
        """Show the frame on all pages, and let it be scraped so often by both jobs."""
        for target in targets:
            target.page = target.of_frame(frame)
        # A fetch that was under way when the page changed still shows the page before.
        goals = [(target, target.fetched + 2 * scrapes + 1) for target in pair]
        for target, goal in goals:
            target.wait_fetched(goal)

    with ExitStack() as stack:
        for target in targets:
            stack.callback(target.stop)
            target.page = target.of_frame(frames("low", 4)[0])
        url = start_prometheus(stack, prometheus_binary, tmp_path_factory.mktemp("prometheus"), targets, pair)
        result = Timeline(url)
        for load in LOADS:
            played = frames(load, every=5)
            show(played[0], scrapes=2)
            started = now()
            for frame in played[1:]:
                show(frame)
            show(played[-1])
            result.spans[load] = (started, now())
        decode.stop()
        prefill.wait_fetched(prefill.fetched + 16)
        result.alone = now()
        yield result


def value(signal: Signal) -> float:
    assert isinstance(signal, Known), signal
    return signal.value


# The recordings' own notes: mean TTFT of the prefill and of the decode pod, TPOT.
MEASURED = {
    "low": (0.2039, 0.0412, 0.01130),
    "overdecode": (1.2307, 3.6476, 0.01884),
    "overprefill": (4.5105, 0.0846, 0.02242),
    "overdecodelong": (17.6996, 2.6214, 0.01999),
    "overdecodelong2": (14.8802, 3.5714, 0.01739),
}
VERDICTS = {
    "low": Bottleneck.NONE,
    "overdecode": Bottleneck.DECODE_STARVES_PREFILL,
    "overprefill": Bottleneck.PREFILL,
    "overdecodelong": Bottleneck.DECODE_STARVES_PREFILL,
    "overdecodelong2": Bottleneck.DECODE_STARVES_PREFILL,
}


@pytest.mark.parametrize("load", LOADS)
async def test_means_and_verdict_of_each_load(timeline: Timeline, load: str) -> None:
    seen = (await timeline.observe(load, service(CHAT)))[CHAT]
    prefill_leg, decode_leg, tpot = MEASURED[load]
    assert value(seen.prefill.latency_mean_seconds) == pytest.approx(prefill_leg, rel=0.005)
    assert value(seen.ttft_decode_leg_mean_seconds) == pytest.approx(decode_leg, rel=0.005)
    assert value(seen.ttft_mean_seconds) == pytest.approx(prefill_leg + decode_leg, rel=0.005)
    assert value(seen.decode.latency_mean_seconds) == pytest.approx(tpot, rel=0.005)
    verdict = decode_starves_prefill(seen)
    assert verdict.bottleneck is VERDICTS[load], verdict
    condition = metrics_condition(seen)
    assert condition.ok, condition


async def test_the_scrape_interval_is_learned_and_every_signal_is_fresh(timeline: Timeline) -> None:
    seen = (await timeline.observe("overdecode", service(CHAT)))[CHAT]
    assert seen.scrape_interval_seconds == pytest.approx(INTERVAL_SECONDS, rel=0.15)
    assert isinstance(seen.decode.running_requests, Known)
    assert 0.0 <= seen.decode.running_requests.age_seconds <= 4 * INTERVAL_SECONDS


async def test_requests_are_counted_once_though_every_pod_is_scraped_twice(timeline: Timeline) -> None:
    start, end = timeline.spans["overprefill"]
    seen = (await timeline.observe("overprefill", service(CHAT)))[CHAT]
    # Each load had sixty requests; increase() guesses what lies between the window's edges and the nearest samples.
    requests = pytest.approx(60.0 / (end - start), rel=0.25)
    assert value(seen.prefill.served_requests_per_second) == requests
    assert value(seen.decode.served_requests_per_second) == requests
    assert value(seen.prefill.requests_per_second) == requests
    assert value(seen.prefill.mean_tokens) == pytest.approx(1372.7, rel=0.005)
    assert value(seen.decode.mean_tokens) == pytest.approx(8.0, rel=0.005)


async def test_a_queue_that_grows_is_demand_before_anything_is_finished(timeline: Timeline) -> None:
    """A third into the prefill overload: prompts have piled up, and arrivals exceed what was served by that much."""
    start, end = timeline.spans["overprefill"]
    early = start + (end - start) * 0.4
    seen = (await timeline.at(early, early - start, service(CHAT)))[CHAT]
    queue = value(seen.prefill.requests_per_second) - value(seen.prefill.served_requests_per_second)
    assert queue * (early - start) > 8.0
    assert value(seen.decode.requests_per_second) >= value(seen.prefill.requests_per_second)


async def test_series_of_a_pod_that_is_gone_are_left_out(timeline: Timeline) -> None:
    """Its frozen page says that fifty requests wait for capacity, for ever."""
    seen = (await timeline.observe("low", service(CHAT)))[CHAT]
    assert value(seen.decode.waiting_for_capacity_requests) == pytest.approx(0.0, abs=0.01)
    believed = (await timeline.observe("low", service(CHAT, decode={"chat-d0": 0.0, "chat-d9": 0.0})))[CHAT]
    assert value(believed.decode.waiting_for_capacity_requests) > 40.0, "the page is there, and only the caller knows better"


async def test_a_draining_pod_belongs_to_no_phase(timeline: Timeline) -> None:
    seen = (await timeline.observe("low", service(CHAT, decode={"chat-d0": 0.0, "chat-d8": 0.0})))[CHAT]
    assert value(seen.decode.waiting_for_capacity_requests) == pytest.approx(0.0, abs=0.01)
    assert seen.decode.pods_missing == ("chat-d8",)


async def test_older_names_give_the_same_signals(timeline: Timeline) -> None:
    both = await timeline.observe("overdecodelong2", service(CHAT), service(OLD))
    new, old = both[CHAT], both[OLD]
    assert value(old.prefill.kv_usage_share) == pytest.approx(value(new.prefill.kv_usage_share), rel=0.1)
    assert value(old.decode.latency_mean_seconds) == pytest.approx(value(new.decode.latency_mean_seconds), rel=0.05)
    assert value(old.prefill.tokens_per_second) == pytest.approx(value(new.prefill.tokens_per_second), rel=0.1)
    assert isinstance(old.prefill.refused_requests_per_second, Unknown)
    assert old.prefill.refused_requests_per_second.reason is UnknownReason.NOT_EXPOSED
    verdict = decode_starves_prefill(old)
    assert verdict.bottleneck is Bottleneck.DECODE_STARVES_PREFILL
    assert not verdict.exact


async def test_ranks_of_one_pod_add_up_and_its_cache_is_averaged(timeline: Timeline) -> None:
    both = await timeline.observe("overdecode", service(CHAT), service(RANKS))
    one, two = both[CHAT].decode, both[RANKS].decode
    assert value(two.tokens_per_second) == pytest.approx(2 * value(one.tokens_per_second), rel=0.1)
    assert value(two.running_requests) == pytest.approx(2 * value(one.running_requests), rel=0.15)
    assert value(two.kv_usage_share) == pytest.approx(value(one.kv_usage_share), rel=0.15)
    assert value(two.latency_mean_seconds) == pytest.approx(value(one.latency_mean_seconds), rel=0.005)


async def test_latencies_of_a_pod_that_warms_up_are_left_out_and_its_work_is_not(timeline: Timeline) -> None:
    start, end = timeline.spans["overdecode"]
    scopes = [service(WARMING, decode={"warming-d0": 0.0, "warming-d1": since}) for since in (end - 10.0, 0.0)]
    cold, warm = [(await timeline.observe("overdecode", scope))[WARMING].decode for scope in scopes]
    assert value(cold.latency_mean_seconds) == pytest.approx(0.01884, rel=0.005)
    assert value(warm.latency_mean_seconds) == pytest.approx(0.01884 * 50.5, rel=0.05)
    assert value(cold.served_requests_per_second) == pytest.approx(120.0 / (end - start), rel=0.25)


async def test_a_wrong_served_name_is_named(timeline: Timeline) -> None:
    wrong = service(CHAT)
    wrong = ServiceScope(wrong.key, wrong.engine, "meta-llama/Llama-3.1-8B", wrong.targets, wrong.pods)
    seen = (await timeline.observe("low", wrong))[CHAT]
    assert isinstance(seen.decode.tokens_per_second, Unknown)
    assert seen.decode.tokens_per_second.reason is UnknownReason.NO_SERIES_WHILE_READY
    condition = metrics_condition(seen)
    assert condition.reason == "NoSeriesWhilePodsReady"
    assert "model_name tiny, not the served name meta-llama/Llama-3.1-8B" in condition.message


async def test_a_service_that_nobody_scrapes_is_not_idle(timeline: Timeline) -> None:
    unseen = ServiceKey("prod", "unseen")
    seen = (await timeline.observe("low", service(unseen)))[unseen]
    assert metrics_condition(seen).reason == "NoSeriesWhilePodsReady"
    assert "PodMonitor" in metrics_condition(seen).message


async def test_a_decode_pod_that_went_away_is_stale_and_prefill_is_not(timeline: Timeline) -> None:
    seen = (await timeline.at(timeline.alone, 3.0, service(CHAT)))[CHAT]
    for signal in (seen.decode.tokens_per_second, seen.decode.running_requests, seen.decode.latency_percentile_seconds):
        assert isinstance(signal, Unknown), signal
        assert signal.reason is UnknownReason.STALE, signal
    assert value(seen.prefill.waiting_requests) == 0.0
    condition = metrics_condition(seen)
    assert condition.reason == "Stale"
    assert "chat-d0" in condition.message


async def test_the_number_of_queries_is_the_same_for_one_service_and_for_four(timeline: Timeline) -> None:
    start, end = timeline.spans["low"]
    counts = []
    for services in ([service(CHAT)], [service(key) for key in (CHAT, OLD, RANKS, WARMING)]):
        async with PrometheusClient(PrometheusSettings(timeline.url)) as client:
            await Observer(client, settings(end - start)).observe(services, end)
            counts.append(client.queries)
    assert counts[0] == counts[1]


async def test_a_recorded_window_becomes_traffic_without_asking_a_cluster(timeline: Timeline) -> None:
    start, end = timeline.spans["overprefill"]
    request = RecordingRequest(timeline.url, CHAT, "vllm", Targets(1.0, 0.025), end - start, (end - start) / 2.0, end)
    recording = await fetch(request, settings(end - start))
    assert len(recording.windows) == 2
    assert recording.replicas(Phase.PREFILL) == 1
    # Prometheus alone cannot tell that the second decode pod, with its frozen page, was no pod of the service any more.
    assert recording.replicas(Phase.DECODE) == 2
    found = recorded_traffic(recording)
    assert found.traffic.seconds == pytest.approx(end - start)
    assert found.requests_per_second * (end - start) == pytest.approx(60.0, rel=0.35)
    assert found.prompt_tokens == pytest.approx(1372.7, rel=0.1)
    assert found.output_tokens == pytest.approx(8.0, rel=0.1)
    assert found.ttft_attainment is not None
    assert found.ttft_attainment < 0.5
    assert sum(1 for _ in found.traffic.arrivals(0)) == pytest.approx(60, rel=0.6)


async def test_a_service_that_was_never_scraped_has_no_recording(timeline: Timeline) -> None:
    start, end = timeline.spans["low"]
    unseen = RecordingRequest(
        timeline.url, ServiceKey("prod", "unseen"), "vllm", Targets(1.0, 0.025), end - start, end - start, end
    )
    with pytest.raises(ValueError, match="prod/unseen has no series of vllm"):
        await fetch(unseen, settings(end - start))


async def test_a_prometheus_that_is_down_is_a_failed_query_with_a_sentence() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    async with PrometheusClient(PrometheusSettings(address)) as client:
        observer = Observer(client)
        seen = (await observer.observe([service(CHAT)], now()))[CHAT]
    assert observer.health.reason == "Unreachable"
    condition = metrics_condition(seen)
    assert condition.reason == "QueryFailed"
    assert f"Prometheus at {address.removeprefix('http://')} cannot be asked" in condition.message


def test_all_loads_of_the_recording_are_played() -> None:
    assert set(LOADS) == set(BEFORE)
