"""Children as they should be: apply what differs, delete what should not be there, never touch what belongs to others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from equipoise.api.identity import Phase
from equipoise.reconcile.kube.errors import Conflict, KindNotServed
from equipoise.reconcile.kube.kinds import (
    DEPLOYMENT,
    INFERENCE_POOL,
    PHASE_SCALE,
    POD_DISRUPTION_BUDGET,
    POD_MONITOR,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    kind_of,
)
from equipoise.reconcile.kube.protocol import KubeApi, Object
from equipoise.reconcile.store import Store
from equipoise.render.differs import differs

# Workloads first, so that pods begin to start while the rest is written.
CHILD_KINDS: tuple[Kind, ...] = (
    DEPLOYMENT,
    SERVICE_ACCOUNT,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    POD_DISRUPTION_BUDGET,
    PHASE_SCALE,
    POD_MONITOR,
    INFERENCE_POOL,
)


@dataclass(slots=True)
class Children:
    """Applies and prunes the children of one service."""

    api: KubeApi
    store: Store
    owner_uid: str
    unsettled: frozenset[Phase] = frozenset()  # phases whose budget and addresses can wait (`late`)
    foreign: list[str] = field(default_factory=list)  # names that somebody else holds, as sentences
    written: dict[tuple[str, str], Object] = field(default_factory=dict)  # by kind and name: what the API server made of it

    async def apply(self, wanted: Iterable[Object]) -> int:
        """Apply what differs from the store, all at once, workloads sent first; returns the number of writes.

        No child needs another one to be accepted: what a pod needs before it starts (its account) it waits for. When some fail
        the others are still written, and the first failure is raised.
        """
        found = await asyncio.gather(*(self._apply(obj) for obj in sorted(wanted, key=_order)), return_exceptions=True)
        for item in found:
            if isinstance(item, BaseException):
                raise item
        return sum(item for item in found if isinstance(item, int))

    async def _apply(self, obj: Object) -> int:
        kind = kind_of(obj)
        live = self.store.get(kind, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        if live is not None and (self._is_foreign(kind, live) or not differs(obj, live)):
            return 0
        try:
            answer = await self.api.apply(obj)
        except KindNotServed:
            return 0  # an optional kind that went between the look and the write; its return is noticed
        self.store.wrote(kind, answer)
        self.written[kind.kind, answer["metadata"]["name"]] = answer
        return 1

    async def prune(self, keep: Sequence[Object], kept_names: frozenset[str] = frozenset()) -> int:
        """Delete children that are ours, by uid, and not wanted any more; returns the number of deletions."""
        wanted = {(kind_of(obj), obj["metadata"]["name"]) for obj in keep}
        deletions = 0
        for kind in CHILD_KINDS:
            for live in self.store.owned_by(kind, self.owner_uid):
                metadata = live["metadata"]
                gone = metadata.get("deletionTimestamp") or (kind, metadata["name"]) in wanted
                if gone or (kind == DEPLOYMENT and metadata["name"] in kept_names):
                    continue
                try:
                    await self.api.delete(kind, metadata.get("namespace"), metadata["name"], uid=metadata.get("uid"))
                except Conflict:
                    continue  # a namesake took its place: not ours
                self.store.remove(kind, live)
                deletions += 1
        return deletions

    def _is_foreign(self, kind: Kind, live: Object) -> bool:
        owners = [ref for ref in live["metadata"].get("ownerReferences") or () if ref.get("controller")]
        if owners and owners[0].get("uid") == self.owner_uid:
            return False
        metadata = live["metadata"]
        holder = f"{owners[0]['kind']} {owners[0]['name']}" if owners else "nobody's controller"
        if metadata.get("deletionTimestamp"):
            holder = "an object that is being deleted"
        self.foreign.append(
            f"{kind.kind} {metadata['name']} exists already and belongs to {holder}: rename it or this InferenceService"
        )
        return True


def _order(obj: Object) -> tuple[int, str]:
    return CHILD_KINDS.index(kind_of(obj)), obj["metadata"]["name"]
