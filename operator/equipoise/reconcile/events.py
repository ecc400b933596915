"""Kubernetes Events: what happened to an object, for people. Aggregated, rate-limited, and never in the way of a reconcile.

core/v1 Events, because an aggregated one must show its latest message: events.k8s.io/v1 makes the note of a series immutable.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from equipoise.reconcile.clock import Clock, rfc3339, rfc3339_micro
from equipoise.reconcile.kube.errors import AlreadyExists, ApiError, Fenced, NotFound
from equipoise.reconcile.kube.kinds import EVENT
from equipoise.reconcile.kube.protocol import KubeApi, Object
from equipoise.reconcile.metrics import Metrics

logger = logging.getLogger(__name__)

REPORTING_COMPONENT: Final = "equipoise"
_MESSAGE_BYTES: Final = 1024  # the API's limit for a message
_NAME_CHARACTERS: Final = 200  # of the object's name; leaves room for the hash inside 253


class EventType(StrEnum):
    """How worried the reader should be."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class EventLimits:
    """How much may be written. One object may write `burst` Events at once and one more every `refill_seconds`."""

    window_seconds: float = 600.0  # the same reason on the same object within this is one Event with a count
    flush_seconds: float = 1.0
    repeat_seconds: float = 30.0  # a count is written no more often than this
    burst: int = 25
    refill_seconds: float = 60.0
    buffered: int = 2_000


@dataclass(slots=True)
class _Series:
    """One Event: what is known of it here, and what waits to be written."""

    name: str
    regarding: Object
    type: str
    reason: str
    message: str
    first_seconds: float
    last_seconds: float
    window: int
    count: int = 0  # as written
    pending: int = 1
    written_at: float = field(default=float("-inf"))


class EventWriter:
    """Buffers Events and writes them in the background (`run`). `emit` never waits and never fails.

    The name of an Event follows from object, type, reason and time window, so that a new leader adds to the count of the old one.
    """

    def __init__(
        self, api: KubeApi, clock: Clock, *, instance: str, metrics: Metrics | None = None, limits: EventLimits | None = None
    ) -> None:
        self._api = api
        self._clock = clock
        self._instance = instance
        self._metrics = metrics
        self._limits = limits or EventLimits()
        self._series: dict[str, _Series] = {}
        self._tokens: dict[str, tuple[float, float]] = {}  # uid -> tokens, at

    def emit(self, obj: Object, type_: EventType, reason: str, message: str) -> None:
        """Note that `reason` (CamelCase) happened to `obj`, which needs apiVersion, kind and metadata with name and uid."""
        now = self._clock.wall_seconds()
        window = int(now // self._limits.window_seconds)
        regarding = _reference(obj)
        name = _name(regarding, type_, reason, window)
        series = self._series.get(name)
        if series is not None:
            series.pending += 1
            series.last_seconds = now
            series.message = _clip(message)
        elif len(self._series) >= self._limits.buffered:
            self._drop("buffer full")
        else:
            self._series[name] = _Series(name, regarding, type_.value, reason, _clip(message), now, now, window)

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        while True:
            await self._clock.sleep(self._limits.flush_seconds)
            await self.flush()

    async def flush(self, *, everything: bool = False) -> None:
        """Write what is due now; with `everything` also counts that would wait (at shutdown)."""
        now = self._clock.monotonic_seconds()
        window = int(self._clock.wall_seconds() // self._limits.window_seconds)
        for series in list(self._series.values()):
            over = series.window < window
            due = everything or over or now - series.written_at >= self._limits.repeat_seconds
            if series.pending and due:
                await self._try(series, now)
            if over:
                self._series.pop(series.name, None)
        full = self._limits.burst * self._limits.refill_seconds
        self._tokens = {uid: state for uid, state in self._tokens.items() if now - state[1] < full}

    async def _try(self, series: _Series, now: float) -> None:
        if not self._take(series.regarding["uid"], now):
            self._drop("rate limit")
            series.pending = 0
            return
        pending, series.pending = series.pending, 0
        try:
            series.count = await self._write(series, pending)
            series.written_at = now
        except Fenced:
            self._drop("not the leader")
        except ApiError as error:
            self._drop(type(error).__name__)
            logger.warning("event %s on %s not written: %s", series.reason, series.regarding.get("name"), error)
        except asyncio.CancelledError:
            series.pending += pending
            raise
        except Exception:
            self._drop("error")
            logger.exception("event %s on %s not written", series.reason, series.regarding.get("name"))

    async def _write(self, series: _Series, pending: int) -> int:
        """Create the Event or raise its count; returns the count that it has now."""
        if series.count == 0:
            try:
                await self._api.create(self._manifest(series, pending))
            except AlreadyExists:
                found = await self._api.get(EVENT, _namespace(series.regarding), series.name) or {}
                series.count = int(found.get("count") or 1)
            else:
                return pending
        count = series.count + pending
        body = {"count": count, "message": series.message, "lastTimestamp": rfc3339(series.last_seconds)}
        try:
            await self._api.patch(EVENT, _namespace(series.regarding), series.name, body)
        except NotFound:  # expired or deleted by hand
            await self._api.create(self._manifest(series, pending))
            return pending
        return count

    def _manifest(self, series: _Series, count: int) -> Object:
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": series.name, "namespace": _namespace(series.regarding)},
            "involvedObject": series.regarding,
            "type": series.type,
            "reason": series.reason,
            "action": series.reason,
            "message": series.message,
            "firstTimestamp": rfc3339(series.first_seconds),
            "lastTimestamp": rfc3339(series.last_seconds),
            "eventTime": rfc3339_micro(series.first_seconds),
            "count": count,
            "source": {"component": REPORTING_COMPONENT},
            "reportingComponent": REPORTING_COMPONENT,
            "reportingInstance": self._instance[:128],
        }

    def _take(self, uid: str, now: float) -> bool:
        tokens, at = self._tokens.get(uid, (float(self._limits.burst), now))
        tokens = min(self._limits.burst, tokens + (now - at) / self._limits.refill_seconds)
        self._tokens[uid] = (max(tokens - 1.0, 0.0) if tokens >= 1.0 else tokens, now)
        return tokens >= 1.0

    def _drop(self, why: str) -> None:
        if self._metrics is not None:
            self._metrics.events_dropped.labels(why).inc()


def _reference(obj: Object) -> Object:
    metadata = obj["metadata"]
    reference = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"], "uid": metadata.get("uid", "")}
    if metadata.get("namespace"):
        reference["namespace"] = metadata["namespace"]
    if metadata.get("resourceVersion"):
        reference["resourceVersion"] = metadata["resourceVersion"]
    return reference


def _namespace(regarding: Object) -> str:
    """Events on cluster-scoped objects go to `default`: the API demands a namespace, and kubectl looks there."""
    return str(regarding.get("namespace") or "default")


def _name(regarding: Object, type_: EventType, reason: str, window: int) -> str:
    seed = "\0".join((regarding["kind"], regarding["uid"], type_.value, reason, str(window)))
    return f"{regarding['name'][:_NAME_CHARACTERS]}.{hashlib.sha256(seed.encode()).hexdigest()[:16]}"


def _clip(message: str) -> str:
    data = message.encode()
    return message if len(data) <= _MESSAGE_BYTES else data[: _MESSAGE_BYTES - 3].decode(errors="ignore") + "..."
