"""A small asynchronous client of Prometheus' query API. Every way to fail ends in a sentence, never in an exception or zero."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from equipoise.observe.readings import Failure, Sample, acyclic

_CHUNK_BYTES = 1 << 16
_ERROR_TEXT = 200  # characters of a server's own error text that are worth repeating


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Where Prometheus is and how to ask it. ValueError says which field is wrong.

    `bearer_token_file` is read again for every query, because projected tokens rotate. `headers` are for tenants such as
    `X-Scope-OrgID`. Skipping certificate checks needs two switches: `insecure_skip_verify` (may come from a user's resource)
    and `allow_insecure_skip_verify` (only from the operator's own configuration).
    """

    url: str
    timeout_seconds: float = 10.0
    ca_file: str = ""
    insecure_skip_verify: bool = False
    allow_insecure_skip_verify: bool = False
    bearer_token: str = field(default="", repr=False)
    bearer_token_file: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    maximum_response_bytes: int = 64 << 20  # 1,000 services' TTFT buckets are about 10 MB
    maximum_concurrency: int = 8  # Prometheus itself runs 20 queries at a time by default, and has other users

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"prometheus url {self.url!r}: expected http(s)://host[:port][/path]")
        if self.insecure_skip_verify and not self.allow_insecure_skip_verify:
            raise ValueError(
                "prometheus insecure_skip_verify: refused, because whoever answers would be believed; give ca_file instead,"
                " or set allow_insecure_skip_verify in the operator's configuration"
            )
        if self.bearer_token and self.bearer_token_file:
            raise ValueError("prometheus bearer_token and bearer_token_file: give one of them")
        for name in ("timeout_seconds", "maximum_response_bytes", "maximum_concurrency"):
            if getattr(self, name) <= 0:
                raise ValueError(f"prometheus {name}: must be above 0, is {getattr(self, name)}")


class PrometheusClient:
    """Instant queries over one connection pool. Use as an asynchronous context manager, or call `close`.

    There are no retries: the next round asks again. Redirects are not followed, so that a token goes nowhere else.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._url = settings.url.rstrip("/") + "/api/v1/query"
        self._slots = asyncio.Semaphore(settings.maximum_concurrency)
        self._session: aiohttp.ClientSession | None = None
        self.queries = 0
        self.received_bytes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def query(self, expression: str, at_seconds: float) -> list[Sample] | Failure:
        """Evaluate an instant vector at that time; a Failure tells in a sentence what went wrong."""
        settings = self._settings
        form = {"query": expression, "time": f"{at_seconds:.3f}", "timeout": f"{settings.timeout_seconds:g}s"}
        try:
            headers = {**settings.headers, **self._authorization()}
            async with self._slots:
                self.queries += 1
                session = self._open()
                async with session.post(self._url, data=form, headers=headers, allow_redirects=False) as response:
                    body = await self._read(response)
        except TimeoutError:
            return Failure(f"Prometheus at {self._host} did not answer within {settings.timeout_seconds:g} s")
        except aiohttp.ClientConnectorCertificateError as error:
            return Failure(f"the certificate of Prometheus at {self._host} is not trusted: {error.certificate_error}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Failure(f"Prometheus at {self._host} cannot be asked: {str(error) or type(error).__name__}")
        if isinstance(body, Failure):
            return body
        with acyclic():
            return parse_answer(response.status, body, self._host)

    @property
    def _host(self) -> str:
        parts = urlsplit(self._settings.url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = self._settings
            context: ssl.SSLContext | bool = True
            if settings.insecure_skip_verify:
                context = False
            elif settings.ca_file:
                context = ssl.create_default_context(cafile=settings.ca_file)
            connector = aiohttp.TCPConnector(ssl=context, limit=settings.maximum_concurrency)
            # The server is told the time-out as well; a little more lets its own, better worded, answer through.
            timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds * 1.1, sock_connect=settings.timeout_seconds)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)
        return self._session

    def _authorization(self) -> dict[str, str]:
        token = self._settings.bearer_token
        if self._settings.bearer_token_file:
            token = Path(self._settings.bearer_token_file).read_text(encoding="utf-8").strip()
            if not token:
                raise ValueError(f"the token file {self._settings.bearer_token_file} is empty")
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | Failure:
        limit = self._settings.maximum_response_bytes
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            size += len(chunk)
            if size > limit:
                response.close()
                return Failure(f"the answer of Prometheus at {self._host} exceeds {limit >> 20} MiB")
            parts.append(chunk)
        self.received_bytes += size
        return b"".join(parts)


def parse_answer(status: int, body: bytes, host: str) -> list[Sample] | Failure:
    """Read the API's answer.

    Warnings other than PromQL's own remarks mean that parts are missing (remote read, Thanos): a failure.
    """
    if status in (401, 403):
        return Failure(f"Prometheus at {host} refuses the credentials (HTTP {status})")
    try:
        answer = json.loads(body)
        if not isinstance(answer, dict):
            raise ValueError("no object")
    except ValueError:
        return Failure(f"Prometheus at {host} answered HTTP {status} with something else than its API's JSON: {_short(body)}")
    if answer.get("status") != "success":
        kind, text = answer.get("errorType", "error"), str(answer.get("error", "no reason given"))
        return Failure(f"Prometheus at {host} answered {kind} (HTTP {status}): {text[:_ERROR_TEXT]}")
    try:
        partial = [str(item) for item in answer.get("warnings") or () if not str(item).startswith("PromQL")]
        if partial:
            return Failure(f"Prometheus at {host} gave only part of the answer: {partial[0][:_ERROR_TEXT]}")
        data = answer["data"]
        if data["resultType"] != "vector":
            return Failure(f"Prometheus at {host} answered with a {data['resultType']}, expected a vector")
        return [_sample(item) for item in data["result"]]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        return Failure(f"Prometheus at {host} answered in an unknown form ({type(error).__name__}: {error})")


def _sample(item: Any) -> Sample:
    # A native histogram comes as "histogram"; none of the queries asks for one, so its absence of "value" is an error.
    labels = item["metric"]
    if not isinstance(labels, dict):
        raise TypeError("labels are no object")
    return Sample(labels, float(item["value"][1]))


def _short(body: bytes) -> str:
    return repr(body[:_ERROR_TEXT].decode("utf-8", "replace"))
