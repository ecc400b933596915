"""One request on its way through the engines: the record that true client latencies are read from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from equipoise.simulate.engine.types import Outcome, Stage

if TYPE_CHECKING:
    from equipoise.simulate.engine.replica import Replica

NEVER = -1.0  # a time that has not come

# Looked up once: an enum member costs ten times a plain name, and these are read several times per request.
_FINISHED = Outcome.FINISHED
_PENDING = Outcome.PENDING
_NEW = Stage.NEW


class Request:
    """Times are in the cluster's seconds; `NEVER` where the moment has not come.

    Prefill leg: `prefill_queued` → `prefill_scheduled` → `prefill_end` (the engine's first token, which the router drops).
    Decode leg: `decode_queued` → `transfer_start` → `transfer_end` → `decode_scheduled` → `first_token` → `finish`.
    """

    __slots__ = (
        "arrival",
        "cached_tokens",
        "cause",
        "chunk_done",
        "context_base",
        "decode_blocks",
        "decode_cached_tokens",
        "decode_queued",
        "decode_replica",
        "decode_scheduled",
        "ended_at",
        "finish",
        "finish_iteration",
        "first_token",
        "generated",
        "hash_ids",
        "index",
        "kind",
        "last_token",
        "listener",
        "local",
        "one_leg",
        "outcome",
        "output_tokens",
        "preemptions",
        "prefill_blocks",
        "prefill_end",
        "prefill_queued",
        "prefill_replica",
        "prefill_scheduled",
        "prompt_tokens",
        "stage",
        "stopped_by_length",
        "transfer_bytes",
        "transfer_end",
        "transfer_start",
    )

    def __init__(
        self,
        index: int,
        arrival: float,
        prompt_tokens: int,
        output_tokens: int,
        hash_ids: tuple[int, ...] | None = None,
        kind: str = "",
    ) -> None:
        self.index = index
        self.arrival = arrival
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.hash_ids = hash_ids
        self.kind = kind
        self.outcome = _PENDING
        self.stage = _NEW
        self.cause = ""
        self.prefill_replica: Replica | None = None
        self.decode_replica: Replica | None = None
        self.listener: Callable[[Request, float], None] | None = None
        self.one_leg = False  # a prefill leg on its own: its KV is held until a decode leg comes for it (real routers)
        self.local = False  # the decode replica computes the prompt itself: sent without KV, or preempted
        self.stopped_by_length = False  # the answer ends because max_tokens is reached, not by itself
        self.cached_tokens = 0
        self.decode_cached_tokens = 0
        self.chunk_done = 0
        self.generated = 0
        self.preemptions = 0
        self.prefill_blocks = 0
        self.decode_blocks = 0
        self.transfer_bytes = 0
        self.context_base = 0
        self.finish_iteration = -1
        self.last_token = NEVER
        self.prefill_queued = NEVER
        self.prefill_scheduled = NEVER
        self.prefill_end = NEVER
        self.decode_queued = NEVER
        self.transfer_start = NEVER
        self.transfer_end = NEVER
        self.decode_scheduled = NEVER
        self.first_token = NEVER
        self.finish = NEVER
        self.ended_at = NEVER  # whatever the outcome

    @property
    def ttft_seconds(self) -> float | None:
        """Time to first token as the client sees it; None when there was none."""
        return self.first_token - self.arrival if self.first_token >= 0.0 else None

    @property
    def tpot_seconds(self) -> float | None:
        """Mean time per output token after the first; 0 for a one-token answer; None when the answer is not complete."""
        if self.outcome is not _FINISHED:
            return None
        return (self.finish - self.first_token) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    def meets(self, ttft_target_seconds: float, tpot_target_seconds: float) -> bool:
        """Whether the request counts as goodput: complete, and inside both targets."""
        ttft, tpot = self.ttft_seconds, self.tpot_seconds
        return ttft is not None and tpot is not None and ttft <= ttft_target_seconds and tpot <= tpot_target_seconds

    def __repr__(self) -> str:
        return f"Request({self.index}, {self.prompt_tokens}+{self.output_tokens}, {self.stage.name}, {self.outcome.name})"
