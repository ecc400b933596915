"""Kubernetes Events: aggregation, names, limits, and that nothing that goes wrong here reaches a reconcile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from equipoise.reconcile.events import EventLimits, EventType, EventWriter
from equipoise.reconcile.kube.errors import AlreadyExists, Forbidden, NotFound, Request
from equipoise.reconcile.kube.kinds import EVENT, Kind
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.virtual_time import VirtualClock, run_in_virtual_time

LIMITS = EventLimits(window_seconds=600, flush_seconds=1, repeat_seconds=30, burst=5, refill_seconds=60, buffered=50)
SERVICE: Object = {
    "apiVersion": "equipoise.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"namespace": "prod", "name": "chat", "uid": "u1", "resourceVersion": "7"},
}


class EventServer:
    """Events by name; notes every write."""

    def __init__(self) -> None:
        self.events: dict[str, Object] = {}
        self.writes: list[str] = []
        self.fail: Exception | None = None

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        return self.events.get(name)

    async def create(self, obj: Object) -> Object:
        self._note("create")
        name = obj["metadata"]["name"]
        if name in self.events:
            raise AlreadyExists(Request("create", EVENT), 409, "there is one")
        self.events[name] = obj
        return obj

    async def patch(self, kind: Kind, namespace: str | None, name: str, body: Object, **_: Any) -> Object:
        self._note("patch")
        if name not in self.events:
            raise NotFound(Request("patch", EVENT), 404, "expired")
        self.events[name] = {**self.events[name], **body}
        return self.events[name]

    def _note(self, verb: str) -> None:
        if self.fail:
            raise self.fail
        self.writes.append(verb)

    def only(self) -> Object:
        assert len(self.events) == 1
        return next(iter(self.events.values()))


def writer(server: EventServer, metrics: Metrics | None = None) -> EventWriter:
    api: Any = server
    return EventWriter(api, VirtualClock(), instance="pod-1", metrics=metrics, limits=LIMITS)


def walk(steps: Coroutine[Any, Any, None]) -> None:
    run_in_virtual_time(steps)


def emit(events: EventWriter, reason: str = "Flip", message: str = "decode -> prefill", obj: Object = SERVICE) -> None:
    events.emit(obj, EventType.NORMAL, reason, message)


def test_an_event_says_who_what_and_when() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        emit(events)
        await events.flush()
        event = server.only()
        assert event["involvedObject"] == {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "InferenceService",
            "name": "chat",
            "namespace": "prod",
            "uid": "u1",
            "resourceVersion": "7",
        }
        assert (event["type"], event["reason"], event["message"], event["count"]) == ("Normal", "Flip", "decode -> prefill", 1)
        assert event["metadata"]["namespace"] == "prod"
        assert event["metadata"]["name"].startswith("chat.")
        assert (event["reportingComponent"], event["reportingInstance"]) == ("equipoise", "pod-1")
        assert event["firstTimestamp"] == "2027-01-15T08:00:00Z"

    walk(steps())


def test_repetitions_become_a_count_with_the_latest_message_and_few_writes() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        running = asyncio.create_task(events.run())
        for n in range(60):
            emit(events, message=f"round {n}")
            await asyncio.sleep(1)
        await asyncio.sleep(40)
        assert (server.only()["count"], server.only()["message"]) == (60, "round 59")
        assert server.writes.count("create") == 1
        assert len(server.writes) <= 4
        running.cancel()

    walk(steps())


def test_another_window_is_another_event() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        emit(events)
        await events.flush()
        await asyncio.sleep(601)
        emit(events)
        await events.flush()
        assert [event["count"] for event in server.events.values()] == [1, 1]

    walk(steps())


def test_what_is_pending_at_the_end_of_a_window_is_still_counted() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        emit(events)
        await events.flush()
        emit(events)
        await asyncio.sleep(601)
        await events.flush()
        assert server.only()["count"] == 2

    walk(steps())


def test_a_new_leader_adds_to_the_count_of_the_old_one() -> None:
    async def steps() -> None:
        server = EventServer()
        for _ in range(2):
            events = writer(server)
            emit(events)
            await events.flush()
        assert server.only()["count"] == 2

    walk(steps())


def test_an_expired_event_is_made_anew() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        emit(events)
        await events.flush()
        server.events.clear()
        await asyncio.sleep(31)
        emit(events)
        await events.flush()
        assert server.only()["count"] == 1

    walk(steps())


def test_types_reasons_and_objects_are_kept_apart() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        other = {**SERVICE, "metadata": {**SERVICE["metadata"], "uid": "u2"}}
        emit(events)
        emit(events, reason="Grow")
        emit(events, obj=other)
        events.emit(SERVICE, EventType.WARNING, "Flip", "no")
        await events.flush()
        assert len(server.events) == 4

    walk(steps())


def test_one_object_cannot_flood_and_the_others_are_not_hurt() -> None:
    async def steps() -> None:
        server, metrics = EventServer(), Metrics()
        events = writer(server, metrics)
        for n in range(20):
            emit(events, reason=f"Reason{n}")
        quiet = {**SERVICE, "metadata": {**SERVICE["metadata"], "name": "quiet", "uid": "u2"}}
        emit(events, obj=quiet)
        await events.flush()
        assert len(server.events) == LIMITS.burst + 1
        assert metrics.registry.get_sample_value("equipoise_events_dropped_total", {"why": "rate limit"}) == 15
        await asyncio.sleep(LIMITS.refill_seconds)
        emit(events, reason="Later")
        await events.flush()
        assert len(server.events) == LIMITS.burst + 2

    walk(steps())


def test_the_buffer_is_bounded() -> None:
    async def steps() -> None:
        metrics = Metrics()
        events = writer(EventServer(), metrics)
        for n in range(LIMITS.buffered + 10):
            emit(events, obj={**SERVICE, "metadata": {**SERVICE["metadata"], "uid": f"u{n}"}})
        assert metrics.registry.get_sample_value("equipoise_events_dropped_total", {"why": "buffer full"}) == 10

    walk(steps())


@pytest.mark.parametrize("error", [Forbidden(Request("create", EVENT), 403, "events is forbidden"), ValueError("odd")])
def test_no_error_gets_out_and_the_next_event_is_written(error: Exception) -> None:
    async def steps() -> None:
        server, metrics = EventServer(), Metrics()
        events = writer(server, metrics)
        server.fail = error
        emit(events)
        await events.flush()
        server.fail = None
        emit(events, reason="Grow")
        await events.flush()
        assert server.only()["reason"] == "Grow"

    walk(steps())


def test_events_on_cluster_scoped_objects_go_to_the_default_namespace() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        pool = {"apiVersion": "equipoise.dev/v1alpha1", "kind": "GPUPool", "metadata": {"name": "h100", "uid": "u"}}
        emit(events, obj=pool)
        await events.flush()
        assert server.only()["metadata"]["namespace"] == "default"

    walk(steps())


def test_long_messages_and_names_are_cut_to_what_the_api_takes() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        emit(events, message="é" * 2000, obj={**SERVICE, "metadata": {**SERVICE["metadata"], "name": "a" * 253}})
        await events.flush()
        event = server.only()
        assert len(event["message"].encode()) <= 1024
        assert event["message"].endswith("...")
        assert len(event["metadata"]["name"]) <= 253

    walk(steps())


def test_at_the_end_everything_that_waits_is_written() -> None:
    async def steps() -> None:
        server = EventServer()
        events = writer(server)
        emit(events)
        await events.flush()
        emit(events)
        await events.flush()
        assert server.only()["count"] == 1
        await events.flush(everything=True)
        assert server.only()["count"] == 2

    walk(steps())
