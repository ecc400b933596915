"""A small client of the API server for the proof itself: objects, merge patches, and a watch that keeps every pod's state.

The watch sees every state that the API server committed, in order, so what it counts is not sampled: nothing can happen between
two looks. Times are seconds of the machine's monotonic clock, which all processes of one machine share.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
ROLE = "llm-d.ai/role"
SERVICE = "equipoise.dev/service"


class Api:
    """Calls as the administrator. One connection per call: there are few."""

    def __init__(self, url: str, ca_file: str, token: str) -> None:
        self._place = urlsplit(url)
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}

    def connect(self, timeout_seconds: float = 30.0) -> http.client.HTTPSConnection:
        """A connection of the caller's own."""
        host, port = self._place.hostname or "", self._place.port
        return http.client.HTTPSConnection(host, port, context=self._tls, timeout=timeout_seconds)

    def call(self, method: str, path: str, body: Object | None = None, content_type: str = "application/json") -> Object:
        """One call; RuntimeError with the server's words when it refuses."""
        connection = self.connect()
        try:
            headers = {**self._headers, "Content-Type": content_type}
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]}")
            return dict(json.loads(text))
        finally:
            connection.close()

    def get(self, path: str) -> Object:
        """GET an object or a list."""
        return self.call("GET", path)

    def patch(self, path: str, body: Object) -> Object:
        """A merge patch."""
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def stream(self, path: str) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        """A watch: the connection and the answer, whose lines are events."""
        connection = self.connect(timeout_seconds=120.0)
        connection.request("GET", path, headers=self._headers)
        return connection, connection.getresponse()


@dataclass
class Pod:
    """One engine pod as it is now, and when what happened to it was first seen."""

    name: str
    uid: str
    service: str
    role: str
    node: str
    ready: bool
    terminating: bool
    owner: str
    gpus: int
    address: str
    revision: str
    image: str
    bound_at: float | None = None
    ready_at: float | None = None
    gone_at: float | None = None
    roles: list[str] = field(default_factory=list)


Look = Callable[[float, "list[Pod]"], None]


class PodWatch:
    """All engine pods of a namespace. `looks` are called with each new state, on the watch's thread."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._changed = threading.Condition()
        self._pods: dict[str, Pod] = {}
        self.gone: list[Pod] = []
        self.looks: list[Look] = []
        self.states = 0
        self.relists = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="pod-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End; the thread goes with the connection."""
        self._stopped = True

    def pods(self, service: str | None = None) -> list[Pod]:
        """The pods now, of one service or of all."""
        with self._changed:
            return [pod for pod in self._pods.values() if service in (None, pod.service)]

    def wait(self, condition: Callable[[list[Pod]], bool], timeout_seconds: float, what: str) -> float:
        """Wait for a condition on all pods; seconds that it took. TimeoutError says what there was instead."""
        begin = time.monotonic()
        with self._changed:
            if not self._changed.wait_for(lambda: condition(list(self._pods.values())), timeout_seconds):
                there = "; ".join(
                    f"{p.name} {p.role}{' ready' if p.ready else ''}{' terminating' if p.terminating else ''} on {p.node or '-'}"
                    for p in self._pods.values()
                )
                raise TimeoutError(f"not after {timeout_seconds:g} s: {what}. There is: {there or 'no pod'}")
        return time.monotonic() - begin

    def idle(self, seconds: float) -> None:
        """Wait for the next state, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def _run(self) -> None:
        while not self._stopped:
            with suppress(OSError, http.client.HTTPException, ValueError):
                self._follow()
            self.relists += 1

    def _follow(self) -> None:
        listing = self._api.get(self._path)
        now = time.monotonic()
        with self._changed:
            for uid in {*self._pods} - {item["metadata"]["uid"] for item in listing["items"]}:
                self._drop(uid, now)
            for item in listing["items"]:
                self._take(item, now)
            self._tell(now)
        connection, answer = self._api.stream(f"{self._path}?watch=1&resourceVersion={listing['metadata']['resourceVersion']}")
        try:
            while not self._stopped and (line := answer.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                now = time.monotonic()
                with self._changed:
                    if event["type"] == "DELETED":
                        self._drop(event["object"]["metadata"]["uid"], now)
                    else:
                        self._take(event["object"], now)
                    self._tell(now)
        finally:
            connection.close()

    def _tell(self, now: float) -> None:
        self.states += 1
        pods = list(self._pods.values())
        for look in self.looks:
            look(now, pods)
        self._changed.notify_all()

    def _drop(self, uid: str, now: float) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            pod.gone_at = now
            self.gone.append(pod)

    def _take(self, item: Object, now: float) -> None:
        metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
        labels = metadata.get("labels") or {}
        if ROLE not in labels or SERVICE not in labels or status.get("phase") in ("Succeeded", "Failed"):
            self._drop(metadata["uid"], now)
            return
        conditions = {entry["type"]: entry["status"] for entry in status.get("conditions") or ()}
        owners = [ref["name"] for ref in metadata.get("ownerReferences") or () if ref.get("controller")]
        engine = next((entry for entry in spec["containers"] if entry["name"] == "engine"), spec["containers"][0])
        pod = self._pods.get(metadata["uid"])
        if pod is None:
            pod = self._pods[metadata["uid"]] = Pod(
                metadata["name"], metadata["uid"], labels[SERVICE], "", "", False, False, "", 0, "", "", ""
            )
        pod.role = labels[ROLE]
        if not pod.roles or pod.roles[-1] != pod.role:
            pod.roles.append(pod.role)
        pod.node = spec.get("nodeName") or ""
        pod.ready = conditions.get("Ready") == "True"
        pod.terminating = "deletionTimestamp" in metadata
        pod.owner = owners[0] if owners else ""
        pod.gpus = sum(int(((c.get("resources") or {}).get("limits") or {}).get(GPU, 0)) for c in spec["containers"])
        pod.address = status.get("podIP") or ""
        pod.revision = labels.get("equipoise.dev/revision", "")
        pod.image = engine.get("image") or ""
        if pod.node and pod.bound_at is None:
            pod.bound_at = now
        if pod.ready and pod.ready_at is None:
            pod.ready_at = now
