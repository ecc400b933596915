"""Lists that fill and correct the store, in virtual time, against an API that serves, forbids and forgets as told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from equipoise.reconcile.kube.errors import Forbidden, KindNotServed, Request, Unavailable
from equipoise.reconcile.kube.kinds import DEPLOYMENT, INFERENCE_SERVICE, LEADER_WORKER_SET, NODE, POD, RESOURCE_QUOTA, Kind
from equipoise.reconcile.kube.protocol import Listing, Object
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.relist import Relister
from equipoise.reconcile.store import Store
from equipoise.reconcile.virtual_time import VirtualClock, run_in_virtual_time


class Api:
    """Lists by kind. A kind may be absent, forbidden or broken."""

    def __init__(self) -> None:
        self.objects: dict[Kind, list[Object]] = {}
        self.version = 1
        self.absent: set[Kind] = {LEADER_WORKER_SET}
        self.forbidden: set[Kind] = set()
        self.forbidden_clusterwide: set[Kind] = set()
        self.broken: set[Kind] = set()
        self.asked: list[tuple[Kind, str | None, str, str]] = []

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        keep: Callable[[Object], Object | None] | None = None,
    ) -> Listing:
        self.asked.append((kind, namespace, label_selector, field_selector))
        request = Request("list", kind, namespace)
        if kind in self.absent:
            raise KindNotServed(request, 404, "404 page not found")
        if kind in self.forbidden or (namespace is None and kind in self.forbidden_clusterwide):
            raise Forbidden(request, 403, f"{kind} is forbidden")
        if kind in self.broken:
            raise Unavailable(request, 503, "etcd is away")
        found = [obj for obj in self.objects.get(kind, []) if namespace in (None, obj["metadata"].get("namespace"))]
        kept = [keep(obj) if keep else obj for obj in found]
        return Listing([obj for obj in kept if obj is not None], str(self.version))

    def put(self, kind: Kind, name: str, namespace: str = "prod") -> Object:
        self.version += 1
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(self.version)}
        obj: Object = {"metadata": metadata, "spec": {}}
        self.objects.setdefault(kind, []).append(obj)
        return obj

    def drop(self, kind: Kind, name: str) -> None:
        self.version += 1
        self.objects[kind] = [obj for obj in self.objects[kind] if obj["metadata"]["name"] != name]


class Rig:
    def __init__(self, **options: Any) -> None:
        self.api = Api()
        api: Any = self.api
        self.store = Store()
        self.metrics = Metrics()
        self.changed: list[Kind] = []
        self.relister = Relister(
            api, self.store, VirtualClock(), self.metrics, kinds_changed=self.changed.append, draw=lambda: 0.5, **options
        )

    def missed(self, kind: Kind) -> float:
        return self.metrics.registry.get_sample_value("equipoise_watch_missed_total", {"kind": str(kind)}) or 0.0


def test_priming_fills_the_store_and_finds_out_what_can_be_watched() -> None:
    async def main() -> None:
        rig = Rig()
        rig.api.put(INFERENCE_SERVICE, "chat")
        rig.api.put(NODE, "n", "")
        rig.api.forbidden.add(RESOURCE_QUOTA)
        await rig.relister.prime()
        assert [str(key) for key in rig.store.services()] == ["prod/chat"]
        watched = {source.kind for source in rig.relister.watched}
        assert {INFERENCE_SERVICE, DEPLOYMENT, POD, NODE} <= watched
        assert RESOURCE_QUOTA not in watched
        assert rig.store.denied(RESOURCE_QUOTA) == "resourcequotas is forbidden"
        assert rig.store.denied(LEADER_WORKER_SET) == "the cluster does not serve leaderworkersets.leaderworkerset.x-k8s.io"
        assert rig.store.listed(DEPLOYMENT)

    run_in_virtual_time(main())


def test_an_api_server_that_is_away_is_waited_for() -> None:
    async def main() -> None:
        rig = Rig()
        rig.api.broken |= {INFERENCE_SERVICE, NODE}
        priming = asyncio.create_task(rig.relister.prime())
        await asyncio.sleep(20)
        rig.api.broken.discard(INFERENCE_SERVICE)
        await asyncio.sleep(20)
        assert not priming.done()
        rig.api.broken.clear()
        await asyncio.sleep(6)
        assert priming.done()
        assert NODE in {source.kind for source in rig.relister.watched}

    run_in_virtual_time(main())


def test_selectors_go_to_the_server() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.relister.prime()
        asked = {kind: (labels, fields) for kind, _, labels, fields in rig.api.asked}
        assert asked[DEPLOYMENT] == ("app.kubernetes.io/managed-by=equipoise", "")
        assert asked[POD] == ("", "status.phase!=Succeeded,status.phase!=Failed")
        assert asked[INFERENCE_SERVICE] == ("", "")

    run_in_virtual_time(main())


def test_without_the_crd_the_operator_waits_and_says_what_to_do_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        rig = Rig()
        rig.api.absent.add(INFERENCE_SERVICE)
        priming = asyncio.create_task(rig.relister.prime())
        await asyncio.sleep(60)
        assert not priming.done()
        rig.api.absent.clear()
        await asyncio.sleep(6)
        assert priming.done()

    with caplog.at_level(logging.ERROR):
        run_in_virtual_time(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "kubectl apply --server-side -f crds/" in line


def test_namespaces_are_listed_one_by_one_and_cluster_kinds_once() -> None:
    async def main() -> None:
        rig = Rig(namespaces=("prod", "test"))
        rig.api.put(INFERENCE_SERVICE, "chat", "prod")
        rig.api.put(INFERENCE_SERVICE, "code", "test")
        rig.api.put(INFERENCE_SERVICE, "other", "elsewhere")
        await rig.relister.prime()
        assert [str(key) for key in rig.store.services()] == ["prod/chat", "test/code"]
        assert [namespace for kind, namespace, *_ in rig.api.asked if kind == NODE] == [None]

    run_in_virtual_time(main())


def test_resync_repairs_what_the_watch_missed_and_counts_it() -> None:
    async def main() -> None:
        rig = Rig()
        rig.api.put(INFERENCE_SERVICE, "chat")
        rig.api.put(INFERENCE_SERVICE, "code")
        await rig.relister.prime()
        rig.api.drop(INFERENCE_SERVICE, "chat")
        rig.api.put(INFERENCE_SERVICE, "new")
        await rig.relister.resync_once()
        assert [str(key) for key in rig.store.services()] == ["prod/code", "prod/new"]
        assert rig.missed(INFERENCE_SERVICE) == 2

    run_in_virtual_time(main())


def test_resync_gives_the_watch_time_to_tell_first() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.relister.prime()
        late = rig.api.put(INFERENCE_SERVICE, "late")
        syncing = asyncio.create_task(rig.relister.resync_once())
        await asyncio.sleep(2)
        rig.relister.event(INFERENCE_SERVICE)
        rig.store.upsert(INFERENCE_SERVICE, late)
        await syncing
        assert rig.missed(INFERENCE_SERVICE) == 0

    run_in_virtual_time(main())


def test_what_changes_while_a_resync_is_on_its_way_stays_as_it_is() -> None:
    async def main() -> None:
        rig = Rig()
        rig.api.put(INFERENCE_SERVICE, "old")
        await rig.relister.prime()
        syncing = asyncio.create_task(rig.relister.resync_once())
        await asyncio.sleep(1)
        rig.store.remove(INFERENCE_SERVICE, rig.api.objects[INFERENCE_SERVICE][0])
        rig.store.upsert(INFERENCE_SERVICE, rig.api.put(INFERENCE_SERVICE, "new"))
        await syncing
        assert [key.name for key in rig.store.services()] == ["new"]

    run_in_virtual_time(main())


def test_a_watch_that_stays_silent_over_lists_with_changes_is_dead() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.relister.prime()
        for n in range(3):
            assert rig.relister.dead_watches() == []
            rig.api.put(INFERENCE_SERVICE, f"s{n}")
            await rig.relister.resync_once()
        assert rig.relister.dead_watches() == [INFERENCE_SERVICE]
        rig.relister.event(INFERENCE_SERVICE)
        rig.api.put(INFERENCE_SERVICE, "again")
        await rig.relister.resync_once()
        assert rig.relister.dead_watches() == []

    run_in_virtual_time(main())


def test_a_watch_that_is_merely_late_is_not_dead() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.relister.prime()
        for n in range(5):
            rig.api.put(INFERENCE_SERVICE, f"s{n}")
            rig.relister.event(INFERENCE_SERVICE)
            await rig.relister.resync_once()
        assert rig.relister.dead_watches() == []

    run_in_virtual_time(main())


def test_one_broken_kind_does_not_stop_the_others() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.relister.prime()
        rig.api.broken.add(DEPLOYMENT)
        rig.api.put(INFERENCE_SERVICE, "chat")
        await rig.relister.resync_once()
        assert [key.name for key in rig.store.services()] == ["chat"]

    run_in_virtual_time(main())


def test_kinds_that_come_and_go_are_noticed() -> None:
    async def main() -> None:
        rig = Rig()
        await rig.relister.prime()
        polling = asyncio.create_task(rig.relister.poll())
        await asyncio.sleep(31)
        assert rig.changed == []
        rig.api.absent.discard(LEADER_WORKER_SET)
        rig.api.put(LEADER_WORKER_SET, "big")
        await asyncio.sleep(30)
        assert rig.changed == [LEADER_WORKER_SET]
        assert rig.store.keys(LEADER_WORKER_SET) == {("prod", "big")}
        rig.api.absent.add(LEADER_WORKER_SET)
        await asyncio.sleep(30)
        assert rig.changed == [LEADER_WORKER_SET, LEADER_WORKER_SET]
        assert not rig.store.listed(LEADER_WORKER_SET)
        assert rig.store.keys(LEADER_WORKER_SET) == set()
        polling.cancel()

    run_in_virtual_time(main())


def test_rights_granted_later_are_noticed_without_a_restart() -> None:
    async def main() -> None:
        rig = Rig()
        rig.api.forbidden.add(NODE)
        await rig.relister.prime()
        assert rig.store.denied(NODE) == "nodes is forbidden"
        rig.api.forbidden.clear()
        rig.api.put(NODE, "n", "")
        await rig.relister.poll_once()
        assert rig.store.denied(NODE) is None
        assert rig.store.count(NODE) == 1
        assert rig.changed == [NODE]

    run_in_virtual_time(main())


def test_an_outage_during_polling_changes_nothing() -> None:
    async def main() -> None:
        rig = Rig()
        rig.api.absent.clear()
        rig.api.put(LEADER_WORKER_SET, "big")
        await rig.relister.prime()
        rig.api.broken.add(LEADER_WORKER_SET)
        await rig.relister.poll_once()
        assert rig.store.count(LEADER_WORKER_SET) == 1
        assert rig.changed == []

    run_in_virtual_time(main())


def test_gpus_held_in_other_namespaces_are_seen_where_the_rights_allow_it() -> None:
    async def main() -> None:
        rig = Rig(namespaces=("prod",))
        stranger = rig.api.put(POD, "training", "research")
        stranger["spec"] = {"nodeName": "n", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]}
        rig.api.forbidden_clusterwide.add(POD)
        await rig.relister.prime()
        assert rig.store.limited(POD) == "pods of other namespaces cannot be seen: pods is forbidden"
        assert rig.store.denied(POD) is None
        rig.api.forbidden_clusterwide.clear()
        await rig.relister.poll_once()
        assert rig.store.limited(POD) is None
        assert [pod["metadata"]["name"] for pod in rig.store.pods_on_node("n")] == ["training"]
        await rig.relister.resync_once()
        assert rig.store.count(POD) == 1

    run_in_virtual_time(main())
