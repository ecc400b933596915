"""The life of the operator's process: stand by, lead, stop. The end of any long-lived task is the end of all."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import uuid
from collections.abc import Callable, Coroutine
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from equipoise.reconcile.clock import Clock, SystemClock
from equipoise.reconcile.contract import AppFactory
from equipoise.reconcile.http import Health, HttpServer
from equipoise.reconcile.kube.client import KubeClient
from equipoise.reconcile.kube.connection import Connection, load_connection, own_namespace
from equipoise.reconcile.kube.transport import Retry, Transport
from equipoise.reconcile.lead import Leader
from equipoise.reconcile.lease.election import Timing
from equipoise.reconcile.lease.elector import Elector, LeadershipLost
from equipoise.reconcile.lease.watchdog import ProcessWatchdog
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.settings import Settings

logger = logging.getLogger(__name__)

_STUCK_LOOP_SECONDS: Final = 30.0
_STANDBY_SILENCE_SECONDS: Final = 60.0


class Process:
    """One run of the operator, from the first probe to the released Lease."""

    def __init__(self, settings: Settings, app_factory: AppFactory, *, clock: Clock | None = None) -> None:
        self._settings = settings
        self._app_factory = app_factory
        self._clock = clock or SystemClock()
        self._metrics = Metrics()
        self._metrics.info.labels(_version()).set(1)
        self._health = Health()
        self._stop = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._heartbeat_at = self._clock.monotonic_seconds()
        self.identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.http_port: int | None = None

    def stop(self) -> None:
        """Ask for an orderly end; `run` returns 0 then."""
        self._stop.set()

    async def run(self) -> int:
        """Run until stopped (0), or until something that must not end has ended (1)."""
        self.take_signals()
        self._health.live["event-loop"] = self._loop_check
        server = HttpServer(self._health, self._metrics, host=self._settings.http.host, port=self._settings.http.port)
        self.http_port = await server.start()
        logger.info("probes and metrics on port %d", self.http_port, extra={"port": self.http_port})
        self._start("heartbeat", self._beat())
        connection = await self._load()
        logger.info("API server %s, by %s", connection.server, connection.source)
        transport = self._transport(connection, self._settings.api.timeout_seconds, self._settings.api.attempts)
        # The Lease has a session of its own: a renewal must not wait behind a thousand other requests.
        lease_transport = self._transport(connection, self._settings.leader_election.renew_seconds / 2, 1)
        try:
            elector = self._elector(lease_transport) if self._settings.leader_election.enabled else None
            return await self._stand_by_and_lead(transport, elector)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.stop()
            await transport.close()
            await lease_transport.close()

    def take_signals(self) -> None:
        """SIGTERM and SIGINT ask for an orderly end, with a deadline. A no-op outside the main thread."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, self._on_signal, number)
            except (NotImplementedError, RuntimeError, ValueError):
                return

    async def _stand_by_and_lead(self, transport: Transport, elector: Elector | None) -> int:
        if elector is not None:
            self._health.ready["standby"] = lambda: _standby_check(elector)
            logger.info("standing by as %s", self.identity)
            if not await self._unless_stopped("elector", elector.acquire()):
                return self._verdict()
            self._start("lease", elector.hold())
            self._health.ready.pop("standby")
        self._metrics.leader.set(1)
        self._metrics.leader_transitions.inc()
        leader = Leader(
            self._settings,
            self._client(transport, elector.may_write if elector else lambda: True),
            self._load,
            self._clock,
            self._metrics,
            self._health,
            identity=self.identity,
            start=self._start,
            take_signals=self.take_signals,
        )
        try:
            if await self._unless_stopped("start of leading", leader.begin(self._app_factory)):
                await self._first_end()
            return self._verdict()
        finally:
            still_ours = elector is None or elector.may_write()
            await leader.finish(seconds=self._settings.shutdown_seconds / 2 if still_ours else 0.0)
            self._metrics.leader.set(0)
            if elector is not None:
                self._cancel("lease")
                await elector.release()
            await leader.close()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = name
        return task

    def _cancel(self, name: str) -> None:
        for task, known in list(self._tasks.items()):
            if known == name:
                del self._tasks[task]
                task.cancel()

    async def _unless_stopped(self, name: str, work: Coroutine[Any, Any, None]) -> bool:
        """Do this; False when the process was asked to stop, or a long-lived task ended, before it was done."""
        task = asyncio.create_task(work, name=name)
        await self._first_end(task)
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False

    async def _first_end(self, *more: asyncio.Task[None]) -> None:
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait({stop, *self._tasks, *more}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    def _verdict(self) -> int:
        """Say why the process ends; 0 when it was asked to."""
        code = 0
        for task, name in list(self._tasks.items()):
            if not task.done() or task.cancelled():
                continue
            code = 1
            error = task.exception()
            if isinstance(error, LeadershipLost):
                logger.error("leadership lost, stopping at once: %s", error)
            elif error is not None:
                logger.critical("task %s crashed, stopping: %s: %s", name, type(error).__name__, error, exc_info=error)
            elif not self._stop.is_set():
                logger.critical("task %s ended although it should run for ever, stopping", name)
        if code == 0:
            logger.info("stopping as asked")
        return code

    def _on_signal(self, number: int) -> None:
        logger.info("%s: stopping within %.0f s", signal.Signals(number).name, self._settings.shutdown_seconds)
        asyncio.get_running_loop().call_later(self._settings.shutdown_seconds, _hard_exit)
        self._stop.set()

    async def _beat(self) -> None:
        """Note once a second that the loop turns, and how late it turned at the worst of each minute."""
        worst: list[float] = []
        while True:
            before = self._clock.monotonic_seconds()
            await self._clock.sleep(1.0)
            self._heartbeat_at = self._clock.monotonic_seconds()
            worst = [*worst[-59:], max(0.0, self._heartbeat_at - before - 1.0)]
            self._metrics.loop_lag_seconds.set(max(worst))

    def _loop_check(self) -> str | None:
        age = self._clock.monotonic_seconds() - self._heartbeat_at
        return f"no turn for {age:.0f} s" if age > _STUCK_LOOP_SECONDS else None

    async def _load(self) -> Connection:
        return await load_connection(self._settings.kubeconfig, self._settings.context)

    def _transport(self, connection: Connection, timeout_seconds: float, attempts: int) -> Transport:
        return Transport(connection, self._load, self._clock, timeout_seconds=timeout_seconds, retry=Retry(attempts))

    def _client(self, transport: Transport, fence: Callable[[], bool]) -> KubeClient:
        return KubeClient(transport, fence=fence, observe_write=self._metrics.wrote, page_size=self._settings.api.page_size)

    def _elector(self, transport: Transport) -> Elector:
        election = self._settings.leader_election
        return Elector(
            self._client(transport, lambda: True),
            self._clock,
            identity=self.identity,
            namespace=election.namespace or own_namespace(),
            name=election.lease_name,
            timing=Timing(election.lease_seconds, election.renew_seconds, election.retry_seconds),
            watchdog=ProcessWatchdog(),
        )


def _standby_check(elector: Elector) -> str | None:
    age = elector.contact_age_seconds()
    return f"no answer about the lease for {age:.0f} s" if age > _STANDBY_SILENCE_SECONDS else None


def _hard_exit() -> None:
    logger.critical("not stopped in time, exiting hard")
    logging.shutdown()
    os._exit(1)


def _version() -> str:
    try:
        return version("equipoise")
    except PackageNotFoundError:
        return "unknown"
