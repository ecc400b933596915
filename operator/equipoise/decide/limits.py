"""The user's caps: what runs above them goes, whatever the demand."""

from __future__ import annotations

from collections.abc import Callable

from equipoise.api.identity import Phase, Variant
from equipoise.decide import reasons
from equipoise.decide.state import PhaseState, ServiceState, load
from equipoise.decide.types import Move, MoveKind, Scaling

_EPSILON = 1e-9


def enforce_caps(service: ServiceState) -> None:
    """Bring a service that runs above max, maxGPUs or maxCostPerHour back inside at once.

    It gets there when a cap is lowered while replicas run. A cap wins over a floor (a rival ran 6 replicas because min = max = 5
    of two GPUs each did not fit): that is said, and a phase below its floor shows as CapacityLimited. What goes first is what the
    less loaded phase misses least. A namespace's quota only limits growth, as it does in Kubernetes.
    """
    given = service.service
    for phase, state in sorted(service.phases.items()):
        if state.policy.scaling is Scaling.AUTO:
            _cut(
                service, state.replicas, state.policy.maximum, [state], f"spec.phases.{phase.value}.max is {state.policy.maximum}"
            )
    every = list(service.phases.values())
    _cut(service, service.gpus, given.max_gpus, every, f"maxGPUs is {given.max_gpus}")
    _cut(service, service.cost, given.max_cost_usd_per_hour, every, f"maxCostPerHour is {given.max_cost_usd_per_hour}")


def _cut(service: ServiceState, measure: Callable[[], float], most: float | None, states: list[PhaseState], cap: str) -> None:
    cut: dict[Variant, int] = {}
    below: set[Phase] = set()
    while most is not None and measure() > most + _EPSILON:
        choice = _cheapest_loss(states)
        if choice is None:
            break
        state, variant = choice
        state.next[variant] -= 1
        cut[variant] = cut.get(variant, 0) + 1
        if state.replicas() < state.floor:
            below.add(state.phase)
    for variant, count in sorted(cut.items()):
        text = f"{cap}: {count} × {variant.pool}/{variant.shape} of {variant.phase.value} given back"
        if variant.phase in below:
            text += f", below the minimum of {service.phases[variant.phase].floor}, which does not fit"
        service.moves.append(Move(MoveKind.SHRINK, variant, None, count, count, text))
        service.say(reasons.CAP_ENFORCED, text, variant.phase)


def _cheapest_loss(states: list[PhaseState]) -> tuple[PhaseState, Variant] | None:
    """The replica to lose: above a floor rather than at it, where the load after it is lowest, the dearest first."""
    found: list[tuple[tuple[bool, bool, float, float, Variant], PhaseState]] = []
    for state in states:
        for variant, count in state.next.items():
            if count <= 0:
                continue
            left = state.capacity(state.next) - state.rate(variant)
            option = state.options.get(variant)
            price = option.price_usd_per_hour if option is not None else float("inf")
            count_after = state.replicas() - 1
            key = (count_after < 1, count_after < state.floor, load(state.steady, left), -price, variant)
            found.append((key, state))
    if not found:
        return None
    key, state = min(found, key=lambda item: item[0])
    return state, key[-1]


def room_in_caps(service: ServiceState, variant: Variant, count: int) -> int:
    """How many of `count` new replicas the caps and the namespace's quota allow. Pods that drain still hold what they had."""
    given, state = service.service, service.phases[variant.phase]
    gpus = variant.shape.gpus_per_replica
    price = service.gpu_prices.get(variant.pool, 0.0) * gpus
    leaving = [status for phase in service.phases.values() for status in phase.statuses.values() if status.draining]
    held_gpus = service.gpus() + sum(status.variant.shape.gpus_per_replica * status.draining for status in leaving)
    rooms = [count]
    if state.policy.maximum is not None and state.policy.scaling is Scaling.AUTO:
        rooms.append(state.policy.maximum - state.replicas())
    rooms += [(cap - held_gpus) // gpus for cap in (given.max_gpus, given.max_quota_gpus) if cap is not None]
    if given.max_cost_usd_per_hour is not None and price > 0.0:
        spent = service.cost() + sum(
            service.gpu_prices.get(status.variant.pool, 0.0) * status.variant.shape.gpus_per_replica * status.draining
            for status in leaving
        )
        rooms.append(int((given.max_cost_usd_per_hour + _EPSILON - spent) // price))
    return max(0, min(rooms))
