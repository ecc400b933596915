"""What a leader runs: the store and its sources, the work queue, the capacity loop, Events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from equipoise.api.identity import ServiceKey
from equipoise.reconcile.clock import Clock
from equipoise.reconcile.contract import App, AppFactory, Closable, Context
from equipoise.reconcile.events import EventWriter
from equipoise.reconcile.http import Health
from equipoise.reconcile.kube.connection import Connection
from equipoise.reconcile.kube.errors import ApiError, Fenced
from equipoise.reconcile.kube.kinds import INFERENCE_SERVICE, Kind
from equipoise.reconcile.kube.protocol import KubeApi, Object
from equipoise.reconcile.logs import about, hush_kopf
from equipoise.reconcile.matters import look_after_seconds
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.queue import Result, WorkQueue
from equipoise.reconcile.relist import Relister
from equipoise.reconcile.settings import Settings
from equipoise.reconcile.store import Change, Store
from equipoise.reconcile.watch import Watch

logger = logging.getLogger(__name__)

Start = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]

_SPACING_SECONDS: Final = 0.05  # of two runs of one service: short beside a pod's start, long beside the burst of its events
_STUCK_SECONDS: Final = 300.0  # a reconcile or a round: beyond all time-outs and retries of their calls
_LONGEST_ROUND_BACKOFF_SECONDS: Final = 60.0


class Leader:
    """Built when this process has become leader. `begin` starts everything, `finish` stops all that writes, `close` the rest."""

    def __init__(
        self,
        settings: Settings,
        api: KubeApi,
        load: Callable[[], Awaitable[Connection]],
        clock: Clock,
        metrics: Metrics,
        health: Health,
        *,
        identity: str,
        start: Start,
        take_signals: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._load = load
        self._clock = clock
        self._metrics = metrics
        self._health = health
        self._start = start
        self._take_signals = take_signals
        self.store = Store()
        self._events = EventWriter(api, clock, instance=identity, metrics=metrics)
        self._relister = Relister(
            api,
            self.store,
            clock,
            metrics,
            namespaces=settings.namespaces,
            resync_seconds=settings.resync_seconds,
            poll_seconds=settings.poll_seconds,
            kinds_changed=self._on_kind,
        )
        self._queue: WorkQueue[ServiceKey] = WorkQueue(
            self._reconcile,
            workers=settings.workers,
            spacing_seconds=_SPACING_SECONDS,
            observer=metrics,
            on_failure=_log_failure,
        )
        self._context = Context(settings, api, self.store, self._events, metrics, clock, self._queue.add)
        self._app: App | None = None
        self._watch: Watch | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._round_since: float | None = None
        self._primed = False

    async def begin(self, app_factory: AppFactory) -> None:
        """Fill the store, then start everything on it."""
        self._health.ready["store"] = lambda: None if self._primed else "not filled yet"
        started = self._clock.monotonic_seconds()
        await self._relister.prime()
        self._primed = True
        logger.info(
            "store filled in %.2f s: %d services, %d pods, %d nodes",
            self._clock.monotonic_seconds() - started,
            self.store.count(INFERENCE_SERVICE),
            *(self.store.count(source.kind) for source in self._relister.watched if source.kind.kind in ("Pod", "Node")),
        )
        self._app = app_factory(self._context)
        self.store.subscribe(self._on_change)
        self._metrics.follow_queue(lambda: self._queue.depth, lambda: self._queue.delayed, lambda: self._queue.failing)
        for source in self._relister.watched:
            self._metrics.stored_objects.labels(str(source.kind)).set_function(partial(self.store.count, source.kind))
            self._metrics.watch_age_seconds.labels(str(source.kind)).set_function(partial(self._relister.age, source.kind))
        self._health.live |= {"reconciles": self._reconcile_check, "capacity": self._round_check, "watches": self._watch_check}
        for key in self.store.services():
            self._queue.add(key)
        self._watch = Watch(self._relister.watched, self._take_in, self._load, self._clock, namespaces=self._settings.namespaces)
        # kopf ends every task that is younger than itself: it starts last.
        for name, work in (
            ("events", self._events.run()),
            ("queue", self._queue.run()),
            ("capacity", self._capacity(self._app)),
            ("resync", self._relister.resync()),
            ("poll", self._relister.poll()),
            ("watch", self._watch.run(started=self._take_signals)),
        ):
            self._running[name] = self._start(name, work)

    async def finish(self, *, seconds: float) -> None:
        """Stop all that writes: let reconciles in work come to their end for so long, then cut them off, then flush Events."""
        self._queue.stop()
        self._cancel("capacity", "resync", "poll")
        queue = self._running.get("queue")
        if queue is not None and not queue.done() and seconds > 0:
            await asyncio.wait({queue}, timeout=seconds)
        self._cancel("queue", "events")
        await asyncio.gather(
            *(task for name, task in self._running.items() if name != "watch" and task is not asyncio.current_task()),
            return_exceptions=True,
        )
        if seconds > 0:
            try:
                async with asyncio.timeout(2.0):
                    await self._events.flush(everything=True)
            except TimeoutError:
                logger.warning("some Events were not written in time")

    async def close(self) -> None:
        """Stop what only reads."""
        watch = self._running.get("watch")
        if self._watch is not None and watch is not None and not watch.done():
            hush_kopf()
            self._watch.stop()
            await asyncio.wait({watch}, timeout=6.0)
        app: object = self._app
        if isinstance(app, Closable):
            await app.close()

    def _cancel(self, *names: str) -> None:
        for name in names:
            task = self._running.get(name)
            if task is not None:
                task.cancel()

    async def _reconcile(self, key: ServiceKey) -> Result:
        if self._app is None:
            return Result()
        with about(key):
            return await self._app.reconcile(key)

    async def _capacity(self, app: App) -> None:
        failures = 0
        while True:
            self._round_since = started = self._clock.monotonic_seconds()
            try:
                pause = await app.capacity_round()
                failures = 0
                outcome = "ok"
            except Fenced as error:
                logger.warning("capacity round cut off: %s", error)
                pause, outcome = self._settings.capacity.interval_seconds, "error"
            except Exception as error:
                failures += 1
                pause = min(self._settings.capacity.interval_seconds * 2.0 ** (failures - 1), _LONGEST_ROUND_BACKOFF_SECONDS)
                outcome = "error"
                logger.error("capacity round failed, again in %.0f s: %s", pause, error, exc_info=error)
            finally:
                self._round_since = None
            self._metrics.capacity_round_seconds.labels(outcome).observe(self._clock.monotonic_seconds() - started)
            await self._clock.sleep(max(pause, 0.1))

    def _take_in(self, kind: Kind, event_type: str | None, obj: Object) -> None:
        """A watch event. No I/O: the store, and through its listeners the queue."""
        self._relister.event(kind)
        self._metrics.watch_events.labels(str(kind), event_type or "LISTED").inc()
        if event_type == "DELETED":
            self.store.remove(kind, obj)
        else:
            self.store.upsert(kind, obj)

    def _on_change(self, change: Change) -> None:
        after = None if change.ours else look_after_seconds(change)
        if self._app is None or after is None:
            return
        keys = {key for state in (change.old, change.new) if state for key in self._app.affected_keys(change.kind, state)}
        for key in keys:
            self._queue.add(key, after_seconds=after)
        if change.kind == INFERENCE_SERVICE and change.new is None and change.old is not None:
            metadata = change.old["metadata"]
            self._metrics.forget(ServiceKey(metadata["namespace"], metadata["name"]))

    def _on_kind(self, _: Kind) -> None:
        for key in self.store.services():
            self._queue.add(key)

    def _reconcile_check(self) -> str | None:
        age = self._queue.oldest_in_flight_seconds()
        return f"one has been running for {age:.0f} s" if age > _STUCK_SECONDS else None

    def _round_check(self) -> str | None:
        age = self._clock.monotonic_seconds() - self._round_since if self._round_since is not None else 0.0
        return f"a round has been running for {age:.0f} s" if age > _STUCK_SECONDS else None

    def _watch_check(self) -> str | None:
        dead = self._relister.dead_watches()
        return f"silent while lists found changes: {', '.join(map(str, dead))}" if dead else None


def _log_failure(key: ServiceKey, error: Exception, delay_seconds: float) -> None:
    """API errors are ordinary and say all there is to say; anything else is a fault of ours and needs its traceback."""
    with about(key):
        if isinstance(error, ApiError):
            logger.warning("reconcile failed, again in %.2f s: %s", delay_seconds, error)
        else:
            logger.error("reconcile failed, again in %.2f s: %s: %s", delay_seconds, type(error).__name__, error, exc_info=error)
