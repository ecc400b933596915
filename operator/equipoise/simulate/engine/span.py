"""One engine's state, and the span of steps it is in: how far it is, where it can be cut short, what has been done by now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from math import sqrt
from typing import TYPE_CHECKING

from equipoise.simulate.engine.batch import DecodeBatch
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.prefix import PrefixCache
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import ReplicaSpec

if TYPE_CHECKING:
    from equipoise.simulate.engine.events import EngineEvents


class EngineSpan(ABC):
    """One engine's queue, batch, KV blocks and present span: one step with prompts in it, or any number of decode-only steps."""

    __slots__ = (
        "_budget",
        "_cancelled",
        "_cut",
        "_decode_constant",
        "_decode_per_context",
        "_decode_per_sequence",
        "_fresh",
        "_items",
        "_max_sequences",
        "_prefill_constant",
        "_prefill_per_square",
        "_prefill_per_token",
        "_slope_seconds",
        "_span_start",
        "_span_steps",
        "_step_seconds",
        "_step_tokens",
        "_tables",
        "batch",
        "block_size",
        "busy",
        "events",
        "held",
        "loaded",
        "loading",
        "metrics",
        "partial",
        "prefix_cache",
        "queued_tokens",
        "spec",
        "total_blocks",
        "used_blocks",
        "version",
        "waiting",
    )

    def __init__(self, spec: ReplicaSpec, events: EngineEvents, batch: DecodeBatch, metrics: ReplicaMetrics | None) -> None:
        self.spec = spec
        self.events = events
        self.batch = batch
        self.metrics = metrics
        self.block_size = spec.limits.block_size
        self.total_blocks = spec.kv_tokens // spec.limits.block_size
        self.used_blocks = 0
        self.prefix_cache = PrefixCache(spec.kv_tokens) if spec.prefix_caching else None
        self.waiting: deque[Request] = deque()
        self.loading: dict[Request, None] = {}
        self.loaded: deque[Request] = deque()
        self.held: dict[Request, None] = {}  # prefilled here, not yet fetched
        self.partial: Request | None = None  # a prompt split over steps
        self.queued_tokens = 0  # prompts of requests without a first token: what vLLM's admission check counts
        self.busy = False
        self.version = 0  # an event that carries an older one is void
        times = spec.step_times
        self._prefill_constant = times.prefill_constant
        self._prefill_per_token = times.prefill_per_token
        self._prefill_per_square = times.prefill_per_token_squared
        self._decode_constant = times.decode_constant
        self._decode_per_sequence = times.decode_per_sequence
        self._decode_per_context = times.decode_per_context_token
        self._budget = spec.limits.max_num_batched_tokens
        self._max_sequences = spec.limits.max_num_seqs
        self._span_start = 0.0
        self._span_steps = 0
        self._step_seconds = 0.0  # of the span's first step
        self._slope_seconds = 0.0  # each further step is that much longer
        self._step_tokens = 0  # prompt tokens computed in the span
        self._fresh = 0  # sequences whose first token the span's first step brings
        self._items: list[Request] = []  # prompts whose last chunk is in this step
        self._cut = False  # the span already ends at the next step's end
        self._cancelled: list[Request] = []

    def poke(self, now: float) -> None:
        """Something came that the scheduler should see: at once when idle, else at the end of the step under way."""
        if not self.busy:
            self._schedule(now)
        elif self._span_steps > 1 and not self._cut:
            self._cut = True
            steps = self.steps_done(now) + 1
            if steps < self._span_steps:
                self._span_steps = steps
                self.version = version = self.version + 1
                end = self._span_start + steps * (self._step_seconds + self._slope_seconds * (steps - 1) / 2.0)
                self.events.push_boundary(end, self, version)

    def steps_done(self, now: float) -> int:
        """Whole steps of the present span that have ended by now; zero when idle."""
        elapsed = now - self._span_start
        if not self.busy or elapsed <= 0.0:
            return 0
        first, slope = self._step_seconds, self._slope_seconds
        lean = first - slope / 2.0
        steps = int(2.0 * elapsed / (lean + sqrt(lean * lean + 2.0 * slope * elapsed)))
        while (steps + 1) * (first + slope * steps / 2.0) <= elapsed:
            steps += 1
        while steps and steps * (first + slope * (steps - 1) / 2.0) > elapsed:
            steps -= 1
        return min(steps, self._span_steps)

    def sync(self, now: float) -> None:
        """Book the steps that have ended by now, so that counters and gauges are exact at this moment. Changes no event."""
        steps = self.steps_done(now)
        if not steps or steps >= self._span_steps:
            return
        if self.metrics is not None:
            self._book(steps, self.metrics)
        self.used_blocks += self.batch.growth(steps)
        self._span_start += steps * (self._step_seconds + self._slope_seconds * (steps - 1) / 2.0)
        self._step_seconds += self._slope_seconds * steps
        self._span_steps -= steps
        self.batch.advance(steps)

    def _book(self, steps: int, metrics: ReplicaMetrics) -> None:
        metrics.steps(
            steps, self.batch.size, self._step_seconds, self._slope_seconds, self._fresh, self._step_tokens, len(self._items)
        )
        self._fresh = 0

    @abstractmethod
    def on_boundary(self, now: float) -> None:
        """The span has ended."""

    @abstractmethod
    def _schedule(self, now: float) -> None:
        """Begin the next span, if there is anything to do."""
