"""Whatever crashes, hangs or gets lost: no two candidates may write at once, and a working one leads in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.reconcile.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Request, Unavailable
from equipoise.reconcile.kube.kinds import LEASE, Kind
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.lease.election import Timing
from equipoise.reconcile.lease.elector import Elector, LeadershipLost
from equipoise.reconcile.virtual_time import VirtualClock, run_in_virtual_time

TIMING = Timing(lease_seconds=12, renew_seconds=8.0, retry_seconds=2.0)

Answer = TypeVar("Answer")


class LeaseServer:
    """One Lease with versions. Each candidate reaches it over a line of its own, which may be slow or broken."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0

    def store(self, obj: Object) -> Object:
        self.version += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version), "uid": "u"}}
        return self.lease


@dataclass
class Line:
    """A candidate's way to the server: seconds there, seconds back, and whether the answer gets lost.

    A request that its sender has given up still arrives, as on a real network.
    """

    server: LeaseServer
    there: float = 0.0
    back: float = 0.0
    broken: bool = False
    answers_lost: bool = False

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        return await self._travel("get", lambda: self.server.lease)

    async def create(self, obj: Object) -> Object:
        def arrive() -> Object:
            if self.server.lease is not None:
                raise AlreadyExists(Request("create", LEASE), 409, "there is one")
            return self.server.store(obj)

        return await self._travel("create", arrive)

    async def replace(self, obj: Object) -> Object:
        def arrive() -> Object:
            if self.server.lease is None:
                raise NotFound(Request("replace", LEASE), 404, "gone")
            if obj["metadata"]["resourceVersion"] != self.server.lease["metadata"]["resourceVersion"]:
                raise Conflict(Request("replace", LEASE), 409, "changed")
            return self.server.store(obj)

        return await self._travel("replace", arrive)

    async def _travel(self, verb: str, arrive: Callable[[], Answer]) -> Answer:
        if self.broken:
            raise Unavailable(Request(verb, LEASE), 0, "no route")
        there, back, lost = self.there, self.back, self.answers_lost

        async def journey() -> Answer:
            await asyncio.sleep(there)
            try:
                return arrive()
            finally:
                await asyncio.sleep(back)
                if lost:
                    raise Unavailable(Request(verb, LEASE), 0, "answer lost")

        task = asyncio.create_task(journey())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)


@dataclass(frozen=True)
class Trouble:
    at: float
    who: int
    what: str


troubles = st.lists(
    st.builds(
        Trouble,
        at=st.floats(0, 120).map(lambda value: round(value, 1)),
        who=st.integers(0, 2),
        what=st.sampled_from(
            ["crash", "hang", "slow", "very slow", "slow back", "broken", "answers lost", "healed", "delete", "release"]
        ),
    ),
    max_size=12,
)


async def candidate(elector: Elector) -> None:
    while True:
        await elector.acquire()
        try:
            await elector.hold()
        except LeadershipLost:
            await asyncio.sleep(0.1)  # a real process ends here and is started anew


@settings(max_examples=120, deadline=None)
@given(troubles, st.lists(st.floats(0, 1, exclude_max=True), min_size=3, max_size=3))
def test_never_two_writers_and_in_the_end_one(plan: list[Trouble], draws: list[float]) -> None:
    async def main() -> None:
        server = LeaseServer()
        lines = [Line(server) for _ in range(3)]
        electors = [_elector(lines[n], f"candidate-{n}", draws[n]) for n in range(3)]
        tasks = [asyncio.create_task(candidate(elector)) for elector in electors]
        crashed: set[int] = set()
        hung: set[int] = set()
        clock = asyncio.get_running_loop().time
        deleted_at = -1000.0

        async def watch_until(end: float) -> None:
            while clock() < end:
                await asyncio.sleep(0.1)
                writers = [n for n, elector in enumerate(electors) if elector.may_write() and n not in crashed]
                # A Lease deleted by hand tells its holder only at the next renewal: the one thing no election can prevent.
                assert len(writers) <= 1 or clock() - deleted_at < TIMING.renew_seconds + 0.2, (clock(), writers)

        for trouble in sorted(plan, key=lambda item: item.at):
            await watch_until(trouble.at)
            line = lines[trouble.who]
            if trouble.what == "crash":
                crashed.add(trouble.who)
                tasks[trouble.who].cancel()
            elif trouble.what == "hang":  # alive and ready to write, but its renewals have stopped
                hung.add(trouble.who)
                tasks[trouble.who].cancel()
            elif trouble.what == "delete":
                server.lease, deleted_at = None, clock()
            elif trouble.what == "release" and electors[trouble.who].leading and trouble.who not in crashed:
                crashed.add(trouble.who)
                tasks[trouble.who].cancel()
                try:
                    await electors[trouble.who].release()
                except ApiError:
                    raise AssertionError("release must not fail") from None
            else:
                _set(line, trouble.what)
        for line in lines:
            _set(line, "healed")
        await watch_until(clock() + 60)
        assert sum(elector.may_write() for elector in electors) == (1 if len(crashed | hung) < 3 else 0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_in_virtual_time(main())


def _set(line: Line, what: str) -> None:
    line.there, line.back, line.broken, line.answers_lost = 0.0, 0.0, False, False
    if what == "slow":
        line.there, line.back = 1.0, 1.0
    elif what == "very slow":
        line.there, line.back = 5.0, 5.0
    elif what == "slow back":
        line.back = 3.5
    elif what == "broken":
        line.broken = True
    elif what == "answers lost":
        line.answers_lost = True


def _elector(line: Line, identity: str, draw: float) -> Elector:
    api: Any = line
    return Elector(api, VirtualClock(), identity=identity, namespace="ns", name="leader", timing=TIMING, draw=lambda: draw)
