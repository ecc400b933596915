"""Handover: when no GPU is free, donors give theirs up first, and receivers start when the GPUs are really free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide import reasons
from equipoise.decide.demand import Demand
from equipoise.decide.free import FreeNow
from equipoise.decide.gifts import Donors, Gift, Unit, merge, within_floors
from equipoise.decide.settings import Settings
from equipoise.decide.smoothing import short
from equipoise.decide.state import PhaseState, ServiceState, figure, load
from equipoise.decide.types import Move, MoveKind
from equipoise.decide.worth import Outlook, served_share
from equipoise.fleet.types import Fleet

_TRIES = 16


def hand_over(
    services: Mapping[ServiceKey, ServiceState],
    unmet: Mapping[ServiceKey, Mapping[Variant, int]],
    fleet: Fleet,
    free: FreeNow,
    interval_seconds: float,
    settings: Settings,
) -> None:
    """For every service that found no free GPU: take what the plan takes from others, if it is confirmed, safe and worth it.

    Only donors shrink in this round. Receivers grow in the round that sees the GPUs free, so the budget is never exceeded in
    between, whatever fails. All replicas of a service move in one transaction (one at a time loses more than it wins), k
    donors for one receiver where shapes differ.
    """
    for state in services.values():
        _remember_rates(state)
    arriving = dict(free.draining)
    donors = Donors(services, fleet, free)
    for key, wishes in unmet.items():
        service = services[key]
        outstanding = _await_draining(service, wishes, arriving)
        if not outstanding:
            continue
        units = donors.units(outstanding)
        for gift in _judge(service, outstanding, units, interval_seconds, settings) if units else ():
            donors.given(gift)


def _remember_rates(service: ServiceState) -> None:
    """What a replica does at the present lengths, for the time when the demand has turned and may turn back (`worth.Regimes`)."""
    for phase, state in service.phases.items():
        rate = _mean_rate(state)
        if rate > 0.0:
            service.extra[f"rate.{phase}"] = short(rate)
        elif (name := f"rate.{phase}") in service.memory.extra:
            service.extra[name] = service.memory.extra[name]


def _mean_rate(state: PhaseState) -> float:
    count = state.replicas()
    return state.capacity(state.next) / count if count else 0.0


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


def _judge(
    service: ServiceState,
    wishes: Mapping[Variant, int],
    units: list[Unit],
    interval_seconds: float,
    settings: Settings,
) -> list[Gift]:
    """The gifts that were made."""
    phases = sorted({variant.phase for variant in wishes})
    units = within_floors(units)
    if any(service.phases[phase].replicas() < service.phases[phase].floor for phase in phases):
        return [_give(service, gift, f"{service.service.key} is below its minimum") for gift in merge(units)]
    units = _safe_units(service, units, settings)
    if not units:
        return []
    startup = max(service.phases[gift.receiver.phase].options[gift.receiver].startup_seconds for unit in units for gift in unit)
    move_seconds = startup + settings.drain_seconds
    notice_seconds = service.regimes.notice_seconds + settings.confirm_share * startup
    outlooks = [
        (outlook, count)
        for count in _counts_to_try(len(units))
        if (outlook := _outlook(service, units[:count], move_seconds, notice_seconds)).worth_it(settings)
    ]
    if not outlooks:
        outlook = _outlook(service, units, move_seconds, notice_seconds)
        service.say(reasons.NOT_WORTH_IT, f"handover to {phases[0].value}: {outlook}", phases[0])
        _unconfirm(service, phases)
        return []
    if not _confirmed(service, phases, startup, interval_seconds, settings):
        return []
    best, count = max(outlooks, key=lambda item: (item[0].net, item[1]))
    return [_give(service, gift, str(best)) for gift in merge(units[:count])]


def _counts_to_try(most: int) -> list[int]:
    """How many replicas to move at once. Between all and none may lie the compromise that serves a demand that will turn back."""
    step = max(1, most // _TRIES)
    return sorted({most, *range(step, most + 1, step)})


def _confirmed(
    service: ServiceState, phases: Sequence[Phase], startup: float, interval_seconds: float, settings: Settings
) -> bool:
    """A cold move must be wanted, and worth it, for a share of its start-up time: the dearer the move, the slower the trigger.

    Measured in `docs/concepts/deciding.md`.
    """
    needed = max(2, math.ceil(settings.confirm_share * startup / max(interval_seconds, 1e-9)))
    rounds = 0
    for phase in phases:
        state = service.phases[phase]
        state.memory = replace(state.memory, pressed_rounds=min(state.memory.pressed_rounds + 1, needed))
        rounds = max(rounds, state.memory.pressed_rounds)
    if rounds >= needed:
        return True
    service.say(
        reasons.CONFIRMING,
        f"a handover to {phases[0].value} is wanted for {rounds} of {needed} rounds, since a start takes {startup:.0f} s",
        phases[0],
    )
    return False


def _unconfirm(service: ServiceState, phases: Sequence[Phase]) -> None:
    """What was not worth it does not count as wanted: else the first glimpse of a shift would act on old confirmations."""
    for phase in phases:
        state = service.phases[phase]
        state.memory = replace(state.memory, pressed_rounds=0)


def _safe_units(service: ServiceState, units: list[Unit], settings: Settings) -> list[Unit]:
    """As many gifts as leave every donor safe. Each is judged on top of those before it."""
    safe: list[Unit] = []
    for unit in units:
        trial = merge([*safe, unit])
        refusal = next((text for gift in trial if (text := _refusal(service, gift, settings))), "")
        if refusal:
            if not safe:
                service.say(reasons.DONOR_UNSAFE, refusal, unit[0].receiver.phase)
            break
        safe.append(unit)
    return safe


def _refusal(service: ServiceState, gift: Gift, settings: Settings) -> str:
    """Why the donor must keep its replicas; empty when it may give them.

    A donor stays inside its target after the move, or clearly better off than the receiver is now. A service of lower
    priority gives what the plan takes.
    """
    state = gift.owner.phases[gift.donor.phase]
    left = {**state.next, gift.donor: state.next[gift.donor] - gift.donors}
    if gift.owner.service.priority < service.service.priority:
        return ""
    after = load(state.steady, state.capacity(left))
    receiver = service.phases[gift.receiver.phase]
    before = load(receiver.steady, receiver.capacity(receiver.next))
    if after <= 1.0 and not (state.lag.lagging and state.memory.short_rounds >= settings.trim_rounds):
        return ""
    rising = isinstance(state.demand, Demand) and state.demand.rising
    if after <= before * (1.0 - settings.flip_gain) and not rising:
        return ""
    return (
        f"{gift.donor} would be at {figure(after)} of its capacity without {gift.donors} replicas, {receiver.phase.value} is at "
        f"{figure(before)}: nothing is taken"
    )


def _outlook(service: ServiceState, units: Sequence[Unit], move_seconds: float, notice_seconds: float) -> Outlook:
    """Good requests per second over all services that take part. Queues are left out: by the end of the move they are gone."""
    gifts = [gift for unit in units for gift in unit]
    owners: dict[ServiceKey, ServiceState] = {gift.owner.service.key: gift.owner for gift in gifts}
    owners[service.service.key] = service
    sums = dict.fromkeys(("before", "during", "after", "back_before", "back_after"), 0.0)
    for owner in owners.values():
        rate = max((s.demand.requests_per_second for s in owner.phases.values() if isinstance(s.demand, Demand)), default=0.0)
        shares: dict[str, dict[Phase, float]] = {name: {} for name in sums}
        utilisations: dict[Phase, float] = {}
        for phase, state in owner.phases.items():
            less, more = dict(state.next), dict(state.next)
            for gift in gifts:
                if gift.owner is owner and gift.donor.phase is phase:
                    less[gift.donor] -= gift.donors
                    more[gift.donor] -= gift.donors
                if owner is service and gift.receiver.phase is phase:
                    more[gift.receiver] = more.get(gift.receiver, 0) + gift.receivers
            shares["before"][phase] = load(state.steady, state.capacity(state.next))
            shares["during"][phase] = load(state.steady, state.capacity(less))
            shares["after"][phase] = load(state.steady, state.capacity(more))
            returning = owner.regimes.returning(phase, _mean_rate(state))
            back = state.steady if returning is None else returning
            utilisations[phase] = _utilisation(state)
            shares["back_before"][phase] = load(back, state.capacity(state.next))
            shares["back_after"][phase] = load(back, state.capacity(more))
        for name, loads in shares.items():
            sums[name] += rate * served_share(loads, utilisations)
    seen = service.regimes
    back_seconds = 0.0 if seen.mean_seconds is None else min(seen.mean_seconds, move_seconds + notice_seconds)
    return Outlook(
        **sums,
        move_seconds=move_seconds,
        dwell_seconds=seen.dwell_seconds,
        back_seconds=back_seconds,
        turns_seconds=seen.turns_seconds,
    )


def _utilisation(state: PhaseState) -> float:
    """Capacity as a share of the peak, over the replicas there are (over all options when there are none)."""
    counts = {variant: count for variant, count in state.next.items() if count and variant in state.options}
    options = [(state.options[variant].capacity, count) for variant, count in counts.items()]
    options = options or [(option.capacity, 1) for option in state.options.values()]
    peak = sum(c.tokens_per_second / max(c.utilisation, 1e-6) * n for c, n in options)
    return sum(c.tokens_per_second * n for c, n in options) / peak if peak > 0.0 else 1.0


def _give(service: ServiceState, gift: Gift, text: str) -> Gift:
    state = gift.owner.phases[gift.donor.phase]
    state.next[gift.donor] -= gift.donors
    service.waiting[gift.receiver] = service.waiting.get(gift.receiver, 0) + gift.receivers
    move = Move(MoveKind.HANDOVER, gift.donor, gift.receiver, gift.receivers, gift.donors, text, gift.nodes)
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
    return gift
