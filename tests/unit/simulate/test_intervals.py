"""Means over seeds with intervals that cover the truth as often as they say."""

from __future__ import annotations

from random import Random

import pytest
from typer.testing import CliRunner

from equipoise.cli.main import app
from equipoise.simulate.report.intervals import by_policy, interval, table_of_means


def row(policy: str, seed: int, goodput: float, scenario: str = "S1") -> dict[str, object]:
    return {
        "scenario": scenario, "policy": policy, "startup_seconds": 60.0, "flips": True, "seed": seed,
        "goodput": goodput, "cost": 10.0 + seed, "gpu_hours": 4.0, "moves_per_hour": 2.0,
    }  # fmt: skip


def test_the_interval_is_students() -> None:
    found = interval([0.90, 0.92, 0.94, 0.96, 0.98])
    assert found.mean == pytest.approx(0.94)
    assert found.half_width == pytest.approx(2.776 * 0.0316228 / 5**0.5, rel=1e-4)
    assert interval([0.5]).half_width is None
    assert interval([2.0] * 40).half_width == 0.0
    with pytest.raises(ValueError, match="at least one run"):
        interval([])


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    random = Random(1)
    held = 0
    for _ in range(2000):
        found = interval([random.gauss(7.0, 2.0) for _ in range(5)])
        assert found.half_width is not None
        held += abs(found.mean - 7.0) <= found.half_width
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_rows_are_joined_by_policy_and_scenario_and_never_across() -> None:
    rows = [row("equipoise", seed, 0.9 + seed / 100) for seed in range(3)] + [
        row("naive", 0, 0.2),
        row("equipoise", 0, 0.1, "S2"),
    ]
    found = by_policy(rows)
    assert [key[:2] for key in found] == [("S1", "equipoise"), ("S1", "naive"), ("S2", "equipoise")]
    assert found["S1", "equipoise", 60.0, True]["goodput"].mean == pytest.approx(0.91)
    assert found["S1", "equipoise", 60.0, True]["cost"].mean == pytest.approx(11.0)
    text = table_of_means(rows[:4])
    assert "91.00% ± 2.48%" in text
    assert "20.00%" in text


def test_the_command_runs_several_seeds() -> None:
    arguments = ["simulate", "--traffic", "900+40:20s@6", "--pool", "A100-80GB:2", "--policy", "naive", "--seeds", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "mean of 2 seeds ± 95 % interval" in result.output
    assert " ± " in result.output.splitlines()[-1]
    assert CliRunner().invoke(app, [*arguments[:-1], "0"]).exit_code == 2
