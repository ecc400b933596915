"""Probes and metrics over a real socket, and what the metrics room forgets."""

from __future__ import annotations

import aiohttp
import pytest

from equipoise.api.identity import Phase, ServiceKey
from equipoise.reconcile.http import Health, HttpServer
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.queue import Outcome

CHAT, CODE = ServiceKey("prod", "chat"), ServiceKey("prod", "code")


async def fetch(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_probes_list_every_check_and_fail_with_one() -> None:
    health = Health()
    problem: list[str] = []
    health.live["loop"] = lambda: None
    health.live["reconciles"] = lambda: problem[0] if problem else None
    server = HttpServer(health, Metrics(), host="127.0.0.1", port=0)
    port = await server.start()
    try:
        assert await fetch(port, "/livez") == (200, "[+] loop: ok\n[+] reconciles: ok\n")
        problem.append("one has been running for 312 s")
        assert await fetch(port, "/livez") == (503, "[+] loop: ok\n[-] reconciles: one has been running for 312 s\n")
        assert await fetch(port, "/readyz") == (200, "ok\n")
        assert (await fetch(port, "/other"))[0] == 404
    finally:
        await server.stop()


async def test_metrics_are_those_of_this_operator_only() -> None:
    ours, other = Metrics(), Metrics()
    ours.wrote("apply", "Deployment", "ok")
    other.wrote("apply", "Deployment", "Conflict")
    server = HttpServer(Health(), ours, host="127.0.0.1", port=0)
    port = await server.start()
    try:
        status, text = await fetch(port, "/metrics")
    finally:
        await server.stop()
    assert status == 200
    assert 'equipoise_api_writes_total{kind="Deployment",result="ok",verb="apply"} 1.0' in text
    assert "Conflict" not in text


async def test_a_taken_port_is_an_error_at_start() -> None:
    first = HttpServer(Health(), Metrics(), host="127.0.0.1", port=0)
    port = await first.start()
    second = HttpServer(Health(), Metrics(), host="127.0.0.1", port=port)
    try:
        with pytest.raises(OSError, match="address already in use"):
            await second.start()
    finally:
        await second.stop()
        await first.stop()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_unknown_is_no_series_rather_than_zero() -> None:
    metrics = Metrics()
    where = {"namespace": "prod", "service": "chat", "phase": "prefill"}
    metrics.set_phase(metrics.observed_seconds, CHAT, Phase.PREFILL, 0.4)
    assert value(metrics, "equipoise_phase_latency_seconds", **where) == 0.4
    metrics.set_phase(metrics.observed_seconds, CHAT, Phase.PREFILL, None)
    metrics.set_phase(metrics.observed_seconds, CHAT, Phase.DECODE, None)
    assert value(metrics, "equipoise_phase_latency_seconds", **where) is None


def test_series_of_variants_and_services_that_are_gone_are_removed() -> None:
    metrics = Metrics()
    for key in (CHAT, CODE):
        metrics.set_variants(key, {("prefill", "a", "h100"): (2, 1), ("decode", "b", "l40s"): (3, 3)})
        metrics.decisions.labels(key.namespace, key.name, "Hold", "Balanced").inc()
        metrics.cost.labels(key.namespace, key.name).set(12.0)
    metrics.set_variants(CHAT, {("decode", "b", "l40s"): (4, 3)})
    assert 'variant="a"' not in "".join(_lines(metrics, "chat"))
    assert any('variant="b"' in line and line.endswith("4.0") for line in _lines(metrics, "chat"))
    metrics.forget(CHAT)
    assert _lines(metrics, "chat") == []
    assert len(_lines(metrics, "code")) >= 6


def test_retain_removes_what_was_written_after_the_service_had_gone() -> None:
    metrics = Metrics()
    for key in (CHAT, CODE):
        metrics.cost.labels(key.namespace, key.name).set(1.0)
    metrics.retain({CODE})
    assert _lines(metrics, "chat") == []
    assert _lines(metrics, "code") != []


def test_pools_that_are_gone_are_removed() -> None:
    metrics = Metrics()
    metrics.set_pools({"h100": {"total": 8, "free": 2}, "l40s": {"total": 4, "free": 4}})
    metrics.set_pools({"h100": {"total": 8, "free": 0}})
    assert value(metrics, "equipoise_pool_gpus", pool="h100", state="free") == 0
    assert value(metrics, "equipoise_pool_gpus", pool="l40s", state="free") is None


def test_the_queue_is_observed() -> None:
    metrics = Metrics()
    metrics.started(0.2)
    metrics.finished(0.01, Outcome.ERROR)
    metrics.follow_queue(lambda: 3, lambda: 2, lambda: 1)
    assert value(metrics, "equipoise_queue_wait_seconds_count") == 1
    assert value(metrics, "equipoise_reconcile_seconds_count", outcome="error") == 1
    assert [value(metrics, f"equipoise_queue_{what}") for what in ("depth", "delayed", "failing")] == [3, 2, 1]


def _lines(metrics: Metrics, service: str) -> list[str]:
    result = []
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.labels.get("service") == service:
                labels = " ".join(f'{name}="{text}"' for name, text in sample.labels.items())
                result.append(f"{sample.name} {labels} {sample.value}")
    return result
