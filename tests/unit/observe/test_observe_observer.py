"""The round itself: how many queries, what fails with what. The answers are made up; tests/cluster asks a real Prometheus."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.observe.builders import KEY, NOW, scope, value
from tests.unit.observe.recordings import MODEL

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.engines.router import ROUTER
from equipoise.observe.engines.vllm import VLLM
from equipoise.observe.health import metrics_condition
from equipoise.observe.observer import Observer
from equipoise.observe.readings import Failure, Sample
from equipoise.observe.scope import ServiceScope
from equipoise.observe.types import Unknown, UnknownReason


class Answers:
    """A client that knows the services' pods and answers every reading with one row per phase."""

    def __init__(self, services: list[ServiceScope], interval: Callable[[ServiceScope], float] = lambda _: 15.0) -> None:
        self.services, self.interval = services, interval
        self.queries, self.received_bytes = 0, 0
        self.expressions: list[str] = []
        self.fails: Callable[[str], bool] = lambda _: False

    async def query(self, expression: str, at_seconds: float) -> list[Sample] | Failure:
        self.queries += 1
        self.expressions.append(expression)
        if self.fails(expression):
            return Failure("Prometheus at test answered execution (HTTP 422): too many samples")
        samples = []
        for service in self.services:
            for phase in Phase:
                for pod in service.pods_of(phase):
                    labels = {
                        "namespace": service.key.namespace,
                        "equipoise_dev_service": service.key.name,
                        "llm_d_ai_role": phase.value,
                        "equipoise_dev_variant": pod.variant,
                        "model_name": MODEL,
                        "pod": pod.name,
                    }
                    if expression.startswith("max"):
                        last = "timestamp" in expression
                        samples.append(Sample(labels, at_seconds - 1.0 if last else 120.0 / self.interval(service)))
                    elif ", le)" in expression:
                        samples += [
                            Sample({**labels, "le": le}, count) for le, count in (("0.05", 8.0), ("0.5", 10.0), ("+Inf", 10.0))
                        ]
                    else:
                        samples.append(Sample(labels, 10.0))
        return samples


def fleet(count: int) -> list[ServiceScope]:
    return [
        scope({f"p-{index}": 0.0}, {f"d-{index}": 0.0}, key=ServiceKey(f"team-{index % 7}", f"chat-{index}"))
        for index in range(count)
    ]


@pytest.mark.parametrize("count", [1, 40])
async def test_the_number_of_queries_does_not_depend_on_the_number_of_services(count: int) -> None:
    services = fleet(count)
    client = Answers(services)
    seen = await Observer(client).observe(services, NOW)
    assert len(seen) == count
    assert client.queries == 2 + len(VLLM.instruments) + len(ROUTER)
    assert all(metrics_condition(item).ok for item in seen.values())


async def test_different_scrape_intervals_cost_a_bounded_number_of_query_sets() -> None:
    services = fleet(60)
    intervals = [5.0, 15.0, 30.0, 60.0, 7.0]
    client = Answers(services, lambda service: intervals[int(service.key.name.split("-")[1]) % len(intervals)])
    observer = Observer(client)
    seen = await observer.observe(services, NOW)
    assert client.queries == 2 + 3 * (len(VLLM.instruments) + len(ROUTER))
    assert len(observer.health.windows_seconds) == 3
    for service in services:
        observation = seen[service.key]
        assert observation.scrape_interval_seconds == pytest.approx(client.interval(service))
        assert observation.window_seconds >= 4 * client.interval(service) * 0.95


async def test_one_failing_query_is_reported_and_voids_nothing_else() -> None:
    services = fleet(2)
    client = Answers(services)
    client.fails = lambda expression: "kv_cache_usage_perc" in expression and "avg_over_time" in expression
    observer = Observer(client)
    seen = (await observer.observe(services, NOW))[services[0].key]
    assert isinstance(seen.decode.kv_usage_share, Unknown)
    assert seen.decode.kv_usage_share.reason is UnknownReason.QUERY_FAILED
    assert value(seen.decode.tokens_per_second) > 0
    assert not observer.health.ok
    assert observer.health.reason == "QueriesFailed"
    assert observer.health.failed == 1
    assert "vllm kv_usage over 60 s: Prometheus at test answered execution" in observer.health.message
    condition = metrics_condition(seen)
    assert condition.reason == "QueryFailed"
    assert "kv usage share" in condition.message


async def test_a_failed_roll_call_does_not_void_the_values() -> None:
    services = fleet(1)
    client = Answers(services)
    observer = Observer(client)
    first = (await observer.observe(services, NOW))[services[0].key]
    client.fails = lambda expression: "timestamp(" in expression
    second = (await observer.observe(services, NOW + 15.0))[services[0].key]
    assert value(second.decode.tokens_per_second) == value(first.decode.tokens_per_second)
    assert second.scrape_interval_seconds == first.scrape_interval_seconds


async def test_everything_failing_is_unreachable_and_every_signal_says_so() -> None:
    services = fleet(1)
    client = Answers(services)
    client.fails = lambda _: True
    observer = Observer(client)
    seen = (await observer.observe(services, NOW))[services[0].key]
    assert observer.health.reason == "Unreachable"
    for signal in (
        seen.decode.tokens_per_second,
        seen.prefill.requests_per_second,
        seen.ttft_attainment,
        seen.decode.kv_usage_share,
    ):
        assert isinstance(signal, Unknown)
        assert signal.reason is UnknownReason.QUERY_FAILED


async def test_an_engine_without_a_table_says_which_are_known() -> None:
    custom = scope(engine="custom")
    seen = (await Observer(Answers([])).observe([custom], NOW))[KEY]
    assert isinstance(seen.decode.latency_percentile_seconds, Unknown)
    assert seen.decode.latency_percentile_seconds.reason is UnknownReason.NOT_EXPOSED
    assert "known: sglang, vllm" in seen.decode.latency_percentile_seconds.message


async def test_pods_that_are_gone_or_cold_are_left_out_by_name() -> None:
    service = scope({"p-0": 0.0, "p-new": NOW - 5.0}, {"d-0": 0.0})
    gone = scope({}, {"d-gone": 0.0})
    client = Answers([service, gone])
    await Observer(client).observe([service], NOW)
    latencies = [text for text in client.expressions if "time_to_first_token_seconds_bucket" in text]
    work = [text for text in client.expressions if "generation_tokens_total" in text]
    assert all('pod!~"d-gone|p-new"' in text for text in latencies)
    assert all('pod!~"d-gone"' in text for text in work)


async def test_no_services_no_queries() -> None:
    client = Answers([])
    observer = Observer(client)
    assert await observer.observe([], NOW) == {}
    assert client.queries == 0
    assert observer.health.ok


async def test_what_was_learned_of_services_that_are_gone_is_forgotten() -> None:
    services = fleet(3)
    observer = Observer(Answers(services))
    await observer.observe(services, NOW)
    await observer.observe(services[:1], NOW + 15.0)
    assert list(observer.scrape_intervals_seconds) == [services[0].key]
