"""All controllers by name, as published and tuned. What needs hindsight (best-static, oracle) is in `search`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from equipoise.simulate.loop.policy import Policy
from equipoise.simulate.loop.run import run
from equipoise.simulate.loop.score import RunResult
from equipoise.simulate.loop.setup import World
from equipoise.simulate.rivals.dynamo import DynamoSla
from equipoise.simulate.rivals.equipoise import EquipoisePolicy
from equipoise.simulate.rivals.heteroscale import HeteroScale
from equipoise.simulate.rivals.hpa import LatencyHpa, UtilisationHpa
from equipoise.simulate.rivals.keda import SloKeda, TokenKeda
from equipoise.simulate.rivals.naive import NaiveShift
from equipoise.simulate.rivals.search import best_oracle, best_static

POLICIES: Final[Mapping[str, Callable[[World], Policy]]] = {
    "equipoise": lambda world: EquipoisePolicy(interval_seconds=world.interval_seconds, settings=world.settings),
    "naive": lambda _: NaiveShift(),
    "naive-flips": lambda _: NaiveShift(flips=True),
    "hpa-latency": lambda _: LatencyHpa(),
    "hpa-latency-tuned": lambda _: LatencyHpa("hpa-latency-tuned", target_share=0.6),
    "hpa-utilisation": lambda _: UtilisationHpa(),
    "heteroscale": lambda _: HeteroScale(),
    "heteroscale-tuned": lambda _: HeteroScale(name="heteroscale-tuned", use=0.75, out_seconds=60.0, in_seconds=300.0),
    "keda-tokens": lambda _: TokenKeda(),
    "keda-tokens-tuned": lambda _: TokenKeda("keda-tokens-tuned", kv_share=0.5, percentile_factor=0.4),
    "keda-slo": lambda _: SloKeda(),
    "dynamo-sla": lambda _: DynamoSla(),
    "dynamo-sla-tuned": lambda _: DynamoSla("dynamo-sla-tuned", interval_seconds=30.0, use=0.75),
}
HINDSIGHT: Final = ("best-static", "best-static-unbounded", "oracle")


def run_named(name: str, world: World, seed: int) -> RunResult:
    """One run of the controller of that name. ValueError lists the names there are."""
    if name in POLICIES:
        return run(world, POLICIES[name](world), seed)
    if name == "oracle":
        return best_oracle(world, seed)
    if name in HINDSIGHT:
        return best_static(world, seed, bounded=name == "best-static")[0]
    raise ValueError(f"policy {name!r} is none of {', '.join((*POLICIES, *HINDSIGHT))}")
