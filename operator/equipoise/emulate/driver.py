"""The clients: sends a service its traffic on time, straight into the model, and keeps the ledger. No I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from equipoise.emulate.ledger import Ledger
from equipoise.emulate.world import Service, next_request_number
from equipoise.simulate.engine.request import Request
from equipoise.simulate.traffic.arrival import Arrival
from equipoise.simulate.traffic.parse import Traffic


class Driver:
    """One service's clients. Traffic begins as soon as the service has a replica of each phase in routing."""

    def __init__(self, service: Service, ledger: Ledger, traffic: Traffic | None, seed: int) -> None:
        self.service = service
        self.ledger = ledger
        self.traffic = traffic
        self.began_at: float | None = None
        self.offered: Callable[[Driver], None] | None = None  # told when the service could serve and has no traffic
        self._seed = seed
        self._arrivals: Iterator[Arrival] | None = None
        self._next: Arrival | None = None
        service.on_done.append(self._done)
        service.feed = self.feed

    @property
    def state(self) -> str:
        """`none`, `waiting` for replicas, `running`, or `ended`."""
        if self.traffic is None and self.offered is None:
            return "none"
        if self.began_at is None:
            return "waiting"
        return "running" if self._next is not None else "ended"

    def next_arrival_time(self) -> float | None:
        """When the next request comes."""
        return None if self._next is None or self.began_at is None else self.began_at + self._next.at_seconds

    def feed(self, now: float) -> None:
        """Send everything that is due by now, each at its own moment."""
        if self.began_at is None:
            if not self.service.can_serve:
                return
            if self.traffic is None and self.offered is not None:
                self.offered(self)
            if self.traffic is None:
                return
            self.began_at = now
            self._arrivals = self.traffic.arrivals(self._seed)
            self._next = next(self._arrivals, None)
        while self._next is not None and self._arrivals is not None:
            at = self.began_at + self._next.at_seconds
            if at > now:
                return
            arrival, self._next = self._next, next(self._arrivals, None)
            request = Request(
                next_request_number(), at, arrival.prompt_tokens, arrival.output_tokens, arrival.hash_ids, arrival.kind
            )
            self.service.cluster.advance_to(at)
            self.ledger.arrived(request, at)
            self.service.submit(request, at)

    def kind_at(self, seconds: float) -> str:
        """The kind of traffic that many seconds after it began."""
        kind = ""
        if self.traffic is not None:
            for start, name in self.traffic.turns:
                if start > seconds:
                    break
                kind = name
        return kind

    def status(self, now: float) -> dict[str, Any]:
        """The traffic's state as plain JSON."""
        since = None if self.began_at is None else now - self.began_at
        running = self.state == "running"
        return {
            "state": self.state,
            "seconds": None if since is None else round(since, 3),
            "kind": self.kind_at(since) if since is not None and running else "",
            "turns": [] if self.traffic is None else [[round(at, 3), name] for at, name in self.traffic.turns[:200]],
            "total_seconds": None if self.traffic is None else self.traffic.seconds,
        }

    def _done(self, request: Request) -> None:
        self.ledger.ended(request, request.ended_at)
