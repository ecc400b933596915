"""What happens when: one heap of events for all replicas of a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from equipoise.simulate.engine.replica import Replica
    from equipoise.simulate.engine.request import Request
    from equipoise.simulate.engine.span import EngineSpan

_BOUNDARY, _TRANSFER, _CALL = range(3)


class Agenda(ABC):
    """Events in order of time, then in the order they were entered. Whoever drives it owns the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Any, int]] = []
        self._order = 0

    def next_event_time(self) -> float | None:
        """When something happens next by itself; None when nothing is under way. May name a moment at which nothing changes."""
        return self._heap[0][0] if self._heap else None

    @property
    def events_entered(self) -> int:
        """Events entered so far, void ones included: what the model's cost follows."""
        return self._order

    def advance_to(self, now: float) -> None:
        """Let everything happen that happens up to and including `now`. Call it before anything that happens at `now`."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, kind, subject, version = heappop(heap)
            if kind == _BOUNDARY:
                if subject.version == version:
                    subject.on_boundary(at)
            elif kind == _TRANSFER:
                self.transferred(subject, at, version)
            else:
                subject(at)
        self.now = now

    def call_at(self, at: float, action: Callable[[float], None]) -> None:
        """Call `action(at)` when the time comes."""
        self._order = order = self._order + 1
        heappush(self._heap, (at, order, _CALL, action, 0))

    def push_boundary(self, at: float, loop: EngineSpan, version: int) -> None:
        """See EngineEvents."""
        self._order = order = self._order + 1
        heappush(self._heap, (at, order, _BOUNDARY, loop, version))

    def push_transfer(self, at: float, request: Request, target_number: int) -> None:
        """Call `transferred(request, at, target_number)` when the time comes."""
        self._order = order = self._order + 1
        heappush(self._heap, (at, order, _TRANSFER, request, target_number))

    def retire_soon(self, replica: Replica, now: float) -> None:
        """Look at a draining replica once the present event is over."""
        self.call_at(now, lambda at: self.retire_if_idle(replica, at))

    @abstractmethod
    def transferred(self, request: Request, now: float, target_number: int) -> None:
        """A KV copy is complete."""

    @abstractmethod
    def retire_if_idle(self, replica: Replica, now: float) -> None:
        """A draining replica may have nothing left to do."""
