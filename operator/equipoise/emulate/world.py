"""The engines that exist right now, per service, kept in step with the pods. Virtual time comes from outside; no I/O."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from equipoise.api.identity import Phase, ServiceKey
from equipoise.api.model_source import Architecture
from equipoise.emulate.engine_spec import EngineSpec, Problem, engine_spec
from equipoise.emulate.options import Options
from equipoise.emulate.pods import HTTP_PORT, SeenPod, seen_pod
from equipoise.emulate.router_stats import RouterStats
from equipoise.emulate.routing_choice import policies
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.metrics.exposition import Exposition
from equipoise.simulate.engine.network import Network
from equipoise.simulate.engine.replica import Replica
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import NetworkSettings

log = logging.getLogger("equipoise.emulate.world")
_numbers: Final = count()


def next_request_number() -> int:
    """A number that no other request of this process has: requests of one engine are told apart by it."""
    return next(_numbers)


@dataclass
class Engine:
    """A running engine: its pod as last seen, its replica, its page."""

    pod: SeenPod
    spec: EngineSpec
    replica: Replica
    page: Exposition


@dataclass
class Router:
    """A router pod as last seen, and what it has counted since it started."""

    pod: SeenPod
    stats: RouterStats = field(default_factory=RouterStats)


@dataclass
class Service:
    """One InferenceService: a cluster of replicas, its routers, and who hears of requests that end."""

    key: ServiceKey
    cluster: Cluster
    engines: dict[str, Engine] = field(default_factory=dict)  # by pod UID
    routers: dict[str, Router] = field(default_factory=dict)  # by pod UID
    _router_of: dict[Request, RouterStats] = field(default_factory=dict)
    _turn: int = 0
    on_done: list[Callable[[Request], None]] = field(default_factory=list)
    feed: Callable[[float], None] = lambda now: None  # sends what clients have sent by now

    @property
    def can_serve(self) -> bool:
        """Whether each phase has a replica in routing."""
        return all(self.cluster.in_routing[phase] for phase in Phase)

    def advance(self, now: float) -> None:
        """Bring clients and engines up to now, in this order of events."""
        self.feed(now)
        self.cluster.advance_to(now)

    def submit(self, request: Request, now: float, router: Router | None = None) -> None:
        """A client's request comes in now, through this router or through each in turn."""
        if router is None:
            ready = [item for item in self.routers.values() if item.pod.ready and not item.pod.terminating]
            self._turn += 1
            router = ready[self._turn % len(ready)] if ready else None
        if router is None:
            self.cluster.submit(request, now)
            return
        self._router_of[request] = router.stats
        router.stats.taken(request)
        self.cluster.submit(request, now)
        router.stats.sent(request)

    def done(self, request: Request) -> None:
        """A request has ended."""
        stats = self._router_of.pop(request, None)
        if stats is not None:
            stats.ended(request, request.ended_at)
        for hear in self.on_done:
            hear(request)


class World:
    """Follows pods and nodes. `listen` and `unlisten` hear at which address an engine or a router begins or ceases to answer."""

    def __init__(
        self,
        options: Options,
        now: Callable[[], float],
        unix_seconds: Callable[[], float],
        listen: Callable[[str, bool], None] = lambda address, is_router: None,
        unlisten: Callable[[str, bool], None] = lambda address, is_router: None,
    ) -> None:
        self.services: dict[ServiceKey, Service] = {}
        self.by_address: dict[str, tuple[Service, Engine]] = {}
        self.routers_by_address: dict[str, tuple[Service, Router]] = {}
        self.problems: dict[str, str] = {}  # by pod UID
        self.architectures: dict[ServiceKey, Architecture] = {}
        self._options = options
        self._now = now
        self._unix_seconds = unix_seconds
        self._listen = listen
        self._unlisten = unlisten
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._network = Network(NetworkSettings(handshake_seconds=options.handshake_seconds))
        self._waiting_for_node: dict[str, SeenPod] = {}
        self.new_service: Callable[[Service], None] = lambda service: None

    def node_changed(self, node: Mapping[str, Any], gone: bool) -> None:
        """A node appeared, changed or went."""
        name = node["metadata"]["name"]
        if gone:
            self._nodes.pop(name, None)
            return
        self._nodes[name] = dict(node["metadata"].get("labels") or {})
        for uid, pod in list(self._waiting_for_node.items()):
            if pod.node == name:
                del self._waiting_for_node[uid]
                self._engine_changed(pod)

    def pod_changed(self, pod: Mapping[str, Any], gone: bool) -> None:
        """A pod appeared, changed or went."""
        seen = seen_pod(pod)
        base = pod["metadata"]["uid"]
        if gone or seen is None or seen.over:
            self._forget(base, "pod deleted" if gone else "its containers ended" if seen is not None else "no engine any more")
            return
        self._forget(base, "container restarted", except_uid=seen.uid)
        if seen.is_router:
            self._router_changed(seen)
        else:
            self._engine_changed(seen)

    def service(self, key: ServiceKey) -> Service:
        """The service of that name, made when it is first heard of."""
        found = self.services.get(key)
        if found is None:
            cluster = Cluster(network=self._network, patience_seconds=self._options.patience_seconds)
            cluster.advance_to(self._now())
            found = self.services[key] = Service(key, cluster)
            cluster.on_done = found.done
            found.cluster.set_policies(*policies(self._options.router_policy, (), self._options.seed))
            self.new_service(found)
        return found

    def advance(self, now: float) -> None:
        """Let all engines do what they do up to now."""
        for service in self.services.values():
            service.advance(now)

    def next_event_time(self) -> float | None:
        """When any engine does something next by itself."""
        times = [at for service in self.services.values() if (at := service.cluster.next_event_time()) is not None]
        return min(times, default=None)

    def _router_changed(self, pod: SeenPod) -> None:
        service = self.service(pod.service)
        router = service.routers.get(pod.uid)
        if router is None:
            router = service.routers[pod.uid] = Router(pod)
            service.cluster.set_policies(*policies(self._options.router_policy, pod.arguments, self._options.seed))
        router.pod = pod
        if pod.address and pod.ready and pod.address not in self.routers_by_address:
            self.routers_by_address[pod.address] = (service, router)
            self._listen(pod.address, True)

    def _engine_changed(self, pod: SeenPod) -> None:
        service = self.service(pod.service)
        service.advance(self._now())
        engine = service.engines.get(pod.uid)
        if engine is None:
            if pod.ready and pod.address and not pod.terminating:
                self._start(service, pod)
            return
        engine.pod = pod
        if engine.replica.role is not pod.routed_role:
            log.info("%s: role %s -> %s", pod.name, _word(engine.replica.role), _word(pod.routed_role))
            service.cluster.set_role(engine.replica.name, pod.routed_role)

    def _start(self, service: Service, pod: SeenPod) -> None:
        labels = self._nodes.get(pod.node)
        if labels is None:
            self._waiting_for_node[pod.uid] = pod
            return
        spec = engine_spec(pod, labels, self.architectures.get(service.key), self._options.default_model)
        if isinstance(spec, Problem):
            if self.problems.get(pod.uid) != spec.message:
                log.warning("%s", spec.message)
            self.problems[pod.uid] = spec.message
            return
        self.problems.pop(pod.uid, None)
        replica = service.cluster.add(pod.uid, spec.replica, pod.routed_role, self._now())
        replica.address = f"http://{pod.address}:{HTTP_PORT}"
        if replica.metrics is None:
            raise AssertionError("the emulator's clusters keep metrics")
        page = Exposition(
            replica, replica.metrics, spec.model_name, self._unix_seconds(), spec.fetches_kv, self._options.generation
        )
        engine = service.engines[pod.uid] = Engine(pod, spec, replica, page)
        self.by_address[pod.address] = (service, engine)
        log.info("%s: %s as %s on %s at %s, %s", pod.name, spec.model_name, spec.shape, spec.device, pod.address, pod.role_label)
        self._listen(pod.address, False)

    def _forget(self, base_uid: str, cause: str, except_uid: str = "") -> None:
        prefix = f"{base_uid}/"
        for uid in [uid for uid in (*self.problems, *self._waiting_for_node) if uid.startswith(prefix) and uid != except_uid]:
            self.problems.pop(uid, None)
            self._waiting_for_node.pop(uid, None)
        for service in self.services.values():
            for uid in [uid for uid in service.engines if uid.startswith(prefix) and uid != except_uid]:
                self._stop(service, service.engines.pop(uid), cause)
            for uid in [uid for uid in service.routers if uid.startswith(prefix) and uid != except_uid]:
                router = service.routers.pop(uid)
                if self.routers_by_address.pop(router.pod.address, None) is not None:
                    self._unlisten(router.pod.address, True)

    def _stop(self, service: Service, engine: Engine, cause: str) -> None:
        now = self._now()
        service.advance(now)
        lost = engine.replica.unfinished_requests()
        service.cluster.remove(engine.replica.name, now, cause)
        del self.by_address[engine.pod.address]
        log.info("%s: gone (%s)%s", engine.pod.name, cause, f", {lost} requests lost" if lost else "")
        self._unlisten(engine.pod.address, False)


def _word(role: Phase | None) -> str:
    return role.value if role is not None else "none"
