"""Remembers that nothing was to do, and knows when that may have changed: most events mean nothing for the children."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.api.service import InferenceService
from equipoise.fleet.types import Pool
from equipoise.reconcile.record import served_kinds
from equipoise.reconcile.store import Store
from equipoise.reconcile.workload.children import CHILD_KINDS

Seen = tuple[Hashable, dict[tuple[str, str], Any]]


class Unchanged:
    """Per service: what was asked for and what was there when a pass found nothing to write."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._clean: dict[ServiceKey, Seen] = {}

    def look(
        self,
        resource: InferenceService,
        counts: Mapping[str, Mapping[Variant, int]],
        pools: Mapping[str, Pool],
        unsettled: frozenset[Phase] = frozenset(),
    ) -> Seen:
        """All that rendering and comparing depend on: spec, counts, pools, optional kinds, what can wait, and the children."""
        table = [(revision, variant, count) for revision, part in counts.items() for variant, count in part.items()]
        asked = (
            resource.metadata.uid,
            resource.metadata.generation,
            tuple(sorted(table)),
            tuple(_pool(pools[name]) for name in sorted({variant.pool for _, variant, _ in table} & pools.keys())),
            served_kinds(self._store),
            unsettled,
        )
        children = {
            (kind.kind, child["metadata"]["name"]): _mark(child)
            for kind in CHILD_KINDS
            for child in self._store.owned_by(kind, resource.metadata.uid)
        }
        return asked, children

    def is_clean(self, key: ServiceKey, seen: Seen) -> bool:
        """Whether a pass over exactly this found nothing to do."""
        return self._clean.get(key) == seen

    def note(self, key: ServiceKey, seen: Seen, written: Mapping[tuple[str, str], Mapping[str, Any]]) -> None:
        """A pass over this has nothing left to do after what it wrote, as the API server answered.

        The answers, not what is there by now: an edit by another hand right after our write must not pass for ours.
        """
        asked, children = seen
        self._clean[key] = asked, children | {name: _mark(child) for name, child in written.items()}

    def forget(self, key: ServiceKey) -> None:
        """The service is gone, or must be looked at anew."""
        self._clean.pop(key, None)


def _mark(child: Mapping[str, Any]) -> tuple[Any, ...]:
    """Changes with everything that `differs` could see. A generation counts changes of spec; status does not matter here.

    Nor do the Deployment controller's own annotations: its first one follows each new Deployment.
    """
    metadata = child["metadata"]
    annotations = metadata.get("annotations") or {}
    version = metadata.get("generation") or metadata.get("resourceVersion")
    gone = metadata.get("deletionTimestamp")
    return (
        metadata.get("uid"),
        version,
        gone,
        metadata.get("labels"),
        {name: value for name, value in annotations.items() if not name.startswith("deployment.kubernetes.io/")},
        metadata.get("ownerReferences"),
    )


def _pool(pool: Pool) -> Hashable:
    tolerations = tuple(tuple(sorted(item.items())) for item in pool.tolerations)
    return pool.name, pool.device.name, pool.resource_name, tuple(sorted(pool.node_selector.items())), tolerations
