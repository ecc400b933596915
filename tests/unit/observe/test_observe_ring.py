from __future__ import annotations

import math

import pytest
from tests.unit.observe.builders import KEY, NAMES, group
from tests.unit.observe.recordings import page

from equipoise.api.identity import Phase
from equipoise.observe.engines.table import Reading
from equipoise.observe.engines.vllm import VLLM
from equipoise.observe.exposition import parse_page, wanted_names
from equipoise.observe.ring import PodPage, Ring, Round

LABELS = '{engine="0",model_name="tiny"}'


def decode_page(tokens: float, *, phase: Phase = Phase.DECODE, running: float = 1.0) -> PodPage:
    text = f"vllm:generation_tokens_total{LABELS} {tokens}\nvllm:num_requests_running{LABELS} {running}\n"
    return PodPage(phase, "v", parse_page(text, NAMES))


def test_only_wanted_series_are_kept_by_their_exact_names() -> None:
    series = parse_page(page("low", "decode"), wanted_names(VLLM))
    assert "vllm:time_to_first_token_seconds_bucket" in series
    assert not [name for name in series if name.endswith("_created") or name.startswith("python_")]
    assert series["vllm:request_success_total"][("engine", "0"), ("finished_reason", "length"), ("model_name", "tiny")] == 66.0


def test_a_counter_that_starts_again_counts_from_zero() -> None:
    ring = Ring(100.0)
    for at, tokens in ((0.0, 900.0), (5.0, 1000.0), (10.0, 30.0)):
        ring.add(Round(at, {(KEY, "d0"): decode_page(tokens)}))
    (row,) = ring.read(VLLM, frozenset()).rows(Reading.OUTPUT_TOKENS, group(Phase.DECODE))
    assert row.value == 130.0


def test_work_of_a_pod_that_went_away_counts_and_its_gauges_do_not() -> None:
    ring = Ring(100.0)
    ring.add(Round(0.0, {(KEY, "d0"): decode_page(0.0), (KEY, "d1"): decode_page(0.0)}))
    ring.add(Round(5.0, {(KEY, "d0"): decode_page(10.0), (KEY, "d1"): decode_page(20.0)}))
    ring.add(Round(10.0, {(KEY, "d0"): decode_page(15.0)}))
    readings = ring.read(VLLM, frozenset())
    assert readings.rows(Reading.OUTPUT_TOKENS, group(Phase.DECODE))[0].value == 35.0
    assert readings.rows(Reading.RUNNING, group(Phase.DECODE))[0].value == 1.0


def test_a_flipped_pods_counters_are_kept_apart_by_phase() -> None:
    ring = Ring(100.0)
    ring.add(Round(0.0, {(KEY, "x"): decode_page(100.0)}))
    ring.add(Round(5.0, {(KEY, "x"): decode_page(150.0)}))
    ring.add(Round(10.0, {(KEY, "x"): decode_page(1000.0, phase=Phase.PREFILL)}))
    assert ring.read(VLLM, frozenset()).rows(Reading.OUTPUT_TOKENS, group(Phase.DECODE))[0].value == 50.0


def test_rounds_older_than_the_window_go_but_for_its_start() -> None:
    ring = Ring(15.0)
    for at in range(0, 100, 5):
        ring.add(Round(float(at), {}))
    assert [item.at_seconds for item in ring.rounds] == [80.0, 85.0, 90.0, 95.0]
    assert ring.window_seconds == 15.0


def test_cold_pods_are_left_out_of_latencies_alone() -> None:
    ring = Ring(100.0)
    for at, name in ((0.0, "start"), (5.0, "low")):
        ring.add(Round(at, {(KEY, "d0"): PodPage(Phase.DECODE, "v", parse_page(page(name, "decode"), NAMES))}))
    readings = ring.read(VLLM, frozenset({"d0"}))
    assert readings.rows(Reading.REQUEST_TPOT_COUNT, group(Phase.DECODE)) == []
    assert readings.rows(Reading.FINISHED, group(Phase.DECODE))[0].value == pytest.approx(66.0)


def test_pods_whose_buckets_differ_are_merged_by_interpolation() -> None:
    def page_with(edges: dict[str, float]) -> PodPage:
        name = "vllm:request_time_per_output_token_seconds_bucket"
        text = "".join(f'{name}{{engine="0",le="{edge}",model_name="tiny"}} {count}\n' for edge, count in edges.items())
        return PodPage(Phase.DECODE, "v", parse_page(text, NAMES))

    ring = Ring(100.0)
    fine, coarse = {"0.01": 0.0, "0.02": 0.0, "+Inf": 0.0}, {"0.02": 0.0, "+Inf": 0.0}
    ring.add(Round(0.0, {(KEY, "d0"): page_with(fine), (KEY, "d1"): page_with(coarse)}))
    fine, coarse = {"0.01": 10.0, "0.02": 10.0, "+Inf": 10.0}, {"0.02": 10.0, "+Inf": 10.0}
    ring.add(Round(5.0, {(KEY, "d0"): page_with(fine), (KEY, "d1"): page_with(coarse)}))
    found = {row.edge: row.value for row in ring.read(VLLM, frozenset()).rows(Reading.REQUEST_TPOT_BUCKETS, group(Phase.DECODE))}
    assert found == {0.01: 15.0, 0.02: 20.0, math.inf: 20.0}
