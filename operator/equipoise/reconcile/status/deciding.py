"""The one reason that stands for a decision, for a metric's label: many rules speak in a round, one of them decided."""

from __future__ import annotations

from typing import Final

from equipoise.decide import reasons
from equipoise.decide.types import Decision, Verdict

_DONE: Final = frozenset(
    {
        reasons.FLIPPED,
        reasons.GROWN,
        reasons.SHRUNK,
        reasons.HANDED_OVER,
        reasons.MINIMUM_FIRST,
        reasons.PENDING_CANCELLED,
        reasons.CAP_ENFORCED,
        reasons.LEFTOVER_RELEASED,
        reasons.MIGRATING,
    }
)


def deciding_reason(decision: Decision) -> str:
    """Name of the first thing that was done, else of the last word on why nothing was; empty when nobody spoke.

    What is merely seen (demand, a single replica) is said before either and decides nothing.
    """
    names = [reason.name for reason in decision.reasons]
    done = (name for name in names if name in _DONE) if decision.verdict is Verdict.MOVE else iter(())
    return next(done, names[-1] if names else "")
