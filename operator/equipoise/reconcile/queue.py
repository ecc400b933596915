"""A queue of keys: each key once, never in two workers, later and later while it fails.

The shape is client-go's workqueue (dirty and processing sets, a delaying heap, an exponential limiter per key), on one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Result:
    """What a reconcile asks for next: nothing (wait for an event), or to be called again after so many seconds."""

    requeue_after_seconds: float | None = None


class Outcome(StrEnum):
    """How one reconcile ended, for metrics."""

    OK = "ok"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before the n-th retry: `first_seconds` x 2^n, at most `longest_seconds`, spread by +/- `jitter` of itself.

    client-go starts at 5 ms and ends at 1,000 s; five minutes keep a service from being forgotten once the cause is gone.
    """

    first_seconds: float = 0.005
    longest_seconds: float = 300.0
    jitter: float = 0.2

    def seconds(self, failures: int, draw: float) -> float:
        """Delay after so many failures in a row (1 or more); `draw` in [0, 1) places it inside the jitter."""
        base = self.first_seconds * 2.0 ** min(failures - 1, 60)
        return min(min(base, self.longest_seconds) * (1.0 + self.jitter * (2.0 * draw - 1.0)), self.longest_seconds)


class QueueObserver(Protocol):
    """Hears how long keys wait and work."""

    def started(self, waited_seconds: float) -> None:
        """A worker took a key that had been ready for that long."""
        ...

    def finished(self, worked_seconds: float, outcome: Outcome) -> None:
        """The reconcile ended."""
        ...


class WorkQueue(Generic[Key]):
    """N workers over a set of keys, first come first served.

    `add` may be called from any callback of the loop. A key added while it is worked on runs again afterwards. A key that
    waits out its backoff and gets a new event runs after `event_floor_seconds` at the latest: a repaired spec is picked up at
    once, while a reconcile that fails after writing (and so causes its own events) cannot spin. `spacing_seconds` after the end
    of a run is the soonest the next one starts: the burst of events that a write causes (a pod alone has five) is one run, not
    twenty, while the first event of a quiet key is answered at once.
    """

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[Result]],
        *,
        workers: int = 8,
        backoff: Backoff | None = None,
        event_floor_seconds: float = 1.0,
        spacing_seconds: float = 0.0,
        observer: QueueObserver | None = None,
        on_failure: Callable[[Key, Exception, float], None] | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff or Backoff()
        self._event_floor_seconds = event_floor_seconds
        self._spacing_seconds = spacing_seconds
        self._ended: dict[Key, float] = {}
        self._observer = observer
        self._on_failure = on_failure or _log_failure
        self._draw = draw
        self._ready: deque[Key] = deque()
        self._ready_since: dict[Key, float] = {}
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._sequence = 0
        self._working: dict[Key, float] = {}
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, key: Key, *, after_seconds: float = 0.0) -> None:
        """Have `key` reconciled now, or after a while; of two delays the shorter one holds."""
        if self._stopping:
            return
        now = _now()
        if key in self._failures and key in self._due:
            after_seconds = max(after_seconds, self._event_floor_seconds)
        if after_seconds > 0:
            self._delay(key, now + after_seconds)
        elif key in self._working:
            self._again.add(key)
        elif key not in self._ready_since:
            self._push_spaced(key, now)

    def forget(self, key: Key) -> None:
        """The object is gone: drop its timers and its failures."""
        self._due.pop(key, None)
        self._failures.pop(key, None)
        self._ended.pop(key, None)

    async def run(self) -> None:
        """Work until `stop`. A crash of a worker (not of a reconcile) ends the run with its exception."""
        self._tasks = [asyncio.create_task(self._work(), name=f"reconcile-worker-{n}") for n in range(self._workers)]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()

    def stop(self) -> None:
        """Take no more keys; what is in work is finished. `run` returns then. Cancel `run` to cut it short."""
        self._stopping = True
        self._wake.set()

    @property
    def depth(self) -> int:
        """Keys that are ready and wait for a worker."""
        return len(self._ready)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""
        return len(self._due)

    @property
    def failing(self) -> int:
        """Keys whose last reconcile failed."""
        return len(self._failures)

    @property
    def idle(self) -> bool:
        """Nothing ready and nothing in work (delayed keys may wait)."""
        return not self._ready and not self._working

    def oldest_in_flight_seconds(self) -> float:
        """Age of the reconcile that has been running longest; 0 when none runs."""
        return _now() - min(self._working.values()) if self._working else 0.0

    async def _work(self) -> None:
        while not self._stopping:
            if not self._ready:
                self._wake.clear()
                await self._wake.wait()
                continue
            key = self._ready.popleft()
            started = _now()
            waited = started - self._ready_since.pop(key)
            self._due.pop(key, None)
            self._working[key] = started
            if self._observer:
                self._observer.started(waited)
            try:
                await self._once(key, started)
            finally:
                del self._working[key]
                if self._spacing_seconds:
                    self._ended[key] = _now()
                if key in self._again:
                    self._again.discard(key)
                    self._resume(key)

    async def _once(self, key: Key, started: float) -> None:
        outcome = Outcome.ERROR
        try:
            result = await self._reconcile(key)
            outcome = Outcome.OK
            self._failures.pop(key, None)
            if result.requeue_after_seconds is not None:
                self._delay(key, _now() + max(result.requeue_after_seconds, 0.001))
        except Exception as error:
            failures = self._failures.get(key, 0) + 1
            self._failures[key] = failures
            delay = self._backoff.seconds(failures, self._draw())
            self._back_off(key, delay)
            self._on_failure(key, error, delay)
        finally:
            if self._observer:
                self._observer.finished(_now() - started, outcome)

    def _back_off(self, key: Key, delay: float) -> None:
        now = _now()
        planned = self._due.pop(key, None)
        self._delay(key, now + delay)
        if planned is not None:
            self._delay(key, max(planned, now + min(delay, self._event_floor_seconds)))

    def _resume(self, key: Key) -> None:
        if key in self._failures:
            self._delay(key, _now() + self._event_floor_seconds)
        elif not self._stopping:
            self._push_spaced(key, _now())

    def _push_spaced(self, key: Key, now: float) -> None:
        soonest = self._ended.get(key, -float("inf")) + self._spacing_seconds
        if now < soonest:
            self._delay(key, soonest)
            return
        self._due.pop(key, None)
        self._push(key, now)

    def _push(self, key: Key, now: float) -> None:
        self._ready.append(key)
        self._ready_since[key] = now
        self._wake.set()

    def _delay(self, key: Key, due: float) -> None:
        if key in self._ready_since or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._arm()

    def _arm(self) -> None:
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap and not self._stopping:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._ring)

    def _ring(self) -> None:
        now = _now()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) != due:
                continue
            del self._due[key]
            if key in self._working:
                self._again.add(key)
            else:
                self._push(key, now)
        self._arm()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _log_failure(key: Hashable, error: Exception, delay_seconds: float) -> None:
    with contextlib.suppress(Exception):
        logger.error("reconcile of %s failed, again in %.2f s: %s", key, delay_seconds, error, exc_info=error)
