"""One replica: a step loop with a name, a role, a queue limit and a life."""

from __future__ import annotations

from enum import IntEnum

from equipoise.api.identity import Phase
from equipoise.simulate.engine.batch import DecodeBatch
from equipoise.simulate.engine.events import EngineEvents
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.scheduler import StepLoop
from equipoise.simulate.engine.types import ReplicaSpec, Stage

REJECT_REQUESTS = "max_num_queued_reqs"  # values of the label `reason` of vllm:admission_rejections
REJECT_TOKENS = "max_num_queued_tokens"


class ReplicaState(IntEnum):
    """Where a replica is in its life. What it does for requests depends on this; who sends it requests, on its role."""

    STARTING = 0
    READY = 1
    STOPPED = 2


# Looked up once: an enum member costs ten times a plain name, and these are read several times per request.
_STARTING = ReplicaState.STARTING
_STOPPED = ReplicaState.STOPPED
_DECODE_WAITING = Stage.DECODE_WAITING
_DECODING = Stage.DECODING
_LOADED = Stage.LOADED
_LOADING = Stage.LOADING
_PREFILLING = Stage.PREFILLING
_PREFILL_WAITING = Stage.PREFILL_WAITING


class Replica(StepLoop):
    """`role` is None while the router sends it nothing new (draining); work it has goes on."""

    __slots__ = (
        "address",
        "drained_from",
        "draining",
        "limited",
        "longest_sequence_tokens",
        "name",
        "number",
        "promised",
        "ready_at",
        "role",
        "state",
    )

    def __init__(
        self,
        name: str,
        number: int,
        spec: ReplicaSpec,
        role: Phase | None,
        events: EngineEvents,
        batch: DecodeBatch,
        metrics: ReplicaMetrics | None,
    ) -> None:
        super().__init__(spec, events, batch, metrics)
        self.name = name
        self.number = number
        self.role = role
        self.state = _STARTING
        self.address = name  # how routers name it; the emulator puts a URL here
        self.ready_at = 0.0
        self.draining = False
        self.drained_from = 0.0  # when it was last taken out of routing to drain
        self.promised = 0  # requests whose prefill leg is under way and whose decode leg will come here
        self.longest_sequence_tokens = self.total_blocks * self.block_size  # what the KV cache could hold with nothing else in it
        self.limited = spec.limits.max_num_queued_reqs is not None or spec.limits.max_num_queued_tokens is not None

    def rejects(self, request: Request) -> str:
        """Why the engine's own limits turn the request away now; empty when they do not."""
        limits = self.spec.limits
        if limits.max_num_queued_reqs is not None and self.unfinished_requests() >= limits.max_num_queued_reqs:
            return REJECT_REQUESTS
        if limits.max_num_queued_tokens is not None and self.queued_tokens >= limits.max_num_queued_tokens:
            return REJECT_TOKENS
        return ""

    def enqueue_prefill(self, request: Request, now: float) -> None:
        """Take a prefill leg in."""
        request.prefill_replica = self
        request.prefill_queued = now
        request.stage = _PREFILL_WAITING
        self._enqueue(request, now)

    def enqueue_decode(self, request: Request, now: float) -> None:
        """Take a decode leg in: its KV waits on `request.prefill_replica`, or, when `request.local`, it is computed here."""
        request.decode_replica = self
        request.decode_queued = now
        request.stage = _DECODE_WAITING
        self._enqueue(request, now)

    def _enqueue(self, request: Request, now: float) -> None:
        self.queued_tokens += request.prompt_tokens
        waiting = self.waiting
        waiting.append(request)
        if len(waiting) == 1:  # behind a head that does not fit, nothing changes
            self.poke(now)

    def kv_arrived(self, request: Request, now: float) -> None:
        """The KV copy is complete."""
        del self.loading[request]
        request.stage = _LOADED
        self.loaded.append(request)
        if self.metrics is not None:
            self.metrics.transfers.append(request)
        if self.batch.size < self._max_sequences:
            self.poke(now)

    def release(self, request: Request, now: float) -> None:
        """The KV blocks of a prefilled request are no longer needed here."""
        del self.held[request]
        self.used_blocks -= request.prefill_blocks
        if self.waiting:
            self.poke(now)

    def withdraw(self, request: Request, now: float) -> None:
        """Take a request out wherever it is here; its outcome is set already. Held prefill blocks are `release`d instead."""
        stage = request.stage
        if stage in (_PREFILL_WAITING, _DECODE_WAITING):
            self.waiting.remove(request)
            if not request.generated:
                self.queued_tokens -= request.prompt_tokens
        elif stage is _LOADING:
            del self.loading[request]
            self._give_back(request)
        elif stage is _LOADED:
            self.loaded.remove(request)
            self._give_back(request)
        elif stage is _PREFILLING:
            if not request.generated:
                self.queued_tokens -= request.prompt_tokens
            if request is self.partial and request not in self._items:
                self.partial = None
                self.used_blocks -= request.decode_blocks if request.local else request.prefill_blocks
        elif stage is _DECODING:
            self._cancelled.append(request)
        self.poke(now)

    def _give_back(self, request: Request) -> None:
        self.used_blocks -= request.decode_blocks
        self.queued_tokens -= request.prompt_tokens

    def requests(self) -> list[Request]:
        """Everything that would be lost with this replica, held hand-overs included."""
        found = [*self.waiting, *self.loading, *self.loaded, *self._items, *self.batch.members(), *self.held]
        if self.partial is not None:
            found.append(self.partial)
        return found

    def unfinished_requests(self) -> int:
        """Requests that this engine has not answered yet."""
        partial = self.partial is not None
        return len(self.waiting) + len(self.loading) + len(self.loaded) + len(self._items) + self.batch.size + partial

    @property
    def is_idle(self) -> bool:
        """Nothing waits, runs, loads or is held: the replica can go without losing anything."""
        return not (self.unfinished_requests() or self.held)

    def running_requests(self) -> int:
        """`vllm:num_requests_running`: written after a step, so a prompt that fits one step never shows."""
        return self.batch.size + (self.partial is not None)

    def prefilling_requests(self) -> int:
        """Prompts in the present step or split over steps: what vLLM's gauges do not show."""
        return len(self._items) + (self.partial is not None)

    def kv_usage(self) -> float:
        """`vllm:kv_cache_usage_perc`, 0..1, blocks held for a decode replica included."""
        return self.used_blocks / self.total_blocks if self.total_blocks else 0.0

    def generated_tokens(self, request: Request, now: float) -> int:
        """Tokens of the answer that exist by now."""
        if request in self.batch:
            return self.batch.generated_of(request) + self.steps_done(now)
        return request.generated

    def prefix_hit_tokens(self, request: Request) -> int:
        """Tokens of the prompt that the prefix cache knows; asking counts as no use of them."""
        if self.prefix_cache is None or request.hash_ids is None:
            return 0
        return self.prefix_cache.known_tokens(request.hash_ids, request.prompt_tokens)

    def stop(self) -> None:
        """Nothing runs here any more; pending events are void."""
        self.state = _STOPPED
        self.role = None
        self.busy = False
        self.version += 1
        self.partial = None
        for container in (self.waiting, self.loading, self.loaded, self.held, self._items, self._cancelled):
            container.clear()

    def __repr__(self) -> str:
        return f"Replica({self.name}, {self.role}, {self.state.name})"
