"""Opens and closes the addresses of emulated pods as they come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from aiohttp import web

log = logging.getLogger("equipoise.emulate.listeners")
_ATTEMPTS: Final = 20


class Listeners:
    """One application behind many addresses; a handler tells by the socket's own address which pod it is."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, shutdown_timeout=1.0, handler_cancellation=True
        )
        self._sites: dict[tuple[str, int], web.TCPSite] = {}
        self._wanted: set[tuple[str, int]] = set()
        self._changed = asyncio.Event()
        self._failures: dict[tuple[str, int], int] = {}

    def want(self, address: str, ports: Iterable[int], wanted: bool) -> None:
        """From now on something should (not) listen there."""
        for port in ports:
            if wanted:
                self._wanted.add((address, port))
            else:
                self._wanted.discard((address, port))
        self._changed.set()

    async def run(self) -> None:
        """Open and close until cancelled."""
        await self._runner.setup()
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for key in [key for key in self._sites if key not in self._wanted]:
                    await self._sites.pop(key).stop()
                for key in [key for key in self._wanted if key not in self._sites]:
                    await self._open(key)
        finally:
            await self._runner.cleanup()

    async def _open(self, key: tuple[str, int]) -> None:
        site = web.TCPSite(self._runner, *key, reuse_address=True, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            self._failures[key] = tries = self._failures.get(key, 0) + 1
            if tries in (1, _ATTEMPTS):
                log.warning(
                    "cannot listen on %s:%d: %s; emulated pods need addresses of this machine, such as loopback ones",
                    *key,
                    error,
                )
            if tries < _ATTEMPTS:
                asyncio.get_running_loop().call_later(0.5, self._changed.set)
            return
        self._failures.pop(key, None)
        self._sites[key] = site

    @property
    def problems(self) -> list[str]:
        """Addresses that could not be opened."""
        return [f"cannot listen on {address}:{port}" for address, port in self._failures if (address, port) in self._wanted]
