"""What the process asks of the application: three hooks. Policy and rendering live behind them, never in the shell."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from equipoise.api.identity import ServiceKey
from equipoise.reconcile.clock import Clock
from equipoise.reconcile.events import EventWriter
from equipoise.reconcile.kube.kinds import Kind
from equipoise.reconcile.kube.protocol import KubeApi, Object
from equipoise.reconcile.metrics import Metrics
from equipoise.reconcile.queue import Result
from equipoise.reconcile.settings import Settings
from equipoise.reconcile.store import Store


class App(Protocol):
    """The application that the process runs while it leads."""

    async def reconcile(self, key: ServiceKey) -> Result:
        """Bring one service to what its status and spec ask for, whatever the event was. An exception means: again, later."""
        ...

    async def capacity_round(self) -> float:
        """One round over all services. Returns seconds until the next."""
        ...

    def affected_keys(self, kind: Kind, obj: Object) -> Set[ServiceKey]:
        """Services to look at again because this object came, changed or went. Called with old and new state; no I/O."""
        ...


@runtime_checkable
class Closable(Protocol):
    """An application that holds something open (a session to Prometheus) and wants to be told of the end."""

    async def close(self) -> None:
        """Called once, after the last reconcile and the last round."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What the process gives the application. `enqueue` puts a service into the work queue."""

    settings: Settings
    api: KubeApi
    store: Store
    events: EventWriter
    metrics: Metrics
    clock: Clock
    enqueue: Callable[[ServiceKey], None]


AppFactory = Callable[[Context], App]
