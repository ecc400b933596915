"""Probes and metrics over HTTP, answered by the event loop they speak of: a stuck loop cannot say that it is well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client.aiohttp import make_aiohttp_handler

from equipoise.reconcile.metrics import Metrics

Check = Callable[[], str | None]
"""None when all is well, else what is wrong, with numbers."""


@dataclass(slots=True)
class Health:
    """Named checks behind /livez and /readyz. Whoever starts something adds its check; all must pass."""

    live: dict[str, Check] = field(default_factory=dict)
    ready: dict[str, Check] = field(default_factory=dict)


class HttpServer:
    """/livez, /readyz and /metrics. A failed check answers 503; the body lists all checks either way."""

    def __init__(self, health: Health, metrics: Metrics, *, host: str, port: int) -> None:
        self._health = health
        self._host = host
        self._port = port
        application = web.Application()
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", make_aiohttp_handler(metrics.registry))
        # Prometheus and kubelet keep connections open; at the end they are not waited for.
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5, handle_signals=False)

    async def start(self) -> int:
        """Listen; returns the port. OSError when it is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, reuse_address=True).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close the listener and what is open."""
        await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return _answer(self._health.live)

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._health.ready)


def _answer(checks: Mapping[str, Check]) -> web.Response:
    results = {name: check() for name, check in checks.items()}
    lines = [f"[{'-' if wrong else '+'}] {name}: {wrong or 'ok'}" for name, wrong in results.items()]
    return web.Response(text="\n".join([*lines, ""]) if lines else "ok\n", status=503 if any(results.values()) else 200)
