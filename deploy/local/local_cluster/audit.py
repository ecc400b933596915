"""Reading the API server's audit log: who asked for what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class AuditedRequest:
    """One finished request.

    Attributes:
        user: such as `system:serviceaccount:equipoise-system:equipoise`.
        verb: get, list, watch, create, update, patch, delete, deletecollection.
        resource: plural, with the subresource: `deployments` or `pods/status`.
        group: the API group, empty for the core one.
        namespace: empty for what has none.
        name: empty for a collection.
        code: the HTTP status of the answer.
        user_agent: what the client calls itself.
        time: when the request arrived, RFC 3339 with fractions.
    """

    user: str
    verb: str
    resource: str
    group: str
    namespace: str
    name: str
    code: int
    user_agent: str
    time: str

    @property
    def is_write(self) -> bool:
        """Whether it was meant to change something."""
        return self.verb in WRITE_VERBS


def audited_requests(log: Path, *, user: str | None = None, writes_only: bool = False) -> Iterator[AuditedRequest]:
    """Yield the requests of an audit log, oldest first: of one user, or of all; all of them, or those that write.

    A line that is not finished yet is left out. Watches appear when they end.
    """
    with log.open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                return
            event = json.loads(line)
            if event.get("stage") != "ResponseComplete" or "objectRef" not in event:
                continue
            request = _request(event)
            if (user is None or request.user == user) and (request.is_write or not writes_only):
                yield request


def _request(event: dict[str, object]) -> AuditedRequest:
    reference = _mapping(event.get("objectRef"))
    subresource = reference.get("subresource")
    resource = str(reference.get("resource", ""))
    code = _mapping(event.get("responseStatus")).get("code", 0)
    return AuditedRequest(
        user=str(_mapping(event.get("user")).get("username", "")),
        verb=str(event.get("verb", "")),
        resource=f"{resource}/{subresource}" if subresource else resource,
        group=str(reference.get("apiGroup", "")),
        namespace=str(reference.get("namespace", "")),
        name=str(reference.get("name", "")),
        code=code if isinstance(code, int) else 0,
        user_agent=str(event.get("userAgent", "")),
        time=str(event.get("requestReceivedTimestamp", "")),
    )


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
