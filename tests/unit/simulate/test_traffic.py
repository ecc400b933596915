"""Generated and recorded traffic."""

from __future__ import annotations

import math
import os
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from equipoise.simulate.traffic.arrival import Arrival
from equipoise.simulate.traffic.arrivals import arrival_times
from equipoise.simulate.traffic.curves import RateCurve, constant, flash_crowd, sinusoid, steps
from equipoise.simulate.traffic.lengths import PUBLISHED, Lognormal, lengths_named
from equipoise.simulate.traffic.parse import parse_traffic
from equipoise.simulate.traffic.plan import alternate, total
from equipoise.simulate.traffic.reshape import clip, compress_time, one_after_another, scale_rate, side_by_side
from equipoise.simulate.traffic.traces import TraceError, read_trace

SHARED = Path(os.environ.get("EQUIPOISE_SHARED_DATA", str(Path(__file__).parents[4] / "shared" / "data")))


def trace_file(name: str) -> Path:
    path = SHARED / "traces" / name
    if not path.exists():
        pytest.skip(
            f"{path} is not there: download it (Azure/AzurePublicDataset, kvcache-ai/Mooncake, alibaba/ServeGen on GitHub) into "
            "traces/ of a folder and set EQUIPOISE_SHARED_DATA to it"
        )
    return path


# mean, p50, p90, p99 as published with the traces
STATISTICS = {
    "azure-conv": ((1155, 1020, 2734, 4142), (211, 129, 424, 601)),
    "azure-code": ((2048, 1469, 5188, 7436), (28, 13, 55, 251)),
    "mooncake-conversation": ((12035, 6909, 27367, 85400), (343, 350, 597, 1119)),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_generated_lengths_have_the_published_statistics(name: str) -> None:
    lengths, random = PUBLISHED[name], Random(7)
    for sampler, published in zip((lengths.prompt, lengths.output), STATISTICS[name], strict=True):
        values = sorted(sampler.sample(random) for _ in range(30_000))
        assert sum(values) / len(values) == pytest.approx(published[0], rel=0.04)
        for share, wanted in zip((0.5, 0.9, 0.99), published[1:], strict=True):
            assert values[int(share * len(values))] == pytest.approx(wanted, rel=0.04, abs=1)


def test_lognormal_keeps_its_mean_and_variation() -> None:
    sampler, random = Lognormal(800, 0.5), Random(3)
    values = [sampler.sample(random) for _ in range(20_000)]
    mean = sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
    assert mean == pytest.approx(800, rel=0.02)
    assert deviation / mean == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_the_rate_and_the_variation_asked_for(variation: float) -> None:
    times = list(arrival_times(constant(50.0, 1000.0), Random(5), variation))
    gaps = [after - before for before, after in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert len(times) == pytest.approx(50_000, rel=0.04)
    assert deviation / mean == pytest.approx(variation, rel=0.05, abs=1e-6)
    assert times == sorted(times)


@pytest.mark.parametrize(
    "curve",
    [
        steps([(100.0, 10.0), (100.0, 50.0), (50.0, 0.0), (100.0, 20.0)]),
        sinusoid(30.0, 20.0, 300.0, 600.0),
        flash_crowd(10.0, 100.0, 100.0, 60.0, 300.0),
        RateCurve(((0.0, 0.0), (200.0, 80.0))),
    ],
)
def test_arrivals_follow_the_curve(curve: RateCurve) -> None:
    times = list(arrival_times(curve, Random(11)))
    width = curve.seconds / 10.0
    for window in range(10):
        begin, end = window * width, (window + 1) * width
        expected = sum(curve.rate_at(begin + (i + 0.5) * width / 200) for i in range(200)) * width / 200
        found = sum(begin <= time < end for time in times)
        assert abs(found - expected) <= 5.0 * math.sqrt(expected) + 12.0
    assert curve.scaled(3.0).expected_requests == pytest.approx(3.0 * curve.expected_requests)
    assert curve.compressed(4.0).seconds == pytest.approx(curve.seconds / 4.0)


def test_time_of_inverts_the_curve() -> None:
    curve = RateCurve(((0.0, 2.0), (10.0, 6.0), (10.0, 0.0), (20.0, 0.0), (30.0, 4.0)))
    assert curve.expected_requests == pytest.approx(60.0)
    assert curve.time_of(0.0) == 0.0
    assert curve.time_of(40.0 - 1e-9) == pytest.approx(10.0)
    assert curve.time_of(40.0 + 1e-9) >= 20.0
    assert curve.time_of(60.0) == 30.0
    assert curve.time_of(60.1) == math.inf


def test_plans_are_repeatable_and_turn_when_they_should() -> None:
    plan = alternate([("chat", 60.0, 20.0), ("code", 30.0, 10.0), ("chat", 60.0, 20.0)])
    arrivals = list(plan.arrivals(seed=4))
    assert arrivals == list(plan.arrivals(seed=4)) != list(plan.arrivals(seed=5))
    assert [arrival.at_seconds for arrival in arrivals] == sorted(arrival.at_seconds for arrival in arrivals)
    for arrival in arrivals:
        assert arrival.kind == ("code" if 60.0 <= arrival.at_seconds < 90.0 else "chat")
    assert [(start, part.name) for start, part in plan.turns()] == [(0.0, "chat"), (60.0, "code"), (90.0, "chat")]
    first = [arrival for arrival in arrivals if arrival.at_seconds < 60.0]
    third = [arrival for arrival in arrivals if arrival.at_seconds >= 90.0]
    assert [arrival.prompt_tokens for arrival in first][:20] != [arrival.prompt_tokens for arrival in third][:20]


def test_azure_traces_have_their_published_figures() -> None:
    for name, requests, prompt, output, span in (("conv", 19_366, 1155, 211, 3502), ("code", 8_819, 2048, 28, 3436)):
        arrivals = list(read_trace(trace_file(f"AzureLLMInferenceTrace_{name}_2023.csv")))
        count, prompts, outputs = total(arrivals)
        assert count == requests
        assert prompts / count == pytest.approx(prompt, abs=1)
        assert outputs / count == pytest.approx(output, abs=0.5)
        assert arrivals[0].at_seconds == 0.0
        assert arrivals[-1].at_seconds == pytest.approx(span, abs=1)


def test_mooncake_trace_has_its_published_figures_and_prefixes() -> None:
    arrivals = list(read_trace(trace_file("mooncake_conversation_trace.jsonl")))
    count, prompts, outputs = total(arrivals)
    assert (count, round(prompts / count), round(outputs / count)) == (12_031, 12_035, 343)
    seen: set[int] = set()
    hits = 0
    for arrival in arrivals:
        assert arrival.hash_ids is not None
        for hash_id in arrival.hash_ids:
            if hash_id not in seen:
                break
            hits += 512
        seen.update(arrival.hash_ids)
    assert hits / prompts == pytest.approx(0.37, abs=0.02)


def test_burstgpt_is_read_and_failures_left_out(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,API log\n118,GPT-4,417,276,693,Conversation log\n"
    )
    assert list(read_trace(path, "burst")) == [Arrival(0.0, 472, 18, "burst"), Arrival(113.0, 417, 276, "burst")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "beginning of no known trace"),
        ("TIMESTAMP,ContextTokens\n", "GeneratedTokens are missing"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,many,1\n", ":2:"),
        ('{"timestamp": 0, "input_length": 5}\n', ":1:"),
    ],
)
def test_bad_traces_say_where_and_what(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        list(read_trace(path))


def some(count: int = 1000) -> list[Arrival]:
    return list(alternate([("chat", count / 10.0, 10.0)]).arrivals(1))


def test_reshaping() -> None:
    arrivals = some()
    faster = list(compress_time(arrivals, 4.0))
    assert faster[-1].at_seconds == pytest.approx(arrivals[-1].at_seconds / 4.0)
    thin = list(scale_rate(arrivals, 0.25, seed=2))
    assert len(thin) == pytest.approx(250, abs=60)
    assert set(thin) <= set(arrivals)
    dense = list(scale_rate(arrivals, 2.5, seed=2))
    assert len(dense) == pytest.approx(2.5 * len(arrivals), rel=0.05)
    assert [arrival.at_seconds for arrival in dense] == sorted(arrival.at_seconds for arrival in dense)
    assert dense == list(scale_rate(arrivals, 2.5, seed=2))
    joined = list(one_after_another([(20.0, arrivals), (10.0, arrivals)]))
    assert [arrival.at_seconds for arrival in joined] == sorted(arrival.at_seconds for arrival in joined)
    assert joined[-1].at_seconds < 30.0
    assert len(joined) == len(list(clip(arrivals, 0.0, 20.0))) + len(list(clip(arrivals, 0.0, 10.0)))
    both = list(side_by_side(arrivals, faster))
    assert len(both) == 2 * len(arrivals)
    assert [arrival.at_seconds for arrival in both] == sorted(arrival.at_seconds for arrival in both)


def test_traffic_arguments() -> None:
    traffic = parse_traffic("chat:120s@30,code:2m@20~40,=6000+40:30s@5!0;rate=2;speed=4;repeat=2")
    assert traffic.seconds == pytest.approx(2 * 270.0 / 4.0)
    assert [name for _, name in traffic.turns] == ["chat", "code", "=6000+40"] * 2
    assert [at for at, _ in traffic.turns] == pytest.approx([0.0, 30.0, 60.0, 67.5, 97.5, 127.5])
    arrivals = list(traffic.arrivals(3))
    assert len(arrivals) == pytest.approx(2 * (30 * 60 + 30 * 60 + 7.5 * 10), rel=0.06)
    assert {arrival.prompt_tokens for arrival in arrivals if arrival.kind == "=6000+40"} == {6000}
    assert parse_traffic("chat:1s@1;repeat=forever").seconds is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty traffic"),
        ("poetry:10s@3", "azure-conv"),
        ("chat:10@3", "KIND:DURATION@RATE"),
        ("chat:10s@3;pace=2", "none of rate, speed, repeat"),
        ("chat:10s@3;rate=0", "must be positive"),
        ("trace:/nowhere", "no trace file /nowhere"),
        ("trace:/nowhere,chat:10s@1", "cannot be mixed"),
    ],
)
def test_wrong_traffic_arguments_say_what_is_right(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_traffic(text)


def test_traces_as_traffic(tmp_path: Path) -> None:
    path = tmp_path / "first.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,10,5\n2024-01-01 00:00:10,20,6\n")
    traffic = parse_traffic(f"trace:{path},trace:{path};speed=2")
    assert traffic.seconds == 10.0
    assert [arrival.at_seconds for arrival in traffic.arrivals(0)] == [0.0, 5.0, 5.0, 10.0]
    assert traffic.turns == ((0.0, "first"), (5.0, "first"))


def test_a_trace_is_scaled_to_a_mean_of_requests_after_its_time_was_compressed(tmp_path: Path) -> None:
    path = tmp_path / "first.csv"
    rows = [f"2024-01-01 00:{second // 60:02d}:{second % 60:02d},10,5" for second in range(601)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    traffic = parse_traffic(f"trace:{path}@40,trace:{path}@10;speed=6")
    assert traffic.seconds == pytest.approx(200.0)
    arrivals = list(traffic.arrivals(0))
    assert sum(arrival.at_seconds <= 100.0 for arrival in arrivals) == pytest.approx(4000, rel=0.05)
    assert sum(arrival.at_seconds > 100.0 for arrival in arrivals) == pytest.approx(1000, rel=0.1)
    for wrong in ("@0", "@fast", "@-3"):
        with pytest.raises(ValueError, match="a positive number"):
            parse_traffic(f"trace:{path}{wrong}")


def test_mix_curves_become_parts() -> None:
    traffic = parse_traffic(f"mix:{trace_file('servegen_deepseek-r1_10min.csv')};speed=144;rate=0.5")
    assert traffic.plan is not None
    assert traffic.seconds == pytest.approx(143 * 600 / 144)
    count, prompts, outputs = total(traffic.arrivals(1))
    expected = sum(part.curve.expected_requests for part in traffic.plan.parts)
    assert expected == pytest.approx(0.5 * 16.5 * 600, rel=0.05)
    assert count == pytest.approx(expected, rel=0.08)
    assert prompts / count == pytest.approx(1268, rel=0.1)
    assert outputs / count == pytest.approx(1527, rel=0.1)


def test_names_of_lengths() -> None:
    assert lengths_named("chat") is PUBLISHED["azure-conv"]
    assert lengths_named("500+1200").mean_output_tokens == 1200
