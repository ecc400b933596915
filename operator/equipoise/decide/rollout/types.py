"""What the policy of rollouts may know, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Phase, Variant


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine pod. `serving`: ready and in routing. `broken`: does not serve, and not because it has only just begun."""

    name: str
    variant: Variant
    revision: str
    serving: bool = False
    broken: bool = False
    draining: bool = False
    terminating: bool = False
    bound: bool = True  # has a node, hence holds its GPUs
    waits_for_node: bool = False  # the scheduler has said that there is no room
    message: str = ""  # what keeps it from serving, as a sentence


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of one phase: replicas that may exist on top, and that may be missing. `may_stop`: the last one that serves, too."""

    surge: int = 1
    unavailable: int = 1
    may_stop: bool = False


@dataclass(frozen=True, slots=True)
class RolloutInput:
    """One look at one service. `live` are the counts of Deployments, by revision and variant; `target` is where all shall go.

    `room` are replicas of a variant that could start now besides everything that is counted or promised: free GPUs inside the
    service's budget.
    """

    target: str
    allocation: Mapping[Variant, int]
    live: Mapping[str, Mapping[Variant, int]]
    replicas: tuple[Replica, ...]
    allowances: Mapping[Phase, Allowance]
    room: Mapping[Variant, int] = field(default_factory=dict)
    stable: str = ""  # of several old revisions the one that goes last
    flips: bool = False


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """Replicas to have now, by revision and variant, those that drain left out; and what the rollout waits for."""

    counts: Mapping[str, Mapping[Variant, int]]
    waiting: tuple[str, ...] = ()
    complete: bool = False  # nothing old is left, and all of the allocation serves
    replaced: bool = False  # nothing old is left
    ready: int = 0  # replicas of the target that serve
    serves: bool = False  # each phase has one of those
    replicas: int = 0  # replicas wanted in all
    draining: bool = False
    asked: frozenset[Variant] = frozenset()  # a replica on top would have been started, had `room` shown a GPU for it
