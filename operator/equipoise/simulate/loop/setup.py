"""What a simulated world is made of: pools, services, and how fast the cluster around them reacts. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from equipoise.api.identity import Phase, ServiceKey
from equipoise.api.service import InferenceService
from equipoise.fleet.catalogue import device
from equipoise.fleet.prices import default_price
from equipoise.fleet.types import Device
from equipoise.simulate.traffic.arrival import Arrival

EPOCH_SECONDS = 1_700_000_000.0
"""Virtual second 0 as seconds since the epoch: `decide` keeps times in memory, and there 0.0 means never."""


class SignalSource(StrEnum):
    """How the operator gets its signals."""

    PODS = "pods"  # it asks every pod itself, once per round
    PROMETHEUS = "prometheus"  # a Prometheus that scrapes on its own clock


class Routing(StrEnum):
    """How the router picks replicas."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    TOKEN_AWARE = "token-aware"  # noqa: S105 - a routing policy


@dataclass(frozen=True, slots=True)
class PoolSetup:
    """Nodes with one kind of device. `speed`: how fast the real devices are against what the operator believes of them."""

    name: str
    device: str
    nodes: int = 1
    gpus_per_node: int = 8
    price_usd_per_gpu_hour: float | None = None
    network_bytes_per_second: float = 12.5e9
    startup_seconds: float | None = None  # None: the world's
    speed: float = 1.0

    @property
    def catalogue_device(self) -> Device:
        """The device's entry in the catalogue."""
        return device(self.device)

    @property
    def price(self) -> float:
        """USD per GPU hour: what was said, else the catalogue's list price."""
        return default_price(self.catalogue_device)[0] if self.price_usd_per_gpu_hour is None else self.price_usd_per_gpu_hour


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that goes wrong at a time: `replica-lost` (the pod restarts elsewhere) or `node-lost` (its GPUs are gone)."""

    at_seconds: float
    kind: str
    pool: str
    phase: Phase | None = None


@dataclass(frozen=True)
class ServiceSetup:
    """One service: what its user wrote, what is asked of it, and how it begins.

    `initial` are the replicas per phase and pool that serve when the traffic begins; a policy may begin with others
    (`Policy.initial`). `turns` name the moments at which the traffic changes its kind.
    """

    resource: InferenceService
    arrivals: Callable[[int], Iterable[Arrival]]  # by seed
    initial: Mapping[tuple[Phase, str], int]
    turns: tuple[tuple[float, str], ...] = ()

    @property
    def key(self) -> ServiceKey:
        """Namespace and name."""
        return self.resource.key


@dataclass(frozen=True)
class World:
    """Everything but the policy.

    `seconds`: the length of the traffic; cost is counted until then. Clients give up `patience_seconds` after they asked when no
    token has come. A drained replica is cut off after `drain_grace_seconds`.
    """

    pools: tuple[PoolSetup, ...]
    services: tuple[ServiceSetup, ...]
    seconds: float
    startup_seconds: float = 60.0
    startup_variation: float = 0.15  # coefficient of variation of the sampled start-up times
    flips: bool = True  # whether the engines can change phase while they run
    bounded_queues: bool = True  # whether the operator's admission limits are set on the engines
    interval_seconds: float = 5.0  # between two decisions
    source: SignalSource = SignalSource.PODS
    scrape_seconds: float = 15.0  # Prometheus' interval; a direct scrape happens once per round
    scrape_loss: float = 0.0  # share of scrapes that fail
    outages: tuple[tuple[float, float], ...] = ()  # from, to: no scrape succeeds
    prefill_routing: Routing = Routing.LEAST_LOADED
    decode_routing: Routing = Routing.LEAST_LOADED
    flip_seconds: float = 1.0  # until the router follows a flip; the replica takes nothing new meanwhile
    schedule_seconds: float = 1.0  # from a Deployment's change to a bound pod
    drain_grace_seconds: float = 60.0
    patience_seconds: float = 60.0
    troubles: tuple[Trouble, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)  # overrides of decide.settings.Settings
