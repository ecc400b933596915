"""The way of a request: router, prefill leg, KV hand-over, decode leg, and every way it can end before the last token."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from equipoise.api.identity import Phase
from equipoise.simulate.engine.agenda import Agenda
from equipoise.simulate.engine.network import Network
from equipoise.simulate.engine.replica import Replica, ReplicaState
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.routing import RoundRobin, RoutingPolicy
from equipoise.simulate.engine.types import Outcome, Stage

NO_PREFILL = "no prefill replica in routing"
NO_DECODE = "no decode replica in routing"

# Looked up once: an enum member costs ten times a plain name, and these are read several times per request.
_ABORTED = Outcome.ABORTED
_FINISHED = Outcome.FINISHED
_LOST = Outcome.LOST
_PENDING = Outcome.PENDING
_REFUSED = Outcome.REFUSED
_READY = ReplicaState.READY
_STARTING = ReplicaState.STARTING
_STOPPED = ReplicaState.STOPPED
_DECODE_WAITING = Stage.DECODE_WAITING
_DONE = Stage.DONE
_HELD = Stage.HELD
_LOADING = Stage.LOADING
_NEW = Stage.NEW
_PREFILLING = Stage.PREFILLING
_PREFILL_WAITING = Stage.PREFILL_WAITING


class RequestPath(Agenda):
    """Takes requests through the replicas in routing. Both replicas are picked when the request arrives, as vllm-router does."""

    def __init__(
        self,
        prefill_policy: RoutingPolicy | None,
        decode_policy: RoutingPolicy | None,
        network: Network | None,
        on_done: Callable[[Request], None] | None,
        patience_seconds: float | None,
    ) -> None:
        super().__init__()
        self.patience_seconds = patience_seconds
        self._patient: deque[Request] = deque()
        self.network = network or Network()
        self.on_done = on_done
        self.in_routing: dict[Phase, list[Replica]] = {Phase.PREFILL: [], Phase.DECODE: []}
        self._prefills = self.in_routing[Phase.PREFILL]
        self._decodes = self.in_routing[Phase.DECODE]
        self._prefill_policy: RoutingPolicy = prefill_policy or RoundRobin()
        self._decode_policy: RoutingPolicy = decode_policy or RoundRobin()

    def set_policies(self, prefill: RoutingPolicy, decode: RoutingPolicy) -> None:
        """Route by these from now on."""
        self._prefill_policy, self._decode_policy = prefill, decode

    def submit(self, request: Request, now: float) -> None:
        """A client's request reaches the router now."""
        if not self._prefills or not self._decodes:
            self._end(request, _REFUSED, NO_DECODE if self._prefills else NO_PREFILL, now)
            return
        if self.patience_seconds is not None:
            if not self._patient:
                self.call_at(now + self.patience_seconds, self._lose_patience)
            self._patient.append(request)
        request.decode_replica = decode = self._decode_policy.choose(self._decodes, request)
        decode.promised += 1
        if not self.send_prefill(request, self._prefill_policy.choose(self._prefills, request), now):
            decode.promised -= 1

    def send_prefill(self, request: Request, replica: Replica, now: float) -> bool:
        """Send the prefill leg to this replica; False when it was turned away. A request marked `one_leg` waits there, its KV
        held under a lease, for `send_decode`.
        """
        request.prefill_replica = replica
        if (
            replica.limited
            or replica.state is not _READY
            or request.prompt_tokens + request.output_tokens > replica.longest_sequence_tokens
        ) and self._turned_away(request, replica, now):
            return False
        replica.enqueue_prefill(request, now)
        return True

    def send_decode(self, request: Request, replica: Replica, now: float) -> bool:
        """Send the decode leg to this replica; False when it was turned away. Its KV is held by `request.prefill_replica`, or
        (`request.local`) there is none and this replica reads the prompt itself.
        """
        if (
            replica.limited
            or replica.state is not _READY
            or request.prompt_tokens + request.output_tokens > replica.longest_sequence_tokens
        ) and self._turned_away(request, replica, now):
            if request.prefill_replica is not None and request in request.prefill_replica.held:
                self._start_lease(request, request.prefill_replica, now)
            return False
        replica.enqueue_decode(request, now)
        return True

    def abort(self, request: Request, now: float) -> None:
        """The client has gone: free what the request holds. Leaves no sample in any latency metric, as measured on vLLM."""
        if request.outcome is _PENDING:
            self._drop(request, _ABORTED, "client disconnected", now)

    def _lose_patience(self, now: float) -> None:
        """Clients that wait for a first token longer than their patience go; looked at once a second."""
        patient = self._patient
        while patient and patient[0].arrival + (self.patience_seconds or 0.0) <= now:
            request = patient.popleft()
            if request.outcome is _PENDING and not 0.0 <= request.first_token <= now:
                self._drop(request, _ABORTED, "client gave up waiting for the first token", now)
        if patient:
            self.call_at(max(patient[0].arrival + (self.patience_seconds or 0.0), now + 1.0), self._lose_patience)

    def _drop(self, request: Request, outcome: Outcome, cause: str, now: float) -> None:
        """End a request that is under way and take it out of both replicas."""
        prefill, decode, stage = request.prefill_replica, request.decode_replica, request.stage
        here = prefill if stage in (_PREFILL_WAITING, _PREFILLING) and not request.local else decode
        self._end(request, outcome, cause, now)
        if stage < _DECODE_WAITING and decode is not None and not request.one_leg and not request.local:
            decode.promised -= 1
        if prefill is not None and request in prefill.held:
            prefill.release(request, now)
        if here is not None and here.state is not _STOPPED:
            here.withdraw(request, now)
        request.stage = _DONE
        for replica in (prefill, decode):
            if replica is not None and replica.draining:
                self.retire_soon(replica, now)

    def prefilled(self, request: Request, now: float) -> None:
        """See EngineEvents."""
        decode = request.decode_replica
        if request.one_leg:
            if request.prefill_replica is not None:
                self._start_lease(request, request.prefill_replica, now)
        elif decode is not None:
            decode.promised -= 1
            if decode.state is _STOPPED:
                self._end(request, _LOST, f"decode replica {decode.name} was gone at the hand-over", now)
                if request.prefill_replica is not None:
                    self._start_lease(request, request.prefill_replica, now)
            else:
                self.send_decode(request, decode, now)
        if request.listener is not None:
            request.listener(request, now)

    def start_transfer(self, request: Request, now: float) -> None:
        """See EngineEvents."""
        source, target = request.prefill_replica, request.decode_replica
        if source is None or target is None:
            raise AssertionError(f"{request} has KV to load but no prefill replica")
        blocks = request.decode_blocks
        if target.prefix_cache is not None and request.hash_ids is not None:
            request.decode_cached_tokens = target.prefix_cache.hit_tokens(request.hash_ids, request.prompt_tokens)
            target.prefix_cache.insert(request.hash_ids)
            blocks -= request.decode_cached_tokens // target.block_size
        request.transfer_bytes = transfer_bytes = blocks * target.block_size * target.spec.kv_bytes_per_token
        request.transfer_start = now
        self.push_transfer(self.network.transfer_end(now, transfer_bytes, source, target), request, target.number)

    def transferred(self, request: Request, now: float, target_number: int) -> None:
        """The copy that was started is complete; void if the request is not waiting for it any more."""
        source, target = request.prefill_replica, request.decode_replica
        if request.stage is not _LOADING or source is None or target is None or target.number != target_number:
            return
        request.transfer_end = now
        source.release(request, now)
        target.kv_arrived(request, now)
        if source.draining:
            self.retire_soon(source, now)

    def _start_lease(self, request: Request, replica: Replica, now: float) -> None:
        self.call_at(now + replica.spec.limits.kv_lease_seconds, lambda at: self._lease_ended(request, replica, at))

    def _lease_ended(self, request: Request, replica: Replica, now: float) -> None:
        # A decode engine that waits with the request keeps the lease alive; only KV that nobody came for expires.
        waits = request.outcome is _PENDING and request.stage is not _HELD
        if request not in replica.held or waits:
            return
        replica.release(request, now)
        if replica.metrics is not None:
            replica.metrics.kv_expired += 1
        if request.outcome is _PENDING:
            self._end(request, _LOST, "KV lease expired before a decode leg came", now)
        if replica.draining:
            self.retire_soon(replica, now)

    def finished(self, request: Request, now: float) -> None:
        """See EngineEvents."""
        request.outcome = _FINISHED
        request.ended_at = now
        if request.listener is not None:
            request.listener(request, now)
        if self.on_done is not None:
            self.on_done(request)
        replica = request.decode_replica
        if replica is not None and replica.draining:
            self.retire_soon(replica, now)

    def _turned_away(self, request: Request, replica: Replica, now: float) -> bool:
        if replica.state is _STOPPED:
            cause = f"replica {replica.name} is gone"
        elif replica.state is _STARTING:
            cause = f"replica {replica.name} is still starting"
        elif request.prompt_tokens + request.output_tokens > replica.longest_sequence_tokens:
            cause = "longer than the KV cache"
        else:
            cause = replica.rejects(request)
            if cause and replica.metrics is not None:
                replica.metrics.rejections[cause] += 1
        if cause:
            self._end(request, _REFUSED, cause, now)
        return bool(cause)

    def _end(self, request: Request, outcome: Outcome, cause: str, now: float) -> None:
        request.outcome = outcome
        request.cause = cause
        request.ended_at = now
        if request.first_token > now:  # it was on its way
            request.first_token = -1.0
        if request.stage in (_NEW, _HELD):
            request.stage = _DONE
        if request.listener is not None:
            request.listener(request, now)
        if self.on_done is not None:
            self.on_done(request)
