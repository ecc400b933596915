"""Engine pods in the order in which `decide.donors` gives them up."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.decide.donors import PodView, choose_pods
from equipoise.reconcile.view.pods import EnginePod


def by_least_loss(pods: Iterable[EnginePod], leaving_nodes: tuple[str, ...] = ()) -> list[EnginePod]:
    """All of them, the one whose loss costs least first: what is on a node that is about to go, is lost anyway."""
    found = {pod.name: pod for pod in pods}
    views = [PodView(pod.name, pod.ready, pod.bound, pod.draining, pod.created_seconds, None, pod.node) for pod in found.values()]
    return [found[view.name] for view in choose_pods(views, len(views), leaving_nodes)]
