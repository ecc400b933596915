"""The replicas of one service through their lives: start, change of phase, drain, loss. Driven from outside: no clock in here."""

from __future__ import annotations

from collections.abc import Callable

from equipoise.api.identity import Phase
from equipoise.simulate.engine.batch import DecodeBatch
from equipoise.simulate.engine.metrics.replica import ReplicaMetrics
from equipoise.simulate.engine.network import Network
from equipoise.simulate.engine.path import RequestPath
from equipoise.simulate.engine.reference import ReferenceBatch
from equipoise.simulate.engine.replica import Replica, ReplicaState
from equipoise.simulate.engine.request import NEVER, Request
from equipoise.simulate.engine.routing import RoutingPolicy
from equipoise.simulate.engine.types import Outcome, ReplicaSpec, Stage


class Cluster(RequestPath):
    """Replicas of several pools behind one router.

    Drive it with `advance_to(t)` and `next_event_time()`; times never go back, and everything done at t comes after
    `advance_to(t)`. `on_done` is called once for every request that ends, however it ends; `on_retired` for every drained
    replica that went. `metrics` keeps vLLM's metrics per replica (a class: those metrics). `step_by_step` replaces the closed
    form by the reference. Several clusters may share one `Network`.

    Clients without `patience_seconds` wait for ever, and one state needs them to give up: two replicas whose KV is full of
    hand-overs for each other, as after flips in opposite directions under overload. Real engines stop there in the same way.
    """

    def __init__(
        self,
        prefill_policy: RoutingPolicy | None = None,
        decode_policy: RoutingPolicy | None = None,
        network: Network | None = None,
        on_done: Callable[[Request], None] | None = None,
        patience_seconds: float | None = None,
        metrics: bool | type[ReplicaMetrics] = True,
        step_by_step: bool = False,
    ) -> None:
        super().__init__(prefill_policy, decode_policy, network, on_done, patience_seconds)
        self.replicas: dict[str, Replica] = {}
        self.on_retired: Callable[[Replica, float], None] | None = None
        self._metrics = ReplicaMetrics if metrics is True else metrics or None
        self._batch: type[DecodeBatch] = ReferenceBatch if step_by_step else DecodeBatch
        self._numbers = 0

    def add(self, name: str, spec: ReplicaSpec, role: Phase | None, now: float, startup_seconds: float = 0.0) -> Replica:
        """A new replica. It takes requests `startup_seconds` from now; ValueError when the name is taken."""
        if name in self.replicas:
            raise ValueError(f"replica {name!r} exists already")
        self._numbers += 1
        metrics = self._metrics(spec) if self._metrics is not None else None
        replica = Replica(name, self._numbers, spec, role, self, self._batch(spec.limits.block_size), metrics)
        replica.ready_at = now + startup_seconds
        self.replicas[name] = replica
        if startup_seconds > 0.0:
            self.call_at(replica.ready_at, lambda at: self._started(replica))
        else:
            self._started(replica)
        return replica

    def _started(self, replica: Replica) -> None:
        if replica.state is ReplicaState.STARTING:
            replica.state = ReplicaState.READY
            self._reroute()

    def set_role(self, name: str, role: Phase | None) -> None:
        """Send the replica work of this phase from now on, or none. What it is doing goes on: a flip of a vLLM replica."""
        self.replicas[name].role = role
        self._reroute()

    def flip(self, name: str, role: Phase, now: float, delay_seconds: float = 0.0) -> None:
        """Change the replica's phase; it takes nothing new for `delay_seconds`."""
        if delay_seconds <= 0.0:
            self.set_role(name, role)
            return
        replica = self.replicas[name]
        self.set_role(name, None)

        def back(at: float) -> None:
            if self.replicas.get(name) is replica and not replica.draining:
                self.set_role(name, role)

        self.call_at(now + delay_seconds, back)

    def drain(self, name: str, now: float, grace_seconds: float | None = None) -> None:
        """Out of routing; gone as soon as nothing waits, runs or is held there and nothing is on its way to it. After
        `grace_seconds` it goes all the same and what is left is lost.
        """
        replica = self.replicas[name]
        replica.draining = True
        replica.drained_from = now
        self.set_role(name, None)
        self.retire_soon(replica, now)
        if grace_seconds is not None:

            def grace_over(at: float) -> None:
                if self.replicas.get(name) is replica and replica.draining and replica.drained_from == now:
                    self.remove(name, at, "drain grace ended")

            self.call_at(now + grace_seconds, grace_over)

    def undrain(self, name: str, role: Phase) -> None:
        """Back into routing, if the replica has not gone yet."""
        self.replicas[name].draining = False
        self.set_role(name, role)

    def retire_if_idle(self, replica: Replica, now: float) -> None:
        """See Agenda."""
        if replica.draining and replica.is_idle and not replica.promised and self.replicas.get(replica.name) is replica:
            self.remove(replica.name, now, "drained")

    def remove(self, name: str, now: float, cause: str = "replica lost") -> None:
        """The replica is gone at once. Its requests are lost, and so are those whose KV only it held."""
        replica = self.replicas.pop(name)
        held = set(replica.held)
        affected = replica.requests()
        replica.stop()
        self._reroute()
        for request in affected:
            if request.outcome is not Outcome.PENDING:
                continue
            if request in held:
                self._kv_lost(request, replica, cause, now)
            else:
                self._lost_here(request, replica, cause, now)
        if self.on_retired is not None:
            self.on_retired(replica, now)

    def _kv_lost(self, request: Request, source: Replica, cause: str, now: float) -> None:
        """By vLLM's default `kv_load_failure_policy: fail`: the decode engine answers 500 and goes on."""
        target = request.decode_replica
        arrived = target is not None and request.stage in (Stage.DECODE_WAITING, Stage.LOADING)
        if target is not None and arrived and target.metrics is not None:
            target.metrics.kv_load_failed(request, now)
        self._drop(request, Outcome.LOST, f"prefill replica {source.name}: {cause} before its KV was fetched", now)

    def _lost_here(self, request: Request, replica: Replica, cause: str, now: float) -> None:
        prefilling = request.stage in (Stage.PREFILL_WAITING, Stage.PREFILLING) and not request.local
        if prefilling and request.decode_replica is not None:
            request.decode_replica.promised -= 1
        self._end(request, Outcome.LOST, f"{'prefill' if prefilling else 'decode'} replica {replica.name}: {cause}", now)
        request.stage = Stage.DONE
        source = request.prefill_replica
        if source is not None and request in source.held:
            self._start_lease(request, source, now)  # nobody renews it any more

    def sync(self, now: float) -> None:
        """Bring every replica's counters and gauges to this moment."""
        self.advance_to(now)
        for replica in self.replicas.values():
            replica.sync(now)

    def _reroute(self) -> None:
        for phase, listed in self.in_routing.items():
            listed[:] = [
                replica for replica in self.replicas.values() if replica.role is phase and replica.state is ReplicaState.READY
            ]


def first_token_at(request: Request, now: float) -> float:
    """When the first token came, NEVER if it has not come by now (the model knows the end of a running step beforehand)."""
    return request.first_token if request.first_token <= now else NEVER
