"""Each service is asked of its own source; trouble of a shared source is everybody's, a pod's trouble is its service's alone."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.api.identity import Phase, ServiceKey
from equipoise.api.policy import MetricsSource
from equipoise.observe.health import ObserverHealth
from equipoise.observe.scope import ServiceScope
from equipoise.observe.types import ServiceObservation
from equipoise.perf.types import Targets
from equipoise.reconcile.capacity.signals import NOT_CONFIGURED, Signals

CHAT, CODE = ServiceKey("prod", "chat"), ServiceKey("prod", "code")


def _scope(key: ServiceKey) -> ServiceScope:
    return ServiceScope(key=key, engine="vllm", served_model_name="m", targets=Targets(0.5, 0.05), pods=dict.fromkeys(Phase, ()))


class Source:
    """Answers nothing, remembers whom it was asked about."""

    def __init__(self, *, ok: bool = True) -> None:
        self.asked: list[set[ServiceKey]] = []
        self.health = ObserverHealth(ok, "Answering" if ok else "Unreachable", "three of four did not answer")

    async def observe(self, services: Iterable[ServiceScope], now_seconds: float) -> dict[ServiceKey, ServiceObservation]:
        self.asked.append({scope.key for scope in services})
        return {}


async def test_each_service_is_asked_of_the_source_it_names() -> None:
    prometheus, pods = Source(), Source()
    scopes = [(MetricsSource.PROMETHEUS, _scope(CHAT)), (MetricsSource.PODS, _scope(CODE))]
    answers = await Signals(prometheus, pods).observe(scopes, 0.0)
    assert prometheus.asked == [{CHAT}]
    assert pods.asked == [{CODE}]
    assert answers.troubles == {}


async def test_a_source_that_nobody_reads_is_not_asked() -> None:
    prometheus, pods = Source(), Source()
    await Signals(prometheus, pods).observe([(MetricsSource.PODS, _scope(CODE))], 0.0)
    assert prometheus.asked == []


async def test_without_prometheus_its_services_are_told_what_to_set_and_the_others_go_on() -> None:
    pods = Source()
    scopes = [(MetricsSource.PROMETHEUS, _scope(CHAT)), (MetricsSource.PODS, _scope(CODE))]
    answers = await Signals(None, pods).observe(scopes, 0.0)
    assert answers.troubles == {MetricsSource.PROMETHEUS: NOT_CONFIGURED}
    assert pods.asked == [{CODE}]


async def test_trouble_of_prometheus_concerns_all_its_services_and_that_of_pods_none_as_a_whole() -> None:
    scopes = [(MetricsSource.PROMETHEUS, _scope(CHAT)), (MetricsSource.PODS, _scope(CODE))]
    answers = await Signals(Source(ok=False), Source(ok=False)).observe(scopes, 0.0)
    assert {kind: trouble.name for kind, trouble in answers.troubles.items()} == {MetricsSource.PROMETHEUS: "Unreachable"}
