"""What the reporter writes and tells: a status that is news, an Event per step, nothing twice."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from tests.unit.reconcile.status.facts import COUNTS, KEY, decision, flip

from equipoise.api.service import InferenceService
from equipoise.decide.types import Decision, Reason
from equipoise.reconcile.contract import Context
from equipoise.reconcile.events import EventWriter
from equipoise.reconcile.kube.errors import NotFound, Request
from equipoise.reconcile.kube.kinds import INFERENCE_SERVICE
from equipoise.reconcile.kube.protocol import KubeApi, Object
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.record import Record, Records
from equipoise.reconcile.settings import Settings
from equipoise.reconcile.status.meaning import FIGURES_EVERY_SECONDS
from equipoise.reconcile.status.report import Reporter
from equipoise.reconcile.store import Store
from equipoise.reconcile.workload.world import read_world

LIMITED = Reason("CapacityLimited", "PoolsFull: prefill lacks 800 tokens/s")


class Clock:
    """Moves when told."""

    now = 1000.0

    def wall_seconds(self) -> float:
        return self.now

    def monotonic_seconds(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class Api:
    """Takes status writes, as the API server does: a new resourceVersion each."""

    def __init__(self, store: Store) -> None:
        self.written: list[Object] = []
        self.gone = False
        self._store = store

    async def apply_status(self, body: Object) -> Object:
        if self.gone:
            raise NotFound(Request("apply", INFERENCE_SERVICE, "prod", "chat"), 404, "not found")
        self.written.append(body["status"])
        old = self._store.service(KEY)
        assert old is not None
        metadata = {**old["metadata"], "resourceVersion": str(int(old["metadata"]["resourceVersion"]) + 1)}
        return {**old, "metadata": metadata, "status": body["status"]}


class Told:
    """Remembers Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def emit(self, regarding: Object, kind: str, reason: str, message: str) -> None:
        assert regarding["metadata"]["name"] == "chat"
        self.events.append((reason, message))


class Rig:
    """A reporter over a store with one service."""

    def __init__(self) -> None:
        self.store, self.clock, self.told = Store(), Clock(), Told()
        self.api = Api(self.store)
        self.store.upsert(
            INFERENCE_SERVICE,
            {
                "metadata": {"namespace": "prod", "name": "chat", "uid": "u1", "resourceVersion": "1", "generation": 3},
                "spec": {"model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"}, "targets": {"ttft": "500ms", "tpot": "50ms"}},
            },
        )
        self.records = Records(self.store)
        context = Context(
            Settings(),
            cast("KubeApi", self.api),
            self.store,
            cast("EventWriter", self.told),
            Metrics(),
            self.clock,
            lambda key: None,
        )
        self.reporter = Reporter(context, self.records)

    async def report(self, found: Decision | None, problem: Reason | None = None, waiting: tuple[str, ...] = ()) -> None:
        counts = COUNTS if found is None else found.allocation
        self.records.put(KEY, Record("u1", dict(counts), found, problem=problem))
        raw = self.store.service(KEY)
        assert raw is not None
        await self.reporter.report(KEY, InferenceService.parse(raw), read_world(self.store, KEY, "u1"), waiting)

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.told.events]


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_a_status_is_written_once_and_then_rests(rig: Rig) -> None:
    await rig.report(decision())
    await rig.report(decision())
    rig.clock.now += 10 * FIGURES_EVERY_SECONDS
    await rig.report(decision())
    assert len(rig.api.written) == 1
    assert rig.api.written[0]["gpus"] == 4


async def test_figures_are_written_when_their_turn_has_come(rig: Rig) -> None:
    await rig.report(decision())
    for _ in range(3):
        rig.clock.now += FIGURES_EVERY_SECONDS / 2
        await rig.report(decision(goodput_bounds=(0.4, 0.5)))
    assert [status["goodput"]["most"] for status in rig.api.written] == ["0.97", "0.5"]


async def test_a_step_is_told_once_however_often_it_is_looked_at(rig: Rig) -> None:
    await rig.report(flip())
    await rig.report(flip())
    assert rig.reasons == ["Flip"]
    assert "decode@h100-80gb/tp1-bf16 → prefill@h100-80gb/tp1-bf16" in rig.told.events[0][1]
    assert "utilisation 1.40 of prefill falls to 0.90" in rig.told.events[0][1]


async def test_an_event_says_why_and_nothing_else(rig: Rig) -> None:
    alone = Reason("SingleReplica", "decode has a single replica: the service stops with it")
    await rig.report(replace(flip(), reasons=(alone, *flip().reasons)))
    assert alone.message not in rig.told.events[0][1]


async def test_the_same_step_taken_twice_is_two_pieces_of_news(rig: Rig) -> None:
    first = flip()
    await rig.report(first)
    variant = next(iter(first.allocation))
    await rig.report(replace(first, allocation={**first.allocation, variant: first.allocation[variant] + 1}))
    assert rig.reasons == ["Flip", "Flip"]


async def test_holding_says_nothing_and_a_step_after_it_is_told_again(rig: Rig) -> None:
    for found in (decision(), flip(), decision(), flip()):
        await rig.report(found)
    assert rig.reasons == ["Flip", "Flip"]


async def test_what_stands_in_the_way_is_told_once(rig: Rig) -> None:
    await rig.report(decision(capacity_limited=LIMITED))
    await rig.report(decision(capacity_limited=replace(LIMITED, message="PoolsFull: prefill lacks 810 tokens/s")))
    assert rig.told.events == [("CapacityLimited", "PoolsFull: prefill lacks 800 tokens/s")]


async def test_an_impossible_spec_is_told_before_any_decision(rig: Rig) -> None:
    problem = Reason("UnknownModel", "give spec.model.architecture")
    await rig.report(None, problem)
    await rig.report(None, problem)
    assert rig.told.events == [("UnknownModel", "give spec.model.architecture")]


async def test_a_service_that_went_meanwhile_is_no_error(rig: Rig) -> None:
    rig.api.gone = True
    await rig.report(decision())
    rig.api.gone = False
    await rig.report(decision())
    assert len(rig.api.written) == 1
