"""kopf as what it is best at: a source of watch events with reconnects. It holds no state of ours and writes nothing.

Handlers do no I/O: they hand the event over and return. Everything kopf could write (finalizers, annotations, Events, peering) is
off; see the settings below, each with its reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from equipoise.api.identity import GROUP
from equipoise.reconcile.clock import Clock
from equipoise.reconcile.kube.connection import REFRESH_SECONDS, Connection
from equipoise.reconcile.kube.kinds import Kind
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.sources import Source

Intake = Callable[[Kind, str | None, Object], None]
"""Takes kind, event type (None for an object of kopf's first list, ADDED, MODIFIED, DELETED) and object."""


class Watch:
    """Watches the given kinds until stopped. Ends with an exception when a watch dies for good; then the process should end."""

    def __init__(
        self,
        sources: Collection[Source],
        intake: Intake,
        load: Callable[[], Awaitable[Connection]],
        clock: Clock,
        *,
        namespaces: tuple[str, ...] = (),
    ) -> None:
        self._intake = intake
        self._load = load
        self._clock = clock
        self._namespaces = namespaces
        self._settings = _settings(sources)
        self._registry = kopf.OperatorRegistry()
        kopf.on.login(registry=self._registry, id="login")(self._login)
        for source in sources:
            self._register(source.kind)
        self._stop = asyncio.Event()

    async def run(self, *, started: Callable[[], None] = lambda: None) -> None:
        """Watch. `started` is called once kopf has put its own signal handlers in place: the caller may take them back.

        At its end kopf cancels every task that did not exist before: start long-lived tasks first.
        """
        existing = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=self._registry,
            settings=self._settings,
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=self._stop,
        )
        started()
        await kopf.run_tasks(tasks, ignored=existing)

    def stop(self) -> None:
        """Let `run` end."""
        self._stop.set()

    def _register(self, kind: Kind) -> None:
        async def handle(event: Any, **_: Any) -> None:
            self._intake(kind, event["type"], event["object"])

        selector = (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)
        kopf.on.event(*selector, registry=self._registry, id=f"take-in-{kind.plural}")(handle)

    async def _login(self, **_: Any) -> kopf.ConnectionInfo:
        """Read the credentials anew: bound tokens change on disk, and kopf by itself would notice only after a refusal."""
        connection = await self._load()
        scheme, token = "Bearer", connection.token or ""
        if not token and connection.authorization:
            scheme, token = connection.authorization.split(" ", 1)
        return kopf.ConnectionInfo(
            server=connection.server,
            ca_path=connection.ca_file,
            certificate_path=connection.certificate_file,
            private_key_path=connection.key_file,
            insecure=not connection.verify,
            scheme=scheme if token else None,
            token=token or None,
            proxy_url=connection.proxy,
            trust_env=True,
            expiration=datetime.fromtimestamp(self._clock.wall_seconds(), UTC) + timedelta(seconds=5 * REFRESH_SECONDS)
            if token
            else None,
        )


class _Jittered:
    """Pauses of 0.5 to 16 s, five tries, spread so that a restarted API server is not met by all at once."""

    def __iter__(self) -> Iterator[float]:
        return (0.5 * 2.0**n * (0.75 + 0.5 * random.random()) for n in range(6))

    def __len__(self) -> int:
        return 6


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf copies every object of every event to compare it with a stored essence, which only stateful handlers need."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        """Nothing to compare."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Nothing stored."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Never: a stateful handler must not be added (it would write to the user's objects)."""
        raise RuntimeError("a stateful kopf handler is registered: use on.event and the work queue")


def _settings(sources: Collection[Source]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    for source in sources:
        kind = source.kind
        key: tuple[str, ...] = (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)
        if source.label_selector:
            _as_mapping(settings.watching.label_selectors)[key] = source.label_selector
        if source.field_selector:
            _as_mapping(settings.watching.field_selectors)[key] = source.field_selector
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = _Jittered()
    settings.networking.trust_env = True  # as kubectl does, and as the other client here
    settings.posting.enabled = False  # Events are written by EventWriter, aggregated
    settings.scanning.disabled = True  # kinds that come and go are polled; needs no rights on CRDs and namespaces
    settings.peering.standalone = True  # the Lease decides who leads
    settings.process.ultimate_exiting_timeout = None  # the process has its own deadline
    settings.queueing.exit_timeout = 0.5
    # kopf keeps a task and the raw object for each object of its first list until this time is over. With this and small pages
    # 1,000 services and 4,000 children take 107 MB in all instead of 166 MB (measured).
    settings.queueing.idle_timeout = 0.1
    settings.watching.chunk_size = 100
    settings.persistence.finalizer = f"{GROUP}/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = _NoDiffBase()
    return settings


def _as_mapping(mapping: Any) -> MutableMapping[tuple[str, ...], str]:
    result: MutableMapping[tuple[str, ...], str] = mapping
    return result
