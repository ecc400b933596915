"""Where each service's signals come from: one Prometheus for all, or the engine pods themselves for services that ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from equipoise.api.identity import ServiceKey
from equipoise.api.policy import MetricsSource
from equipoise.decide.types import Reason
from equipoise.observe.observer import SignalSource
from equipoise.observe.scope import ServiceScope
from equipoise.observe.types import ServiceObservation

NOT_CONFIGURED = Reason(
    "NotConfigured", "no Prometheus is configured: set prometheus.url in the operator's settings; until then nothing is scaled"
)


@dataclass(frozen=True, slots=True)
class Answers:
    """One round: what was observed, and what is wrong with a source as a whole."""

    observations: Mapping[ServiceKey, ServiceObservation]
    troubles: Mapping[MetricsSource, Reason]


class Signals:
    """The sources, each asked once per round for all the services that read from it."""

    def __init__(self, prometheus: SignalSource | None, pods: SignalSource) -> None:
        self._sources = {MetricsSource.PROMETHEUS: prometheus, MetricsSource.PODS: pods}

    async def observe(self, scopes: Iterable[tuple[MetricsSource, ServiceScope]], now_seconds: float) -> Answers:
        """Observe all scopes. Trouble of Prometheus is everybody's; a pod that does not answer is its own service's alone."""
        wanted: dict[MetricsSource, list[ServiceScope]] = {}
        for kind, scope in scopes:
            wanted.setdefault(kind, []).append(scope)
        observations: dict[ServiceKey, ServiceObservation] = {}
        troubles: dict[MetricsSource, Reason] = {}
        for kind, source in self._sources.items():
            if source is None:
                troubles[kind] = NOT_CONFIGURED
                continue
            if kind not in wanted:
                continue
            observations.update(await source.observe(wanted[kind], now_seconds))
            if kind is MetricsSource.PROMETHEUS and not source.health.ok:
                troubles[kind] = Reason(source.health.reason, source.health.message)
        return Answers(observations, troubles)
