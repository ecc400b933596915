"""Whole lists of what is read: to fill the store, to correct it from time to time, to notice kinds that come and go."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from functools import partial

from equipoise.reconcile.clock import Clock
from equipoise.reconcile.kube.errors import ApiError, Forbidden, KindNotServed
from equipoise.reconcile.kube.kinds import INFERENCE_SERVICE, POD, Kind
from equipoise.reconcile.kube.protocol import KubeApi, Listing
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.sources import PODS, POLLED, WATCHED, Source
from equipoise.reconcile.store import Store

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0  # what a watch has not told this long after a list, it has missed
_AGAIN_SECONDS = 5.0
_FIRST_RESYNC_SECONDS = 3.0  # by then every watch has begun
_DEAD_AFTER = 3  # lists in a row that corrected a kind of which the watch told nothing at all


class Relister:
    """Keeps the store true by lists.

    `prime` fills it and finds out which kinds can be watched; `resync` corrects it every few minutes, because kopf does not
    notice deletions that fall between two watches; `poll` reads what is not watched: optional kinds, and kinds that were
    absent or forbidden at the start, so that a repaired installation needs no restart.
    """

    def __init__(
        self,
        api: KubeApi,
        store: Store,
        clock: Clock,
        metrics: Metrics,
        *,
        namespaces: tuple[str, ...] = (),
        resync_seconds: float = 300.0,
        poll_seconds: float = 30.0,
        settle_seconds: float = SETTLE_SECONDS,
        kinds_changed: Callable[[Kind], None] = lambda kind: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._namespaces = namespaces
        self._resync_seconds = resync_seconds
        self._poll_seconds = poll_seconds
        self._settle_seconds = settle_seconds
        self._kinds_changed = kinds_changed
        self._draw = draw
        self._life: dict[Kind, float] = {}
        self._events: dict[Kind, int] = {}
        self._events_then: dict[Kind, int] = {}
        self._silent: dict[Kind, int] = {}
        self.watched: tuple[Source, ...] = ()

    async def prime(self) -> None:
        """Fill the store. Waits for the InferenceService kind; any other kind that is absent or forbidden is noted and polled."""
        complained = False
        while (problem := await self._read_patiently(WATCHED[0])) is not None:
            if not complained:
                logger.error(
                    "cannot read %s: %s. Install the CRDs (kubectl apply --server-side -f crds/) and the operator's RBAC rules; "
                    "trying again every %.0f s",
                    INFERENCE_SERVICE,
                    problem,
                    _AGAIN_SECONDS,
                )
                complained = True
            await self._clock.sleep(_AGAIN_SECONDS)
        problems = {source.kind: await self._read_patiently(source) for source in WATCHED[1:]}
        for kind, problem in problems.items():
            if problem is not None:
                logger.warning("%s not watched, looking again every %.0f s: %s", kind, self._poll_seconds, problem)
        self.watched = tuple(source for source in WATCHED if problems.get(source.kind) is None)
        for source in POLLED:
            await self._read_patiently(source)
        await self._read_strangers_pods()

    def event(self, kind: Kind) -> None:
        """Note that the watch of this kind lives."""
        self._life[kind] = self._clock.monotonic_seconds()
        self._events[kind] = self._events.get(kind, 0) + 1

    def age(self, kind: Kind) -> float:
        """Seconds since the last sign of life of a kind: an event, or a list that was answered."""
        now = self._clock.monotonic_seconds()
        return now - self._life.get(kind, now)

    def dead_watches(self) -> list[Kind]:
        """Kinds whose watch told nothing over several lists that each found changes."""
        return sorted(kind for kind, count in self._silent.items() if count >= _DEAD_AFTER)

    async def resync(self) -> None:
        """Correct the store, again and again, until cancelled.

        The first time soon: what is deleted between the lists that filled the store and the watches' own is told by nobody, and
        the pods that a process just let go while it took over are exactly that.
        """
        pause = min(_FIRST_RESYNC_SECONDS, self._resync_seconds)
        while True:
            await self._clock.sleep(pause)
            await self.resync_once()
            pause = self._resync_seconds * (0.9 + 0.2 * self._draw())

    async def resync_once(self) -> None:
        """List everything watched, give the watches time to catch up, then make the store equal to the lists."""
        listings: list[tuple[Source, list[tuple[str | None, Listing]]]] = []
        for source in self.watched:
            try:
                listings.append((source, await self._list(source)))
            except ApiError as error:
                logger.warning("resync: %s", error)
        await self._clock.sleep(self._settle_seconds)
        for source, parts in listings:
            self._correct(source.kind, parts)
        self._metrics.retain(set(self._store.services()))
        self._events_then = dict(self._events)

    async def poll(self) -> None:
        """Read what is not watched, again and again, until cancelled."""
        while True:
            await self._clock.sleep(self._poll_seconds * (0.9 + 0.2 * self._draw()))
            await self.poll_once()

    async def poll_once(self) -> None:
        """Read optional kinds and those that could not be read before."""
        for source in self._unwatched():
            was = self._store.listed(source.kind)
            try:
                problem = await self._read_into_store(source)
            except ApiError as error:
                logger.warning("poll: %s", error)
                continue
            if was != (problem is None):
                logger.info("%s %s", source.kind, "can be read now" if problem is None else f"cannot be read any more: {problem}")
                self._kinds_changed(source.kind)
        try:
            await self._read_strangers_pods()
        except ApiError as error:
            logger.warning("poll: %s", error)

    async def _read_strangers_pods(self) -> None:
        """Where only some namespaces are served, the pods of the others still hold GPUs. Reads them if the rights allow it."""
        if not self._namespaces or self._store.denied(POD):
            return
        try:
            listing = await self._api.list(POD, field_selector=PODS.field_selector, keep=partial(self._store.slim, POD))
        except Forbidden as error:
            if self._store.limited(POD) is None:
                logger.warning("GPUs held by pods of other namespaces cannot be seen and count as free: %s", error.message)
            self._store.limit(POD, f"pods of other namespaces cannot be seen: {error.message}")
        else:
            self._store.limit(POD, None)
            self._store.replace(POD, listing)

    def _unwatched(self) -> Iterable[Source]:
        return [source for source in (*WATCHED, *POLLED) if source not in self.watched]

    def _correct(self, kind: Kind, parts: list[tuple[str | None, Listing]]) -> None:
        missed = sum(self._store.replace(kind, listing, namespace) for namespace, listing in parts)
        if not missed:
            self._silent.pop(kind, None)
            return
        self._metrics.watch_missed.labels(str(kind)).inc(missed)
        logger.warning("resync: %d %s differed from what the watch had told; corrected", missed, kind)
        if self._events.get(kind, 0) == self._events_then.get(kind, 0):
            self._silent[kind] = self._silent.get(kind, 0) + 1
        else:
            self._silent.pop(kind, None)

    async def _read_patiently(self, source: Source) -> str | None:
        """As `_read_into_store`, but wait for an API server that is away."""
        while True:
            try:
                return await self._read_into_store(source)
            except ApiError as error:
                logger.warning("cannot fill the store yet, trying again in %.0f s: %s", _AGAIN_SECONDS, error)
                await self._clock.sleep(_AGAIN_SECONDS)

    async def _read_into_store(self, source: Source) -> str | None:
        """List and take in; the reason where the kind is absent or forbidden. Other errors are the caller's."""
        try:
            parts = await self._list(source)
        except KindNotServed:
            self._store.deny(source.kind, f"the cluster does not serve {source.kind}")
        except Forbidden as error:
            self._store.deny(source.kind, error.message)
        else:
            for namespace, listing in parts:
                self._store.replace(source.kind, listing, namespace)
        return self._store.denied(source.kind)

    async def _list(self, source: Source) -> list[tuple[str | None, Listing]]:
        kind = source.kind
        namespaces: tuple[str | None, ...] = self._namespaces if self._namespaces and kind.namespaced else (None,)
        parts: list[tuple[str | None, Listing]] = []
        for namespace in namespaces:
            listing = await self._api.list(
                kind,
                namespace,
                label_selector=source.label_selector,
                field_selector=source.field_selector,
                keep=partial(self._store.slim, kind),
            )
            parts.append((namespace, listing))
            await asyncio.sleep(0)
        self._life[kind] = self._clock.monotonic_seconds()
        return parts
