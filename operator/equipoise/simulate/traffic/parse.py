"""Traffic as a command line argument.

    chat:120s@30,code:120s@20,chat:120s@30     parts in turn: KIND:DURATION@REQUESTS_PER_SECOND
    chat:2m@30,code:2m@20;repeat=forever       the same for ever (or repeat=3)
    6000+40:5m@40,500+1200:5m@40               lengths by their means, lognormal; =6000+40 for exact ones
    chat:10m@20~60                             a rate that rises in a straight line from 20 to 60
    code:10m@20!3                              gaps between arrivals with a coefficient of variation of 3 (1 is Poisson)
    trace:FILE;rate=4;speed=2                  an Azure, Mooncake or BurstGPT trace; rate: that many times the requests,
                                               speed: in 1/speed of the time
    trace:CONV_FILE,trace:CODE_FILE            one trace after another
    trace:FILE@20;speed=36                     thinned or thickened to 20 requests per second in the mean, after `speed`
    mix:FILE;speed=24                          a published curve of rates and mean lengths, here a day in an hour

Options after `;` hold for all of it: `rate` multiplies requests, `speed` for plans lets the parts pass faster at the same rates,
`repeat`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from equipoise.simulate.traffic.arrival import Arrival
from equipoise.simulate.traffic.curves import RateCurve
from equipoise.simulate.traffic.lengths import lengths_named
from equipoise.simulate.traffic.mix import read_mix
from equipoise.simulate.traffic.plan import Part, Plan
from equipoise.simulate.traffic.reshape import compress_time, scale_rate
from equipoise.simulate.traffic.traces import in_order, read_trace

_PART: Final = re.compile(
    r"(?P<kind>[^:@]+):(?P<time>[0-9.]+)(?P<unit>ms|s|m|h)@(?P<rate>[0-9.]+)(~(?P<end>[0-9.]+))?(!(?P<cv>[0-9.]+))?"
)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Traffic:
    """Requests of a whole run. `turns` are the times at which another kind begins, with its name; `seconds` None: without end."""

    turns: tuple[tuple[float, str], ...]
    seconds: float | None
    arrivals: Callable[[int], Iterator[Arrival]]  # by seed
    plan: Plan | None = None


def parse_traffic(text: str) -> Traffic:
    """Read a traffic argument. ValueError says which part is wrong and how it is written."""
    body, *options = [piece.strip() for piece in text.split(";")]
    rate, speed, repeats = _options(options)
    pieces = [piece.strip() for piece in body.split(",") if piece.strip()]
    if not pieces:
        raise ValueError("empty traffic; write for example chat:120s@30,code:120s@20")
    if any(piece.startswith("trace:") for piece in pieces):
        return _traces(pieces, rate, speed, repeats)
    plan = Plan(tuple(part for piece in pieces for part in _parts(piece)), repeats)
    plan = plan.scaled(rate).compressed(speed)
    return plan_traffic(plan)


def plan_traffic(plan: Plan, most_turns: int = 1000) -> Traffic:
    """A plan as traffic. Of an endless one only the first `most_turns` turns are named."""
    turns = tuple((start, part.name) for (start, part), _ in zip(plan.turns(), range(most_turns), strict=False))
    return Traffic(turns, plan.seconds, plan.arrivals, plan)


def _options(options: list[str]) -> tuple[float, float, int | None]:
    values: dict[str, str] = {"rate": "1", "speed": "1", "repeat": "1"}
    for option in options:
        name, _, value = option.partition("=")
        if name not in values:
            raise ValueError(f"traffic option {option!r} is none of {', '.join(values)}")
        values[name] = value
    try:
        repeats = None if values["repeat"] == "forever" else int(values["repeat"])
        rate, speed = float(values["rate"]), float(values["speed"])
    except ValueError as error:
        raise ValueError(f"traffic options {options}: rate and speed are numbers, repeat is one or 'forever'") from error
    if rate <= 0.0 or speed <= 0.0 or (repeats is not None and repeats < 1):
        raise ValueError(f"traffic options {options}: rate, speed and repeat must be positive")
    return rate, speed, repeats


def _parts(text: str) -> tuple[Part, ...]:
    if text.startswith("mix:"):
        return read_mix(Path(text.removeprefix("mix:")).expanduser())
    return (_part(text),)


def _part(text: str) -> Part:
    match = _PART.fullmatch(text)
    if match is None:
        raise ValueError(f"traffic {text!r} is not KIND:DURATION@RATE, for example chat:120s@30 or 6000+40:5m@40")
    seconds = float(match["time"]) * _UNITS[match["unit"]]
    rate = float(match["rate"])
    curve = RateCurve(((0.0, rate), (seconds, float(match["end"]) if match["end"] else rate)))
    return Part(match["kind"], lengths_named(match["kind"]), curve, float(match["cv"]) if match["cv"] else 1.0)


def _traces(pieces: list[str], rate: float, speed: float, repeats: int | None) -> Traffic:
    strangers = [piece for piece in pieces if not piece.startswith("trace:")]
    if strangers:
        raise ValueError(f"traffic {strangers[0]!r}: traces and generated parts cannot be mixed in one argument")
    if repeats != 1:
        raise ValueError("a trace is not repeated; name its file several times instead")
    files = [_trace_file(piece, speed) for piece in pieces]
    turns, start = [], 0.0
    for file in files:
        turns.append((start, file.path.stem))
        start += file.seconds

    def arrivals(seed: int) -> Iterator[Arrival]:
        offset = 0.0
        for number, file in enumerate(files):
            found: Iterator[Arrival] = compress_time(read_trace(file.path), speed)
            if file.factor * rate != 1.0:
                found = scale_rate(found, file.factor * rate, seed + number)
            for arrival in found:
                yield arrival._replace(at_seconds=offset + arrival.at_seconds)
            offset += file.seconds

    return Traffic(tuple(turns), start, arrivals)


@dataclass(frozen=True, slots=True)
class _TraceFile:
    path: Path
    seconds: float  # that it takes, at the speed asked for
    factor: float  # by which requests are multiplied


def _trace_file(piece: str, speed: float) -> _TraceFile:
    name, _, mean = piece.removeprefix("trace:").partition("@")
    path = Path(name).expanduser()
    last, count = 0.0, 0
    for arrival in in_order(read_trace(path), str(path)):
        last, count = arrival.at_seconds, count + 1
    if not mean:
        return _TraceFile(path, last / speed, 1.0)
    try:
        wanted = float(mean)
    except ValueError:
        wanted = 0.0
    if not 0.0 < wanted < float("inf"):
        raise ValueError(f"traffic {piece!r}: after @ stands the mean of requests per second, a positive number")
    if last <= 0.0:
        raise ValueError(f"traffic {piece!r}: {path} holds too few requests to speak of a mean")
    return _TraceFile(path, last / speed, wanted * (last / speed) / count)
