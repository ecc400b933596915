"""Pods that find no node: they count as capacity on its way, until a deadline."""

from __future__ import annotations

from equipoise.api.identity import Phase, Variant
from equipoise.decide import reasons
from equipoise.decide.memory import variant_key
from equipoise.decide.settings import Settings
from equipoise.decide.state import ServiceState
from equipoise.decide.types import Move, MoveKind


def cancel_overdue(service: ServiceState, now_seconds: float, settings: Settings) -> None:
    """Give up pods that have been without a node for `pending_deadline_seconds`, and leave their variant alone for a while.

    A pod that can never be scheduled froze all scaling of a rival for an hour. Here it stops nothing but itself.
    """
    for phase, state in sorted(service.phases.items()):
        for variant, status in sorted(state.statuses.items()):
            overdue = status.pending > 0 and status.oldest_pending_seconds >= settings.pending_deadline_seconds
            count = min(status.pending, state.next.get(variant, 0))
            if not overdue or count <= 0:
                continue
            state.next[variant] -= count
            service.extra[blocked_name(variant)] = now_seconds + settings.pending_retry_seconds
            text = (
                f"{count} pod{'s' if count > 1 else ''} of {phase.value} on {variant.pool}/{variant.shape} had no node for "
                f"{status.oldest_pending_seconds:.0f} s: given up, tried again in {settings.pending_retry_seconds:.0f} s. "
                "See the pod's Events for what the scheduler misses"
            )
            service.moves.append(Move(MoveKind.SHRINK, variant, None, count, count, text))
            service.say(reasons.PENDING_CANCELLED, text, phase)


def blocked_name(variant: Variant) -> str:
    """Name in memory of the time until which no pod of this variant is started."""
    return f"blocked.{variant_key(variant)}"


def blocked_until(extra: dict[str, float], variant: Variant) -> float:
    """That time; 0.0 when the variant is not blocked."""
    return extra.get(blocked_name(variant), 0.0)


def pending_phases(service: ServiceState) -> list[Phase]:
    """Phases with pods that have no node."""
    return [phase for phase, state in sorted(service.phases.items()) if any(s.pending for s in state.statuses.values())]
