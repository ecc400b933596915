"""Is a move worth what it costs?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from equipoise.decide.settings import Settings


@dataclass(frozen=True, slots=True)
class Outlook:
    """Requests per second that meet their targets before, during and after a move, and how long each lasts."""

    before: float
    during: float
    after: float
    move_seconds: float
    dwell_seconds: float

    @property
    def gain(self) -> float:
        """Good requests won from the end of the move to the end of the dwell."""
        return (self.after - self.before) * max(0.0, self.dwell_seconds - self.move_seconds)

    @property
    def loss(self) -> float:
        """Good requests lost while donors are gone and receivers start."""
        return max(0.0, self.before - self.during) * self.move_seconds

    def worth_it(self, settings: Settings) -> bool:
        """A cold move must win clearly more than it costs: the dwell is a guess (control notes, lessons 8 and 11)."""
        return self.gain > 0.0 and self.gain >= settings.worth_margin * self.loss

    def __str__(self) -> str:
        return (
            f"{self.gain:.0f} good requests won in the {self.dwell_seconds:.0f} s the demand is expected to last, "
            f"{self.loss:.0f} lost in {self.move_seconds:.0f} s of moving"
        )


def served_share(loads: Mapping[object, float]) -> float:
    """Share of requests that can meet both targets at these loads: what is beyond capacity comes too late, in either phase.

    With queues bounded by the target the share falls as 1 / load; without bounds it falls further, which only speaks louder for
    the move.
    """
    worst = max(loads.values(), default=0.0)
    return 1.0 if worst <= 1.0 else 1.0 / worst


def expected_dwell(extra: Mapping[str, float], now_seconds: float, settings: Settings) -> float:
    """How long the present demand should last, learned from the service's own shifts.

    The mean time between shifts less what has passed, but never less than a quarter of it; a demand that has outlived the mean is
    expected to last as long again (Lindy).
    """
    mean = extra.get("shift.mean", 0.0)
    last = extra.get("shift.at", 0.0)
    if mean <= 0.0 or last <= 0.0:
        return settings.dwell_seconds
    elapsed = max(0.0, now_seconds - last)
    total = max(mean, elapsed)
    return max(total - elapsed if elapsed < mean else elapsed, 0.25 * total)


def note_shift(extra: Mapping[str, float], shifted: bool, now_seconds: float, apart_seconds: float) -> dict[str, float]:
    """Memory of shifts: when the last one was and how far apart they are. One shift seen in several windows is one."""
    kept = {name: extra[name] for name in ("shift.at", "shift.mean") if name in extra}
    if not shifted:
        return kept
    last = kept.get("shift.at", 0.0)
    if last <= 0.0:
        return {"shift.at": now_seconds}
    gap = now_seconds - last
    if gap < apart_seconds:
        return kept
    mean = kept.get("shift.mean", 0.0)
    return {"shift.at": now_seconds, "shift.mean": round(gap if mean <= 0.0 else 0.5 * mean + 0.5 * gap, 1)}
