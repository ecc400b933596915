"""Whatever order events, losses and late lists come in, the store ends equal to the cluster and never goes back in time."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from equipoise.api import labels
from equipoise.api.identity import ServiceKey
from equipoise.reconcile.kube.kinds import ALL, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, NODE, POD, REPLICA_SET
from equipoise.reconcile.kube.protocol import Listing, Object
from equipoise.reconcile.store import Store
from equipoise.reconcile.views import view

NAMES = ["p0", "p1"]  # few, so that names are used again and events cross
VARIANTS = ["chat-prefill", "chat-decode"]
NODES = ["", "n0", "n1"]


class Cluster(RuleBasedStateMachine):
    """A model of the API server and of a watch that delays, reorders between objects, and loses."""

    @initialize()
    def start(self) -> None:
        self.version = 0
        self.born = 0
        self.truth: dict[str, Object] = {}
        self.in_flight: dict[str, list[tuple[str, Object]]] = {}  # by uid, for events of one object keep their order
        self.lists: list[Listing] = []
        self.store = Store()
        self.highest: dict[str, int] = {}
        self.told: dict[str, Object] = {}
        self.buried: set[str] = set()
        self.store.subscribe(self._told)

    def _told(self, change: Any) -> None:
        """A listener that follows only what it is told must know as much as the store."""
        assert change.old is not change.new
        if change.new is None:
            del self.told[change.old["metadata"]["name"]]
        else:
            assert (change.old is None) == (change.new["metadata"]["name"] not in self.told)
            self.told[change.new["metadata"]["name"]] = change.new

    def _send(self, event: str, obj: Object) -> None:
        self.in_flight.setdefault(obj["metadata"]["uid"], []).append((event, obj))

    @rule(name=st.sampled_from(NAMES), variant=st.sampled_from(VARIANTS), node=st.sampled_from(NODES))
    def write(self, name: str, variant: str, node: str) -> None:
        self.version += 1
        old = self.truth.get(name)
        if old is None:
            self.born += 1
        uid = old["metadata"]["uid"] if old else f"uid{self.born}"
        metadata = {
            "namespace": "prod",
            "name": name,
            "uid": uid,
            "resourceVersion": str(self.version),
            "labels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE, labels.SERVICE: "chat", labels.VARIANT: variant},
        }
        obj: Object = {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": "Running"}}
        self.truth[name] = obj
        self._send("MODIFIED" if old else "ADDED", obj)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        old = self.truth.pop(name, None)
        if old is not None:
            self.version += 1
            self._send("DELETED", {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}})

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, 5))
    def deliver(self, which: int) -> None:
        self._deliver_one(sorted(self.in_flight)[which % len(self.in_flight)])

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, 5))
    def lose(self, which: int) -> None:
        """A gap between two watches: everything on its way to this object's handler is lost."""
        del self.in_flight[sorted(self.in_flight)[which % len(self.in_flight)]]

    @rule()
    def list_now(self) -> None:
        self.lists.append(Listing(list(self.truth.values()), str(self.version)))

    @precondition(lambda self: self.lists)
    @rule()
    def take_in_oldest_list(self) -> None:
        listing = self.lists.pop(0)
        newer = [o for o in self.store.all(POD) if int(o["metadata"]["resourceVersion"]) > int(listing.resource_version)]
        self.store.replace(POD, listing)
        assert all(obj in self.store.all(POD) for obj in newer), "a list ended what is newer than itself"

    @rule()
    def catch_up(self) -> None:
        while self.in_flight:
            self._deliver_one(next(iter(self.in_flight)))

    def teardown(self) -> None:
        """Everything arrives, and one more list: now the store must be equal to the cluster."""
        self.catch_up()
        while self.lists:
            self.take_in_oldest_list()
        self.list_now()
        self.take_in_oldest_list()
        held = {obj["metadata"]["name"]: obj for obj in self.store.all(POD)}
        assert held == {name: view(POD, obj) for name, obj in self.truth.items()}
        assert self.store.keys(POD) == {("prod", name) for name in self.truth}

    def _deliver_one(self, uid: str) -> None:
        event, obj = self.in_flight[uid].pop(0)
        if not self.in_flight[uid]:
            del self.in_flight[uid]
        if event == "DELETED":
            self.buried.add(uid)
            held = self.store.get(POD, "prod", obj["metadata"]["name"])
            self.store.remove(POD, obj)
            if held is not None and held["metadata"]["uid"] != uid:
                assert self.store.get(POD, "prod", obj["metadata"]["name"]) is held, "a deletion hit the successor"
        else:
            self.store.upsert(POD, obj)

    @invariant()
    def indices_agree_with_a_scan(self) -> None:
        objects = self.store.all(POD)
        for variant in VARIANTS:
            expected = [o for o in objects if o["metadata"]["labels"][labels.VARIANT] == variant]
            assert _names(self.store.pods_of_variant("prod", variant)) == _names(expected)
        for node in NODES:
            assert _names(self.store.pods_on_node(node)) == _names([o for o in objects if o["spec"].get("nodeName", "") == node])
        assert _names(self.store.of_service(POD, ServiceKey("prod", "chat"))) == _names(objects)

    @invariant()
    def one_object_never_goes_back_in_time(self) -> None:
        for obj in self.store.all(POD):
            metadata = obj["metadata"]
            version = int(metadata["resourceVersion"])
            assert version >= self.highest.get(metadata["uid"], 0)
            self.highest[metadata["uid"]] = version

    @invariant()
    def the_dead_stay_dead(self) -> None:
        assert not self.buried & {obj["metadata"]["uid"] for obj in self.store.all(POD)}

    @invariant()
    def listeners_know_what_the_store_knows(self) -> None:
        assert set(self.told) == {name for _, name in self.store.keys(POD)}


def _names(objects: list[Object]) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in objects)


TestStoreAgainstACluster = Cluster.TestCase
TestStoreAgainstACluster.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "nodeName", "env"]), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def _objects(draw: st.DrawFn) -> Object:
    resources = st.fixed_dictionaries({}, optional={"nvidia.com/gpu": st.just("1"), "cpu": st.just("1")})
    container = st.fixed_dictionaries(
        {"name": st.just("c")}, optional={"resources": st.fixed_dictionaries({"requests": resources}), "env": _json}
    )
    text_map = st.dictionaries(
        st.sampled_from([labels.MANAGED_BY, "a", "kubectl.kubernetes.io/last-applied-configuration"]),
        st.sampled_from([labels.MANAGED_BY_VALUE, "x"]),
        max_size=2,
    )
    metadata = st.fixed_dictionaries(
        {"name": st.just("x"), "uid": st.just("u"), "resourceVersion": st.just("1")},
        optional={"labels": text_map, "annotations": text_map, "managedFields": st.just([{}])},
    )
    condition = st.fixed_dictionaries({"type": st.just("Ready")}, optional={"lastHeartbeatTime": st.just("t")})
    spec = st.fixed_dictionaries(
        {}, optional={"containers": st.lists(container, max_size=2), "nodeName": st.just("n"), "taints": _json}
    )
    status = st.fixed_dictionaries(
        {},
        optional={
            "phase": st.sampled_from(["Running", "Failed"]),
            "conditions": st.lists(condition, max_size=2),
            "images": _json,
        },
    )
    return draw(st.fixed_dictionaries({"metadata": metadata}, optional={"spec": spec, "status": status}))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([POD, NODE, REPLICA_SET, HORIZONTAL_POD_AUTOSCALER, DEPLOYMENT]), _objects())
def test_the_view_of_a_view_is_itself_and_leaves_its_source_alone(kind: Any, obj: Object) -> None:
    before = repr(obj)
    kept = view(kind, obj)
    assert repr(obj) == before
    if kept is not None:
        assert view(kind, kept) == kept
        assert "managedFields" not in kept["metadata"]


def test_every_kind_has_its_own_place() -> None:
    assert len({(kind.path(), kind.kind) for kind in ALL}) == len(ALL)
