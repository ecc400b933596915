"""Asking a draining engine whether it still holds requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from equipoise.api.identity import Phase
from equipoise.reconcile.view.pods import EnginePod

ENGINE_PORT: Final = 8000
_TIMEOUT_SECONDS: Final = 2.0
# Gauges that must be zero, by engine and phase; the first two must be on the page, the others exist in some versions and roles.
# A prefill replica also holds the KV of prompts that decode has not fetched yet, a decode replica requests whose KV is to come.
_BUSY: Final = (
    {
        Phase.PREFILL: ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
        Phase.DECODE: ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    },
    {
        Phase.PREFILL: (
            "sglang:num_running_reqs",
            "sglang:num_queue_reqs",
            "sglang:num_prefill_bootstrap_queue_reqs",
            "sglang:num_prefill_inflight_queue_reqs",
        ),
        Phase.DECODE: (
            "sglang:num_running_reqs",
            "sglang:num_queue_reqs",
            "sglang:num_decode_prealloc_queue_reqs",
            "sglang:num_decode_transfer_queue_reqs",
        ),
    },
)


async def idle_pods(session: aiohttp.ClientSession, pods: Iterable[EnginePod]) -> frozenset[str]:
    """Names of the draining pods that say they hold nothing any more. One that does not answer is not idle: its grace decides."""
    draining = [pod for pod in pods if pod.draining and pod.ip and not pod.terminating]
    answers = await asyncio.gather(*(_is_idle(session, pod) for pod in draining))
    return frozenset(pod.name for pod, idle in zip(draining, answers, strict=True) if idle)


async def _is_idle(session: aiohttp.ClientSession, pod: EnginePod) -> bool:
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    try:
        async with session.get(f"http://{host}:{ENGINE_PORT}/metrics", timeout=timeout) as response:
            if response.status != 200:
                return False
            return holds_nothing(await response.text(), pod.variant.phase)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


def holds_nothing(page: str, phase: Phase) -> bool:
    """Whether an engine's metrics page (vLLM's or SGLang's) says that it is empty. A page without the gauges proves nothing."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        # Newer exporters write `sglang_` where others write `sglang:`.
        name = family.name.replace("sglang_", "sglang:", 1) if family.name.startswith("sglang_") else family.name
        for sample in family.samples:
            if sample.name == family.name:  # one per data-parallel rank
                values[name] = max(values.get(name, 0.0), sample.value)
    return any(
        all(gauge in values for gauge in engine[phase][:2]) and not any(values.get(gauge, 0.0) > 0 for gauge in engine[phase])
        for engine in _BUSY
    )
