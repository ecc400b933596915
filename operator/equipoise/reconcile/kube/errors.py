"""What the Kubernetes API can answer instead of an object, one class per way of dealing with it."""

from __future__ import annotations

from dataclasses import dataclass

from equipoise.reconcile.kube.kinds import Kind


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, for messages: verb, kind and name."""

    verb: str
    kind: Kind
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        where = (
            f" {self.namespace}/{self.name}" if self.namespace and self.name else f" {self.name or self.namespace or ''}".rstrip()
        )
        return f"{self.verb} {self.kind}{where}"


class ApiError(Exception):
    """The request failed. `status` is the HTTP status (0: no answer), `reason` the server's word, `message` its sentence."""

    def __init__(
        self, request: Request, status: int, message: str, *, reason: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"{request}: {status or 'no answer'} {reason}: {message}".replace(" : ", ": "))
        self.request = request
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFound(ApiError):
    """The object, its namespace or its parent does not exist."""


class KindNotServed(NotFound):
    """The cluster has no such kind: the custom resource definition is not installed."""


class Conflict(ApiError):
    """Somebody else wrote in between, or a precondition (uid, resourceVersion, field manager) does not hold: read afresh."""


class AlreadyExists(Conflict):
    """`create` met an object of that name."""


class Forbidden(ApiError):
    """RBAC, quota or an admission policy refused it. Trying again does not help: tell the user, as a condition."""


class Unauthorized(ApiError):
    """The server does not know us: the token is wrong or has expired."""


class Invalid(ApiError):
    """The server rejects the content; `message` says which field. Trying again does not help until the input changes."""


class TooManyRequests(ApiError):
    """The server asks for a pause of `retry_after` seconds (None: it does not say)."""


class Unavailable(ApiError):
    """The server failed or could not be reached. It may or may not have done what was asked."""


class Timeout(Unavailable):
    """No answer in time. It may or may not have been done."""


class Fenced(ApiError):
    """Not sent: this process is no longer certain to be the leader."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
    504: Timeout,
}


def error_class(status: int, reason: str) -> type[ApiError]:
    """The class for an answer, by HTTP status and the `reason` of the server's Status object."""
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Unavailable if status >= 500 else ApiError
