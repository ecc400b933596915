"""The metrics of a service follow its facts, and what is unknown has no series."""

from __future__ import annotations

from tests.unit.reconcile.status.facts import KEY, P, decision, facts, figures

from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.status.conditions import conditions
from equipoise.reconcile.status.facts import Facts
from equipoise.reconcile.status.series import tell_metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"namespace": "prod", "service": "chat", **labels})


def tell(metrics: Metrics, found: Facts) -> None:
    tell_metrics(metrics, KEY, found, conditions(found))


def test_every_figure_has_its_series() -> None:
    metrics = Metrics()
    tell(metrics, facts())
    assert value(metrics, "equipoise_phase_target_seconds", phase="prefill") == 0.5
    assert value(metrics, "equipoise_phase_target_seconds", phase="decode") == 0.05
    assert value(metrics, "equipoise_phase_latency_seconds", phase="decode") == 0.031
    assert value(metrics, "equipoise_phase_demand_tokens_per_second", phase="prefill") == 900.0
    assert value(metrics, "equipoise_phase_capacity_tokens_per_second", phase="prefill") == 2000.0
    assert value(metrics, "equipoise_phase_attainment", phase="prefill") == 0.97
    assert value(metrics, "equipoise_phase_lag", phase="prefill") == 0.8
    assert value(metrics, "equipoise_cost_usd_per_hour") == 10.28
    where = {"phase": "prefill", "variant": "chat-prefill-h100-80gb", "pool": "h100-80gb"}
    assert value(metrics, "equipoise_variant_ready_replicas", **where) == 2.0
    assert value(metrics, "equipoise_condition", condition="Ready") == 1.0
    assert value(metrics, "equipoise_condition", condition="CapacityLimited") == 0.0


def test_what_becomes_unknown_loses_its_series() -> None:
    metrics = Metrics()
    tell(metrics, facts())
    unknown = figures(P, latency_seconds=None, attainment=None, lag=None, demand_tokens_per_second=None)
    tell(metrics, facts(decision=decision(phases={P: unknown}), observation=None))
    for name in ("latency_seconds", "attainment", "lag", "demand_tokens_per_second"):
        assert value(metrics, f"equipoise_phase_{name}", phase="prefill") is None
        assert value(metrics, f"equipoise_phase_{name}", phase="decode") is None
    assert value(metrics, "equipoise_phase_capacity_tokens_per_second", phase="prefill") == 2000.0
    assert value(metrics, "equipoise_condition", condition="TargetsMet") is None


def test_before_the_first_decision_there_are_counts_and_targets_only() -> None:
    metrics = Metrics()
    tell(metrics, facts(decision=None))
    assert value(metrics, "equipoise_phase_target_seconds", phase="prefill") == 0.5
    assert value(metrics, "equipoise_cost_usd_per_hour") is None
