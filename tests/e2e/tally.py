"""What the client saw, read from its records: counts, failures, true latencies and true goodput."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Answer:
    """One request that has ended. Times in seconds, `begin` and `end` on the machine's monotonic clock."""

    begin: float
    end: float
    complete: bool
    error: str
    ttft: float | None
    tpot: float | None

    def good(self, ttft_target: float, tpot_target: float) -> bool:
        """Whether it is complete and met both targets."""
        return self.complete and (self.ttft or 0.0) <= ttft_target and (self.tpot or 0.0) <= tpot_target


def read_answers(path: Path) -> list[Answer]:
    """All records of a client that has ended, or so far."""
    found = []
    for line in path.read_text().splitlines():
        item = json.loads(line)
        found.append(Answer(item["begin"], item["end"], item["complete"], item["error"], item.get("ttft"), item.get("tpot")))
    return found


def goodput(answers: Iterable[Answer], ttft_target: float, tpot_target: float) -> float | None:
    """Share of requests that met both targets; None without requests."""
    verdicts = [answer.good(ttft_target, tpot_target) for answer in answers]
    return sum(verdicts) / len(verdicts) if verdicts else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def failures(answers: Iterable[Answer]) -> list[Answer]:
    """Requests that were not answered in full."""
    return [answer for answer in answers if not answer.complete]
