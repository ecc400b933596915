"""All controllers by name, as published and tuned. What needs hindsight (best-static, oracle) is in `search`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from equipoise.simulate.loop.policy import Policy
from equipoise.simulate.loop.run import run
from equipoise.simulate.loop.score import RunResult
from equipoise.simulate.loop.setup import World
from equipoise.simulate.rivals.arrow import Arrow, Narwhal
from equipoise.simulate.rivals.dynamo import DynamoSla
from equipoise.simulate.rivals.equipoise import EquipoisePolicy
from equipoise.simulate.rivals.heteroscale import HeteroScale
from equipoise.simulate.rivals.hpa import LatencyHpa, UtilisationHpa
from equipoise.simulate.rivals.keda import SloKeda, TokenKeda
from equipoise.simulate.rivals.naive import NaiveShift
from equipoise.simulate.rivals.ratios import KthenaRatio
from equipoise.simulate.rivals.search import best_oracle, best_static
from equipoise.simulate.rivals.tokenscale import TokenScale
from equipoise.simulate.rivals.wva import PairedWva

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
    "keda-slo-tuned": lambda _: SloKeda(300.0, name="keda-slo-tuned"),
    "dynamo-sla": lambda _: DynamoSla(),
    "dynamo-sla-tuned": lambda _: DynamoSla("dynamo-sla-tuned", interval_seconds=30.0, use=0.75),
    "kthena-ratio": lambda _: KthenaRatio(),
    "kthena-ratio-tuned": lambda _: KthenaRatio("kthena-ratio-tuned", requests_per_replica=(2.0, 32.0), least=0.25, most=4.0),
    "wva": lambda _: PairedWva(),
    "wva-tuned": lambda _: PairedWva("wva-tuned", queue_threshold=3.0, kv_spare=0.3, queue_spare=2.0),
    "tokenscale": lambda _: TokenScale(),
    "tokenscale-tuned": lambda _: TokenScale("tokenscale-tuned", use=0.7, stabilisation_seconds=300.0),
    "arrow-flips": lambda _: Arrow("arrow-flips"),
    "arrow-tuned-flips": lambda _: Arrow("arrow-tuned-flips", expand=0.7, shrink=0.7, cooldown_seconds=5.0),
    "narwhal": lambda _: Narwhal(flips=False),
    "narwhal-flips": lambda _: Narwhal("narwhal-flips"),
    "narwhal-tuned-flips": lambda _: Narwhal("narwhal-tuned-flips", utilisation=0.65),
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
