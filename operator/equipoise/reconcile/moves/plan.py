"""From the allocation and what lives to the next steps of every Deployment of one service. Pure and level-triggered.

Nothing here remembers a step: each call looks at what is and says what is missing, so the operator may die between any two
writes and the next call goes on from there. The order inside one plan matters and is fixed:

1. `first_counts`: receivers of flips up (an adopted pod must find room, or the ReplicaSet deletes a ready one), grows;
2. `adoptions`: running pods change Deployment by their labels, once the receiver's ReplicaSet has heard of its count (`heard`);
3. `undrains`, `drains`: back into routing, out of routing;
4. `final_counts`: donors of flips down, and drained pods let go; each only when the ReplicaSet is known to have seen why.

Verified against the real controllers: any other order of 1, 2 and 4 deletes a pod that serves. A ReplicaSet controller hears of
pods and of counts by two watches that may overtake each other: a label right after a raised count, or a count that is lowered
right after a label, deletes a pod that serves, now and then. So a label waits for the receiver's ReplicaSet to know its count, a
donor keeps its count until its ReplicaSet has let the flipped pod go (`unreleased`), and a drained pod is marked in one pass and
its count lowered in a later one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from equipoise.api.identity import Phase, Variant
from equipoise.reconcile.moves.choose import by_least_loss
from equipoise.reconcile.view.pods import EnginePod


@dataclass(frozen=True, slots=True)
class Adoption:
    """A running pod that moves to the receiver's Deployment."""

    pod: EnginePod
    receiver: Variant


@dataclass(frozen=True, slots=True)
class Waiting:
    """A step that waits, for whom, and why."""

    pod: str
    message: str


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What to do now, in this order. Counts are Deployment replicas."""

    first_counts: Mapping[Variant, int]
    adoptions: tuple[Adoption, ...]
    undrains: tuple[EnginePod, ...]
    drains: tuple[EnginePod, ...]
    releases: tuple[EnginePod, ...]  # drained: to be the ones that the ReplicaSet deletes
    final_counts: Mapping[Variant, int]
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveInput:
    """All a plan may know. `live` are the Deployments' counts now; absent ones do not exist yet."""

    allocation: Mapping[Variant, int]
    live: Mapping[Variant, int]
    pods: Sequence[EnginePod]
    flips: bool
    now_seconds: float
    drain_grace_seconds: float
    idle_pods: AbstractSet[str] = frozenset()  # draining pods that are known to hold no request any more
    unreleased: Mapping[Variant, int] | None = None  # pods that left by their labels, still held by that variant's ReplicaSet
    leaving_nodes: tuple[str, ...] = ()  # about to go: their pods are given up first
    decided: Mapping[Variant, int] | None = None  # without successors that stand in for pods on such nodes; None: the allocation


def plan_moves(given: MoveInput) -> MovePlan:
    """The next steps for all variants of one service."""
    pods = _by_variant(given.pods)
    adoptions = _adoptions(given, pods) if given.flips else ()
    leaving: dict[Variant, set[str]] = {}
    arriving: dict[Variant, int] = {}
    for adoption in adoptions:
        leaving.setdefault(adoption.pod.variant, set()).add(adoption.pod.name)
        arriving[adoption.receiver] = arriving.get(adoption.receiver, 0) + 1

    first: dict[Variant, int] = {}
    final: dict[Variant, int] = {}
    undrains: list[EnginePod] = []
    drains: list[EnginePod] = []
    releases: list[EnginePod] = []
    waiting: list[Waiting] = []
    for variant in sorted({*given.allocation, *given.live}):
        target, live = given.allocation.get(variant, 0), given.live.get(variant, 0)
        flipped_away = leaving.get(variant, set())
        going = len(flipped_away) + (given.unreleased or {}).get(variant, 0)
        stay = _without_released(
            [pod for pod in pods.get(variant, ()) if pod.name not in flipped_away and not pod.terminating],
            live - going,
        )
        draining = [pod for pod in stay if pod.draining]
        serving_count = live - going - len(draining) + arriving.get(variant, 0)
        if target >= serving_count:
            back = by_least_loss(draining)[::-1][: target - serving_count]
            undrains += back
            kept_draining = [pod for pod in draining if pod not in back]
            count = target + len(kept_draining)
        else:
            candidates = [pod for pod in stay if not pod.draining]
            missing_pods = max(0, serving_count - len(candidates))  # counted, not created yet: nothing to drain there
            surplus = max(0, serving_count - target - missing_pods)
            chosen = by_least_loss(candidates, given.leaving_nodes)[:surplus]
            fresh = [pod for pod in chosen if not pod.ready or not pod.bound]
            drains += [pod for pod in chosen if pod not in fresh]
            releases += [pod for pod in fresh if not pod.released]
            kept_draining = draining + [pod for pod in chosen if pod not in fresh]
            count = target + len(kept_draining)
        finished = [pod for pod in kept_draining if pod.draining and _finished(pod, given)]
        releases += [pod for pod in finished if not pod.released]
        waiting += [_wait(pod, given) for pod in kept_draining if pod not in finished]
        first[variant] = max(live, count)
        settled = count - sum(pod.released for pod in finished)
        final[variant] = max(settled, min(live, settled + going))
    return MovePlan(
        first_counts=first,
        adoptions=adoptions,
        undrains=tuple(undrains),
        drains=tuple(drains),
        releases=tuple(releases),
        final_counts=final,
        waiting=tuple(waiting),
    )


def _by_variant(pods: Sequence[EnginePod]) -> dict[Variant, list[EnginePod]]:
    result: dict[Variant, list[EnginePod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.name):
        result.setdefault(pod.variant, []).append(pod)
    return result


def _adoptions(given: MoveInput, pods: Mapping[Variant, Sequence[EnginePod]]) -> tuple[Adoption, ...]:
    """Surplus running pods of one phase that the other phase of the same pool and shape lacks.

    Pods that are ready are counted, not the Deployments' wishes: after a crash between "receiver up" and "label", the receiver
    already asks for the replica but has no ready pod for it, and the flip is found again. A pod that still starts is no reason
    to let a ready one go instead of flipping it: once the flipped one has come, the ReplicaSet gives up one that is not ready.
    """
    result: list[Adoption] = []
    for receiver in sorted(given.allocation):
        donor = receiver.with_phase(receiver.phase.other)
        wanted = given.allocation if given.decided is None else given.decided  # a successor is started, not taken from a phase
        lacking = wanted.get(receiver, 0) - sum(_stays(pod) for pod in pods.get(receiver, ()))
        able = [pod for pod in pods.get(donor, ()) if pod.serving and pod.bound]
        surplus = len(able) - given.allocation.get(donor, 0)
        count = min(lacking, surplus)
        if count > 0:
            result += [Adoption(pod, receiver) for pod in by_least_loss(able)[:count]]
    return tuple(result)


def _stays(pod: EnginePod) -> bool:
    return pod.bound and pod.ready and not pod.terminating


def _without_released(pods: Sequence[EnginePod], live: int) -> list[EnginePod]:
    """Without the pods that were let go already: the Deployment's count is lowered, the ReplicaSet has yet to delete them."""
    excess = max(0, len(pods) - live)
    gone = {pod.name for pod in by_least_loss(pod for pod in pods if pod.released)[:excess]}
    return [pod for pod in pods if pod.name not in gone]


def _finished(pod: EnginePod, given: MoveInput) -> bool:
    """Drained: known to be idle, unable to serve anyway, or past its grace."""
    return pod.name in given.idle_pods or not pod.ready or _left(pod, given) <= 0.0


def _left(pod: EnginePod, given: MoveInput) -> float:
    since = pod.draining_since_seconds
    return given.drain_grace_seconds if since is None else since + given.drain_grace_seconds - given.now_seconds


def _wait(pod: EnginePod, given: MoveInput) -> Waiting:
    what = "answers in progress" if pod.variant.phase is Phase.DECODE else "prompts in progress and KV not yet fetched"
    return Waiting(pod.name, f"{pod.name} drains: {what}, at most {max(0.0, _left(pod, given)):.0f} s more")
