"""Decisions carried out in virtual time: flips, handovers, starts, losses, cost and score."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from equipoise.api.identity import Phase
from equipoise.observe.types import Known
from equipoise.simulate.engine.types import Outcome
from equipoise.simulate.loop.run import run
from equipoise.simulate.loop.setup import SignalSource, Trouble
from equipoise.simulate.rivals.equipoise import EquipoisePolicy
from equipoise.simulate.rivals.static import StaticPolicy
from equipoise.simulate.scenarios.basics import resource, service, split

_spec = importlib.util.spec_from_file_location("loop_worlds", Path(__file__).with_name("loop_worlds.py"))
assert _spec is not None
assert _spec.loader is not None
loop_worlds = sys.modules.setdefault("loop_worlds", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(loop_worlds)
KEY, PREFILL, DECODE = loop_worlds.KEY, loop_worlds.PREFILL, loop_worlds.DECODE
Script, small_world = loop_worlds.Script, loop_worlds.small_world


def test_a_flip_keeps_every_replica_and_is_seen_in_the_next_round() -> None:
    script = Script({20.0: (3, 1)}, flips=True)
    result = run(small_world(), script)
    assert script.counts(20.0, PREFILL) == (2, 0, 0, 0)
    assert script.counts(25.0, PREFILL) == (3, 0, 0, 0)
    assert script.counts(25.0, DECODE) == (1, 0, 0, 0)
    assert (result.flips, result.starts, result.stops) == (1, 0, 0)
    outcomes = result.scores[KEY].outcomes
    assert set(outcomes) == {Outcome.FINISHED}
    assert result.gpu_hours["a100"] == pytest.approx(4 * 60.0 / 3600.0)


def test_without_flips_a_handover_drains_first_and_starts_when_the_gpu_is_free() -> None:
    script = Script({20.0: (3, 1)})
    world = small_world(startup_seconds=15.0)
    result = run(world, script)
    ready, starting, pending, _ = script.counts(25.0, PREFILL)
    assert (ready, starting + pending) == (2, 1)
    assert script.counts(60.0, PREFILL) == (3, 0, 0, 0)
    assert (result.flips, result.starts, result.stops) == (0, 1, 1)
    assert result.gpu_hours["a100"] <= 4 * 60.0 / 3600.0 + 1e-9
    assert Outcome.LOST not in result.scores[KEY].outcomes


def test_gpus_are_paid_for_while_they_load_and_drain_and_not_after() -> None:
    script = Script({20.0: (1, 2), 40.0: (2, 2)})
    result = run(small_world(startup_seconds=10.0), script)
    held = result.gpu_hours["a100"] * 3600.0
    assert 3 * 60.0 + 20.0 + 20.0 - 1e-6 <= held <= 3 * 60.0 + 45.0
    assert script.at(60.0).services[KEY].status(PREFILL).startup_seconds == pytest.approx(36.0, abs=26.0)


def test_a_lost_replica_is_replaced_and_its_requests_are_misses() -> None:
    trouble = Trouble(22.0, "replica-lost", "a100", Phase.DECODE)
    script = Script({})
    result = run(small_world(troubles=(trouble,), startup_seconds=10.0), script)
    assert script.counts(25.0, DECODE)[:2] == (1, 1)
    assert script.counts(40.0, DECODE)[:2] == (2, 0)
    score = result.scores[KEY]
    assert score.outcomes[Outcome.LOST] > 0
    assert sum(score.outcomes.values()) == len(score.good) == result.requests
    assert sum(score.good) <= score.outcomes[Outcome.FINISHED]


def test_a_lost_node_takes_its_gpu_out_of_the_fleet() -> None:
    script = Script({})
    run(small_world(troubles=(Trouble(22.0, "node-lost", "a100"),), startup_seconds=10.0), script)
    pool = script.at(40.0).fleet.pool("a100")
    assert pool is not None
    assert pool.usable_gpus == 3
    statuses = script.at(40.0).services[KEY].given.variants
    assert sum(status.pending for status in statuses) == 1


def test_equal_seeds_give_equal_runs_and_other_seeds_do_not() -> None:
    world = small_world("azure-conv:60s@14", startup_variation=0.15)
    one, again, other = (run(world, EquipoisePolicy(interval_seconds=5.0), seed) for seed in (1, 1, 2))
    assert list(one.scores[KEY].ttft) == list(again.scores[KEY].ttft)
    assert (one.flips, one.starts, one.cost_usd) == (again.flips, again.starts, again.cost_usd)
    assert list(one.scores[KEY].ttft) != list(other.scores[KEY].ttft)


def test_queue_limits_turn_a_collapse_into_refusals() -> None:
    world = small_world("azure-conv:60s@60", initial=split(1, 3, "a100"))
    splits = {KEY: split(1, 3, "a100")}
    bounded, unbounded = (run(world, StaticPolicy(splits, bounded=flag)) for flag in (True, False))
    assert bounded.scores[KEY].outcomes[Outcome.REFUSED] > 0
    assert Outcome.REFUSED not in unbounded.scores[KEY].outcomes
    assert bounded.goodput > unbounded.goodput + 0.1


def test_prometheus_with_its_own_clock_observes_too() -> None:
    script = Script({})
    run(small_world(seconds=90.0, traffic="azure-conv:90s@8", source=SignalSource.PROMETHEUS, scrape_seconds=5.0), script)
    seen = script.at(90.0).services[KEY].observation
    assert seen.scrape_interval_seconds == pytest.approx(5.0, rel=0.1)
    rate = seen.prefill.requests_per_second
    assert isinstance(rate, Known)
    assert rate.value == pytest.approx(8.0, rel=0.35)


def test_several_services_share_the_pool() -> None:
    base = small_world(gpus=5)
    second = service("azure-conv:60s@4", split(1, 1, "a100"), resource("other"))
    world = replace(base, services=(service("azure-conv:60s@4", split(1, 1, "a100")), second))
    result = run(world, EquipoisePolicy(interval_seconds=5.0))
    assert {key.name for key in result.scores} == {"chat", "other"}
    assert all(len(score.good) > 100 for score in result.scores.values())
    assert result.gpu_hours["a100"] <= 5 * 60.0 / 3600.0 + 1e-9
