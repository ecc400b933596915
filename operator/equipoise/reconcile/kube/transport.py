"""HTTP to the API server: one session, a deadline on every call, tries again where that is safe, errors as types."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from equipoise.reconcile.clock import Clock
from equipoise.reconcile.kube.connection import REFRESH_SECONDS, Connection
from equipoise.reconcile.kube.errors import (
    ApiError,
    Conflict,
    Invalid,
    KindNotServed,
    NotFound,
    Request,
    Timeout,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_class,
)

logger = logging.getLogger(__name__)

USER_AGENT: Final = "equipoise"
_LONGEST_PAUSE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Retry:
    """Tries of an idempotent call: `attempts` in all, pausing 0.2 s x 2^n with jitter or what Retry-After says."""

    attempts: int = 4
    first_seconds: float = 0.2

    def pause(self, attempt: int, error: ApiError, draw: float) -> float:
        """Seconds before the next try after `attempt` (1 or more) failed."""
        backoff = self.first_seconds * 2.0 ** (attempt - 1) * (0.5 + draw)
        return float(min(max(backoff, error.retry_after or 0.0), _LONGEST_PAUSE_SECONDS))


class Transport:
    """Sends requests with fresh credentials. `load` gives the connection anew: each minute, and after a 401."""

    def __init__(
        self,
        connection: Connection,
        load: Callable[[], Awaitable[Connection]],
        clock: Clock,
        *,
        timeout_seconds: float = 15.0,
        retry: Retry | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._connection = connection
        self._load = load
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._retry = retry or Retry()
        self._draw = draw
        self._rest = RESTClientObject(connection.configuration())
        self._loaded_at = clock.monotonic_seconds()
        self._loading = asyncio.Lock()

    async def close(self) -> None:
        """Close the session."""
        await self._rest.close()

    async def call(
        self,
        request: Request,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        idempotent: bool,
        timeout_seconds: float | None = None,
        guard: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        """Send, and return the decoded answer. Raises a class of `kube.errors`.

        A 401 is tried once more with fresh credentials; 429, 5xx, time-outs and lost connections are tried again when
        idempotent. `guard` is asked before each try and raises to forbid it.
        """
        url = path + ("?" + urlencode(query) if query else "")
        attempt, refreshed = 0, False
        while True:
            attempt += 1
            if self._clock.monotonic_seconds() - self._loaded_at > REFRESH_SECONDS:
                await self._refresh(self._connection)
            if guard is not None:
                guard()
            used = self._connection
            try:
                return await self._send(request, method, url, body, content_type, timeout_seconds or self._timeout_seconds)
            except Unauthorized:
                if refreshed:
                    raise
                refreshed = True
                await self._refresh(used)
            except (TooManyRequests, Unavailable) as error:
                if not idempotent or attempt >= self._retry.attempts:
                    raise
                pause = self._retry.pause(attempt, error, self._draw())
                logger.debug("%s; again in %.2f s", error, pause)
                await self._clock.sleep(pause)

    async def _send(
        self, request: Request, method: str, url: str, body: Any, content_type: str, timeout_seconds: float
    ) -> dict[str, Any]:
        headers = {
            "Accept": "application/json",
            "Content-Type": content_type,
            "User-Agent": USER_AGENT,
            **self._connection.headers,
        }
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=min(10.0, timeout_seconds))
        try:
            response = await self._rest.request(  # type: ignore[no-untyped-call]
                method, self._connection.server + url, headers=headers, body=body, _request_timeout=timeout
            )
            try:
                data = await response.read()
            finally:
                response.response.release()
        except TimeoutError:
            raise Timeout(request, 0, f"no answer within {timeout_seconds:g} s") from None
        except aiohttp.ClientError as error:
            raise Unavailable(request, 0, f"{type(error).__name__}: {error}") from error
        if response.status >= 300:
            raise _error(request, response.status, data, response.headers)
        return _decode(request, response.status, data)

    async def _refresh(self, used: Connection) -> None:
        """Read the credentials again, once for all callers that used the same. A failure keeps them: they may still be good."""
        async with self._loading:
            if self._connection is not used:
                return
            self._loaded_at = self._clock.monotonic_seconds()
            try:
                fresh = await self._load()
            except Exception as error:
                logger.warning("credentials not read again, going on with the old ones: %s", error)
                return
            if fresh.transport != self._connection.transport:
                old, self._rest = self._rest, RESTClientObject(fresh.configuration())
                asyncio.get_running_loop().call_later(self._timeout_seconds, _close_later, old)
            self._connection = fresh


def _close_later(rest: RESTClientObject) -> None:
    task = asyncio.ensure_future(rest.close())
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _decode(request: Request, status: int, data: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(data) if data else {}
    except ValueError as error:
        raise Unavailable(request, status, f"the answer is no JSON: {data[:200]!r}") from error
    if not isinstance(decoded, dict):
        raise Unavailable(request, status, f"the answer is no object: {data[:200]!r}")
    return decoded


def _error(request: Request, status: int, data: bytes, headers: Mapping[str, str]) -> ApiError:
    """Read the server's Status object, or what a proxy says instead."""
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        answer = {"message": data[:500].decode(errors="replace").strip()}
    reason, details = str(answer.get("reason") or ""), answer.get("details") or {}
    message = str(answer.get("message") or "no message")
    return _class_of(status, reason, details, message)(
        request,
        status,
        message,
        reason=reason,
        retry_after=_seconds(headers.get("Retry-After")) or _seconds(details.get("retryAfterSeconds")),
    )


def _class_of(status: int, reason: str, details: Mapping[str, Any], message: str) -> type[ApiError]:
    """The class, where status and reason alone mislead (seen on a 1.36 API server)."""
    kind = error_class(status, reason)
    if kind is NotFound and not (details.get("name") or details.get("kind")):
        return KindNotServed
    if kind is Invalid and any(cause.get("field") == "metadata.uid" for cause in details.get("causes") or ()):
        return Conflict  # server-side apply with the uid of an object that has been replaced by another of its name
    if status == 500 and "failed to create typed patch object" in message:
        return Invalid  # server-side apply of a value of the wrong type
    return kind


def _seconds(value: Any) -> float | None:
    try:
        return float(value) if value is not None else None
    except (TypeError, ValueError):
        return None  # an HTTP date: the API server never sends one
