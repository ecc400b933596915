"""The loop around the election: read, take, renew, release."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final, Protocol

from equipoise.reconcile.clock import Clock, rfc3339_micro
from equipoise.reconcile.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from equipoise.reconcile.kube.kinds import LEASE
from equipoise.reconcile.kube.protocol import KubeApi
from equipoise.reconcile.lease.election import Election, Record, Timing

logger = logging.getLogger(__name__)

_LOG_EVERY_SECONDS: Final = 60.0
_LAST_PAUSE_SECONDS: Final = 0.25
_SHORTEST_PAUSE_SECONDS: Final = 0.01


class LeadershipLost(Exception):
    """The process must stop now: another one may lead already, or will in a moment."""


class Watchdog(Protocol):
    """Ends the process when nobody calls it in time, even if the event loop is stuck."""

    def arm(self, seconds: float) -> None:
        """Exit in that many seconds unless armed again."""
        ...

    def disarm(self) -> None:
        """Do not exit."""
        ...


class Elector:
    """A candidate. `acquire` returns when it leads, `hold` ends only by losing, `release` lets the next one start at once.

    `api` must not be fenced by this elector, or it could never renew.
    """

    def __init__(
        self,
        api: KubeApi,
        clock: Clock,
        *,
        identity: str,
        namespace: str,
        name: str,
        timing: Timing | None = None,
        watchdog: Watchdog | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._clock = clock
        self._election = Election(identity, namespace, name, timing or Timing())
        self._watchdog = watchdog
        self._draw = draw
        self._logged_at = float("-inf")
        self._contact_at = clock.monotonic_seconds()

    @property
    def leading(self) -> bool:
        """Whether this process leads."""
        return self._election.leading

    @property
    def holder(self) -> str:
        """Who holds the Lease, as last seen."""
        return self._election.record.holder if self._election.record else ""

    def may_write(self) -> bool:
        """The fence: whether the last renewal is young enough for a write."""
        return self._election.may_write(self._clock.monotonic_seconds())

    def contact_age_seconds(self) -> float:
        """Time since the API server last answered about the Lease."""
        return self._clock.monotonic_seconds() - self._contact_at

    async def acquire(self) -> None:
        """Stand by until the Lease is free, and take it."""
        timing = self._election.timing
        while True:
            pause = timing.retry_seconds * (0.8 + 0.2 * self._draw())
            try:
                async with asyncio.timeout(timing.renew_seconds):
                    await self._read()
                    free_in = self._election.free_in_seconds(self._clock.monotonic_seconds())
                    if free_in <= 0 and await self._write():
                        logger.info("leader: took lease %s as %s", self._where(), self._election.identity)
                        return
                    if free_in > 0:
                        pause = max(min(pause, free_in), _SHORTEST_PAUSE_SECONDS)
            except (ApiError, TimeoutError) as error:
                self._complain("lease %s cannot be read or taken, trying on: %s", error)
            await self._clock.sleep(pause)

    async def hold(self) -> None:
        """Renew until that fails for too long or somebody else holds the Lease; then LeadershipLost."""
        timing = self._election.timing
        while True:
            left = self._election.renewal_left_seconds(self._clock.monotonic_seconds())
            # Towards the deadline more often: an outage that ends just before it must not cost the leadership.
            await self._clock.sleep(min(timing.retry_seconds, max(left / 2, _LAST_PAUSE_SECONDS)))
            left = self._election.renewal_left_seconds(self._clock.monotonic_seconds())
            if left <= 0:
                self._election.give_up()
                raise LeadershipLost(f"lease {self._where()}: no renewal within {timing.renew_seconds:g} s")
            try:
                async with asyncio.timeout(min(left, timing.renew_seconds / 2)):
                    if not await self._write():
                        await self._read()
            except (ApiError, TimeoutError) as error:
                self._complain("lease %s not renewed, trying on: %s", error)
            if self._election.lost_to_other():
                self._election.give_up()
                raise LeadershipLost(f"lease {self._where()}: {self.holder} holds it now")

    async def release(self) -> None:
        """Let the next one start without waiting. Call it after the last write. Failures are logged only: the Lease expires."""
        if not self._election.may_write(self._clock.monotonic_seconds()):
            self._election.give_up()
            return
        self._election.give_up()
        try:
            async with asyncio.timeout(self._election.timing.retry_seconds):
                now = rfc3339_micro(self._clock.wall_seconds())
                await self._api.replace(self._election.manifest(now, release=True))
            logger.info("lease %s released", self._where())
        except (ApiError, TimeoutError) as error:
            logger.warning("lease %s not released, it expires by itself: %s", self._where(), error)
        if self._watchdog is not None:
            self._watchdog.disarm()

    async def _read(self) -> None:
        lease = await self._api.get(LEASE, self._election.namespace, self._election.name)
        self._contact_at = self._clock.monotonic_seconds()
        self._election.see(Record.of(lease) if lease is not None else None, self._contact_at)

    async def _write(self) -> bool:
        """Take or renew; False when somebody else wrote first (read again to learn who)."""
        sent_at = self._clock.monotonic_seconds()
        manifest = self._election.manifest(rfc3339_micro(self._clock.wall_seconds()))
        try:
            if self._election.record is None:
                written = await self._api.create(manifest)
            else:
                written = await self._api.replace(manifest)
        except (AlreadyExists, Conflict):
            return False
        except NotFound as error:
            self._election.see(None, sent_at)
            if not self._election.leading:
                raise
            logger.warning("lease %s was deleted, making it anew: %s", self._where(), error)
            return False
        self._contact_at = self._clock.monotonic_seconds()
        self._election.took(Record.of(written), sent_at)
        if self._watchdog is not None:
            self._watchdog.arm(max(self._election.lease_left_seconds(self._contact_at), 0.1))
        return True

    def _where(self) -> str:
        return f"{self._election.namespace}/{self._election.name}"

    def _complain(self, text: str, error: Exception) -> None:
        now = self._clock.monotonic_seconds()
        if now - self._logged_at >= _LOG_EVERY_SECONDS or self.leading:
            self._logged_at = now
            logger.warning(text, self._where(), error or "no answer in time")
