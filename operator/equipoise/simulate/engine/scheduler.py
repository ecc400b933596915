"""The step loop of one engine: who runs in the next step, how long it takes, what it leaves behind.

It follows vLLM's scheduler: sequences in decode go first, then waiting requests in order of arrival while the token budget,
the sequence slots and the KV blocks last; a head of the queue that does not fit blocks those behind it. A span ends with the next
thing that can change the batch.
"""

from __future__ import annotations

from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.span import EngineSpan
from equipoise.simulate.engine.types import Outcome, Stage

# Looked up once: an enum member costs ten times a plain name, and these are read several times per request.
_PENDING = Outcome.PENDING
_DECODE_WAITING = Stage.DECODE_WAITING
_DECODING = Stage.DECODING
_DONE = Stage.DONE
_HELD = Stage.HELD
_LOADING = Stage.LOADING
_PREFILLING = Stage.PREFILLING


class StepLoop(EngineSpan):
    """Both phases run here: a replica that has just changed phase has both at once."""

    __slots__ = ()

    def on_boundary(self, now: float) -> None:
        """The span has ended."""
        batch = self.batch
        steps = self._span_steps
        self._span_steps = 1  # still busy: what the callbacks below bring in waits for _schedule
        if self.metrics is not None:
            self._book(steps, self.metrics)
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
        if request.outcome is not _PENDING:  # aborted during its last step
            return
        request.finish = now
        request.generated = request.output_tokens
        request.stage = _DONE
        if self.metrics is not None:
            self.metrics.decode_finished.append(request)
        self.events.finished(request, now)

    def _complete_prompt(self, request: Request, now: float) -> None:
        if self.prefix_cache is not None and request.hash_ids is not None:
            self.prefix_cache.insert(request.hash_ids)
        if request.outcome is not _PENDING:  # aborted while it was being computed
            self.used_blocks -= request.decode_blocks if request.local else request.prefill_blocks
        elif not request.local:
            request.prefill_end = now
            request.stage = _HELD
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
                request.stage = _DECODING
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
        request.stage = _DECODE_WAITING
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
                    request.stage = _DECODING
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
            if request.stage is _DECODE_WAITING and not request.local:
                waiting.popleft()
                self.used_blocks += blocks
                request.decode_blocks = blocks
                request.stage = _LOADING
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
        request.stage = _PREFILLING

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
