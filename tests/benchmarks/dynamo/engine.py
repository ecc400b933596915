"""Dynamo's simulated engine: how it is set up, and what a load test of single workers finds of its speed.

The load test is a replay of its own, with one worker per phase that is watched pass by pass. From it come the step times that the
operator takes as a row of its fitted table, as it would for a device that was measured, and the benchmark passes that Dynamo's
planner takes as its profile: both sides start from the same measurements, and neither is told the engine's formula.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from dynamo._core import run_mocker_trace_replay
from dynamo.mocker.config import normalize_mocker_config
from tests.benchmarks.dynamo.traces import BLOCK_TOKENS

TTFT_SECONDS: Final = 1.0
TPOT_SECONDS: Final = 0.05
GPUS: Final = 8
DECODE_SPEEDUP: Final = 0.25  # decode is slowed fourfold, so that both phases matter on so few GPUs


def engine_args(role: str, startup_seconds: float) -> dict[str, Any]:
    """The engine of one role: vLLM's scheduler with the built-in timing, without prefix cache."""
    rank = {"worker_type": role, "enable_prefix_caching": False}
    if role == "decode":
        rank["decode_speedup_ratio"] = DECODE_SPEEDUP
    given: dict[str, Any] = normalize_mocker_config({"engine": rank, "startup_time": startup_seconds})
    return given


def kv_tokens(args: Mapping[str, Any]) -> int:
    """KV tokens that one worker holds."""
    return int(args["engine"]["num_gpu_blocks"]) * int(args["engine"]["block_size"])


def replay_arguments(trace: Path, prefill: int, decode: int, startup_seconds: float) -> dict[str, Any]:
    """What every run of a trace is called with."""
    return {
        "trace_files": [trace],
        "prefill_engine_args": engine_args("prefill", startup_seconds),
        "decode_engine_args": engine_args("decode", startup_seconds),
        "num_prefill_workers": prefill,
        "num_decode_workers": decode,
        "sla_ttft_ms": TTFT_SECONDS * 1e3,
        "sla_itl_ms": TPOT_SECONDS * 1e3,
        "trace_block_size": BLOCK_TOKENS,
    }


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of one worker: prompts and tokens computed, answers and KV tokens held, seconds."""

    prompts: int
    prompt_tokens: int
    answers: int
    kv_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Passes of a load test, and the step times fitted to them: (constant, per token, per token squared) and (constant, per
    sequence, per context token), in seconds; the largest relative error of each fit.
    """

    prefill_passes: tuple[Pass, ...]
    decode_passes: tuple[Pass, ...]
    prefill: tuple[float, float, float]
    decode: tuple[float, float, float]
    prefill_error: float
    decode_error: float


class _Watch:
    """Looks at the workers ten times a second and changes nothing."""

    def __init__(self) -> None:
        self.prefill: dict[tuple[int, ...], Pass] = {}
        self.decode: dict[tuple[int, ...], Pass] = {}

    def initial_tick_ms(self) -> float:
        return 100.0

    def on_tick(self, tick: Mapping[str, Any]) -> dict[str, Any]:
        for role, found in (("prefill_fpm_snapshots", self.prefill), ("decode_fpm_snapshots", self.decode)):
            for entry in tick[role]:
                # A chunk of a prompt costs less than a prompt of that length: only passes over whole prompts tell.
                if entry["wall_time"] <= 0.0 or entry["sum_prefill_kv_tokens"]:
                    continue
                seen = Pass(
                    entry["num_prefill_requests"],
                    entry["sum_prefill_tokens"],
                    entry["num_decode_requests"],
                    entry["sum_decode_kv_tokens"],
                    entry["wall_time"],
                )
                found[seen.prompts, seen.prompt_tokens, seen.answers, seen.kv_tokens] = seen
        return {"target_prefill": 1, "target_decode": 1, "next_tick_ms": tick["now_ms"] + 100.0}


def load_test() -> Profile:
    """Single prompts of 100 to 8,000 tokens, one after the other, then up to 200 answers at once over short and long contexts."""
    requests: list[tuple[float, int, int]] = [(2.0 * i, length, 2) for i, length in enumerate(range(100, 8001, 200))]
    start = 2.0 * len(requests) + 20.0
    for prompt, most in ((200, 200), (1000, 120), (3000, 60), (6000, 40)):
        requests.extend((start + 0.5 * number, prompt, 900) for number in range(most))
        start += 0.5 * most + 120.0
    watch = _Watch()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "profile.jsonl"
        block = 0
        with path.open("w", encoding="utf-8") as file:
            for at, prompt, answer in requests:
                blocks = list(range(block, block := block + -(-prompt // BLOCK_TOKENS)))
                line = {"timestamp": at * 1e3, "input_length": prompt, "output_length": answer, "hash_ids": blocks}
                file.write(json.dumps(line) + "\n")
        run_mocker_trace_replay(**replay_arguments(path, 1, 1, 0.0), scaling_policy=watch)
    prefill = tuple(entry for entry in watch.prefill.values() if entry.prompts == 1)
    decode = tuple(entry for entry in watch.decode.values() if entry.answers and not entry.prompts)
    lengths = [(1.0, float(entry.prompt_tokens), float(entry.prompt_tokens) ** 2) for entry in prefill]
    held = [(1.0, float(entry.answers), float(entry.kv_tokens)) for entry in decode if entry.seconds <= 2.0 * TPOT_SECONDS]
    times = [entry.seconds for entry in decode if entry.seconds <= 2.0 * TPOT_SECONDS]
    prefill_fit, prefill_error = _fit(lengths, [entry.seconds for entry in prefill])
    decode_fit, decode_error = _fit(held, times)
    return Profile(prefill, decode, prefill_fit, decode_fit, prefill_error, decode_error)


def _fit(rows: Sequence[tuple[float, float, float]], seconds: Sequence[float]) -> tuple[tuple[float, float, float], float]:
    """Least squares of relative errors; coefficients are not negative (the last that would be is left out)."""
    measured = np.asarray(seconds)
    matrix = np.asarray(rows) / measured[:, None]
    kept = [0, 1, 2]
    while True:
        solution = np.linalg.lstsq(matrix[:, kept], np.ones(len(measured)), rcond=None)[0]
        negative = [position for position, value in zip(kept, solution, strict=True) if value < 0.0]
        if not negative:
            break
        kept.remove(negative[-1])
    found = [0.0, 0.0, 0.0]
    for position, value in zip(kept, solution, strict=True):
        found[position] = float(value)
    error = float(np.max(np.abs(matrix @ np.asarray(found) - 1.0)))
    return (found[0], found[1], found[2]), error
