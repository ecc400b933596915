"""What the cluster holds, as last seen: fed by watch events, corrected by whole lists, indexed by what is asked for.

A list *replaces*: kopf reports no deletion that fell into a gap between two watches, so only a list can end what is gone.
Everything runs on one event loop; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from equipoise.api.identity import ServiceKey
from equipoise.reconcile.indices import DEFAULT, INDICES, NODE_NAME, OWNER, SERVICE, VARIANT, IndexFunction
from equipoise.reconcile.kube.kinds import INFERENCE_SERVICE, POD, Kind
from equipoise.reconcile.kube.protocol import Listing, Object
from equipoise.reconcile.views import view

_REMEMBERED_DEATHS: Final = 4096  # per kind: far more than go during the seconds that a list is on its way

ObjectKey = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object came (`old` None), changed, or went (`new` None). `ours`: seen in the answer to our own write."""

    kind: Kind
    old: Object | None
    new: Object | None
    ours: bool = False


Listener = Callable[[Change], None]


class Store:
    """The latest known state. Objects handed out are shared: read them, never change them.

    Staleness is kept out by three rules: an older resourceVersion never overwrites a newer one, a deleted uid never comes
    back, and a deletion of one uid never removes its successor of the same name.
    """

    def __init__(self) -> None:
        self._tables: dict[Kind, _Table] = {}
        self._listeners: list[Listener] = []
        self._denied: dict[Kind, str] = {}
        self._limited: dict[Kind, str] = {}

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` for every change that means something (a new resourceVersion alone does not)."""
        self._listeners.append(listener)

    def upsert(self, kind: Kind, obj: Object) -> bool:
        """Take in an event's object or a write's answer; False when it changes nothing or is older than what is here."""
        return self._tell(kind, self._table(kind).upsert(obj))

    def wrote(self, kind: Kind, obj: Object) -> bool:
        """Take in the answer to a write of a pass that needs no further look for it."""
        change = self._table(kind).upsert(obj)
        return self._tell(kind, replace(change, ours=True) if change is not None else None)

    def remove(self, kind: Kind, obj: Object) -> bool:
        """Take in a deletion."""
        return self._tell(kind, self._table(kind).remove(obj))

    def replace(self, kind: Kind, listing: Listing, namespace: str | None = None) -> int:
        """Make the store equal to a whole list (of one namespace, or all), but for what is newer. Returns changes."""
        table = self._table(kind)
        table.listed = True
        self._denied.pop(kind, None)
        return sum(self._tell(kind, change) for change in table.replace(listing, namespace))

    def deny(self, kind: Kind, reason: str) -> int:
        """Note that this kind cannot be read (RBAC) or is not served: what was held of it is gone. Unknown is not none."""
        count = self.replace(kind, Listing([], ""))
        self._table(kind).listed = False
        self._denied[kind] = reason
        return count

    def denied(self, kind: Kind) -> str | None:
        """Why nothing is known of this kind; None when it can be read."""
        return self._denied.get(kind)

    def limit(self, kind: Kind, reason: str | None) -> None:
        """Note that only a part of this kind can be read, and which; None: all of it."""
        if reason is None:
            self._limited.pop(kind, None)
        else:
            self._limited[kind] = reason

    def limited(self, kind: Kind) -> str | None:
        """What of this kind cannot be seen; None when all of it is."""
        return self._limited.get(kind)

    def listed(self, kind: Kind) -> bool:
        """Whether a whole list of this kind has been taken in: before that, absent does not mean gone."""
        return kind in self._tables and self._tables[kind].listed

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object, as last seen."""
        table = self._tables.get(kind)
        return table.objects.get((namespace or "", name)) if table else None

    def all(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """All objects of a kind, in one namespace or everywhere."""
        table = self._tables.get(kind)
        if table is None:
            return []
        return [obj for (where, _), obj in table.objects.items() if namespace is None or where == namespace]

    def keys(self, kind: Kind) -> set[ObjectKey]:
        """Namespace and name of all objects of a kind."""
        table = self._tables.get(kind)
        return set(table.objects) if table else set()

    def slim(self, kind: Kind, obj: Object) -> Object | None:
        """The view of a listed object: the very object that is held where the list has nothing newer. Saves the memory."""
        held = self.get(kind, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        return held if held is not None and _identity(held) == _identity(obj) else view(kind, obj)

    def count(self, kind: Kind) -> int:
        """How many objects of a kind are held."""
        table = self._tables.get(kind)
        return len(table.objects) if table else 0

    def services(self) -> list[ServiceKey]:
        """All InferenceServices."""
        return [ServiceKey(*key) for key in sorted(self.keys(INFERENCE_SERVICE))]

    def service(self, key: ServiceKey) -> Object | None:
        """One InferenceService."""
        return self.get(INFERENCE_SERVICE, key.namespace, key.name)

    def of_service(self, kind: Kind, key: ServiceKey) -> list[Object]:
        """Children of a service, by label (Deployments and PhaseScales also by owner's name). Check owners by uid."""
        return self._by(kind, SERVICE, key)

    def pods_of_variant(self, namespace: str, variant: str) -> list[Object]:
        """Pods that carry the variant label, which is the Deployment's name."""
        return self._by(POD, VARIANT, (namespace, variant))

    def pods_on_node(self, node: str) -> list[Object]:
        """Our pods and all others that hold accelerators, bound to that node; "" for pods without a node."""
        return self._by(POD, NODE_NAME, node)

    def owned_by(self, kind: Kind, owner_uid: str) -> list[Object]:
        """Objects whose controller has that uid: Deployments of a service, ReplicaSets of a Deployment, Pods of a ReplicaSet."""
        return self._by(kind, OWNER, owner_uid)

    def _by(self, kind: Kind, index: str, value: Hashable) -> list[Object]:
        table = self._tables.get(kind)
        if table is None:
            return []
        return [table.objects[key] for key in sorted(table.indices.get(index, {}).get(value, ()))]

    def _table(self, kind: Kind) -> _Table:
        if kind not in self._tables:
            self._tables[kind] = _Table(kind, INDICES.get(kind, DEFAULT))
        return self._tables[kind]

    def _tell(self, kind: Kind, change: Change | None) -> bool:
        if change is None:
            return False
        for listener in self._listeners:
            listener(change)
        return True


class _Table:
    """Objects of one kind and their indices."""

    def __init__(self, kind: Kind, functions: Mapping[str, IndexFunction]) -> None:
        self.kind = kind
        self.objects: dict[ObjectKey, Object] = {}
        self.functions = functions
        self.indices: dict[str, dict[Hashable, set[ObjectKey]]] = {name: {} for name in functions}
        self.listed = False
        # A list that was on its way when a deletion came may still hold the dead object. An insertion-ordered set.
        self._gone: dict[str, None] = {}

    def upsert(self, obj: Object) -> Change | None:
        key, uid, version = _identity(obj)
        old = self.objects.get(key)
        if uid in self._gone or (old is not None and (_older(version, old) or _identity(old) == (key, uid, version))):
            return None
        if old is not None and old["metadata"].get("uid") != uid:
            self._bury(old["metadata"].get("uid", ""))  # a name is free only after its holder's death, even one nobody reported
        new = view(self.kind, obj)
        if new is None:
            return self._put(key, old, None)
        return self._put(key, old, new)

    def remove(self, obj: Object) -> Change | None:
        key, uid, _ = _identity(obj)
        self._bury(uid)
        old = self.objects.get(key)
        if old is None or old["metadata"].get("uid") != uid:
            return None
        return self._put(key, old, None)

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED_DEATHS:
            del self._gone[next(iter(self._gone))]

    def replace(self, listing: Listing, namespace: str | None) -> Iterator[Change]:
        seen: set[ObjectKey] = set()
        for obj in listing.items:
            seen.add(_identity(obj)[0])
            change = self.upsert(obj)
            if change is not None:
                yield change
        for key, old in list(self.objects.items()):
            if key in seen or (namespace is not None and key[0] != namespace):
                continue
            if listing.resource_version and _newer(old, listing.resource_version):
                continue
            change = self._put(key, old, None)
            if change is not None:
                yield change

    def _put(self, key: ObjectKey, old: Object | None, new: Object | None) -> Change | None:
        if old is not None:
            self._index(key, old, add=False)
        if new is None:
            self.objects.pop(key, None)
            return Change(self.kind, old, None) if old is not None else None
        self.objects[key] = new
        self._index(key, new, add=True)
        return None if old is not None and _same(old, new) else Change(self.kind, old, new)

    def _index(self, key: ObjectKey, obj: Object, *, add: bool) -> None:
        for name, function in self.functions.items():
            index = self.indices[name]
            for value in function(obj):
                if add:
                    index.setdefault(value, set()).add(key)
                elif value in index:
                    index[value].discard(key)
                    if not index[value]:
                        del index[value]


def _identity(obj: Object) -> tuple[ObjectKey, str, str]:
    metadata = obj["metadata"]
    return (metadata.get("namespace") or "", metadata["name"]), metadata.get("uid", ""), metadata.get("resourceVersion", "")


def _older(version: str, than: Object) -> bool:
    """Whether a resourceVersion lies before the one held. Equal is not older: it changes nothing anyway."""
    held = than["metadata"].get("resourceVersion", "")
    return version.isdigit() and held.isdigit() and int(version) < int(held)


def _newer(obj: Object, than: str) -> bool:
    held = obj["metadata"].get("resourceVersion", "")
    return bool(held.isdigit() and than.isdigit() and int(held) > int(than))


def _same(old: Object, new: Object) -> bool:
    """Equal in everything but the resourceVersion."""
    if old["metadata"].get("uid") != new["metadata"].get("uid"):
        return False
    one = {k: v for k, v in old["metadata"].items() if k != "resourceVersion"}
    two = {k: v for k, v in new["metadata"].items() if k != "resourceVersion"}
    return one == two and {**old, "metadata": None} == {**new, "metadata": None}
