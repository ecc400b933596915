"""When a draining engine may go: its own page says that nothing is left, or it proves nothing."""

from __future__ import annotations

import pytest

from equipoise.api.identity import Phase
from equipoise.reconcile.moves.drained import holds_nothing

VLLM = {"vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0, "vllm:kv_cache_usage_perc": 0.0}
SGLANG = {
    "sglang:num_running_reqs": 0.0,
    "sglang:num_queue_reqs": 0.0,
    "sglang:num_prefill_inflight_queue_reqs": 0.0,
    "sglang:num_decode_transfer_queue_reqs": 0.0,
}


def page(gauges: dict[str, float]) -> str:
    lines = [f'# TYPE {name} gauge\n{name}{{engine="0"}} {value}\n{name}{{engine="1"}} 0.0\n' for name, value in gauges.items()]
    return "".join(lines)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("gauges", [VLLM, SGLANG])
def test_an_empty_engine_is_done(gauges: dict[str, float], phase: Phase) -> None:
    assert holds_nothing(page(gauges), phase)


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("vllm:num_requests_running", set(Phase)),
        ("vllm:num_requests_waiting", set(Phase)),
        ("vllm:kv_cache_usage_perc", {Phase.PREFILL}),  # KV that decode is still to fetch; decode's own may be cached prefixes
        ("sglang:num_running_reqs", set(Phase)),
        ("sglang:num_queue_reqs", set(Phase)),
        ("sglang:num_prefill_inflight_queue_reqs", {Phase.PREFILL}),
        ("sglang:num_decode_transfer_queue_reqs", {Phase.DECODE}),
    ],
)
def test_what_is_left_keeps_it(name: str, phases: set[Phase]) -> None:
    gauges = {**(VLLM if name in VLLM else SGLANG), name: 0.4}
    assert {phase for phase in Phase if not holds_nothing(page(gauges), phase)} == phases


@pytest.mark.parametrize("missing", ["vllm:num_requests_running", "vllm:num_requests_waiting"])
def test_a_page_without_the_gauges_proves_nothing(missing: str) -> None:
    assert not holds_nothing(page({name: value for name, value in VLLM.items() if name != missing}), Phase.DECODE)
    assert not holds_nothing("", Phase.DECODE)


def test_the_spelling_of_newer_exporters_is_read() -> None:
    renamed = {name.replace("sglang:", "sglang_"): value for name, value in SGLANG.items()}
    assert holds_nothing(page(renamed), Phase.PREFILL)
    assert not holds_nothing(page({**renamed, "sglang_num_running_reqs": 1.0}), Phase.PREFILL)
