"""The emulator as one asyncio program: pods in, addresses out, real time through the model."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import aiohttp

from equipoise.api.identity import GROUP, VERSION, ServiceKey
from equipoise.api.model_source import Architecture
from equipoise.emulate.driver import Driver
from equipoise.emulate.kube import Access, CurrentList
from equipoise.emulate.ledger import Ledger
from equipoise.emulate.legs import Legs
from equipoise.emulate.listeners import Listeners
from equipoise.emulate.openai_api import PodPages
from equipoise.emulate.options import Options
from equipoise.emulate.pods import HTTP_PORT, ROUTER_METRICS_PORT, SELECTOR
from equipoise.emulate.records import Records
from equipoise.emulate.status_page import StatusPage
from equipoise.emulate.targets import targets_of
from equipoise.emulate.world import Service, World
from equipoise.simulate.engine.request import Request

log = logging.getLogger("equipoise.emulate")
IDLE_STEP_SECONDS: Final = 0.05
BUSY_STEP_SECONDS: Final = 0.005
"""How often time is passed on: events keep their own exact times however rarely that happens, so it only has to be often where an
HTTP client waits for the next token."""


class Emulator:
    """Watches pods and is their engines. `unix_seconds` is the wall clock."""

    def __init__(self, options: Options, access: Access, unix_seconds: float) -> None:
        self.options = options
        self._access = access
        self._start = monotonic()
        self._unix_start = unix_seconds
        self.world = World(options, self.now, self.unix_seconds, self._listen, self._unlisten)
        self.world.new_service = self._new_service
        self.drivers: dict[ServiceKey, Driver] = {}
        self.lag_seconds = 0.0
        self._records = Records(options.records) if options.records is not None else None
        self._recorded = 0
        self._unnamed = options.traffic.get(None)
        self._legs = Legs(self.now, self._arrived)
        self._listeners = Listeners(PodPages(self.world, self._legs, self.now, self.unix_seconds).application())
        self.status_page = StatusPage(self)

    def now(self) -> float:
        """Seconds since the start: the model's time."""
        return monotonic() - self._start

    def unix_seconds(self) -> float:
        """The wall clock, as of the model's time."""
        return self._unix_start + self.now()

    @property
    def problems(self) -> list[str]:
        """What could not be emulated, and why."""
        return [*self.world.problems.values(), *self._listeners.problems]

    async def run(self) -> None:
        """Run until cancelled."""
        connector = aiohttp.TCPConnector(limit=16)
        async with aiohttp.ClientSession(connector=connector) as session:
            namespace = f"/namespaces/{self.options.namespace}" if self.options.namespace else ""
            nodes = CurrentList(session, self._access, "/api/v1/nodes", self.world.node_changed)
            pods = CurrentList(session, self._access, f"/api/v1{namespace}/pods", self.world.pod_changed, SELECTOR)
            services = CurrentList(
                session, self._access, f"/apis/{GROUP}/{VERSION}{namespace}/inferenceservices", self._service_changed
            )
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listeners.run())
                tasks.create_task(nodes.run())
                tasks.create_task(services.run())
                await nodes.listed.wait()
                await services.listed.wait()
                tasks.create_task(pods.run())
                await pods.listed.wait()
                tasks.create_task(self._pass_time())
                await self.status_page.serve(self.options.status_host, self.options.status_port)

    async def _pass_time(self) -> None:
        expected = self.now()
        try:
            while True:
                now = self.now()
                self.lag_seconds = max(0.9 * self.lag_seconds, now - expected)
                self.world.advance(now)
                for driver in self.drivers.values():
                    driver.ledger.look(now)
                self._legs.sweep()
                self._legs.beat()
                self._record(now)
                expected = now + (BUSY_STEP_SECONDS if self._legs.open else IDLE_STEP_SECONDS)
                await self._rest(expected)
        finally:
            if self._records is not None:
                self._records.close()

    async def _rest(self, until: float) -> None:
        if self._legs.open:
            await asyncio.sleep(max(0.0, until - self.now()))
            return
        self._legs.opened.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._legs.opened.wait(), max(0.0, until - self.now()))

    def _record(self, now: float) -> None:
        # A verdict may still fall into a second just past, so seconds are written with some delay.
        end = int(now) - 2
        if self._records is None or end <= self._recorded:
            return
        for key, driver in self.drivers.items():
            for second in driver.ledger.seconds_between(self._recorded, end):
                began = driver.began_at
                traffic = driver.kind_at(second.at_seconds - began) if began is not None and second.at_seconds >= began else ""
                self._records.second(key, second, traffic)
        self._recorded = end
        self._records.flush()

    def _new_service(self, service: Service) -> None:
        traffic = self.options.traffic.get(service.key)
        ledger = Ledger(targets_of(self.options, None))
        driver = self.drivers[service.key] = Driver(service, ledger, traffic, self.options.seed)
        service.on_done.append(lambda request: self._done(service.key, request))
        if traffic is None and self._unnamed is not None:
            driver.offered = self._offer

    def _offer(self, driver: Driver) -> None:
        """Traffic that names no service goes to the first one that is ready for it."""
        if self._unnamed is not None:
            driver.traffic, self._unnamed = self._unnamed, None
            for other in self.drivers.values():
                other.offered = None
            log.info("traffic goes to %s", driver.service.key)

    def _done(self, key: ServiceKey, request: Request) -> None:
        if self._records is not None:
            self._records.request(key, request)

    def _arrived(self, service: Service, request: Request, now: float) -> None:
        self.drivers[service.key].ledger.arrived(request, now)

    def _service_changed(self, item: dict[str, Any], gone: bool) -> None:
        key = ServiceKey(item["metadata"]["namespace"], item["metadata"]["name"])
        if gone:
            self.world.architectures.pop(key, None)
            return
        spec = item.get("spec") or {}
        architecture = (spec.get("model") or {}).get("architecture")
        if architecture:
            with suppress(ValueError):  # what the API server let through but this version cannot read is left out
                self.world.architectures[key] = Architecture.model_validate(architecture)
        self.world.service(key)
        self.drivers[key].ledger.targets = targets_of(self.options, spec.get("targets"))

    def _listen(self, address: str, is_router: bool) -> None:
        self._listeners.want(address, (HTTP_PORT, ROUTER_METRICS_PORT) if is_router else (HTTP_PORT,), True)

    def _unlisten(self, address: str, is_router: bool) -> None:
        self._listeners.want(address, (HTTP_PORT, ROUTER_METRICS_PORT) if is_router else (HTTP_PORT,), False)


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run until SIGINT or SIGTERM, and end in order: records are written, connections closed."""

    async def main() -> None:
        task = asyncio.ensure_future(program)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
