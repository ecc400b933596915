"""What benchmarks on the control plane share: a bare client, a watch for readiness, a pace."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Coroutine
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from local_cluster import LocalCluster

PER_SECOND = 5.0
SETTLE_SECONDS = 60.0


class Client:
    """A bare HTTP client of the API server, so that the driver itself costs little."""

    def __init__(self, cluster: LocalCluster) -> None:
        context = ssl.create_default_context(cafile=str(cluster.ca_file))
        self._url = cluster.server_url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), headers={"Authorization": f"Bearer {cluster.admin_token}"}
        )

    async def send(
        self, verb: str, path: str, body: object | None = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        async with self._session.request(
            verb, self._url + path, data=None if body is None else json.dumps(body), headers={"Content-Type": content_type}
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise RuntimeError(f"{verb} {path}: {answer.status} {text[:300]}")
            return dict(json.loads(text))

    async def watch(self, path: str, seen: Callable[[dict[str, Any]], None]) -> None:
        version = (await self.send("GET", path))["metadata"]["resourceVersion"]
        url = f"{self._url}{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600"
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(url, timeout=timeout, read_bufsize=2**22) as answer:
            async for line in answer.content:
                seen(json.loads(line))

    async def close(self) -> None:
        await self._session.close()


class Ready:
    """Waits for objects to be ready on a wanted generation, from a watch."""

    def __init__(self) -> None:
        self.at: dict[tuple[str, int], float] = {}
        self._gone: dict[str, float] = {}

    def service(self, event: dict[str, Any]) -> None:
        obj = event["object"]
        name, generation = obj["metadata"]["name"], obj["metadata"]["generation"]
        found = {c["type"]: c for c in obj.get("status", {}).get("conditions", ())}
        ready, progressing = found.get("Ready"), found.get("Progressing")
        if ready is None or progressing is None:
            return
        if ready["status"] == "True" and ready.get("observedGeneration") == generation and progressing["status"] == "False":
            self.at.setdefault((name, generation), time.monotonic())

    def deployment(self, event: dict[str, Any]) -> None:
        obj = event["object"]
        status, spec = obj.get("status", {}), obj["spec"]
        current = status.get("observedGeneration") == obj["metadata"]["generation"]
        full = (
            status.get("availableReplicas", 0)
            == spec["replicas"]
            == status.get("updatedReplicas", 0)
            == status.get("replicas", 0)
        )
        if current and full:
            self.at.setdefault((obj["metadata"]["name"], obj["metadata"]["generation"]), time.monotonic())


async def paced(count: int, step: Callable[[int], Coroutine[Any, Any, None]]) -> list[float]:
    """Start `step` for each number at the rate; returns when each was submitted."""
    submitted: list[float] = []
    tasks: list[asyncio.Task[None]] = []
    begin = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + number / PER_SECOND - time.monotonic()))
        submitted.append(time.monotonic())
        tasks.append(asyncio.create_task(step(number)))
    await asyncio.gather(*tasks)
    return submitted


async def settled(count: int, found: Callable[[], int]) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while found() < count and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


def percentiles(values: list[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else values * 99
    return {"p50_seconds": round(cuts[49], 4), "p99_seconds": round(cuts[98], 4), "count": len(values)}
