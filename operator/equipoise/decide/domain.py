"""Prefill and decode of one service share a network domain: the KV of every prompt goes from one to the other."""

from __future__ import annotations

from collections.abc import Mapping

from equipoise.api.identity import Phase, Variant
from equipoise.decide.options import FleetView, PhaseOptions, PoolRefusal


def keep_to_one_domain(
    options: Mapping[Phase, PhaseOptions], current: Mapping[Variant, int], fleet: FleetView
) -> dict[Phase, PhaseOptions]:
    """Only the pools of one domain, and pools that name none (HeteroScale's deployment groups, arXiv 2508.19559).

    Careless placement costs a fifth of the KV bandwidth there. The domain is the one in which the service holds most GPUs that
    can serve both phases, else the one that serves a token pair cheapest; names decide ties.
    """
    domains = sorted({fleet.domain(option.variant.pool) for found in options.values() for option in found.options} - {""})
    if len(domains) < 2:
        return dict(options)

    def standing(domain: str) -> tuple[int, int, float, str]:
        held = sum(v.shape.gpus_per_replica * n for v, n in current.items() if fleet.domain(v.pool) == domain)
        prices = [
            min(
                (
                    option.price_usd_per_hour / option.capacity.tokens_per_second
                    for option in found.options
                    if fleet.domain(option.variant.pool) in (domain, "")
                ),
                default=None,
            )
            for found in options.values()
        ]
        known = [price for price in prices if price is not None]
        return (len(prices) - len(known), -held, sum(known), domain)

    home = min(domains, key=standing)
    result = {}
    for phase, found in options.items():
        inside = tuple(option for option in found.options if fleet.domain(option.variant.pool) in (home, ""))
        outside = sorted({option.variant.pool for option in found.options} - {option.variant.pool for option in inside})
        refusals = tuple(
            PoolRefusal(
                pool,
                "OtherNetworkDomain",
                f"it is in network domain {fleet.domain(pool)}, the service is in {home}, whose phases exchange KV all the time",
            )
            for pool in outside
        )
        result[phase] = PhaseOptions(inside, (*found.refusals, *refusals))
    return result
