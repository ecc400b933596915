"""The engine's metrics page: names, types, labels and buckets as a real vLLM 0.32 pair shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from equipoise.api.identity import Phase
from equipoise.perf.types import StepTimes
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.metrics.exposition import Exposition
from equipoise.simulate.engine.metrics.families import Generation
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import EngineLimits, ReplicaSpec

STEP_TIMES = StepTimes(0.0034, 1.84e-5, 5.7e-10, 0.0064, 1.09e-5, 4.2e-8, "test")
SHARED = Path(os.environ.get("EQUIPOISE_SHARED_DATA", str(Path(__file__).parents[4] / "shared" / "data")))

# family -> (type, label names besides model_name and engine, bucket edges)
Shape = dict[str, tuple[str, frozenset[str], frozenset[tuple[str, str]], tuple[str, ...]]]


def pair(prompt_tokens: int = 1000, output_tokens: int = 5, count: int = 1) -> tuple[Cluster, dict[str, Exposition]]:
    cluster = Cluster()
    limits = EngineLimits(max_model_len=2048, block_size=32)
    pages = {}
    for phase in Phase:
        spec = ReplicaSpec(STEP_TIMES, 224 * 32, 3072, node=f"node-{phase}", limits=limits)
        replica = cluster.add(phase.value, spec, phase, 0.0)
        assert replica.metrics is not None
        pages[phase.value] = Exposition(replica, replica.metrics, "tiny", 1.5e9, fetches_kv=phase is Phase.DECODE)
    for index in range(count):
        cluster.submit(Request(index, 0.0, prompt_tokens, output_tokens), 0.0)
    return cluster, pages


def shape_of(text: str) -> Shape:
    shape: Shape = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("vllm:"):
            continue
        label_names: set[str] = set()
        values: set[tuple[str, str]] = set()
        edges: list[str] = []
        for sample in family.samples:
            label_names |= set(sample.labels)
            if "le" in sample.labels and sample.labels["le"] not in edges:
                edges.append(sample.labels["le"])
            values |= {
                item
                for item in sample.labels.items()
                if item[0] in {"reason", "stage", "source", "finished_reason", "sleep_state"}
            }
        if family.name == "vllm:cache_config_info":
            label_names = {"engine", "model_name"}
        shape[family.name] = (family.type, frozenset(label_names), frozenset(values), tuple(edges))
    return shape


def values_of(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    ignored = {"model_name", "engine"}
    return {
        (sample.name, tuple(sorted(item for item in sample.labels.items() if item[0] not in ignored))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_same_families_types_labels_and_buckets_as_a_real_engine(role: str) -> None:
    real_page = SHARED / "metrics" / f"pd-low-{role}.txt"
    if not real_page.exists():
        pytest.skip(
            f"{real_page} is not there: save /metrics of a real vLLM 0.32 prefill/decode pair under these names and set "
            "EQUIPOISE_SHARED_DATA to the folder above metrics/"
        )
    _, pages = pair()
    ours, real = shape_of(pages[role].page(0.0)), shape_of(real_page.read_text())
    assert set(ours) == set(real)
    for name in real:
        assert ours[name] == real[name], name


def test_everything_is_there_with_zero_before_the_first_request() -> None:
    _, pages = pair(count=0)
    for role, exposition in pages.items():
        values = values_of(exposition.page(0.0))
        assert len(values) > 350
        ones = {
            "vllm:engine_sleep_state",
            "vllm:cache_config_info",
        }
        for (name, labels), value in values.items():
            if name not in ones and not name.endswith("_created"):
                assert value == 0.0, (role, name, labels)


def test_one_request_leaves_what_the_real_pair_was_measured_to_leave() -> None:
    cluster, pages = pair(prompt_tokens=1000, output_tokens=5)
    cluster.advance_to(60.0)
    prefill, decode = values_of(pages["prefill"].page(60.0)), values_of(pages["decode"].page(60.0))
    none: tuple[tuple[str, str], ...] = ()
    # Prefill: one token, ended by length, a time per output token of exactly 0, no inter-token latency, e2e equal to TTFT.
    assert prefill["vllm:generation_tokens_total", none] == 1
    assert prefill["vllm:request_success_total", (("finished_reason", "length"),)] == 1
    assert prefill["vllm:request_time_per_output_token_seconds_count", none] == 1
    assert prefill["vllm:request_time_per_output_token_seconds_sum", none] == 0
    assert prefill["vllm:inter_token_latency_seconds_count", none] == 0
    assert prefill["vllm:e2e_request_latency_seconds_sum", none] == prefill["vllm:time_to_first_token_seconds_sum", none] > 0
    assert prefill["vllm:prompt_tokens_by_source_total", (("source", "local_compute"),)] == 1000
    assert prefill["vllm:iteration_tokens_total_sum", none] == 1001
    assert prefill["vllm:nixl_xfer_time_seconds_count", none] == 0
    # Decode: the whole prompt came by transfer and counts as prompt tokens again; one NIXL sample of whole blocks.
    assert decode["vllm:prompt_tokens_total", none] == 1000
    assert decode["vllm:prompt_tokens_by_source_total", (("source", "external_kv_transfer"),)] == 1000
    assert decode["vllm:prompt_tokens_by_source_total", (("source", "local_compute"),)] == 0
    assert decode["vllm:prompt_tokens_cached_by_source_total", (("source", "p2p"),)] == 1000
    assert decode["vllm:generation_tokens_total", none] == 5
    assert decode["vllm:inter_token_latency_seconds_count", none] == 4
    assert decode["vllm:request_decode_time_seconds_sum", none] == pytest.approx(
        decode["vllm:inter_token_latency_seconds_sum", none]
    )
    assert decode["vllm:nixl_bytes_transferred_sum", none] == 32 * 32 * 3072
    assert decode["vllm:request_prefill_kv_computed_tokens_sum", none] == 1000
    assert decode["vllm:iteration_tokens_total_sum", none] == 5
    # Queue time on decode contains the transfer; TTFT there is queue plus first step.
    queue, first_step = "vllm:request_queue_time_seconds_sum", "vllm:request_prefill_time_seconds_sum"
    assert decode[queue, none] >= decode["vllm:nixl_xfer_time_seconds_sum", none]
    assert decode["vllm:time_to_first_token_seconds_sum", none] == pytest.approx(decode[queue, none] + decode[first_step, none])


def test_page_in_the_middle_of_an_answer_counts_the_tokens_so_far() -> None:
    cluster, pages = pair(prompt_tokens=100, output_tokens=1000)
    cluster.advance_to(2.0)
    tokens = values_of(pages["decode"].page(2.0))["vllm:generation_tokens_total", ()]
    assert 250 < tokens < 350  # about 6.4 ms each
    assert values_of(pages["decode"].page(2.0))["vllm:num_requests_running", ()] == 1
    assert values_of(pages["decode"].page(2.0))["vllm:time_to_first_token_seconds_count", ()] == 1
    cluster.advance_to(3.0)
    assert values_of(pages["decode"].page(3.0))["vllm:generation_tokens_total", ()] > tokens + 140


def test_old_generation_has_the_old_names_only() -> None:
    cluster, _ = pair(count=0)
    replica = cluster.replicas["decode"]
    assert replica.metrics is not None
    names = set(shape_of(Exposition(replica, replica.metrics, "tiny", generation=Generation.OLD).page(0.0)))
    assert {"vllm:time_per_output_token_seconds", "vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_queries"} <= names
    assert not {"vllm:inter_token_latency_seconds", "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting_by_reason"} & names


def test_model_names_with_quotes_survive() -> None:
    cluster, _ = pair(count=0)
    replica = cluster.replicas["decode"]
    assert replica.metrics is not None
    page = Exposition(replica, replica.metrics, 'a "b"\\c').page(0.0)
    found = {sample.labels["model_name"] for family in text_string_to_metric_families(page) for sample in family.samples}
    assert found == {'a "b"\\c'}
