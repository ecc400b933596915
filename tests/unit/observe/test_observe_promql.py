from __future__ import annotations

import re

import pytest
from tests.unit.observe.recordings import page

from equipoise.api.identity import Phase
from equipoise.observe.engines import ENGINES
from equipoise.observe.engines.router import ROUTER
from equipoise.observe.engines.sglang import SGLANG
from equipoise.observe.engines.table import EngineTable, Instrument, Kind, Reading
from equipoise.observe.engines.vllm import VLLM
from equipoise.observe.promql import (
    Selection,
    duration,
    instrument_query,
    last_sample_query,
    one_of,
    quote,
    router_query,
    sample_count_query,
)
from equipoise.observe.settings import LabelNames

PLAIN = Selection(LabelNames(), "engine", 60.0, {})
EVERYTHING = [(table, item) for table in ENGINES.values() for item in table.instruments]


def of(reading: Reading, table: EngineTable = VLLM) -> Instrument:
    return next(item for item in table.instruments if item.reading is reading)


def test_a_counter_is_deduplicated_then_summed_by_service_model_role_and_variant() -> None:
    assert instrument_query(of(Reading.OUTPUT_TOKENS), PLAIN) == (
        "sum by (namespace, equipoise_dev_service, model_name, llm_d_ai_role, equipoise_dev_variant) ("
        "max by (namespace, equipoise_dev_service, llm_d_ai_role, equipoise_dev_variant, model_name, pod, engine) ("
        'increase(vllm:generation_tokens_total{equipoise_dev_service!="",llm_d_ai_role=~"decode"}[60s])))'
    )


def test_buckets_are_grouped_by_their_bound_and_leave_cold_and_unknown_pods_out() -> None:
    selection = Selection(LabelNames(), "engine", 15.5, {"cluster": "eu"}, frozenset({"gone"}), frozenset({"new-b", "new.a"}))
    query = instrument_query(of(Reading.REQUEST_TPOT_BUCKETS), selection)
    assert query.startswith("sum by (namespace, equipoise_dev_service, model_name, llm_d_ai_role, le) (avg by (")
    assert 'pod!~"gone|new-b|new\\\\.a"' in query
    assert 'cluster="eu"' in query
    assert "offset 15500ms" in query


def test_amounts_of_work_count_cold_pods_too() -> None:
    selection = Selection(LabelNames(), "engine", 15.0, {}, frozenset(), frozenset({"new"}))
    assert "new" not in instrument_query(of(Reading.OUTPUT_TOKENS), selection)


def test_both_generations_are_asked_for_and_the_newer_wins_per_pod() -> None:
    query = instrument_query(of(Reading.TOKEN_LATENCY_SUM), PLAIN)
    new, old = query.index("vllm:inter_token_latency_seconds_sum"), query.index("vllm:time_per_output_token_seconds_sum")
    assert new < query.index(" or on (namespace, pod, engine) ") < old
    assert "vllm:gpu_cache_usage_perc" in instrument_query(of(Reading.KV_USAGE), PLAIN)


def test_gauges_of_pods_that_went_away_inside_the_window_are_dropped() -> None:
    query = instrument_query(of(Reading.WAITING), PLAIN)
    series = 'vllm:num_requests_waiting{equipoise_dev_service!="",llm_d_ai_role=~"prefill|decode"}'
    assert f"avg_over_time({series}[60s]) and {series}" in query


def test_a_minority_of_services_is_named() -> None:
    selection = Selection(LabelNames(), "engine", 60.0, {}, services=frozenset({("a", "x"), ("b", "y")}))
    query = instrument_query(of(Reading.OUTPUT_TOKENS), selection)
    assert 'namespace=~"a|b",equipoise_dev_service=~"x|y"' in query


@pytest.mark.parametrize(("table", "item"), EVERYTHING, ids=lambda value: str(getattr(value, "reading", "")) or value.engine)
def test_role_service_namespace_and_model_are_part_of_every_query(table: EngineTable, item: Instrument) -> None:
    query = instrument_query(item, PLAIN)
    group = query[: query.index(")")]
    for label in ("namespace", "equipoise_dev_service", "model_name", "llm_d_ai_role"):
        assert label in group
    selectors = re.findall(r"\{([^}]*)\}", query)
    assert len(selectors) >= len(item.metrics)
    roles = "|".join(phase.value for phase in item.phases)
    assert all(f'llm_d_ai_role=~"{roles}"' in selector and "equipoise_dev_service" in selector for selector in selectors)


def test_decode_latencies_are_never_asked_of_prefill_pods() -> None:
    for table, item in EVERYTHING:
        if "tpot" in item.reading.value or "token_latency" in item.reading.value:
            assert item.phases == (Phase.DECODE,), (table.engine, item.reading)


def test_no_reading_is_asked_for_twice() -> None:
    for table in ENGINES.values():
        readings = [item.reading for item in table.instruments]
        assert len(readings) == len(set(readings)), table.engine


def test_every_vllm_name_exists_on_the_recorded_pages_of_its_phases() -> None:
    """The newest name of every instrument, exactly as a running vLLM 0.32.0 writes it, with the labels that are asked for."""
    for item in VLLM.instruments:
        for phase in item.phases:
            newest = item.metrics[0]
            if item.reading is Reading.PROMPT_TOKENS_CACHED:
                continue
            lines = [line for line in page("low", phase.value).splitlines() if line.startswith(newest.name + "{")]
            for name, wanted in newest.labels.items():
                lines = [line for line in lines if f'{name}="{wanted}"' in line]
            assert lines, (item.reading, phase, newest)
            split = {name for line in lines for name in re.findall(r'(\w+)="', line)} - {"model_name", "engine", "le"}
            assert split <= set(item.split) | set(newest.labels), f"{newest.name}: {split} would be taken for copies"


def test_router_names_exist_on_the_recorded_page() -> None:
    text = page("low", "router")
    for item in ROUTER:
        assert f"{item.metrics[0].name}{{" in text
        query = router_query(item, PLAIN)
        assert query.startswith("sum by (namespace, equipoise_dev_service) (max by (namespace, equipoise_dev_service, pod")
        assert "role" not in query


def test_the_roll_call_asks_for_pods_of_any_role() -> None:
    query = last_sample_query(VLLM, PLAIN)
    assert query == (
        "max by (namespace, equipoise_dev_service, model_name, llm_d_ai_role, equipoise_dev_variant, pod) "
        '(timestamp(vllm:num_requests_running{equipoise_dev_service!=""}))'
    )
    assert "count_over_time(vllm:num_requests_running" in sample_count_query(VLLM, PLAIN, 120.0)
    assert " or " in last_sample_query(SGLANG, PLAIN)


def test_sglang_prefill_pods_are_never_asked_for_ttft() -> None:
    assert of(Reading.TTFT_BUCKETS, SGLANG).phases == (Phase.DECODE,)
    assert "is_streaming" in instrument_query(of(Reading.TTFT_BUCKETS, SGLANG), PLAIN)


def test_before_looks_back_by_the_window() -> None:
    assert "offset 60s" in instrument_query(of(Reading.WAITING_BEFORE), PLAIN)
    assert of(Reading.WAITING_BEFORE).kind is Kind.BEFORE


def test_durations_have_milliseconds() -> None:
    assert (duration(15.0), duration(0.25), duration(90.0)) == ("15s", "250ms", "90s")
    with pytest.raises(ValueError, match="below 1 ms"):
        duration(0.0)


def test_literals_are_escaped() -> None:
    assert quote('a"b\\c\nd') == '"a\\"b\\\\c\\nd"'
    assert one_of({"b.c", "a-b"}) == '"a-b|b\\\\.c"'
