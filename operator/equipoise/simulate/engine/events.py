"""What a step loop tells its surroundings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from equipoise.simulate.engine.request import Request
    from equipoise.simulate.engine.span import EngineSpan


class EngineEvents(Protocol):
    """The cluster, as one of its replicas sees it."""

    def push_boundary(self, at: float, loop: EngineSpan, version: int) -> None:
        """Call `loop.on_boundary(at)` then, unless the loop's version has changed."""

    def prefilled(self, request: Request, now: float) -> None:
        """The prefill leg is done; its KV blocks are held."""

    def start_transfer(self, request: Request, now: float) -> None:
        """The decode replica has room: copy the KV."""

    def finished(self, request: Request, now: float) -> None:
        """The last token is out."""
