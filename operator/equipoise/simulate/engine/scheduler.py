"""The step loop of one engine: who runs in the next step, how long it takes, what it leaves behind.

It follows vLLM's scheduler: sequences in decode go first, then waiting requests in order of arrival while the token budget,
the sequence slots and the KV blocks last; a head of the queue that does not fit blocks those behind it. A span is one step with
prompts in it, or any number of decode-only steps up to the next thing that can change the batch.
"""

from __future__ import annotations

from collections import deque
from math import sqrt
from typing import TYPE_CHECKING

from equipoise.simulate.engine.batch import DecodeBatch
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.prefix import PrefixCache
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import Outcome, ReplicaSpec, Stage

if TYPE_CHECKING:
    from equipoise.simulate.engine.events import EngineEvents


class StepLoop:
    """One engine's queue, batch and KV blocks. Both phases run here: a replica that has just changed phase has both at once."""

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
        self._book(steps)
        self.used_blocks += self.batch.growth(steps)
        self._span_start += steps * (self._step_seconds + self._slope_seconds * (steps - 1) / 2.0)
        self._step_seconds += self._slope_seconds * steps
        self._span_steps -= steps
        self.batch.advance(steps)

    def _book(self, steps: int) -> None:
        if self.metrics is not None:
            self.metrics.steps(
                steps, self.batch.size, self._step_seconds, self._slope_seconds, self._fresh, self._step_tokens, len(self._items)
            )
        self._fresh = 0

    def on_boundary(self, now: float) -> None:
        """The span has ended."""
        batch = self.batch
        steps = self._span_steps
        self._span_steps = 1  # still busy: what the callbacks below bring in waits for _schedule
        self._book(steps)
        if batch.size:
            if steps > 1:
                self.used_blocks += batch.growth(steps - 1)
            for request in batch.advance(steps):
                self.used_blocks -= batch.blocks_of(request)
                self._finish(request, now)
        if self._items:
            items, self._items = self._items, []
            self._step_tokens = 0
            for request in items:
                self._complete_prompt(request, now)
        else:
            self._step_tokens = 0
        if self._cancelled:
            self._drop_cancelled()
        self._schedule(now)

    def _finish(self, request: Request, now: float) -> None:
        if request.outcome is not Outcome.PENDING:  # aborted during its last step
            return
        request.finish = now
        request.generated = request.output_tokens
        request.stage = Stage.DONE
        if self.metrics is not None:
            self.metrics.decode_finished.append(request)
        self.events.finished(request, now)

    def _complete_prompt(self, request: Request, now: float) -> None:
        if self.prefix_cache is not None and request.hash_ids is not None:
            self.prefix_cache.insert(request.hash_ids)
        if request.outcome is not Outcome.PENDING:  # aborted while it was being computed
            self.used_blocks -= request.decode_blocks if request.local else request.prefill_blocks
        elif not request.local:
            request.prefill_end = now
            request.stage = Stage.HELD
            self.held[request] = None
            self.queued_tokens -= request.prompt_tokens
            if self.metrics is not None:
                self.metrics.prefill_finished.append(request)
            self.events.prefilled(request, now)
        else:
            context = request.prompt_tokens + request.generated
            if not request.generated:
                self.queued_tokens -= request.prompt_tokens
                request.first_token = now
                if self.metrics is not None:
                    self.metrics.first_tokens.append(request)
            elif self.metrics is not None:
                self.metrics.inter_token(now - request.last_token)
            request.generated += 1
            remaining = request.output_tokens - request.generated
            if remaining:
                request.stage = Stage.DECODING
                self.batch.join(request, context + 1, remaining)
            else:
                self.used_blocks -= request.decode_blocks
                self._finish(request, now)

    def _drop_cancelled(self) -> None:
        for request in self._cancelled:
            if request in self.batch:
                self.used_blocks -= self.batch.blocks_of(request)
                self.batch.remove(request)
        self._cancelled.clear()

    def _preempt(self, now: float) -> None:
        batch = self.batch
        request = batch.last()
        self.used_blocks -= batch.blocks_of(request)
        request.generated = batch.generated_of(request)
        batch.remove(request)
        request.stage = Stage.DECODE_WAITING
        request.local = True
        request.chunk_done = 0
        request.preemptions += 1
        request.last_token = now
        self.waiting.appendleft(request)
        if self.metrics is not None:
            self.metrics.preemptions += 1

    def _schedule(self, now: float) -> None:
        batch = self.batch
        size = batch.size
        preempted = False
        if size:
            due = batch.due_growth()
            while self.used_blocks + due > self.total_blocks:
                self._preempt(now)
                preempted = True
                due = batch.due_growth()
            self.used_blocks += due
            size = batch.size
        fresh: list[Request] | None = None
        tokens = squares = 0
        if not size or not preempted:
            loaded = self.loaded
            if loaded:
                fresh = []
                while loaded and size < self._max_sequences:
                    request = loaded.popleft()
                    fresh.append(request)
                    size += 1
                    request.decode_scheduled = now
                    request.stage = Stage.DECODING
                    self.queued_tokens -= request.prompt_tokens
                    batch.join(request, request.prompt_tokens, request.output_tokens)
            if self.waiting or self.partial is not None:
                tokens, squares = self._admit(now, size)
        if tokens:
            seconds = self._prefill_constant + self._prefill_per_token * tokens + self._prefill_per_square * squares
            if size:
                # A mixed step reads the weights once: the larger constant, plus what prompts and sequences add.
                seconds += max(0.0, self._decode_constant - self._prefill_constant)
                seconds += self._decode_per_sequence * size + self._decode_per_context * batch.context_tokens
            steps, slope = 1, 0.0
        elif size:
            seconds = self._decode_constant + self._decode_per_sequence * size + self._decode_per_context * batch.context_tokens
            slope = self._decode_per_context * size
            steps = 1 if preempted else batch.steps_to_finish()
            if steps > 1:
                steps = batch.steps_within(steps, self.total_blocks - self.used_blocks)
        else:
            self.busy = False
            return
        self.busy = True
        self._cut = False
        self._span_start = now
        self._span_steps = steps
        self._step_seconds = seconds
        self._slope_seconds = slope
        self._step_tokens = tokens
        if fresh:
            first_token = now + seconds
            for request in fresh:
                request.first_token = first_token
            self._fresh = len(fresh)
            if self.metrics is not None:
                self.metrics.first_tokens.extend(fresh)
        self.version = version = self.version + 1
        self.events.push_boundary(now + steps * (seconds + slope * (steps - 1) / 2.0), self, version)

    def _admit(self, now: float, size: int) -> tuple[int, int]:
        """Start KV loads and prompts, first come first served. Returns tokens and squared tokens to compute in this step."""
        budget = self._budget - size
        tokens = squares = 0
        request = self.partial
        if request is not None and budget > 0:
            tokens, squares = self._take_chunk(request, budget)
            budget -= tokens
            size += 1
        waiting = self.waiting
        while waiting and self.partial is None and size < self._max_sequences:
            request = waiting[0]
            prompt = request.prompt_tokens + request.generated
            blocks = -(-prompt // self.block_size)
            if self.used_blocks + blocks > self.total_blocks:
                break
            if request.stage is Stage.DECODE_WAITING and not request.local:
                waiting.popleft()
                self.used_blocks += blocks
                request.decode_blocks = blocks
                request.stage = Stage.LOADING
                self.loading[request] = None
                self.events.start_transfer(request, now)
                continue
            if budget <= 0:
                break
            waiting.popleft()
            self.used_blocks += blocks
            self._begin_prompt(request, blocks, now)
            more, more_squares = self._take_chunk(request, budget)
            tokens += more
            squares += more_squares
            budget -= more
            size += 1
        return tokens, squares

    def _begin_prompt(self, request: Request, blocks: int, now: float) -> None:
        cached = 0
        if self.prefix_cache is not None and request.hash_ids is not None and not request.generated:
            cached = self.prefix_cache.hit_tokens(request.hash_ids, request.prompt_tokens)
        request.chunk_done = cached
        if request.local:
            request.decode_blocks = blocks
            if not request.generated:
                request.decode_cached_tokens = cached
                request.decode_scheduled = now
        else:
            request.prefill_blocks = blocks
            request.cached_tokens = cached
            request.prefill_scheduled = now
        request.stage = Stage.PREFILLING

    def _take_chunk(self, request: Request, budget: int) -> tuple[int, int]:
        done = request.chunk_done
        end = request.prompt_tokens + request.generated
        if end - done > budget:
            end = done + budget
            self.partial = request
        else:
            self.partial = None
            self._items.append(request)
        request.chunk_done = end
        return end - done, end * end - done * done
