"""The emulator's own address: /status for people and programs, /metrics of what clients see, /health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiohttp import web

from equipoise.emulate.driver import Driver
from equipoise.emulate.ledger import WINDOWS_SECONDS
from equipoise.emulate.world import Engine, Service
from equipoise.simulate.engine.metrics.exposition import CONTENT_TYPE, label_text

if TYPE_CHECKING:
    from equipoise.emulate.emulator import Emulator


class StatusPage:
    """Reads everything from the emulator when asked."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self.port: int | None = None

    async def serve(self, host: str, port: int) -> None:
        """Serve until cancelled; prints where."""
        application = web.Application()
        application.router.add_get("/status", self._status)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/health", self._health)
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            self.port = runner.addresses[0][1]
            print(f"emulator: status on http://{host}:{self.port}/status", flush=True)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self.status())

    def status(self) -> dict[str, Any]:
        """Everything as plain JSON; see docs/concepts/emulator.md for the meaning of each field."""
        emulator = self._emulator
        now = emulator.now()
        emulator.world.advance(now)
        return {
            "time_seconds": round(now, 3),
            "unix_seconds": round(emulator.unix_seconds(), 3),
            "lag_seconds": round(emulator.lag_seconds, 4),
            "services": {str(key): self._service(driver, now) for key, driver in emulator.drivers.items()},
            "problems": emulator.problems,
        }

    def _service(self, driver: Driver, now: float) -> dict[str, Any]:
        ledger, service = driver.ledger, driver.service
        ledger.look(now)
        targets = ledger.targets
        return {
            "traffic": driver.status(now),
            "targets": {
                "ttft_seconds": targets.ttft_seconds,
                "tpot_seconds": targets.tpot_seconds,
                "percentile": targets.percentile,
            },
            "windows": {str(seconds): ledger.window(now, seconds) for seconds in WINDOWS_SECONDS},
            "totals": dict(ledger.totals),
            "causes": dict(ledger.causes),
            "waiting_for_first_token": ledger.waiting_for_first_token,
            "oldest_wait_seconds": round(ledger.oldest_wait_seconds(now), 3),
            "pods": [_pod(engine, service, now) for engine in service.engines.values()],
            "routers": [router.pod.name for router in service.routers.values() if router.pod.ready],
        }

    async def _metrics(self, request: web.Request) -> web.Response:
        emulator = self._emulator
        now = emulator.now()
        emulator.world.advance(now)
        lines: list[str] = []

        def family(name: str, kind: str, text: str, samples: list[tuple[dict[str, str], float | None]]) -> None:
            lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))
            lines.extend(f"{name}{label_text(labels)} {value!r}" for labels, value in samples if value is not None)

        windows = {}
        for key, driver in emulator.drivers.items():
            driver.ledger.look(now)
            windows[key] = {seconds: driver.ledger.window(now, seconds) for seconds in WINDOWS_SECONDS}
        for name, text in (
            ("goodput", "Share of requests inside both targets, as clients see it."),
            ("ttft_attainment", "Share of requests inside the TTFT target, as clients see it."),
            ("tpot_attainment", "Share of requests inside the TPOT target, as clients see it."),
            ("offered_requests_per_second", "Requests that clients send."),
        ):
            family(
                f"equipoise_emulator_{name}",
                "gauge",
                text,
                [
                    ({**_labels(driver.service), "window_seconds": str(seconds)}, window[name])
                    for key, driver in emulator.drivers.items()
                    for seconds, window in windows[key].items()
                ],
            )
        for name in ("ttft_seconds", "tpot_seconds"):
            family(
                f"equipoise_emulator_{name}",
                "gauge",
                "Latency as clients see it, by quantile, where there was a request.",
                [
                    ({**_labels(driver.service), "window_seconds": str(seconds), "quantile": quantile}, window[name][quantile])
                    for key, driver in emulator.drivers.items()
                    for seconds, window in windows[key].items()
                    for quantile in ("mean", "p50", "p95", "p99")
                ],
            )
        for name, label, values, text in (
            ("requests_total", "outcome", ("completed", "refused", "lost", "aborted"), "Requests by how they ended."),
            ("judged_requests_total", "verdict", ("good", "bad"), "Requests by whether they are inside both targets."),
            ("offered_requests_total", "", ("offered",), "Requests that clients sent."),
        ):
            family(
                f"equipoise_emulator_{name}",
                "counter",
                text,
                [
                    ({**_labels(driver.service), **({label: value} if label else {})}, float(driver.ledger.totals[value]))
                    for driver in emulator.drivers.values()
                    for value in values
                ],
            )
        return web.Response(text="\n".join(lines) + "\n", headers={"Content-Type": CONTENT_TYPE})


def _labels(service: Service) -> dict[str, str]:
    return {"namespace": service.key.namespace, "service": service.key.name}


def _pod(engine: Engine, service: Service, now: float) -> dict[str, Any]:
    pod, replica = engine.pod, engine.replica
    replica.sync(now)
    waiting = len(replica.waiting) + len(replica.loading) + len(replica.loaded)
    state = "terminating" if pod.terminating else "not ready" if not pod.ready else "serving" if pod.role else "draining"
    return {
        "name": pod.name,
        "address": pod.address,
        "node": pod.node,
        "pool": pod.pool,
        "variant": pod.variant,
        "device": engine.spec.device,
        "shape": str(engine.spec.shape),
        "role": pod.role_label,
        "state": state,
        "running": replica.batch.size,
        "prefilling": replica.prefilling_requests(),
        "waiting": waiting,
        "queued_prompt_tokens": replica.queued_tokens,
        "held": len(replica.held),
        "promised": replica.promised,
        "kv_usage": round(replica.kv_usage(), 4),
    }
