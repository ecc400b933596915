"""The election walked step by step, and the elector's dealings with a server in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from equipoise.reconcile.kube.errors import Conflict, Forbidden, NotFound, Request, Unavailable
from equipoise.reconcile.kube.kinds import LEASE, Kind
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.lease.election import Election, Record, Timing
from equipoise.reconcile.lease.elector import Elector, LeadershipLost
from equipoise.reconcile.virtual_time import VirtualClock, run_in_virtual_time

TIMING = Timing(lease_seconds=12, renew_seconds=8.0, retry_seconds=2.0)


def record(holder: str, renewed: str = "t1", *, version: str = "1", transitions: int = 3, seconds: float = 12) -> Record:
    return Record(holder, seconds, renewed, "t0", transitions, version, "uid")


class TestElection:
    def election(self) -> Election:
        return Election("me", "ns", "leader", TIMING)

    def test_without_a_lease_it_is_free(self) -> None:
        election = self.election()
        election.see(None, 100.0)
        assert election.free_in_seconds(100.0) == 0.0

    def test_a_held_lease_is_waited_for_from_when_it_was_first_seen(self) -> None:
        election = self.election()
        election.see(record("other"), 100.0)
        assert election.free_in_seconds(100.0) == 12.0
        assert election.free_in_seconds(111.5) == 0.5

    def test_a_renewal_starts_the_wait_anew_and_anything_else_does_not(self) -> None:
        election = self.election()
        election.see(record("other"), 100.0)
        election.see(record("other", version="2"), 105.0)  # somebody annotated the lease of a dead leader
        assert election.free_in_seconds(105.0) == 7.0
        election.see(record("other", "t2", version="3"), 106.0)
        assert election.free_in_seconds(106.0) == 12.0

    def test_the_holders_own_duration_counts(self) -> None:
        election = self.election()
        election.see(record("other", seconds=60), 0.0)
        assert election.free_in_seconds(0.0) == 60.0

    @pytest.mark.parametrize("holder", ["", "me"])
    def test_a_released_lease_and_our_own_are_free(self, holder: str) -> None:
        election = self.election()
        election.see(record(holder), 0.0)
        assert election.free_in_seconds(0.0) == 0.0

    def test_writing_is_safe_while_the_renewal_is_young(self) -> None:
        election = self.election()
        assert not election.may_write(0.0)
        election.took(record("me"), 100.0)
        assert election.may_write(107.9)
        assert not election.may_write(108.0)
        assert election.renewal_left_seconds(103.0) == 5.0
        assert election.lease_left_seconds(103.0) == 9.0
        election.give_up()
        assert not election.may_write(103.0)

    def test_what_is_written(self) -> None:
        election = self.election()
        election.see(record("other", version="41"), 0.0)
        manifest = election.manifest("now")
        assert manifest["metadata"] == {"name": "leader", "namespace": "ns", "resourceVersion": "41", "uid": "uid"}
        assert manifest["spec"] == {
            "holderIdentity": "me",
            "leaseDurationSeconds": 12,
            "acquireTime": "now",
            "renewTime": "now",
            "leaseTransitions": 4,
        }

    def test_a_renewal_keeps_the_time_of_acquisition_and_the_count(self) -> None:
        election = self.election()
        election.took(record("me"), 0.0)
        spec = election.manifest("now")["spec"]
        assert (spec["acquireTime"], spec["renewTime"], spec["leaseTransitions"]) == ("t0", "now", 3)

    def test_a_release_names_nobody(self) -> None:
        election = self.election()
        election.took(record("me"), 0.0)
        spec = election.manifest("now", release=True)["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)

    def test_a_lease_without_fields_reads_as_released(self) -> None:
        assert Record.of({"metadata": {}}).holder == ""


class Server:
    """One Lease; `fail` is raised by the next calls instead of an answer."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.fail: Exception | None = None
        self.hang = False
        self.writes: list[float] = []

    async def _pass(self) -> None:
        if self.hang:
            await asyncio.sleep(3600)
        if self.fail:
            raise self.fail

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        await self._pass()
        return self.lease

    async def create(self, obj: Object) -> Object:
        await self._pass()
        return self._store(obj)

    async def replace(self, obj: Object) -> Object:
        await self._pass()
        if self.lease is None:
            raise NotFound(Request("replace", LEASE), 404, "gone")
        if obj["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(Request("replace", LEASE), 409, "changed")
        return self._store(obj)

    def _store(self, obj: Object) -> Object:
        self.version += 1
        self.writes.append(asyncio.get_running_loop().time())
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version), "uid": "u"}}
        return self.lease


class Watchdog:
    def __init__(self) -> None:
        self.fires_at: float | None = None

    def arm(self, seconds: float) -> None:
        self.fires_at = asyncio.get_running_loop().time() + seconds

    def disarm(self) -> None:
        self.fires_at = None


def elector(server: Server, identity: str, watchdog: Watchdog | None = None) -> Elector:
    api: Any = server
    return Elector(
        api,
        VirtualClock(),
        identity=identity,
        namespace="ns",
        name="leader",
        timing=TIMING,
        watchdog=watchdog,
        draw=lambda: 0.999,
    )


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_first_takes_the_lease_at_once_and_renews_it() -> None:
    async def main() -> None:
        server = Server()
        first = elector(server, "first")
        await first.acquire()
        assert now() == 0.0
        hold = asyncio.create_task(first.hold())
        await asyncio.sleep(20.5)
        assert server.writes == [0.0, *(2.0 * n for n in range(1, 11))]
        assert first.may_write()
        hold.cancel()

    run_in_virtual_time(main())


def test_a_standby_takes_over_a_dead_leader_within_fifteen_seconds() -> None:
    async def main() -> None:
        server = Server()
        leader, standby = elector(server, "leader"), elector(server, "standby")
        await leader.acquire()
        hold = asyncio.create_task(leader.hold())
        waiting = asyncio.create_task(standby.acquire())
        await asyncio.sleep(20.5)
        died_at = now()
        hold.cancel()
        await waiting
        assert 12.0 - TIMING.retry_seconds <= now() - died_at <= 15.0
        assert not leader.may_write()

    run_in_virtual_time(main())


def test_the_worst_case_of_the_default_timing_stays_inside_fifteen_seconds() -> None:
    default = Timing()
    assert default.lease_seconds + default.retry_seconds < 15.0
    assert default.retry_seconds < default.renew_seconds < default.lease_seconds


def test_a_released_lease_is_taken_at_the_next_look() -> None:
    async def main() -> None:
        server = Server()
        leader, standby = elector(server, "leader"), elector(server, "standby")
        await leader.acquire()
        hold = asyncio.create_task(leader.hold())
        waiting = asyncio.create_task(standby.acquire())
        await asyncio.sleep(9)
        hold.cancel()
        await leader.release()
        released_at = now()
        assert not leader.may_write()
        await waiting
        assert now() - released_at <= TIMING.retry_seconds

    run_in_virtual_time(main())


def test_renewal_failures_are_tried_again_until_the_deadline_and_then_lose() -> None:
    async def main() -> float:
        server = Server()
        leader = elector(server, "leader")
        await leader.acquire()
        server.fail = Unavailable(Request("replace", LEASE), 503, "etcd is away")
        with pytest.raises(LeadershipLost, match="no renewal within 8 s"):
            await leader.hold()
        assert not leader.leading
        return now()

    assert 8.0 <= run_in_virtual_time(main()) <= 10.0


def test_writes_stop_at_the_deadline_even_before_the_loop_notices() -> None:
    async def main() -> None:
        server = Server()
        leader = elector(server, "leader")
        await leader.acquire()
        await asyncio.sleep(7.9)
        assert leader.may_write()
        await asyncio.sleep(0.2)
        assert not leader.may_write()

    run_in_virtual_time(main())


def test_a_short_outage_is_survived() -> None:
    async def main() -> None:
        server = Server()
        leader = elector(server, "leader")
        await leader.acquire()
        hold = asyncio.create_task(leader.hold())
        server.fail = Unavailable(Request("replace", LEASE), 503, "etcd is away")
        await asyncio.sleep(7.3)
        server.fail = None
        await asyncio.sleep(20)
        assert leader.may_write()
        assert not hold.done()
        hold.cancel()

    run_in_virtual_time(main())


def test_a_request_that_hangs_does_not_hold_up_the_loss() -> None:
    async def main() -> float:
        server = Server()
        leader = elector(server, "leader")
        await leader.acquire()
        server.hang = True
        with pytest.raises(LeadershipLost):
            await leader.hold()
        return now()

    assert run_in_virtual_time(main()) <= 10.0


def test_another_holder_ends_leadership_at_the_next_renewal() -> None:
    async def main() -> None:
        server = Server()
        leader = elector(server, "leader")
        await leader.acquire()
        assert server.lease is not None
        server._store({**server.lease, "spec": {**server.lease["spec"], "holderIdentity": "usurper"}})
        with pytest.raises(LeadershipLost, match="usurper holds it now"):
            await leader.hold()
        assert now() == 2.0

    run_in_virtual_time(main())


def test_a_write_of_ours_whose_answer_was_lost_is_recognised() -> None:
    async def main() -> None:
        server = Server()
        leader = elector(server, "leader")
        await leader.acquire()
        assert server.lease is not None
        server._store(server.lease)  # our own renewal, answered into the void
        hold = asyncio.create_task(leader.hold())
        await asyncio.sleep(30)
        assert leader.may_write()
        hold.cancel()

    run_in_virtual_time(main())


def test_a_lease_deleted_by_hand_is_made_anew() -> None:
    async def main() -> None:
        server = Server()
        leader = elector(server, "leader")
        await leader.acquire()
        hold = asyncio.create_task(leader.hold())
        await asyncio.sleep(5)
        server.lease = None
        await asyncio.sleep(10)
        assert leader.may_write()
        assert server.writes[-1] > 12.0
        hold.cancel()

    run_in_virtual_time(main())


def test_the_watchdog_is_armed_to_the_end_of_the_lease_and_disarmed_by_release() -> None:
    async def main() -> None:
        server, watchdog = Server(), Watchdog()
        leader = elector(server, "leader", watchdog)
        await leader.acquire()
        assert watchdog.fires_at == 12.0
        hold = asyncio.create_task(leader.hold())
        await asyncio.sleep(6.5)
        assert watchdog.fires_at == 18.0
        hold.cancel()
        await leader.release()
        assert watchdog.fires_at is None

    run_in_virtual_time(main())


def test_after_a_loss_the_watchdog_stays_armed() -> None:
    async def main() -> None:
        server, watchdog = Server(), Watchdog()
        leader = elector(server, "leader", watchdog)
        await leader.acquire()
        server.hang = True
        with pytest.raises(LeadershipLost):
            await leader.hold()
        await leader.release()
        assert watchdog.fires_at == 12.0

    run_in_virtual_time(main())


def test_a_standby_without_rights_says_so_and_goes_on_trying(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = Server()
        server.fail = Forbidden(Request("get", LEASE, "ns", "leader"), 403, "leases is forbidden")
        standby = elector(server, "standby")
        waiting = asyncio.create_task(standby.acquire())
        await asyncio.sleep(100)
        assert standby.contact_age_seconds() == 100.0
        server.fail = None
        await waiting

    run_in_virtual_time(main())
    assert sum("leases is forbidden" in line.getMessage() for line in caplog.records) == 2  # once a minute, not every 2 s
