"""SGLang's table on made-up pages with the names of its 0.5 wheel: decode pods time the whole TTFT, prefill pods none of it."""

from __future__ import annotations

import pytest
from tests.unit.observe.builders import KEY, NOW, scope, value

from equipoise.api.identity import Phase
from equipoise.observe.assemble import assemble
from equipoise.observe.census import take_census
from equipoise.observe.engines.sglang import SGLANG
from equipoise.observe.exposition import parse_page, wanted_names
from equipoise.observe.ring import PodPage, Ring, Round
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.starvation import Bottleneck, decode_starves_prefill
from equipoise.observe.types import ServiceObservation, Unknown, UnknownReason

NAMES = wanted_names(SGLANG)


def histogram(name: str, total: float, counts: dict[str, float], labels: str = "") -> list[str]:
    common = f'engine_type="x",model_name="tiny"{labels}'
    lines = [f'{name}_bucket{{{common},le="{edge}"}} {count}' for edge, count in counts.items()]
    return [*lines, f"{name}_sum{{{common}}} {total}", f"{name}_count{{{common}}} {counts['+Inf']}"]


def prefill_page(requests: float, held: float) -> str:
    common = 'engine_type="prefill",model_name="tiny"'
    lines = [
        f'sglang:num_running_reqs{{{common},tp_rank="0",pp_rank="0"}} 0',
        f'sglang:num_queue_reqs{{{common},tp_rank="0",pp_rank="0"}} {held}',
        f'sglang:token_usage{{{common},tp_rank="0",pp_rank="0"}} 0.9',
        f'sglang:num_requests_total{{{common},is_streaming="true"}} {requests * 0.75}',
        f'sglang:num_requests_total{{{common},is_streaming="false"}} {requests * 0.25}',
        f'sglang:prompt_tokens_total{{{common},is_streaming="true"}} {requests * 1000}',
        f'sglang:cached_tokens_total{{{common},cache_source="total"}} {requests * 250}',
        f'sglang:cached_tokens_total{{{common},cache_source="device"}} {requests * 250}',
    ]
    lines += histogram(
        "sglang:queue_time_seconds", requests * 0.2, {"0": 0, "0.1": requests * 0.2, "0.5": requests, "+Inf": requests}
    )
    counts = {"0.1": requests * 0.5, "0.4": requests, "+Inf": requests}
    lines += histogram("sglang:per_stage_req_latency_seconds", requests * 0.15, counts, ',stage="prefill_forward"')
    lines += histogram("sglang:per_stage_req_latency_seconds", requests * 9.0, counts, ',stage="prefill_transfer_kv_cache"')
    return "\n".join(lines) + "\n"


def decode_page(requests: float, prealloc: float) -> str:
    common = 'engine_type="decode",model_name="tiny"'
    streaming = ',is_streaming="true"'
    lines = [
        f'sglang:num_running_reqs{{{common},tp_rank="0",pp_rank="0"}} 8',
        f'sglang:num_queue_reqs{{{common},tp_rank="0",pp_rank="0"}} {prealloc}',
        f'sglang:num_decode_prealloc_queue_reqs{{{common},tp_rank="0",pp_rank="0"}} {prealloc}',
        f'sglang:token_usage{{{common},tp_rank="0",pp_rank="0"}} 0.95',
        f'sglang:num_requests_total{{{common},is_streaming="true"}} {requests}',
        f'sglang:generation_tokens_total{{{common},is_streaming="true"}} {requests * 100}',
    ]
    counts = {"0.4": requests * 0.5, "1": requests * 0.9, "+Inf": requests}
    lines += histogram("sglang:time_to_first_token_seconds", requests * 0.6, counts, streaming)
    counts = {"0.02": requests * 0.5, "0.04": requests, "+Inf": requests}
    lines += histogram("sglang:request_time_per_output_token_seconds", requests * 0.02, counts, streaming)
    return "\n".join(lines) + "\n"


def observe(rename: str = "sglang:", prealloc: float = 0.0, held: float = 0.0) -> ServiceObservation:
    ring = Ring(100.0)
    for index, at in enumerate((NOW - 20.0, NOW - 10.0, NOW)):
        pages = {
            (KEY, "p0"): PodPage(Phase.PREFILL, "chat-prefill", page(prefill_page(index * 20.0, held), rename)),
            (KEY, "d0"): PodPage(Phase.DECODE, "chat-decode", page(decode_page(index * 20.0, prealloc), rename)),
        }
        ring.add(Round(at, pages))
    service = scope(engine="sglang")
    settings = ObserveSettings()
    census = take_census([service], ring.roll_call(), {KEY: 10.0}, {KEY: 20.0}, settings, NOW)
    phases = {phase: census.phases[KEY, phase] for phase in Phase}
    return assemble(service, SGLANG, ring.read(SGLANG, census.cold_pods), phases, (), 10.0, settings, NOW)


def page(text: str, rename: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return {name: dict(items) for name, items in parse_page(text.replace("sglang:", rename), NAMES).items()}


@pytest.mark.parametrize("rename", ["sglang:", "sglang_"])
def test_the_whole_ttft_comes_from_decode_pods(rename: str) -> None:
    seen = observe(rename)
    assert value(seen.ttft_mean_seconds) == pytest.approx(0.6)
    assert value(seen.ttft_attainment) == pytest.approx(0.9)
    assert value(seen.prefill.latency_mean_seconds) == pytest.approx(0.35)
    assert value(seen.ttft_decode_leg_mean_seconds) == pytest.approx(0.25)
    assert value(seen.decode.latency_mean_seconds) == pytest.approx(0.02)
    assert isinstance(seen.ttft_decode_leg_percentile_seconds, Unknown)
    assert seen.ttft_decode_leg_percentile_seconds.reason is UnknownReason.NOT_EXPOSED


def test_the_prefill_leg_is_the_queue_and_the_forward_pass_together() -> None:
    seen = observe().prefill
    assert value(seen.attainment) == pytest.approx(1.0)
    assert 0.5 < value(seen.latency_percentile_seconds) < 0.9
    assert seen.latency_source == "sglang:queue_time_seconds + sglang:per_stage_req_latency_seconds"


def test_streamed_and_other_requests_add_up_and_cached_tokens_are_not_computed() -> None:
    seen = observe()
    assert value(seen.prefill.served_requests_per_second) == pytest.approx(2.0)
    assert value(seen.prefill.tokens_per_second) == pytest.approx(1500.0)
    assert value(seen.prefill.prefix_hit_share) == pytest.approx(0.25)
    assert value(seen.decode.mean_tokens) == pytest.approx(100.0)


def test_requests_without_room_on_decode_are_its_lack_of_capacity() -> None:
    verdict = decode_starves_prefill(observe(prealloc=6.0, held=10.0))
    assert verdict.bottleneck is Bottleneck.DECODE_STARVES_PREFILL
    assert decode_starves_prefill(observe(held=10.0)).bottleneck is Bottleneck.PREFILL


def test_what_this_engine_does_not_count_is_not_exposed_and_not_zero() -> None:
    seen = observe().prefill
    assert isinstance(seen.refused_requests_per_second, Unknown)
    assert seen.refused_requests_per_second.reason is UnknownReason.NOT_EXPOSED
    assert value(seen.requests_per_second) == pytest.approx(2.0)
