"""A whole run's traffic: parts one after another, each with its lengths and its rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from equipoise.simulate.traffic.arrival import Arrival
from equipoise.simulate.traffic.arrivals import arrival_times
from equipoise.simulate.traffic.curves import RateCurve, constant
from equipoise.simulate.traffic.lengths import Lengths, lengths_named


@dataclass(frozen=True)
class Part:
    """One kind of traffic for a while. `variation` is that of the gaps between arrivals: 1 for Poisson."""

    name: str
    lengths: Lengths
    curve: RateCurve
    variation: float = 1.0

    @property
    def seconds(self) -> float:
        """How long the part lasts."""
        return self.curve.seconds

    def arrivals(self, random: Random) -> Iterator[Arrival]:
        """The requests, from 0 seconds on."""
        prompt, output = self.lengths.prompt, self.lengths.output
        for at in arrival_times(self.curve, random, self.variation):
            yield Arrival(at, prompt.sample(random), output.sample(random), self.name)


@dataclass(frozen=True)
class Plan:
    """Parts in sequence, gone through `repeats` times (None: for ever)."""

    parts: tuple[Part, ...]
    repeats: int | None = 1

    def __post_init__(self) -> None:
        if not self.parts or any(part.seconds <= 0.0 for part in self.parts):
            raise ValueError("a traffic plan needs parts, each longer than 0 seconds")

    @property
    def seconds(self) -> float | None:
        """How long the plan lasts; None when it never ends."""
        return None if self.repeats is None else self.repeats * sum(part.seconds for part in self.parts)

    def turns(self) -> Iterator[tuple[float, Part]]:
        """When which part begins."""
        start = 0.0
        for turn in count():
            if self.repeats is not None and turn >= self.repeats:
                return
            for part in self.parts:
                yield start, part
                start += part.seconds

    def arrivals(self, seed: int = 0) -> Iterator[Arrival]:
        """All requests in order. The same seed gives the same requests; each part has a stream of its own."""
        for number, (start, part) in enumerate(self.turns()):
            for arrival in part.arrivals(Random(f"{seed}/{number}")):
                yield arrival._replace(at_seconds=start + arrival.at_seconds)

    def scaled(self, factor: float) -> Plan:
        """The same plan with `factor` times the requests."""
        return replace(self, parts=tuple(replace(part, curve=part.curve.scaled(factor)) for part in self.parts))

    def compressed(self, factor: float) -> Plan:
        """The same rates and lengths, the parts passing `factor` times as fast."""
        return replace(self, parts=tuple(replace(part, curve=part.curve.compressed(factor)) for part in self.parts))


def alternate(parts: Sequence[tuple[str, float, float]], repeats: int | None = 1) -> Plan:
    """(kind, seconds, requests per second) in turn; the kind is a name or PROMPT+OUTPUT, see `lengths_named`."""
    return Plan(tuple(Part(kind, lengths_named(kind), constant(rate, seconds)) for kind, seconds, rate in parts), repeats)


def total(arrivals: Iterable[Arrival]) -> tuple[int, int, int]:
    """Requests, prompt tokens, output tokens."""
    requests = prompt = output = 0
    for arrival in arrivals:
        requests += 1
        prompt += arrival.prompt_tokens
        output += arrival.output_tokens
    return requests, prompt, output
