"""The floor under a phase that stays short although its capacity should do: what the model does not know, attainment does."""

from __future__ import annotations

from dataclasses import dataclass, replace

from equipoise.decide.lag import Lag
from equipoise.decide.memory import PhaseMemory
from equipoise.decide.settings import Settings


@dataclass(frozen=True, slots=True)
class Trim:
    """The new memory of the phase and what changed, as a sentence; empty when nothing did."""

    memory: PhaseMemory
    raised: str = ""
    eased: str = ""


def adjust_trim(
    memory: PhaseMemory,
    lag: Lag,
    utilisation: float | None,
    settling: bool,
    promised: float,
    now_seconds: float,
    interval_seconds: float,
    settings: Settings,
) -> Trim:
    """Fast up, slow down, bounded (Narwhal's closed-loop floor).

    `promised` is the share of requests to be inside the target, or what is attainable at all if that is less. Rounds do not
    count while a move is in flight or its pods warm up (`settling`), nor while the phase is known to be short of capacity
    (utilisation above 1): then the shortage is explained already, and a floor on top would wind up. Nor while it is hardly used
    (`trim_least_utilisation`): what is late there is late for other reasons than too few replicas.
    """
    if lag.attainment is None or utilisation is None:
        return Trim(replace(memory, short_rounds=0, good_since_seconds=0.0))
    if lag.attainment < promised:
        if settling or not settings.trim_least_utilisation <= utilisation <= 1.0:
            return Trim(replace(memory, good_since_seconds=0.0))
        rounds = min(memory.short_rounds + 1, int(settings.trim_rounds))  # bounded, so that memory comes to rest
        if rounds < settings.trim_rounds or memory.trim >= settings.trim_most:
            return Trim(replace(memory, short_rounds=rounds, good_since_seconds=0.0))
        trim = min(settings.trim_most, memory.trim * (1.0 + settings.trim_step))
        text = (
            f"attainment {lag.attainment:.1%} is below {promised:.0%} for {rounds} rounds although capacity should do: "
            f"floor raised to {trim:.2f} × demand"
        )
        return Trim(replace(memory, trim=round(trim, 6), short_rounds=rounds, good_since_seconds=0.0), raised=text)
    since = memory.good_since_seconds or now_seconds
    trim = memory.trim
    eased = ""
    if trim > 1.0 and now_seconds - since >= settings.trim_good_seconds and not settling:
        trim = max(1.0, trim * (1.0 - settings.trim_decay_per_minute * interval_seconds / 60.0))
        eased = (
            f"attainment has been {promised:.0%} or better for {now_seconds - since:.0f} s: floor eased to {trim:.2f} × demand"
        )
    return Trim(replace(memory, trim=round(trim, 6), short_rounds=0, good_since_seconds=since), eased=eased)
