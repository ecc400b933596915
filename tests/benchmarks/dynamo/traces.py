"""Traces for Dynamo's replay: phases of fixed lengths with Poisson arrivals, in the Mooncake format that it reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

BLOCK_TOKENS: Final = 512  # of the format; every prompt gets blocks of its own, so that nothing is ever cached


@dataclass(frozen=True, slots=True)
class Part:
    """So many seconds of one kind of traffic."""

    seconds: float
    prompt_tokens: int
    output_tokens: int
    requests_per_second: float


@dataclass(frozen=True, slots=True)
class Trace:
    """A named trace. `why`: what it is here for."""

    name: str
    why: str
    parts: tuple[Part, ...]

    @property
    def seconds(self) -> float:
        """Until the last arrival may come."""
        return sum(part.seconds for part in self.parts)


def _turns(first: Part, second: Part, seconds: tuple[float, ...]) -> tuple[Part, ...]:
    pair = (first, second)
    return tuple(
        Part(length, pair[i % 2].prompt_tokens, pair[i % 2].output_tokens, pair[i % 2].requests_per_second)
        for i, length in enumerate(seconds)
    )


TRACES: Final = {
    trace.name: trace
    for trace in (
        Trace(
            "alternating",
            "short prompts and long answers in turn with the opposite; eight GPUs just do",
            _turns(Part(0, 500, 300, 16), Part(0, 6000, 40, 30), (300, 600, 300, 300)),
        ),
        Trace(
            "heavier",
            "the same at 20 and 42 requests per second: the long prompts are more than eight GPUs can serve in time",
            _turns(Part(0, 500, 300, 20), Part(0, 6000, 40, 42), (300, 600, 300, 300)),
        ),
        Trace(
            "swinging",
            "needs about 2 + 6 replicas, then 6 + 2, for 600 s each: no fixed split serves both",
            _turns(Part(0, 400, 400, 50), Part(0, 6000, 20, 30), (600, 600, 600, 600)),
        ),
        Trace(
            "long-swings",
            "other lengths, for 900 s each: about 3 + 5 replicas, then 5 + 3",
            _turns(Part(0, 1000, 300, 36), Part(0, 5000, 30, 34), (900, 900, 900, 900)),
        ),
    )
}


def write(trace: Trace, path: Path, seed: int) -> int:
    """Write the trace as JSON lines; how many requests it has. Arrivals are Poisson, each part draws on from the last."""
    random, block, count, start = Random(seed), 0, 0, 0.0
    with path.open("w", encoding="utf-8") as file:
        for part in trace.parts:
            at, end = start + random.expovariate(part.requests_per_second), start + part.seconds
            blocks = -(-part.prompt_tokens // BLOCK_TOKENS)
            while at < end:
                entry = {
                    "timestamp": round(at * 1e3, 3),
                    "input_length": part.prompt_tokens,
                    "output_length": part.output_tokens,
                    "hash_ids": list(range(block, block + blocks)),
                }
                file.write(json.dumps(entry) + "\n")
                block, count = block + blocks, count + 1
                at += random.expovariate(part.requests_per_second)
            start = end
    return count
