"""KubeApi over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from equipoise.api.identity import FIELD_MANAGER
from equipoise.reconcile.kube.errors import ApiError, Fenced, Invalid, NotFound, Request
from equipoise.reconcile.kube.kinds import Kind, kind_of
from equipoise.reconcile.kube.protocol import Listing, Object
from equipoise.reconcile.kube.transport import Transport

_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"

WriteObserver = Callable[[str, str, str], None]
"""Hears of every write: verb, kind, and `ok` or the name of the error."""


class KubeClient:
    """The API of one cluster. Several clients may share a transport: the elector's own is never fenced."""

    def __init__(
        self,
        transport: Transport,
        *,
        fence: Callable[[], bool] = lambda: True,
        observe_write: WriteObserver = lambda verb, kind, result: None,
        page_size: int = 200,
    ) -> None:
        self._transport = transport
        self._fence = fence
        self._observe_write = observe_write
        self._page_size = page_size

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """See KubeApi."""
        request = Request("get", kind, namespace, name)
        try:
            return await self._transport.call(request, "GET", kind.path(namespace, name), idempotent=True)
        except NotFound:
            return None

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        keep: Callable[[Object], Object | None] | None = None,
    ) -> Listing:
        """See KubeApi. A list whose continuation expires between pages (410) starts over once, in one piece."""
        query = {"limit": str(self._page_size)}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        try:
            return await self._pages(kind, namespace, query, keep)
        except ApiError as error:
            if error.status != 410:
                raise
        query.pop("limit")
        return await self._pages(kind, namespace, query, keep)

    async def apply(self, obj: Object, *, force: bool = True, dry_run: bool = False) -> Object:
        """See KubeApi."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        kind, namespace, name = _place(obj)
        body = {key: value for key, value in obj.items() if key != "status"} | {"metadata": _metadata_to_send(obj)}
        request = Request("apply", kind, namespace, name)
        return await self._write(request, "PATCH", kind.path(namespace, name), query=query, body=body, content_type=_APPLY)

    async def apply_status(self, obj: Object) -> Object:
        """See KubeApi."""
        kind, namespace, name = _place(obj)
        metadata = {key: value for key, value in obj["metadata"].items() if key in ("name", "namespace", "uid")}
        body = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, "status": obj["status"]}
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        request = Request("apply-status", kind, namespace, name)
        path = kind.path(namespace, name, "status")
        return await self._write(request, "PATCH", path, query=query, body=body, content_type=_APPLY)

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
        """See KubeApi."""
        if resource_version is not None:
            body = {**body, "metadata": {**(body.get("metadata") or {}), "resourceVersion": resource_version}}
        request = Request(f"patch-{subresource}" if subresource else "patch", kind, namespace, name)
        path = kind.path(namespace, name, subresource)
        return await self._write(request, "PATCH", path, query={"fieldManager": FIELD_MANAGER}, body=body, content_type=_MERGE)

    async def create(self, obj: Object) -> Object:
        """See KubeApi."""
        kind, namespace, name = _place(obj)
        request = Request("create", kind, namespace, name)
        query = {"fieldManager": FIELD_MANAGER}
        return await self._write(request, "POST", kind.path(namespace), query=query, body=obj, idempotent=False)

    async def replace(self, obj: Object) -> Object:
        """See KubeApi. Tried again only with a resourceVersion: the second of two blind writes may undo somebody else's."""
        kind, namespace, name = _place(obj)
        request = Request("replace", kind, namespace, name)
        guarded = bool(obj["metadata"].get("resourceVersion"))
        query = {"fieldManager": FIELD_MANAGER}
        return await self._write(request, "PUT", kind.path(namespace, name), query=query, body=obj, idempotent=guarded)

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
        """See KubeApi. Tried again only with a uid: without one, the second try could hit a successor of that name."""
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v is not None}
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            body["preconditions"] = preconditions
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            body["propagationPolicy"] = propagation
        request = Request("delete", kind, namespace, name)
        try:
            await self._write(request, "DELETE", kind.path(namespace, name), body=body, idempotent=uid is not None)
        except NotFound:
            return False
        return True

    async def _pages(
        self, kind: Kind, namespace: str | None, query: dict[str, str], keep: Callable[[Object], Object | None] | None
    ) -> Listing:
        items: list[Object] = []
        query = dict(query)
        while True:
            request = Request("list", kind, namespace)
            page = await self._transport.call(request, "GET", kind.path(namespace), query=query, idempotent=True)
            for item in page.get("items") or ():
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
                kept = keep(item) if keep else item
                if kept is not None:
                    items.append(kept)
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion") or ""))
            query["continue"] = metadata["continue"]

    async def _write(self, request: Request, method: str, path: str, *, idempotent: bool = True, **rest: Any) -> Object:
        """Send a write, if we may still write: the fence is asked before each try."""

        def guard() -> None:
            if not self._fence():
                raise Fenced(request, 0, "not sent: this process is no longer certain to be the leader")

        try:
            answer = await self._transport.call(request, method, path, idempotent=idempotent, guard=guard, **rest)
        except ApiError as error:
            self._observe_write(request.verb, request.kind.kind, type(error).__name__)
            raise
        self._observe_write(request.verb, request.kind.kind, "ok")
        return answer


def _place(obj: Object) -> tuple[Kind, str | None, str]:
    kind = kind_of(obj)
    metadata = obj.get("metadata") or {}
    name = metadata.get("name")
    if not name:
        raise Invalid(Request("write", kind), 0, "the manifest has no metadata.name: give it one")
    return kind, metadata.get("namespace"), name


def _metadata_to_send(obj: Object) -> Object:
    return {key: value for key, value in obj["metadata"].items() if key not in ("managedFields", "resourceVersion", "generation")}
