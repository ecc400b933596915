"""What must be remembered of revisions: which served last, and how far the next one has come. It lives in status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from equipoise.api.service import InferenceService
from equipoise.api.status import InferenceServiceStatus
from equipoise.api.status_rollout import RevisionRecord, RolloutStatus
from equipoise.decide.rollout.state import RolloutState, Stage, begin
from equipoise.decide.rollout.types import RolloutStep
from equipoise.reconcile.clock import parse_rfc3339, rfc3339
from equipoise.render.saved import saved_fields

REVISIONS_KEPT: Final = 4
_NO_STEP: Final = RolloutStep(counts={})


@dataclass(frozen=True, slots=True)
class RolloutMemory:
    """The state of one service's rollout, the last revisions that served, and what the last look found."""

    state: RolloutState
    history: tuple[RevisionRecord, ...] = ()
    step: RolloutStep = field(default=_NO_STEP)

    @property
    def saved(self) -> dict[str, Mapping[str, Any]]:
        """Fields of the spec by revision, for rendering revisions that are not the spec's."""
        return {item.revision: item.spec for item in self.history if item.spec is not None}

    @property
    def in_flight(self) -> bool:
        """Whether one revision is being replaced by another."""
        return self.state.stage in (Stage.ROLLING, Stage.ROLLING_BACK)

    def status(self) -> RolloutStatus | None:
        """For the status; None while one revision runs as the spec asks."""
        state = self.state
        if state.stage is Stage.STEADY:
            return None
        return RolloutStatus(
            stage=state.stage.value,
            wanted=state.wanted,
            stable=state.stable,
            started_at=_text(state.started_seconds),
            progressed_at=_text(state.progressed_seconds),
            ready=state.best_ready,
            replicas=self.step.replicas,
            draining=state.draining,
            reason=state.reason,
        )


def restore(status: InferenceServiceStatus, wanted: str, present: Mapping[str, int]) -> RolloutMemory:
    """What an earlier process left in status; without that, what the revisions of the pods tell."""
    found, history = status.rollout, status.revisions
    if found is not None and found.stage in [stage.value for stage in Stage]:
        state = RolloutState(
            wanted=found.wanted,
            stable=found.stable,
            stage=Stage(found.stage),
            started_seconds=_seconds(found.started_at),
            progressed_seconds=_seconds(found.progressed_at),
            best_ready=found.ready,
            draining=found.draining,
            reason=found.reason,
        )
        return RolloutMemory(state, history)
    if history:
        return RolloutMemory(RolloutState(history[0].revision, history[0].revision), history)
    return RolloutMemory(begin(wanted, dict(present)))


def remember(memory: RolloutMemory, resource: InferenceService, now_seconds: float) -> RolloutMemory:
    """With the revision that serves as a whole at the head of the history."""
    state, history = memory.state, memory.history
    if state.stage is not Stage.STEADY or (history and history[0].revision == state.stable):
        return memory
    newest = RevisionRecord(revision=state.stable, since=rfc3339(now_seconds), spec=saved_fields(resource))
    older = tuple(item for item in history if item.revision != state.stable)
    return replace(memory, history=(newest, *older)[:REVISIONS_KEPT])


def _text(seconds: float) -> str:
    return rfc3339(seconds) if seconds else ""


def _seconds(text: str) -> float:
    try:
        return parse_rfc3339(text) if text else 0.0
    except ValueError:
        return 0.0
