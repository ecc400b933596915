"""What holds for any traffic and any sequence of orders: no GPU twice, no request forgotten, no hunting under constant load."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.simulate.loop.policy import Allocation, View
from equipoise.simulate.loop.run import run
from equipoise.simulate.loop.setup import Trouble, World
from equipoise.simulate.rivals.base import BasePolicy
from equipoise.simulate.rivals.equipoise import EquipoisePolicy
from equipoise.simulate.scenarios.basics import a100, service, split
from equipoise.simulate.traffic.parse import parse_traffic

KEY = ServiceKey("prod", "chat")
PREFILL = Variant(KEY, Phase.PREFILL, "a100", Shape())
DECODE = PREFILL.with_phase(Phase.DECODE)
ORDERS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 4), st.integers(0, 4))), min_size=8, max_size=8)


class Orders(BasePolicy):
    """Any allocation at any round, and checks of what came of it."""

    name = "orders"

    def __init__(self, orders: list[tuple[int, int] | None], flips: bool) -> None:
        self.flips = flips
        self._orders = iter(orders)

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        for pool in view.fleet.pools:
            for node in pool.nodes:
                assert sum(node.own_gpus.values()) <= node.allocatable_gpus
        statuses = view.services[KEY].given.variants
        held = sum(status.ready + status.starting + status.draining for status in statuses)
        assert held == sum(sum(node.own_gpus.values()) for pool in view.fleet.pools for node in pool.nodes)
        for status in statuses:
            assert status.ready + status.starting + status.pending == status.desired
        order = next(self._orders, None)
        return {} if order is None else {KEY: {PREFILL: order[0], DECODE: order[1]}}


@settings(max_examples=12, deadline=None)
@given(
    orders=ORDERS,
    flips=st.booleans(),
    startup=st.sampled_from([0.0, 3.0, 12.0]),
    lost=st.floats(6.0, 35.0),
    seed=st.integers(0, 9),
)
def test_any_orders_leave_every_gpu_held_once_and_every_request_counted_once(
    orders: list[tuple[int, int] | None], flips: bool, startup: float, lost: float, seed: int
) -> None:
    traffic = parse_traffic("azure-conv:40s@9")
    world = World(
        (a100(5),),
        (service(traffic, split(2, 2, "a100")),),
        40.0,
        startup_seconds=startup,
        drain_grace_seconds=10.0,
        patience_seconds=10.0,
        troubles=(Trouble(lost, "replica-lost", "a100"),),
    )
    result = run(world, Orders(orders, flips), seed)
    score = result.scores[KEY]
    assert len(score.good) == sum(1 for _ in traffic.arrivals(seed)) == sum(score.outcomes.values())
    assert result.gpu_hours["a100"] * 3600.0 <= 5 * 40.0 + 1e-6
    if not flips:
        assert result.flips == 0


@settings(max_examples=2, deadline=None)
@given(rate=st.floats(4.0, 9.0), seed=st.integers(0, 1000))
def test_constant_load_is_met_without_hunting(rate: float, seed: int) -> None:
    """After the first minutes of looking and giving back, noise moves next to nothing."""
    world = World((a100(4),), (service(f"azure-conv:15m@{rate:.2f}", split(2, 2, "a100")),), 900.0, interval_seconds=15.0)
    result = run(world, EquipoisePolicy(interval_seconds=15.0), seed)
    later = [moment for moment in result.moments[KEY] if moment.at_seconds > 360.0]
    assert sum(moment.flips + moment.starts + moment.stops for moment in later) <= 2
    assert result.goodput > 0.9
