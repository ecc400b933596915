"""Published curves of a service's rate and mean lengths over days, as plans: lognormal lengths around the means of each row."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path
from typing import Final

from equipoise.simulate.traffic.curves import RateCurve
from equipoise.simulate.traffic.lengths import lognormal
from equipoise.simulate.traffic.plan import Part
from equipoise.simulate.traffic.traces import TraceError

_PER_SECOND: Final = ("req_per_s", "mean_input_tokens", "mean_output_tokens")
_PER_MINUTE: Final = ("req_per_min", "input_tokens_per_min", "output_tokens_per_min")


def read_mix(path: Path, variation: float = 1.0) -> tuple[Part, ...]:
    """Rows of t_seconds with either req_per_s, mean_input_tokens, mean_output_tokens or the same per minute in sums.

    Each row becomes a part that leads in a straight line to the next row's rate; where there is a column rate_weighted_cv, it is
    the variation of arrivals. `variation` is that of the lengths.
    """
    if not path.is_file():
        raise TraceError(f"there is no file {path}")
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        columns = tuple(reader.fieldnames or ())
        per_minute = set(_PER_MINUTE) <= set(columns)
        if "t_seconds" not in columns or not (per_minute or set(_PER_SECOND) <= set(columns)):
            wanted = f"t_seconds with {', '.join(_PER_SECOND)} or {', '.join(_PER_MINUTE)}"
            raise TraceError(f"{path}:1: found columns {', '.join(columns)}; a mix needs {wanted}")
        rows = []
        for row in reader:
            try:
                rows.append(_row(row, per_minute))
            except (ValueError, TypeError) as error:
                raise TraceError(f"{path}:{reader.line_num}: {error}") from error
    if len(rows) < 2:
        raise TraceError(f"{path}: a mix needs at least two rows")
    parts = []
    for (start, rate, prompt, output, gaps), (end, next_rate, *_) in pairwise(rows):
        curve = RateCurve(((0.0, rate), (end - start, next_rate)))
        parts.append(Part(path.stem, lognormal(max(1.0, prompt), max(1.0, output), variation), curve, gaps))
    return tuple(parts)


def _row(row: dict[str, str], per_minute: bool) -> tuple[float, float, float, float, float]:
    at = float(row["t_seconds"])
    if not per_minute:
        gaps = float(row["rate_weighted_cv"]) if row.get("rate_weighted_cv") else 1.0
        return at, float(row["req_per_s"]), float(row["mean_input_tokens"]), float(row["mean_output_tokens"]), gaps
    per_minute_requests = float(row["req_per_min"])
    prompt = float(row["input_tokens_per_min"]) / per_minute_requests
    return at, per_minute_requests / 60.0, prompt, float(row["output_tokens_per_min"]) / per_minute_requests, 1.0
