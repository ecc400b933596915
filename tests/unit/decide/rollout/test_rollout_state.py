"""The story of a rollout: begun by another revision, given up at its deadline, over when all serves, and remembered in status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from equipoise.api.status import InferenceServiceStatus
from equipoise.decide.rollout.state import RolloutState, Stage, advance, begin, turn
from equipoise.decide.rollout.types import RolloutStep
from equipoise.reconcile.rollout.memory import RolloutMemory, restore

STEADY = RolloutState("v1-a", "v1-a")
ROLLING = turn(STEADY, "v1-b", 1000.0)
NOTHING = RolloutStep({}, waiting=("chat-x: ImagePullBackOff",), replicas=7)


def test_another_revision_begins_a_rollout_and_the_same_does_not() -> None:
    assert turn(STEADY, "v1-a", 1000.0) is STEADY
    assert (ROLLING.stage, ROLLING.target, ROLLING.stable, ROLLING.started_seconds) == (Stage.ROLLING, "v1-b", "v1-a", 1000.0)


def test_each_further_replica_that_serves_puts_the_deadline_off() -> None:
    one = advance(ROLLING, replace(NOTHING, ready=1), 1050.0, 60.0)
    assert one.deadline_seconds(60.0) == 1110.0
    assert advance(one, replace(NOTHING, ready=1), 1109.0, 60.0).stage is Stage.ROLLING
    assert advance(one, replace(NOTHING, ready=1), 1110.0, 60.0).stage is Stage.ROLLING_BACK


def test_a_drain_does_not_count_against_it() -> None:
    draining = advance(ROLLING, replace(NOTHING, draining=True), 1050.0, 60.0)
    assert advance(draining, replace(NOTHING, draining=True), 5000.0, 60.0).stage is Stage.ROLLING
    ended = advance(draining, NOTHING, 5000.0, 60.0)
    assert ended.deadline_seconds(60.0) == 5060.0


def test_given_up_it_goes_back_says_why_and_stays_there_until_the_spec_changes() -> None:
    back = advance(ROLLING, NOTHING, 1060.0, 60.0)
    assert (back.stage, back.target) == (Stage.ROLLING_BACK, "v1-a")
    assert back.reason == "revision v1-b had no further replica ready for 60 s: chat-x: ImagePullBackOff"
    assert advance(back, NOTHING, 99_999.0, 60.0).stage is Stage.ROLLING_BACK, "the way back has no deadline"
    done = advance(back, replace(NOTHING, complete=True), 1070.0, 60.0)
    assert (done.stage, done.target) == (Stage.ROLLED_BACK, "v1-a")
    assert turn(done, "v1-b", 2000.0) == done
    assert turn(done, "v1-c", 2000.0).target == "v1-c"
    assert turn(done, "v1-a", 2000.0).target == "v1-a"


def test_all_serving_ends_it() -> None:
    assert advance(ROLLING, replace(NOTHING, complete=True), 1010.0, 60.0) == RolloutState("v1-b", "v1-b")


def test_when_only_the_last_few_do_not_start_nothing_is_rolled_back() -> None:
    """Every old replica is gone and both phases serve: going back would take down what works."""
    step = replace(NOTHING, replaced=True, serves=True, ready=6)
    rolling = replace(ROLLING, best_ready=6)
    assert advance(rolling, step, 1060.0, 60.0) == RolloutState("v1-b", "v1-b")
    assert advance(rolling, replace(step, serves=False), 1060.0, 60.0).stage is Stage.ROLLING_BACK


def test_a_first_revision_has_nothing_to_go_back_to() -> None:
    assert begin("v1-a", {}) == RolloutState("v1-a", "v1-a")
    assert begin("v1-b", {"v1-a": 3, "v1-b": 1}).stable == "v1-a"


@pytest.mark.parametrize("stage", [Stage.ROLLING, Stage.ROLLING_BACK, Stage.ROLLED_BACK])
def test_status_gives_the_state_back_to_the_next_process(stage: Stage) -> None:
    state = RolloutState("v1-b", "v1-a", stage, 1000.0, 1040.0, best_ready=2, draining=True, reason="because")
    status = InferenceServiceStatus(rollout=RolloutMemory(state).status())
    assert restore(InferenceServiceStatus.parse(status.to_dict()), "v1-b", {}).state == state
