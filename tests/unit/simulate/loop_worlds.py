"""Small worlds that run in a fraction of a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.simulate.loop.policy import Allocation, View
from equipoise.simulate.loop.setup import World
from equipoise.simulate.rivals.base import BasePolicy
from equipoise.simulate.scenarios.basics import a100, service, split

KEY = ServiceKey("prod", "chat")
PREFILL = Variant(KEY, Phase.PREFILL, "a100", Shape())
DECODE = PREFILL.with_phase(Phase.DECODE)


def small_world(traffic: str = "azure-conv:60s@8", gpus: int = 4, **changes: Any) -> World:
    """Two replicas of each phase on A100."""
    seconds = changes.pop("seconds", 60.0)
    initial = changes.pop("initial", split(2, 2, "a100"))
    return replace(World((a100(gpus),), (service(traffic, initial),), seconds, startup_variation=0.0), **changes)


class Script(BasePolicy):
    """Does what it is told at the rounds it is told, and remembers what it saw."""

    name = "script"

    def __init__(self, orders: Mapping[float, tuple[int, int]], *, flips: bool = False, bounded: bool = True) -> None:
        self.orders, self.flips, self.bounded = orders, flips, bounded
        self.views: list[View] = []

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        self.views.append(view)
        order = self.orders.get(view.now)
        return {} if order is None else {KEY: {PREFILL: order[0], DECODE: order[1]}}

    def at(self, now: float) -> View:
        return next(view for view in self.views if view.now == now)

    def counts(self, now: float, variant: Variant) -> tuple[int, int, int, int]:
        """Ready, starting, pending, draining."""
        status = self.at(now).services[KEY].status(variant)
        return status.ready, status.starting, status.pending, status.draining
