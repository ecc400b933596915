"""How far the performance model is from published measurements. Prints a table; the unit tests assert it.

Run: python tests/benchmarks/perf_accuracy.py. It reads EQUIPOISE_SHARED_DATA/perf (default ../shared/data), whose files come
from: aiconfigurator-core 0.12.0 (PyPI; fits_pd_perf.json holds fits to its tables), LLMServingSim 2.0
(github.com/casys-kaist/LLMServingSim), Splitwise (github.com/Mutinifni/splitwise-sim, data/perf_model.csv), Helix
(github.com/Thesys-lab/Helix-ASPLOS25, simulator/model_manager) and DistServe (github.com/LLMServe/DistServe,
simdistserve/estimators/profiled_data).
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from equipoise.api.identity import Shape
from equipoise.fleet.catalogue import DEVICES, device
from equipoise.fleet.types import Device
from equipoise.perf.models import model_facts
from equipoise.perf.models.config import facts_from_config
from equipoise.perf.roofline import roofline_step_times
from equipoise.perf.step_times import step_times
from equipoise.perf.table import ENTRIES
from equipoise.perf.types import ModelFacts, Refusal, StepTimes

WITHIN = 0.15


@dataclass(frozen=True)
class Comparison:
    """Predicted over measured, over some cases of one source."""

    source: str
    device: str
    case: str
    quantity: str
    ratios: tuple[float, ...]

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.source, self.device, self.case, self.quantity)

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def mean_error(self) -> float:
        return fmean(abs(ratio - 1) for ratio in self.ratios)


# Deviations beyond 15 % that are known, with the range of the median ratio and why. A test fails when one leaves its range:
# then either the model or this explanation is wrong.
_LAUNCH = "a stack of 2023: launching kernels from the host sets the token time, so more GPUs hardly lower it; captured graphs do"
_SMALL_SHARES = "a stack of 2023: shares of the model get small, launching and all-reduce set the pace"
_HOPPER = "a stack of 2023 without today's attention and matrix kernels for Hopper"
EXPLAINED: dict[tuple[str, str, str, str], tuple[float, float, str]] = {
    ("Helix", "L4", "Llama-1-30B tp2 layer", "decode"): (0.75, 0.88, "all-reduce without peer-to-peer, unmodelled in decode"),
    ("Splitwise", "A100-80GB", "Llama-2-70B tp4", "prefill"): (0.75, 0.90, _SMALL_SHARES),
    ("Splitwise", "A100-80GB", "Llama-2-70B tp4", "decode"): (0.60, 0.72, _LAUNCH),
    ("Splitwise", "A100-80GB", "Llama-2-70B tp8", "prefill"): (0.60, 0.75, _SMALL_SHARES),
    ("Splitwise", "A100-80GB", "Llama-2-70B tp8", "decode"): (0.30, 0.40, _LAUNCH),
    ("Splitwise", "H100", "Llama-2-70B tp2", "prefill"): (0.75, 0.90, _HOPPER),
    ("Splitwise", "H100", "Llama-2-70B tp2", "decode"): (0.77, 0.90, _LAUNCH),
    ("Splitwise", "H100", "Llama-2-70B tp4", "prefill"): (0.62, 0.78, _HOPPER),
    ("Splitwise", "H100", "Llama-2-70B tp4", "decode"): (0.48, 0.62, _LAUNCH),
    ("Splitwise", "H100", "Llama-2-70B tp8", "prefill"): (0.48, 0.62, _HOPPER),
    ("Splitwise", "H100", "Llama-2-70B tp8", "decode"): (0.25, 0.36, _LAUNCH),
    ("DistServe", "A100-80GB", "opt-13b tp2", "prefill"): (0.72, 0.85, _SMALL_SHARES),
    ("DistServe", "A100-80GB", "opt-13b tp2", "decode"): (0.78, 0.92, _LAUNCH),
    ("DistServe", "A100-80GB", "opt-13b tp4", "prefill"): (0.68, 0.82, _SMALL_SHARES),
    ("DistServe", "A100-80GB", "opt-13b tp4", "decode"): (0.56, 0.72, _LAUNCH),
    ("DistServe", "A100-80GB", "opt-66b tp8", "prefill"): (0.67, 0.82, _SMALL_SHARES),
    ("DistServe", "A100-80GB", "opt-66b tp8", "decode"): (0.60, 0.75, _LAUNCH),
}


def data_directory() -> Path | None:
    """The folder of performance data, if there is one."""
    root = Path(os.environ.get("EQUIPOISE_SHARED_DATA") or Path(__file__).resolve().parents[2].parent / "shared" / "data")
    folder = root / "perf"
    return folder if (folder / "fits_pd_perf.json").exists() else None


def roofline_against_table() -> Iterator[Comparison]:
    """The roofline at the fitted entries: how much is lost where there is no entry."""
    fitted = {one.fitted_name: one for one in DEVICES.values() if one.fitted_name}
    for entry in ENTRIES:
        where = fitted[entry.device]
        times, line = entry.step_times(), roofline_step_times(_known(entry.family.name), where, Shape(entry.tensor_parallel))
        case = f"{entry.family.name} tp{entry.tensor_parallel}"
        lengths = (512, 1024, 2048, 4096, 8192)
        prefill = tuple(line.prefill_seconds(n, n * n) / times.prefill_seconds(n, n * n) for n in lengths)
        yield Comparison("fitted table", where.name, case, "prefill", prefill)
        steps = [(batch, batch * context) for batch in (1, 16, 64, 128) for context in (1024, 2048, 4096)]
        decode = tuple(line.decode_step_seconds(*step) / times.decode_step_seconds(*step) for step in steps)
        yield Comparison("fitted table", where.name, case, "decode", decode)


def helix(folder: Path) -> Iterator[Comparison]:
    """Layer timings on L4, T4 and A100-40GB; contexts are not given, so decode is compared at small batches only."""
    llama_30b = facts_from_config(
        {
            "num_hidden_layers": 60,
            "hidden_size": 6656,
            "num_attention_heads": 52,
            "intermediate_size": 17920,
            "vocab_size": 32000,
        },
        "Llama-1-30B",
    )
    for model, name in ((llama_30b, "llama1_30b"), (_known("Llama-2-70b"), "llama2_70b")):
        for where, label, size in (("L4", "l4", 1), ("L4", "l4x2", 2), ("T4", "t4", 1), ("A100-40GB", "a100", 1)):
            if model.attention_heads % size:
                continue
            times = roofline_step_times(model, device(where), Shape(size))
            case = f"{model.name} tp{size} layer"
            rows = _pairs(folder / f"helix_{name}_{label}_prompt.csv")
            prefill = tuple(
                (times.prefill_constant + times.prefill_per_token * tokens) / model.layers / (milliseconds / 1e3)
                for tokens, milliseconds in rows
                if tokens >= 1000
            )
            yield Comparison("Helix", where, case, "prefill", prefill)
            decode = tuple(
                times.decode_step_seconds(batch, 0) / model.layers / (milliseconds / 1e3)
                for batch, milliseconds in _pairs(folder / f"helix_{name}_{label}_decode.csv")
                if 0 < batch <= 16
            )
            yield Comparison("Helix", where, case, "decode", decode)


def splitwise(folder: Path) -> Iterator[Comparison]:
    """Llama-2-70B as served in 2023, one prompt at a time."""
    model = _known("Llama-2-70b")
    measured: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    with (folder / "splitwise_perf_model_a100_h100.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["model"] != "llama2-70b" or row["batch_size"] != "1" or row["hardware"] not in {"a100-80gb", "h100-80gb"}:
                continue
            key = (row["hardware"], int(row["tensor_parallel"]), int(row["prompt_size"]))
            measured.setdefault(key, []).append((float(row["prompt_time"]), float(row["token_time"])))
    for hardware, where in (("a100-80gb", "A100-80GB"), ("h100-80gb", "H100")):
        for size in (2, 4, 8):
            times = _times(model, device(where), Shape(size))
            prompts = [key[2] for key in measured if key[:2] == (hardware, size) and 512 <= key[2] <= 4096]
            case = f"Llama-2-70B tp{size}"
            prefill, decode = [], []
            for tokens in sorted(prompts):
                samples = measured[hardware, size, tokens]
                prefill.append(times.prefill_seconds(tokens, tokens**2) * 1e3 / median(sample[0] for sample in samples))
                decode.append(times.decode_step_seconds(1, tokens + 64) * 1e3 / median(sample[1] for sample in samples))
            yield Comparison("Splitwise", where, case, "prefill", tuple(prefill))
            yield Comparison("Splitwise", where, case, "decode", tuple(decode))


def distserve(folder: Path) -> Iterator[Comparison]:
    """OPT-13B and OPT-66B on A100-80GB, from DistServe's profiled coefficients."""
    profiles = json.loads((folder / "distserve_profiler-a100-80g.json").read_text())
    shapes = {
        "facebook/opt-13b": {"num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "ffn_dim": 20480},
        "facebook/opt-66b": {"num_hidden_layers": 64, "hidden_size": 9216, "num_attention_heads": 72, "ffn_dim": 36864},
    }
    for name, config in shapes.items():
        model = facts_from_config({**config, "vocab_size": 50272, "model_type": "opt"}, name)
        for size, profile in profiles[name].items():
            if int(size) not in (1, 2, 4, 8):
                continue
            times = roofline_step_times(model, device("A100-80GB"), Shape(int(size)))
            a, b, c = profile["prefill"]
            prefill = tuple(
                times.prefill_seconds(n, n * n) * 1e3 / (a + b * n + c * n * n) for n in (512, 1024, 2048)
            )  # its unit is milliseconds
            case = f"{name.partition('/')[2]} tp{size}"
            yield Comparison("DistServe", "A100-80GB", case, "prefill", prefill)
            a, b, c = profile["decoding_smallbs"]
            decode = tuple(
                times.decode_step_seconds(batch, batch * 512) * 1e3 / (a + b * batch * 512 + c * batch) for batch in (1, 16, 64)
            )
            yield Comparison("DistServe", "A100-80GB", case, "decode", decode)


def rtx4090(folder: Path) -> Iterator[Comparison]:
    """300 requests really served by vLLM 0.19 on one RTX 4090, prefill and decode in one engine.

    Decode: each answer's time is its tokens times the step at the batch and context of its lifetime, plus the prefill of
    prompts that shared the engine meanwhile. Prefill: from scheduling to the first token, all prompts of that time together,
    plus the decode step that ran in between.
    """
    lines = (folder / "llmservingsim_rtx4090_vllm_measured_requests.jsonl").read_text().splitlines()
    requests = [json.loads(line) for line in lines if line]
    times = _times(_known("Llama-3.1-8B"), device("RTX-4090"), Shape())
    moments = sorted({request[key] for request in requests for key in ("first_token_ts", "last_token_ts")})
    spans = [(start, end, *_resident(requests, 0.5 * (start + end))) for start, end in pairwise(moments)]

    def alone(request: dict[str, float]) -> float:
        tokens = request["input_toks"]
        return times.prefill_seconds(tokens, tokens * tokens) - times.prefill_constant

    prefill, decode = [], []
    for request in requests:
        first, last = request["first_token_ts"], request["last_token_ts"]
        steps = sum(
            (end - start) / times.decode_step_seconds(n, c) for start, end, n, c in spans if start >= first and end <= last
        )
        between = sum(alone(other) for other in requests if first < other["first_token_ts"] <= last)
        predicted = (request["output_toks"] - 1) * (last - first) / steps + between
        decode.append(predicted / (last - first))
        scheduled = request["scheduled_ts"]
        together = sum(alone(other) for other in requests if scheduled < other["first_token_ts"] <= first)
        batch = next(((n, c) for start, end, n, c in spans if start <= scheduled < end), (0, 0.0))
        step = times.decode_step_seconds(*batch) if batch[0] else 0.0
        prefill.append((together + times.prefill_constant + step) / (first - scheduled))
    yield Comparison("LLMServingSim", "RTX-4090", "Llama-3.1-8B requests", "prefill", tuple(prefill))
    yield Comparison("LLMServingSim", "RTX-4090", "Llama-3.1-8B requests", "decode", tuple(decode))


def _resident(requests: list[dict[str, float]], moment: float) -> tuple[int, float]:
    """Requests that decode at that moment, and the tokens of their context."""
    count, tokens = 0, 0.0
    for request in requests:
        first, last = request["first_token_ts"], request["last_token_ts"]
        if first <= moment < last:
            count += 1
            tokens += request["input_toks"] + request["output_toks"] * (moment - first) / (last - first)
    return count, tokens


def comparisons(folder: Path) -> list[Comparison]:
    """Every comparison there is data for."""
    return [
        *roofline_against_table(),
        *rtx4090(folder),
        *helix(folder),
        *splitwise(folder),
        *distserve(folder),
    ]


def _known(name: str) -> ModelFacts:
    facts = model_facts(f"hf://any/{name}")
    assert not isinstance(facts, Refusal), facts
    return facts


def _times(model: ModelFacts, where: Device, shape: Shape) -> StepTimes:
    times = step_times(model, where, shape)
    assert not isinstance(times, Refusal), times
    return times


def _pairs(path: Path) -> list[tuple[float, float]]:
    with path.open(newline="") as file:
        rows = [(float(row[0]), float(row[1])) for row in csv.reader(file)]
    return [(size, milliseconds) for size, milliseconds in rows if milliseconds > 0]


def main() -> None:
    """Print all comparisons."""
    folder = data_directory()
    if folder is None:
        raise SystemExit("no performance data; see the top of this file for where it comes from")
    print(f"{'source':14} {'device':13} {'case':26} {'quantity':8} {'cases':>5} {'ratio':>6} {'error':>6}  remark")
    for one in comparisons(folder):
        low, high, why = EXPLAINED.get(one.key, (1 - WITHIN, 1 + WITHIN, ""))
        verdict = "" if low <= one.ratio <= high else "OUTSIDE "
        name = f"{one.source:14} {one.device:13} {one.case:26} {one.quantity:8}"
        print(f"{name} {len(one.ratios):5} {one.ratio:6.2f} {one.mean_error:6.1%}  {verdict}{why}")


if __name__ == "__main__":
    main()
