"""The recorded pages of a real vLLM prefill/decode pair, as frames that a test can play in any time it likes.

Pages were saved between loads, so their counters are those of the end of each load; gauges were sampled every half second
during it. A frame has the gauges of one such sample, and counters on the straight line between the page before the load and
the one after it.
"""

from __future__ import annotations

import csv
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODEL = "tiny"
BEFORE = {
    "low": "before",
    "overdecode": "low",
    "overprefill": "overdecode",
    "overdecodelong": "overprefill",
    "overdecodelong2": "extras",
}
_GAUGE_COLUMNS = {
    "vllm:kv_cache_usage_perc": "kv_cache_usage_perc",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    'vllm:num_requests_waiting_by_reason reason="capacity"': "waiting_by_reason.capacity",
    'vllm:num_requests_waiting_by_reason reason="deferred"': "waiting_by_reason.deferred",
}
_REASON = re.compile(r'reason="\w+"')


@dataclass(frozen=True)
class Frame:
    """One moment of a load: the pages of the prefill pod, the decode pod and the router."""

    seconds: float
    prefill: str
    decode: str
    router: str


def metrics_folder() -> Path:
    """Where the recordings are; skips the test when there are none."""
    base = os.environ.get("EQUIPOISE_SHARED_DATA")
    folder = (Path(base) if base else ROOT.parent / "shared" / "data") / "metrics"
    if not (folder / "pd-start-prefill.txt").is_file():
        pytest.skip(
            f"no recordings in {folder}: set EQUIPOISE_SHARED_DATA to a folder with metrics/pd-*.txt, the /metrics pages of a"
            " vLLM prefill/decode pair before and after each load"
        )
    return folder


@cache
def page(name: str, part: str) -> str:
    """The page saved after that load."""
    return (metrics_folder() / f"pd-{name}-{part}.txt").read_text(encoding="utf-8")


@cache
def gauge_rows(load: str) -> tuple[dict[str, float], ...]:
    """The gauges during that load, every half second."""
    with (metrics_folder() / f"pd-{load}-gauges.csv").open(encoding="utf-8") as file:
        return tuple({name: float(value) for name, value in row.items()} for row in csv.DictReader(file))


def frames(load: str, every: int = 1) -> list[Frame]:
    """All frames of a load: its start, each `every`-th sample, its end."""
    rows = gauge_rows(load)[::every]
    before, total = BEFORE[load], len(rows)
    result = [Frame(-0.5, page(before, "prefill"), page(before, "decode"), page(before, "router"))]
    for index, row in enumerate(rows, start=1):
        share = index / (total + 1)
        result.append(
            Frame(
                row["t"],
                _with_gauges(_between(before, load, "prefill", share), row, "P"),
                _with_gauges(_between(before, load, "decode", share), row, "D"),
                _between(before, load, "router", share),
            )
        )
    end = rows[-1]["t"] + 0.5 * every
    result.append(Frame(end, page(load, "prefill"), page(load, "decode"), page(load, "router")))
    return result


def older_generation(text: str) -> str:
    """The page as a vLLM of 2025 would have named it: before the renames, without the newer families."""
    dropped = (
        "num_requests_waiting_by_reason",
        "prompt_tokens_by_source",
        "admission_rejections",
        "request_time_per_output_token",
    )
    kept = [line for line in text.splitlines() if not any(name in line for name in dropped)]
    renamed = "\n".join(kept) + "\n"
    renamed = renamed.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    return renamed.replace("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")


def _between(before: str, after: str, part: str, share: float) -> str:
    start = dict(_split(line) for line in page(before, part).splitlines() if _is_sample(line))
    lines = []
    for line in page(after, part).splitlines():
        if _is_sample(line):
            key, value = _split(line)
            first = float(start.get(key, value))
            line = f"{key} {first + (float(value) - first) * share!r}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _with_gauges(text: str, row: dict[str, float], pod: str) -> str:
    lines = []
    for line in text.splitlines():
        if _is_sample(line):
            key, _ = _split(line)
            name = key.partition("{")[0]
            reason = _REASON.search(key)
            column = _GAUGE_COLUMNS.get(f"{name} {reason[0]}" if reason else name)
            if column is not None:
                line = f"{key} {row[f'{pod}.{column}']!r}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _is_sample(line: str) -> bool:
    return bool(line) and not line.startswith("#")


def _split(line: str) -> tuple[str, str]:
    key, _, value = line.rpartition(" ")
    return key, value
