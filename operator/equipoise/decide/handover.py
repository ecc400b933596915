"""Handover: when no GPU is free, donors give theirs up first, and receivers start when the GPUs are really free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide import reasons
from equipoise.decide.free import FreeNow
from equipoise.decide.settings import Settings
from equipoise.decide.state import PhaseState, ServiceState
from equipoise.decide.types import Move, MoveKind
from equipoise.decide.worth import Outlook, served_share


@dataclass(slots=True)
class _Gift:
    """Replicas of one donor for one receiver."""

    owner: ServiceState
    donor: Variant
    receiver: Variant
    donors: int
    receivers: int


def hand_over(
    services: Mapping[ServiceKey, ServiceState],
    unmet: Mapping[ServiceKey, Mapping[Variant, int]],
    free: FreeNow,
    interval_seconds: float,
    settings: Settings,
) -> None:
    """For every service that found no free GPU: take what the plan takes from others, if it is confirmed, safe and worth it.

    Only donors shrink in this round. Receivers grow in the round that sees the GPUs free, so the budget is never exceeded in
    between, whatever fails. All replicas of a service move in one transaction (control notes, lesson 2), k donors for one
    receiver where shapes differ.
    """
    arriving = dict(free.draining)
    for key, wishes in unmet.items():
        service = services[key]
        outstanding = _await_draining(service, wishes, arriving)
        if not outstanding:
            continue
        gifts = _find_donors(service, outstanding, services, free)
        _judge(service, outstanding, gifts, interval_seconds, settings)


def _await_draining(service: ServiceState, wishes: Mapping[Variant, int], arriving: dict[str, int]) -> dict[Variant, int]:
    """Wishes that GPUs of draining pods will not meet anyway. Those they will meet only have to wait."""
    outstanding = {}
    for variant, count in wishes.items():
        gpus = variant.shape.gpus_per_replica
        soon = min(count, arriving.get(variant.pool, 0) // gpus)
        if soon:
            arriving[variant.pool] -= soon * gpus
            service.waiting[variant] = service.waiting.get(variant, 0) + soon
            service.say(
                reasons.WAITING_FOR_GPUS,
                f"{variant.phase.value}: {soon} × {variant.pool}/{variant.shape} start when draining pods have left their GPUs",
                variant.phase,
            )
        if count > soon:
            outstanding[variant] = count - soon
    return outstanding


def _find_donors(
    service: ServiceState, wishes: Mapping[Variant, int], services: Mapping[ServiceKey, ServiceState], free: FreeNow
) -> list[_Gift]:
    """Replicas that the plan takes away in the same pool, nearest kin first. Nothing is changed yet."""
    gifts: list[_Gift] = []
    promised: dict[Variant, int] = {}
    for receiver, count in wishes.items():
        wanted_gpus = receiver.shape.gpus_per_replica
        surplus = _surplus(receiver, service, services)
        for _ in range(count):
            have = 0
            chosen: dict[int, int] = {}
            for position, (_, donor) in enumerate(surplus):
                owner = services[donor.service].phases[donor.phase]
                able = owner.next.get(donor, 0) - owner.wanted.get(donor, 0) - promised.get(donor, 0)
                while have < wanted_gpus and able > 0:
                    have += donor.shape.gpus_per_replica
                    able -= 1
                    chosen[position] = chosen.get(position, 0) + 1
                    promised[donor] = promised.get(donor, 0) + 1
            if have < wanted_gpus:
                for position, taken in chosen.items():
                    promised[surplus[position][1]] -= taken
                break
            for position, taken in chosen.items():
                donor = surplus[position][1]
                gifts.append(_Gift(services[donor.service], donor, receiver, taken, 0))
            gifts[-1].receivers = 1
    return _merge(gifts)


def _surplus(
    receiver: Variant, service: ServiceState, services: Mapping[ServiceKey, ServiceState]
) -> list[tuple[tuple[bool, int, Variant], Variant]]:
    found = []
    for owner in services.values():
        if not owner.active:
            continue
        for state in owner.phases.values():
            if not state.automatic:
                continue
            for variant, count in state.next.items():
                if variant.pool == receiver.pool and count > state.wanted.get(variant, 0):
                    found.append(((owner is not service, owner.service.priority, variant), variant))
    return sorted(found)


def _merge(gifts: Sequence[_Gift]) -> list[_Gift]:
    merged: dict[tuple[Variant, Variant], _Gift] = {}
    for gift in gifts:
        known = merged.setdefault((gift.donor, gift.receiver), replace(gift, donors=0, receivers=0))
        known.donors += gift.donors
        known.receivers += gift.receivers
    return list(merged.values())


def _judge(
    service: ServiceState, wishes: Mapping[Variant, int], gifts: list[_Gift], interval_seconds: float, settings: Settings
) -> None:
    below_minimum = any(
        state.replicas() < state.floor for phase, state in service.phases.items() if any(v.phase is phase for v in wishes)
    )
    gifts = [gift for gift in gifts if below_minimum or _safe(service, gift, settings)]
    phases = sorted({variant.phase for variant in wishes})
    if not gifts:
        return
    startup = max(service.phases[gift.receiver.phase].options[gift.receiver].startup_seconds for gift in gifts)
    if not below_minimum:
        needed_rounds = max(2, math.ceil(settings.confirm_share * startup / max(interval_seconds, 1e-9)))
        rounds = 0
        for phase in phases:
            state = service.phases[phase]
            state.memory = replace(state.memory, pressed_rounds=min(state.memory.pressed_rounds + 1, 1000))
            rounds = max(rounds, state.memory.pressed_rounds)
        if rounds < needed_rounds:
            service.say(
                reasons.CONFIRMING,
                f"a handover to {phases[0].value} is wanted for {rounds} of {needed_rounds} rounds, since a start takes "
                f"{startup:.0f} s",
                phases[0],
            )
            return
        outlook = _outlook(service, gifts, startup + settings.drain_seconds)
        if not outlook.worth_it(settings):
            service.say(reasons.NOT_WORTH_IT, f"handover to {phases[0].value}: {outlook}", phases[0])
            return
        text = str(outlook)
    else:
        text = f"{service.service.key} is below its minimum"
    for gift in gifts:
        _give(service, gift, text)


def _safe(service: ServiceState, gift: _Gift, settings: Settings) -> bool:
    """A donor stays inside its target after the move, or clearly better off than the receiver is now; never below its floor."""
    state = gift.owner.phases[gift.donor.phase]
    floor = max(1, state.floor)
    left = {**state.next, gift.donor: state.next[gift.donor] - gift.donors}
    if sum(left.values()) < floor:
        return False
    if gift.owner.service.priority < service.service.priority:
        return True
    work = state.steady or 0.0
    capacity = state.capacity(left)
    after = 0.0 if work <= 0.0 else work / capacity if capacity > 0.0 else float("inf")
    receiver = service.phases[gift.receiver.phase]
    serving = receiver.capacity(receiver.next)
    before = (receiver.steady or 0.0) / serving if serving > 0.0 else float("inf")
    if after <= 1.0 and not (state.lag.lagging and state.memory.short_rounds >= 2):
        return True
    if after <= before * (1.0 - settings.flip_gain):
        return True
    service.say(
        reasons.DONOR_UNSAFE,
        f"{gift.donor} would be at {after:.2f} of its capacity without {gift.donors} replicas, {receiver.phase.value} is at "
        f"{before:.2f}: nothing is taken",
        receiver.phase,
    )
    return False


def _outlook(service: ServiceState, gifts: Sequence[_Gift], move_seconds: float) -> Outlook:
    """Good requests per second over all services that take part. Queues are left out: by the end of the move they are gone."""
    owners: dict[ServiceKey, ServiceState] = {gift.owner.service.key: gift.owner for gift in gifts}
    owners[service.service.key] = service
    before = during = after = 0.0
    for owner in owners.values():
        rate = max(
            (phase.demand.requests_per_second for phase in owner.phases.values() if hasattr(phase.demand, "requests_per_second")),
            default=0.0,
        )
        now: dict[object, float] = {}
        meanwhile: dict[object, float] = {}
        then: dict[object, float] = {}
        for phase, state in owner.phases.items():
            less = dict(state.next)
            more = dict(state.next)
            for gift in gifts:
                if gift.owner is owner and gift.donor.phase is phase:
                    less[gift.donor] -= gift.donors
                    more[gift.donor] -= gift.donors
                if owner is service and gift.receiver.phase is phase:
                    more[gift.receiver] = more.get(gift.receiver, 0) + gift.receivers
            now[phase] = _load(phase, state, state.next)
            meanwhile[phase] = _load(phase, state, less)
            then[phase] = _load(phase, state, more)
        before += rate * served_share(now)
        during += rate * served_share(meanwhile)
        after += rate * served_share(then)
    return Outlook(before, during, after, move_seconds, service.dwell_seconds)


def _load(phase: Phase, state: PhaseState, counts: Mapping[Variant, int]) -> float:
    work = state.steady or 0.0
    if work <= 0.0:
        return 0.0
    capacity = state.capacity(counts)
    return work / capacity if capacity > 0.0 else float("inf")


def _give(service: ServiceState, gift: _Gift, text: str) -> None:
    state = gift.owner.phases[gift.donor.phase]
    state.next[gift.donor] -= gift.donors
    service.waiting[gift.receiver] = service.waiting.get(gift.receiver, 0) + gift.receivers
    move = Move(MoveKind.HANDOVER, gift.donor, gift.receiver, gift.receivers, gift.donors, text)
    service.moves.append(move)
    service.say(
        reasons.HANDED_OVER,
        f"{gift.donors} × {gift.donor} leave their GPUs to {gift.receiver.phase.value}: {text}",
        gift.receiver.phase,
    )
    if gift.owner is not service:
        gift.owner.moves.append(
            Move(MoveKind.SHRINK, gift.donor, None, gift.donors, gift.donors, f"handed over to {service.service.key}")
        )
        gift.owner.say(
            reasons.HANDED_OVER,
            f"{gift.donors} × {gift.donor} leave their GPUs to {service.service.key}: {text}",
            gift.donor.phase,
        )
