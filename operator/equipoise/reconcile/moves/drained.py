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
# Gauges that must be zero, per phase. A prefill replica also holds the KV of prompts that decode has not fetched yet.
_BUSY: Final = {
    Phase.PREFILL: frozenset({"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}),
    Phase.DECODE: frozenset({"vllm:num_requests_running", "vllm:num_requests_waiting"}),
}


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
    """Whether a vLLM metrics page says that the engine is empty. A page without the gauges proves nothing."""
    wanted = _BUSY[phase]
    seen: set[str] = set()
    for family in text_string_to_metric_families(page):
        if family.name not in wanted:
            continue
        for sample in family.samples:
            if sample.name == family.name:
                seen.add(family.name)
                if sample.value > 0:
                    return False
    return "vllm:num_requests_running" in seen and "vllm:num_requests_waiting" in seen
