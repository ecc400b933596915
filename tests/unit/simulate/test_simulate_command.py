"""`equipoise simulate`: what it runs, prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from equipoise.cli.main import app
from equipoise.simulate.scenarios.catalogue import SCENARIOS


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    return result.exit_code, result.output


def test_without_arguments_the_scenarios_are_listed() -> None:
    code, text = call()
    assert code == 0
    assert all(f"{name} " in text for name in SCENARIOS)


def test_traffic_of_ones_own_is_run_compared_and_reported(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"2026-01-01 00:00:{second:02d}.{part}00000,900,40" for second in range(40) for part in range(5)]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n", encoding="utf-8")
    folder = tmp_path / "report"
    code, text = call(
        "--trace", str(trace), "--pool", "A100-80GB:2@1.04", "--policy", "equipoise", "--policy", "naive", "--report", str(folder)
    )
    assert code == 0, text
    assert "goodput is the share of all requests offered" in text
    assert "TTFT p50" in text
    found = json.loads((folder / "rows.json").read_text())["rows"]
    assert [row["policy"] for row in found] == ["equipoise", "naive"]
    assert all(row["requests"] == 200 and 0.9 < row["goodput"] <= 1.0 for row in found)
    assert found[0]["cost"] == pytest.approx(2 * 39.9 / 3600.0 * 1.04, rel=0.02)
    assert (folder / "equipoise.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("S99",), "scenario 'S99' is none of alt300"),
        (("S1", "--traffic", "chat:1m@1"), "give one of a scenario, --trace and --traffic"),
        (("--traffic", "chat:1m@1", "--pool", "H100"), "pool 'H100' is not DEVICE:GPUS"),
        (("--traffic", "chat:1m@1", "--pool", "H99:8"), "device 'H99' is not in the catalogue"),
        (("--traffic", "chat:1m@1;repeat=forever"), "never ends"),
        (("--traffic", "chat:10s@1", "--policy", "magic"), "policy 'magic' is none of equipoise"),
        (("--traffic", "chat:10s@1", "--source", "guess"), "guess"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(arguments: tuple[str, ...], message: str) -> None:
    code, text = call(*arguments)
    assert code == 2
    assert message in text
