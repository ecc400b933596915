"""Replicas that share arrivals sustain more each than one alone: what to count per replica when replicas are counted linearly.

A replica alone must leave much room for waiting (an A100 that has 0.5 s for prompts of 1,155 tokens: 40 % busy), four that share
arrivals less (83 %). With c(n) for what each of n sustains, n replicas carry n x c(n), which grows faster than n. An allocation
adds replicas up linearly, so it needs one figure: c(n) itself would say that half the group does (at a demand of 1.5 x c(1), two
replicas sustain 1.6 x c(1) each, and one of them would seem enough). Hence the secant

    c = max(c(n - 1), demand / n)    with n the fewest replicas that carry the demand; c(1) for n = 1, c(largest) beyond the group

which makes exactly n replicas cover the demand and n - 1 fall short, never exceeds c(n), and moves without a jump as demand does.
It depends on the demand alone, not on how many replicas there are now, so it does not swing with the count that it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from equipoise.perf.types import ReplicaCapacity

# Simulated (tests/unit/perf) with the routers' `cache_aware` at a threshold of 4, as Equipoise sets it for prefill: 91 to 98 %
# inside a target of 95 %. With `power_of_two` it would be 89 to 96 %. More than four would lean on the router more.
LARGEST_GROUP: Final = 4


def member_capacity(group: Sequence[ReplicaCapacity], demand_tokens_per_second: float) -> ReplicaCapacity:
    """The capacity to count per replica at this demand, from what each sustains alone, as one of two, of three and so on."""
    alone = group[0]
    if demand_tokens_per_second <= alone.tokens_per_second:
        return alone
    less = alone.tokens_per_second
    for replicas, capacity in enumerate(group[1:], 2):
        most = max(capacity.tokens_per_second, less)
        if most * replicas >= demand_tokens_per_second:
            rate = max(less, demand_tokens_per_second / replicas)
            return replace(capacity, tokens_per_second=rate, utilisation=capacity.utilisation * rate / capacity.tokens_per_second)
        less = most
    return group[-1]
