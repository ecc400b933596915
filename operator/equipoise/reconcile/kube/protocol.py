"""The few verbs Equipoise needs of Kubernetes. Everything above this line talks to `KubeApi` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from equipoise.reconcile.kube.kinds import Kind

Object = dict[str, Any]
"""One object as the API has it (camelCase keys)."""


class Listing(NamedTuple):
    """All pages of a list, and the resourceVersion at which it is exact."""

    items: list[Object]
    resource_version: str


class KubeApi(Protocol):
    """Asynchronous access to the API server with plain dicts.

    Every call has a time-out. Reads and idempotent writes are tried again on 429 and 5xx, honouring Retry-After. Failures are the
    classes of `equipoise.reconcile.kube.errors`. Writes are refused with `Fenced` once leadership is in doubt, and counted by
    verb, kind and result.
    """

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object; None when it, its namespace or its kind does not exist."""
        ...

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        keep: Callable[[Object], Object | None] | None = None,
    ) -> Listing:
        """All objects of a kind, read in pages, in one namespace or in all. `KindNotServed` when the cluster has no such kind.

        `keep` cuts each object down, or drops it with None, page by page: a whole cluster's pods would not fit in memory.
        """
        ...

    async def apply(self, obj: Object, *, force: bool = True, dry_run: bool = False) -> Object:
        """Server-side apply of the complete intent; creates or changes. Fields left out and owned before are removed.

        Never sends resourceVersion or managedFields. `metadata.uid`, where given, is a precondition (`Conflict` when it differs).
        With `force` false a field owned by somebody else is a `Conflict`.
        """
        ...

    async def apply_status(self, obj: Object) -> Object:
        """Server-side apply of `obj["status"]` to the status subresource; everything else but the identity is dropped."""
        ...

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        body: Object,
        *,
        subresource: str | None = None,
        resource_version: str | None = None,
    ) -> Object:
        """Merge patch (null removes, lists are replaced whole). With `resource_version`: `Conflict` when it has moved on."""
        ...

    async def create(self, obj: Object) -> Object:
        """Create; `AlreadyExists` when there is one. Never tried again by itself."""
        ...

    async def replace(self, obj: Object) -> Object:
        """Put the whole object. `metadata.resourceVersion`, where given, is a precondition."""
        ...

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> bool:
        """Delete; False when it is gone already.

        `uid` and `resource_version` are preconditions (`Conflict`). `propagation` is Background, Foreground or Orphan;
        None keeps the kind's default (Background for everything used here).
        """
        ...
