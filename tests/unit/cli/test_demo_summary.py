"""The demo's summary, from runs made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from equipoise.api.identity import Phase
from equipoise.cli.demo.picture import draw
from equipoise.cli.demo.samples import Run, Sample, SeenMove
from equipoise.cli.demo.script import trace_traffic, turn_names
from equipoise.cli.demo.summary import as_text, summarise
from equipoise.simulate.traffic.parse import parse_traffic

POOLS = {"big": 4}


def sample(at: float, ttft: float = 0.5, tpot: float = 0.02, **more: object) -> Sample:
    ready = {(Phase.PREFILL, "big"): 1, (Phase.DECODE, "big"): 2}
    return replace(Sample(at, "chat", 10.0, ttft, tpot, ready, ready, {"big": 3}, completed=int(at)), **more)  # type: ignore[arg-type]


def run(samples: list[Sample], turns: tuple[tuple[float, str], ...] = ((0.0, "chat"), (30.0, "code"))) -> Run:
    moves = (SeenMove(33.0, "flip", "decode@big/tp1-bf16", "prefill@big/tp1-bf16", 1, "because"),)
    return Run(tuple(samples), moves, turns, {Phase.PREFILL: 1.0, Phase.DECODE: 0.05}, POOLS)


def test_a_miss_after_the_turn_that_ends_is_restored() -> None:
    samples = [sample(float(at), ttft=3.0 if 32 <= at < 40 else 0.5) for at in range(60)]
    shift = summarise(run(samples))["shifts"][0]
    assert shift["lagging_phase"] == "prefill"
    assert shift["restored"] is True
    assert shift["seconds_out_of_target"] == 8.0
    assert shift["restored_after_seconds"] == 10.0


def test_a_miss_that_begins_late_is_not_called_restored_before_it_began() -> None:
    samples = [sample(float(at), tpot=0.2 if at >= 50 else 0.02) for at in range(60)]
    shift = summarise(run(samples))["shifts"][0]
    assert shift["restored"] is False
    assert shift["lagging_phase"] == "decode"


def test_a_late_first_token_that_decode_causes_is_decodes() -> None:
    samples = [sample(float(at), ttft=3.0 if 32 <= at < 40 else 0.5, lagging=Phase.DECODE) for at in range(60)]
    assert summarise(run(samples))["shifts"][0]["lagging_phase"] == "decode"


def test_ten_seconds_must_pass_before_restored_is_said() -> None:
    samples = [sample(float(at), ttft=3.0 if at >= 32 and at % 8 == 0 else 0.5) for at in range(60)]
    assert summarise(run(samples))["shifts"][0]["restored"] is False


def test_violations_are_found() -> None:
    no_decode = {(Phase.PREFILL, "big"): 1}
    samples = [sample(0.0), sample(1.0, gpus_bound={"big": 5}), sample(2.0, ready=no_decode), sample(3.0, lost=2)]
    found = summarise(run(samples))["violations"]
    assert len(found) == 3
    assert "5 GPUs bound in pool big, which has 4" in found[0]
    assert "no decode replica" in found[1]
    assert "2 requests were lost" in found[2]


def test_text_and_picture(tmp_path: Path) -> None:
    samples = [sample(float(at), ttft=3.0 if 32 <= at < 40 else 0.5) for at in range(60)]
    text = as_text(summarise(run(samples)))
    assert "turn to code" in text
    assert "both targets met again after 10 s" in text
    draw(run(samples), tmp_path / "run.png", "title")
    assert (tmp_path / "run.png").stat().st_size > 10_000


def test_turns_are_named_by_what_their_traces_names_do_not_share() -> None:
    names = ["AzureLLMInferenceTrace_conv_2023", "AzureLLMInferenceTrace_code_2023", "AzureLLMInferenceTrace_conv_2023"]
    assert turn_names(names) == ["conv", "code", "conv"]
    assert turn_names(["chat", "code"]) == ["chat", "code"]
    assert turn_names(["one_trace"]) == ["one_trace"]
    assert turn_names(["a_b", "c"]) == ["a_b", "c"]


def test_traces_are_played_there_and_back_in_the_time_the_demo_has(tmp_path: Path) -> None:
    paths = [tmp_path / "chat.csv", tmp_path / "code.csv"]
    for path in paths:
        rows = [f"2024-01-01 00:{second // 60:02d}:{second % 60:02d},10,5" for second in range(0, 1800, 10)]
        path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    traffic = parse_traffic(trace_traffic(paths))
    assert [name for _, name in traffic.turns] == ["chat", "code", "chat"]
    assert traffic.seconds == pytest.approx(270.0, rel=0.01)
