"""The metrics of one service, from the same facts as its status. What is not known has no series: unknown is not zero."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.api.conditions import Condition
from equipoise.api.identity import Phase, ServiceKey
from equipoise.api.values import parse_duration
from equipoise.decide.types import PhaseDecision
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.status.facts import Facts


def tell_metrics(metrics: Metrics, key: ServiceKey, facts: Facts, conditions: Iterable[Condition]) -> None:
    """Set every series of the service; those of figures and conditions that are unknown now are removed."""
    labels = (key.namespace, key.name)
    metrics.set_variants(
        key,
        {
            (item.variant.phase.value, facts.names[item.variant], item.variant.pool): (item.desired, item.ready)
            for item in facts.variants
        },
    )
    for phase, text in facts.targets_text.items():
        metrics.set_phase(metrics.target_seconds, key, phase, parse_duration(text))
    for condition in conditions:
        if condition.status == "Unknown":
            metrics.condition.remove(*labels, condition.type)
        else:
            metrics.condition.labels(*labels, condition.type).set(condition.status == "True")
    if facts.decision is None:
        return
    metrics.cost.labels(*labels).set(facts.decision.cost_usd_per_hour)
    for phase in Phase:
        found = facts.decision.phases.get(phase, PhaseDecision(phase, None, None, None, None, None))
        for gauge, value in (
            (metrics.observed_seconds, found.latency_seconds),
            (metrics.attainment, found.attainment),
            (metrics.lag, found.lag),
            (metrics.demand, found.demand_tokens_per_second),
            (metrics.capacity, found.capacity_tokens_per_second),
        ):
            metrics.set_phase(gauge, key, phase, value)
