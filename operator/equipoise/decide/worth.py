"""Is a move worth what it costs?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from equipoise.api.identity import Phase
from equipoise.decide.settings import Settings
from equipoise.decide.smoothing import short

_DECODE_CLIFF = 4.0  # a tenth beyond capacity costs a third of the requests, a half nearly all
_QUEUE_IDLE_SHARE = 0.8  # of a prefill replica's peak: up to here a queue bounded by the target refuses hardly anyone (simulated)
_QUEUE_FULL_GOOD = 0.87  # share of requests still in time at the peak; beyond it, as much of what the replica can do (simulated)
_TURNS = 4.0  # regimes to look ahead where demands take turns
_NOTABLE = 0.25  # logarithm of a step: a quarter more or less; smaller ones ask for no other split


@dataclass(frozen=True, slots=True)
class Regimes:
    """How long the present demand should last, and what it was before the last shift.

    `previous` is empty and `mean_seconds` None until the service has shown shifts of its own. `notice_seconds` is how long a
    shift takes to be seen and confirmed. `previous_rates` are the tokens per second of one replica at the lengths of that
    demand: a replica that writes answers of 28 tokens after prompts of 4,000 does a fifth of the tokens it does in a chat.
    """

    dwell_seconds: float = 900.0
    mean_seconds: float | None = None
    notice_seconds: float = 0.0
    previous: Mapping[Phase, float] = field(default_factory=dict)
    previous_rates: Mapping[Phase, float] = field(default_factory=dict)

    def returning(self, phase: Phase, rate: float) -> float | None:
        """The previous demand, in tokens per second of replicas that now do `rate` each; None when there was none."""
        work, rate_then = self.previous.get(phase), self.previous_rates.get(phase, 0.0)
        return work * rate / rate_then if work is not None and rate_then > 0.0 and rate > 0.0 else work

    @property
    def turns_seconds(self) -> float:
        """How long demands are expected to go on taking turns."""
        return 0.0 if self.mean_seconds is None else _TURNS * self.mean_seconds


@dataclass(frozen=True, slots=True)
class Outlook:
    """Requests per second that meet their targets, with and without a move, now and if the previous demand comes back.

    There are two ways to go on after the move, and the better one counts: move back when the demand turns back (then the wrong
    split is served for `back_seconds`), or stay (then gain and loss go on for the `turns` seconds in which both demands
    take turns). The second finds the compromise where demand turns faster than replicas start.
    """

    before: float
    during: float
    after: float
    move_seconds: float
    dwell_seconds: float
    back_before: float = 0.0
    back_after: float = 0.0
    back_seconds: float = 0.0
    turns_seconds: float = 0.0

    @property
    def gain(self) -> float:
        """Good requests won."""
        return self._gain_now + max(0.0, self._gain_of_staying)

    @property
    def loss(self) -> float:
        """Good requests lost while donors are gone and receivers start, and when the previous demand comes back."""
        moving = max(0.0, self.before - self.during) * self.move_seconds
        turning = 0.0 if self._gain_of_staying > 0.0 else max(0.0, self.back_before - self.back_after) * self.back_seconds
        return moving + turning

    @property
    def net(self) -> float:
        """Won less lost."""
        return self.gain - self.loss

    @property
    def _gain_now(self) -> float:
        return (self.after - self.before) * max(0.0, self.dwell_seconds - self.move_seconds)

    @property
    def _gain_of_staying(self) -> float:
        return 0.5 * (self.after - self.before + self.back_after - self.back_before) * self.turns_seconds

    def worth_it(self, settings: Settings) -> bool:
        """A cold move must win clearly more than it costs: the dwell is a guess (`docs/concepts/deciding.md`)."""
        return self.gain > 0.0 and self.gain >= settings.worth_margin * self.loss

    def __str__(self) -> str:
        return (
            f"{self.gain:.0f} good requests won ({self.dwell_seconds:.0f} s the demand is expected to last), "
            f"{self.loss:.0f} lost in {self.move_seconds:.0f} s of moving and when the demand turns back"
        )


def served_share(loads: Mapping[Phase, float], utilisations: Mapping[Phase, float] | None = None) -> float:
    """Share of requests that can meet both targets at these loads (demand / capacity).

    Prefill with a queue bounded by the target serves what it can and refuses the rest; what it refuses never reaches decode. Its
    capacity is what keeps the target percentile inside, a share of its peak (`utilisations`) that is small where lengths spread
    widely; most of the rest still serves, so the peak decides. Decode has no such mercy: all answers share the step, so beyond
    its capacity all become too slow.
    """
    utilisation = (utilisations or {}).get(Phase.PREFILL, 1.0)
    busy = max(0.0, loads.get(Phase.PREFILL, 0.0)) * utilisation
    fine = min(1.0, max(utilisation, _QUEUE_IDLE_SHARE))
    if busy <= fine:
        prefill = 1.0
    elif busy < 1.0:
        prefill = 1.0 - (1.0 - _QUEUE_FULL_GOOD) * (busy - fine) / (1.0 - fine)
    else:
        prefill = _QUEUE_FULL_GOOD / busy
    decode = max(1.0, loads.get(Phase.DECODE, 0.0) * prefill)
    return float(prefill / decode**_DECODE_CLIFF)


def regimes(memory: Mapping[str, float], now_seconds: float, window_seconds: float, settings: Settings) -> Regimes:
    """What the service's own shifts say of the future.

    The present demand should last the mean time between shifts less what has passed, but never less than a quarter of it; one
    that has outlived the mean is expected to last as long again (Lindy).
    """
    previous = {phase: memory[name] for phase in Phase if (name := f"shift.{phase.value}") in memory}
    rates = {phase: memory[name] for phase in Phase if (name := f"shift.{phase}.rate") in memory}
    mean = memory.get("shift.mean", 0.0)
    last = memory.get("shift.at", 0.0)
    if mean <= 0.0 or last <= 0.0:
        return Regimes(settings.dwell_seconds, None, window_seconds, previous, rates)
    elapsed = max(0.0, now_seconds - last)
    total = max(mean, elapsed)
    dwell = max(total - elapsed if elapsed < mean else elapsed, 0.25 * total)
    return Regimes(dwell, mean, window_seconds, previous, rates)


def note_shift(
    extra: Mapping[str, float], now_seconds: float, before: Mapping[Phase, float], after: Mapping[Phase, float]
) -> dict[str, float]:
    """Memory of shifts: when the last one was, how far apart they are, and what the demand was before.

    `before` and `after` are the demands on both sides of a step that chance does not explain. Steps that go on in the direction
    of the last one belong to it: a shift is seen in several windows, and longer answers show only as they are written.
    """
    kept = {name: value for name, value in extra.items() if name.startswith("shift.")}
    last = kept.get("shift.at", 0.0)
    direction = _direction(before, after)
    if direction == 0.0 or direction == kept.get("shift.direction"):
        return kept
    kept["shift.direction"] = direction
    kept.update({f"shift.{phase.value}": short(value) for phase, value in before.items()})
    kept.update({f"shift.{phase}.rate": extra[name] for phase in before if (name := f"rate.{phase}") in extra})
    if last > 0.0:
        gap, mean = now_seconds - last, kept.get("shift.mean", 0.0)
        kept["shift.mean"] = round(gap if mean <= 0.0 else 0.5 * mean + 0.5 * gap, 1)
    kept["shift.at"] = now_seconds
    return kept


def _direction(before: Mapping[Phase, float], after: Mapping[Phase, float]) -> float:
    """1 or -1 when the mix turns to prefill or to decode, 2 or -2 when both grow or fall alike, 0 when little changes."""
    steps = {
        phase: math.log(max(after[phase], 1.0) / max(before[phase], 1.0)) for phase in Phase if phase in before and phase in after
    }
    if len(steps) < 2:
        return 0.0
    mix = steps[Phase.PREFILL] - steps[Phase.DECODE]
    if abs(mix) >= _NOTABLE:
        return math.copysign(1.0, mix)
    size = max(steps.values(), key=abs)
    return math.copysign(2.0, size) if abs(size) >= _NOTABLE else 0.0
