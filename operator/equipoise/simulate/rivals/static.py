"""A fixed allocation, and the best one there is, searched with hindsight: each candidate serves the whole traffic."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.api.identity import Phase, ServiceKey
from equipoise.simulate.loop.policy import Allocation, View
from equipoise.simulate.loop.setup import World
from equipoise.simulate.rivals.base import BasePolicy

Split = Mapping[tuple[Phase, str], int]


class StaticPolicy(BasePolicy):
    """Never changes anything."""

    def __init__(self, splits: Mapping[ServiceKey, Split], *, bounded: bool, name: str = "static") -> None:
        self.name, self.bounded = name, bounded
        self._splits = splits

    def initial(self, world: World) -> Mapping[ServiceKey, Split]:
        """The split."""
        return self._splits

    def decide(self, view: View) -> Mapping[ServiceKey, Allocation]:
        """Nothing."""
        return {}


def describe(split: Split) -> str:
    """`5P3D`, with pools where there are several."""
    pools = sorted({pool for _, pool in split})
    if len(pools) == 1:
        return f"{split.get((Phase.PREFILL, pools[0]), 0)}P{split.get((Phase.DECODE, pools[0]), 0)}D"
    parts = [f"{split.get((Phase.PREFILL, pool), 0)}P{split.get((Phase.DECODE, pool), 0)}D@{pool}" for pool in pools]
    return " ".join(parts)
