"""What most controllers have in common."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.api.identity import Phase, ServiceKey
from equipoise.simulate.loop.policy import Allocation, View
from equipoise.simulate.loop.setup import World


class BasePolicy:
    """Defaults: begins as the world does, flips nothing, leaves queues as the engines have them, pays for its moves."""

    name = "base"
    flips = False
    bounded = False
    instant = False

    def initial(self, world: World) -> Mapping[ServiceKey, Mapping[tuple[Phase, str], int]]:
        """See Policy."""
        return {}

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        """See Policy."""
        raise NotImplementedError
