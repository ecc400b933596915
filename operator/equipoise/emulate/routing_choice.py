"""Which routing the internally driven load uses: the one asked for, or what the router pods' arguments say. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.render.flags import parse_flags
from equipoise.simulate.engine.routing import (
    CacheAware,
    LeastLoaded,
    LightestDecode,
    PowerOfTwo,
    RoundRobin,
    RoutingPolicy,
    ShortestPrefill,
)


def policies(name: str, router_arguments: Iterable[str], seed: int = 0) -> tuple[RoutingPolicy, RoutingPolicy]:
    """Prefill's and decode's policy. `auto` reads vllm-router's flags; a policy that the model does not have becomes the nearest:
    `random` and `consistent_hash` the round robin, the load-following ones least loaded.
    """
    flags = {flag.key: flag.value for flag in parse_flags(router_arguments)}
    common = flags.get("policy", "round_robin") if name == "auto" else name
    threshold = int(flags.get("balance-abs-threshold", "64") or 64)
    prefill = flags.get("prefill-policy", common) if name == "auto" else name
    decode = flags.get("decode-policy", common) if name == "auto" else name
    return _policy(prefill, threshold, seed, ShortestPrefill()), _policy(decode, threshold, seed + 1, LightestDecode())


def _policy(name: str, threshold: int, seed: int, token_aware: RoutingPolicy) -> RoutingPolicy:
    match name:
        case "power_of_two":
            return PowerOfTwo(seed)
        case "cache_aware" | "kv_aware":
            return CacheAware(balance_abs_threshold=threshold)
        case "least_loaded" | "sticky_least_loaded":
            return LeastLoaded()
        case "token_aware":
            return token_aware
        case _:
            return RoundRobin()
