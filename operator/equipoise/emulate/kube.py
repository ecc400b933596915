"""The little that the emulator needs of the Kubernetes API: credentials, and lists that stay current."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

log = logging.getLogger("equipoise.emulate.kube")
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_WATCH_SECONDS: Final = 290
_GONE: Final = 410


class KubeConfigError(Exception):
    """There is no way to a cluster, or the kubeconfig lacks something; the message says what."""


@dataclass(frozen=True)
class Access:
    """An API server and how to talk to it."""

    server: str
    tls: ssl.SSLContext | bool
    headers: Mapping[str, str] = field(default_factory=dict)


def find_access(kubeconfig: Path | None) -> Access:
    """The given kubeconfig, else $KUBECONFIG, else the pod's service account, else ~/.kube/config."""
    named = kubeconfig or (Path(os.environ["KUBECONFIG"]) if os.environ.get("KUBECONFIG") else None)
    if named is None and (_ACCOUNT / "token").is_file():
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        headers = {"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text().strip()}"}
        return Access(f"https://{host}:{port}", ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt")), headers)
    path = named or Path.home() / ".kube" / "config"
    if not path.is_file():
        raise KubeConfigError(f"there is no kubeconfig {path}; give one with --kubeconfig")
    return _from_file(path)


def _from_file(path: Path) -> Access:
    config = yaml.safe_load(path.read_text()) or {}
    context = _named(config, "contexts", config.get("current-context"), "context", path)
    cluster = _named(config, "clusters", context.get("cluster"), "cluster", path)
    user = _named(config, "users", context.get("user"), "user", path)
    server = cluster.get("server", "")
    if "exec" in user or "auth-provider" in user:
        raise KubeConfigError(f"{path}: exec and auth-provider plugins are not supported here; use a token or certificate")
    headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
    if not server.startswith("https:"):
        return Access(server.rstrip("/"), True, headers)
    authority = _data(cluster, "certificate-authority", path)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate, key = _data(user, "client-certificate", path), _data(user, "client-key", path)
    if certificate and key:
        with tempfile.TemporaryDirectory() as folder:  # load_cert_chain reads files only
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(certificate + b"\n" + key)
            tls.load_cert_chain(pair)
    return Access(server.rstrip("/"), tls, headers)


def _named(config: Mapping[str, Any], group: str, name: object, part: str, path: Path) -> dict[str, Any]:
    for item in config.get(group) or ():
        if item.get("name") == name:
            return dict(item.get(part) or {})
    raise KubeConfigError(f"{path}: {group} has no entry named {name!r}")


def _data(holder: Mapping[str, Any], name: str, path: Path) -> bytes:
    if holder.get(f"{name}-data"):
        return base64.b64decode(holder[f"{name}-data"])
    return (path.parent / holder[name]).read_bytes() if holder.get(name) else b""


class CurrentList:
    """All objects of one kind, kept current by list and watch. `on_change` hears of every object that changes or goes.

    It relists when the server says that the resource version is gone, reconnects when the connection ends, and tells the
    difference as changes, so nothing is missed either way. A kind that does not exist is asked for again every ten seconds.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: Access,
        path: str,
        on_change: Callable[[dict[str, Any], bool], None],
        selector: str = "",
    ) -> None:
        self._session = session
        self._access = access
        self._path = path
        self._selector = {"labelSelector": selector} if selector else {}
        self._on_change = on_change
        self._objects: dict[str, dict[str, Any]] = {}  # by UID
        self._version = ""
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Keep the list current until cancelled."""
        wait = 0.1
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                wait = 0.1
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                missing = isinstance(error, aiohttp.ClientResponseError) and error.status == 404
                if isinstance(error, aiohttp.ClientResponseError):
                    self._version = ""
                if missing:
                    self.listed.set()
                else:
                    level = logging.INFO if self.listed.is_set() else logging.WARNING  # later ones are a server's daily life
                    log.log(level, "%s%s: %s; again in %.1f s", self._access.server, self._path, error, wait)
                await asyncio.sleep(10.0 if missing else wait)
                wait = min(5.0, wait * 2.0)

    async def _list(self) -> None:
        found: dict[str, dict[str, Any]] = {}
        continue_from = ""
        while True:
            query = {"limit": "500", **self._selector} | ({"continue": continue_from} if continue_from else {})
            async with self._get(query, total=30.0) as answer:
                page = await answer.json()
            found.update({item["metadata"]["uid"]: item for item in page["items"]})
            continue_from = page["metadata"].get("continue", "")
            if not continue_from:
                break
        before, self._objects = self._objects, found
        for uid, item in before.items():
            if uid not in found:
                self._tell(item, True)
        for uid, item in found.items():
            if before.get(uid, {}).get("metadata", {}).get("resourceVersion") != item["metadata"]["resourceVersion"]:
                self._tell(item, False)
        self._version = page["metadata"]["resourceVersion"]
        self.listed.set()

    async def _watch(self) -> None:
        query = {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
            **self._selector,
        }
        async with self._get(query, total=_WATCH_SECONDS + 30.0) as answer:
            async for line in answer.content:
                if line.strip():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        self._version = ""
                        if event["object"].get("code") != _GONE:
                            log.warning("watching %s: %s", self._path, event["object"].get("message"))
                        return
                    self._apply(event["type"], event["object"])

    def _apply(self, kind: str, item: dict[str, Any]) -> None:
        self._version = item["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        uid = item["metadata"]["uid"]
        if kind == "DELETED":
            self._objects.pop(uid, None)
        else:
            self._objects[uid] = item
        self._tell(item, kind == "DELETED")

    def _tell(self, item: dict[str, Any], gone: bool) -> None:
        try:
            self._on_change(item, gone)
        except Exception:  # one object that is not understood must not stop all engines
            log.exception("%s %s: cannot be emulated", self._path, item["metadata"].get("name"))

    def _get(self, query: Mapping[str, str], total: float) -> Any:
        return self._session.get(
            f"{self._access.server}{self._path}",
            params=dict(query),
            ssl=self._access.tls,
            headers=self._access.headers,
            timeout=aiohttp.ClientTimeout(total=total, sock_connect=10.0),
            raise_for_status=True,
            read_bufsize=2**22,  # one event is one line, and a pod with a long history may be large
        )
