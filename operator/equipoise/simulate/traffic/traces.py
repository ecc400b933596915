"""Readers of public request traces. Token counts and times only; a file is given by its path and read as it is consumed."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from equipoise.simulate.traffic.arrival import Arrival


class TraceError(ValueError):
    """A trace that cannot be read: names file, line, what was found and what is expected."""


def read_azure(path: Path, kind: str = "") -> Iterator[Arrival]:
    """Azure's LLM inference traces of 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens."""
    name = kind or path.stem
    start: float | None = None
    for line, row in _rows(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        try:
            stamp = datetime.fromisoformat(row["TIMESTAMP"])
            at = (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
            prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except ValueError as error:
            raise TraceError(f"{path}:{line}: {error}; expected a time and two token counts") from error
        start = at if start is None else start
        yield Arrival(at - start, max(1, prompt), max(1, output), name)


def read_mooncake(path: Path, kind: str = "") -> Iterator[Arrival]:
    """Mooncake's traces: one JSON object a line with timestamp (ms), input_length, output_length, hash_ids (blocks of 512)."""
    name = kind or path.stem
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
                at, prompt, output = row["timestamp"] / 1000.0, int(row["input_length"]), int(row["output_length"])
                hash_ids = tuple(row["hash_ids"]) if row.get("hash_ids") else None
            except (ValueError, KeyError, TypeError) as error:
                expected = "an object with timestamp, input_length, output_length"
                raise TraceError(f"{path}:{line}: {text.strip()[:60]!r} is not {expected} ({error!r})") from error
            yield Arrival(at, max(1, prompt), max(1, output), name, hash_ids)


def read_burstgpt(path: Path, kind: str = "") -> Iterator[Arrival]:
    """BurstGPT: Timestamp (s), Model, Request tokens, Response tokens, … Failed requests (no response tokens) are left out."""
    name = kind or path.stem
    start: float | None = None
    for line, row in _rows(path, ("Timestamp", "Request tokens", "Response tokens")):
        try:
            at, prompt, output = float(row["Timestamp"]), int(row["Request tokens"]), int(row["Response tokens"])
        except ValueError as error:
            raise TraceError(f"{path}:{line}: {error}; expected seconds and two token counts") from error
        if output > 0:
            start = at if start is None else start
            yield Arrival(at - start, max(1, prompt), output, name)


READERS: Final[Mapping[str, Callable[[Path, str], Iterator[Arrival]]]] = {
    "azure": read_azure,
    "mooncake": read_mooncake,
    "burstgpt": read_burstgpt,
}


def read_trace(path: Path, kind: str = "") -> Iterator[Arrival]:
    """Read a trace, telling its format by its first line. TraceError when it is none of the known ones."""
    if not path.is_file():
        raise TraceError(f"there is no trace file {path}")
    with path.open(encoding="utf-8") as file:
        first = file.readline().strip().lstrip("\ufeff")
    if first.startswith("{"):
        return read_mooncake(path, kind)
    if first.startswith("TIMESTAMP,"):
        return read_azure(path, kind)
    if first.startswith("Timestamp,"):
        return read_burstgpt(path, kind)
    raise TraceError(f"{path}:1: {first[:80]!r} is the beginning of no known trace; known are {', '.join(READERS)}")


def in_order(arrivals: Iterable[Arrival], path: str = "trace") -> Iterator[Arrival]:
    """Pass arrivals on, and refuse a trace that goes back in time."""
    last = 0.0
    for arrival in arrivals:
        if arrival.at_seconds < last:
            raise TraceError(
                f"{path}: a request at {arrival.at_seconds:.3f} s follows one at {last:.3f} s; sort the trace by time"
            )
        last = arrival.at_seconds
        yield arrival


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise TraceError(f"{path}:1: columns {', '.join(missing)} are missing; found {', '.join(reader.fieldnames or ())}")
        for row in reader:
            if any(row[column] is None for column in columns):
                raise TraceError(f"{path}:{reader.line_num}: the line has too few fields")
            yield reader.line_num, row
