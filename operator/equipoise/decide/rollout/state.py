"""The story of a rollout over many looks: begun, getting on, given up and rolled back, done. Pure; it lives in status."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from equipoise.decide.rollout.types import RolloutStep


class Stage(StrEnum):
    """Where a rollout is."""

    STEADY = "Steady"  # one revision, as the spec asks
    ROLLING = "Rolling"
    ROLLING_BACK = "RollingBack"  # what the spec asks for did not come up in time
    ROLLED_BACK = "RolledBack"  # the last good revision serves until the spec asks for another one


@dataclass(frozen=True, slots=True)
class RolloutState:
    """`wanted` is what the spec asks for, `stable` what last served as a whole. Times are seconds since the epoch."""

    wanted: str
    stable: str
    stage: Stage = Stage.STEADY
    started_seconds: float = 0.0
    progressed_seconds: float = 0.0
    best_ready: int = 0
    draining: bool = False
    reason: str = ""

    @property
    def target(self) -> str:
        """The revision to go to now."""
        return self.stable if self.stage in (Stage.ROLLING_BACK, Stage.ROLLED_BACK) else self.wanted

    def deadline_seconds(self, allowed_seconds: float) -> float | None:
        """When it is given up unless one more replica serves; None: never, as it stands."""
        if self.stage is not Stage.ROLLING or self.draining or self.stable == self.wanted:
            return None
        return self.progressed_seconds + allowed_seconds


def begin(wanted: str, present: dict[str, int]) -> RolloutState:
    """The state of a service of which nothing is remembered. `present`: replicas that serve, by revision that has pods."""
    if not present or set(present) == {wanted}:
        return RolloutState(wanted, wanted)
    others = {name: count for name, count in present.items() if name != wanted}
    return RolloutState(wanted, max(sorted(others), key=lambda name: others[name]), Stage.ROLLING)


def turn(old: RolloutState, wanted: str, now_seconds: float) -> RolloutState:
    """What the spec asks for now: another revision begins another rollout, also in the middle of one, and ends a rollback."""
    if wanted == old.wanted:
        return (
            old
            if old.started_seconds or old.stage is Stage.STEADY
            else replace(old, started_seconds=now_seconds, progressed_seconds=now_seconds)
        )
    return RolloutState(wanted, old.stable, Stage.ROLLING, now_seconds, now_seconds)


def advance(state: RolloutState, step: RolloutStep, now_seconds: float, allowed_seconds: float) -> RolloutState:
    """The state after a look, given what the look found. Called only while another revision than the target may be there."""
    if state.stage in (Stage.STEADY, Stage.ROLLED_BACK):
        return state
    if step.complete:
        if state.stage is Stage.ROLLING_BACK:
            return replace(state, stage=Stage.ROLLED_BACK, draining=False)
        return RolloutState(state.wanted, state.wanted)
    if step.ready > state.best_ready or (state.draining and not step.draining):
        state = replace(state, progressed_seconds=now_seconds, best_ready=max(step.ready, state.best_ready))
    state = replace(state, draining=step.draining)
    deadline = state.deadline_seconds(allowed_seconds)
    if deadline is None or now_seconds < deadline:
        return state
    if step.replaced and step.serves:
        return RolloutState(state.wanted, state.wanted)  # all but the last few serve: those are an ordinary pod's trouble
    waited = "; ".join(step.waiting[:3]) or "no pod came up"
    text = f"revision {state.wanted} had no further replica ready for {allowed_seconds:.0f} s: {waited}"
    return replace(state, stage=Stage.ROLLING_BACK, best_ready=0, progressed_seconds=now_seconds, reason=text)
