"""Which pods to give up, or to flip, first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodView:
    """What the choice may know of a pod. `work` is what it holds: running and waiting requests, or KV tokens; None: not known."""

    name: str
    ready: bool = True
    bound: bool = True  # has a node
    draining: bool = False
    created_seconds: float = 0.0
    work: float | None = None
    node: str = ""


def choose_pods(pods: Iterable[PodView], count: int, nodes: tuple[str, ...] = ()) -> list[PodView]:
    """The `count` pods whose loss costs least, in the order in which to give them up.

    Pods that are already leaving, then those that do not serve (not ready, and of these the ones without a node first), then
    the least work in progress (an unknown amount counts as much), then the youngest, whose caches are coldest; names last, so
    that equal input gives equal output. `nodes`: the receiver needs GPUs there, so pods on these come first of all.
    """

    def loss(pod: PodView) -> tuple[bool, bool, bool, bool, float, float, str]:
        work = float("inf") if pod.work is None else pod.work
        return (
            bool(nodes) and pod.node not in nodes,
            not pod.draining,
            pod.ready,
            pod.bound,
            work,
            -pod.created_seconds,
            pod.name,
        )

    return sorted(pods, key=loss)[: max(0, count)]
