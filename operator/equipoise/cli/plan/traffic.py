"""The traffic to plan for: `requests=30/s,prompt=1155,output=211,hit=0.2`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from equipoise.api.identity import Phase, ServiceKey
from equipoise.cli.plan.files import PlanError
from equipoise.decide.demand import Demand
from equipoise.decide.settings import Settings
from equipoise.decide.sizing import needed_tokens_per_second
from equipoise.perf.types import Workload

_PER: Final = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_FIELDS: Final = ("requests", "prompt", "output", "hit")
_EXAMPLE: Final = "requests=30/s,prompt=1155,output=211,hit=0.2"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Offered requests per second (None: not said, so only the minimum of replicas is planned) and their mean lengths."""

    requests_per_second: float | None
    workload: Workload
    assumed: tuple[str, ...] = ()

    def tokens_per_second(self, phase: Phase) -> float | None:
        """Work of a phase: uncached prompt tokens, or output tokens."""
        if self.requests_per_second is None:
            return None
        tokens = self.workload.uncached_prompt_tokens if phase is Phase.PREFILL else self.workload.mean_output_tokens
        return self.requests_per_second * tokens


def needed(traffic: Traffic, phase: Phase, settings: Settings) -> float | None:
    """Capacity that this traffic asks for, with the operator's headroom; steady, so there is nothing to forecast."""
    work = traffic.tokens_per_second(phase)
    if work is None:
        return None
    steady = Demand(now=work, backlog=0.0, forecast=work, requests_per_second=traffic.requests_per_second or 0.0)
    return needed_tokens_per_second(steady, 1.0, settings)


def read_traffic(texts: Sequence[str], keys: Sequence[ServiceKey], settings: Settings) -> dict[ServiceKey, Traffic]:
    """The traffic of each service. A text is for all services, or for the one whose name stands before it (`chat:requests=…`).

    PlanError names the part that is wrong, what was found and what to write.
    """
    general: dict[str, str] = {}
    special: dict[ServiceKey, dict[str, str]] = {key: {} for key in keys}
    for text in texts:
        name, colon, rest = text.partition(":")
        if colon and "=" not in name:
            matching = [key for key in keys if name.strip() in {key.name, str(key)}]
            if len(matching) != 1:
                known = ", ".join(str(key) for key in keys)
                what = "no service" if not matching else "more than one service"
                raise PlanError(f"--demand {text!r}: {what} is named {name.strip()!r} among {known}")
            special[matching[0]] |= _fields(rest, text)
        else:
            general |= _fields(text, text)
    return {key: _traffic({**general, **special[key]}, settings) for key in keys}


def _fields(text: str, whole: str) -> dict[str, str]:
    result = {}
    for part in text.split(","):
        if not part.strip():
            continue
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise PlanError(f"--demand {whole!r}: {part.strip()!r} is no name=value; write it like {_EXAMPLE}")
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, _FIELDS, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_FIELDS)}"
            raise PlanError(f"--demand {whole!r}: {name!r} is no part of a demand; {hint}")
        result[name] = value
    if not result:
        raise PlanError(f"--demand {whole!r}: empty; write it like {_EXAMPLE}")
    return result


def _traffic(fields: Mapping[str, str], settings: Settings) -> Traffic:
    assumed = []
    lengths = {}
    for name, default in (("prompt", settings.default_prompt_tokens), ("output", settings.default_output_tokens)):
        if name in fields:
            lengths[name] = _number(name, fields[name], 1.0, 10_000_000.0, "tokens, such as 1155")
        else:
            lengths[name] = default
            assumed.append(f"{name}={default:.0f}")
    hit = _number("hit", fields.get("hit", "0"), 0.0, 0.99, "the share of prompt tokens in the prefix cache, such as 0.2 or 20%")
    rate = _rate(fields["requests"]) if "requests" in fields else None
    return Traffic(rate, Workload(lengths["prompt"], lengths["output"], hit), tuple(assumed))


def _rate(text: str) -> float:
    number, slash, unit = text.partition("/")
    if slash and unit.strip() not in _PER:
        raise PlanError(f"--demand requests={text}: {unit.strip()!r} is no unit of time; write /s, /min or /h, such as 30/s")
    rate = _number("requests", number, 0.0, 1e9, "a rate, such as 30/s or 500/min")
    return rate / _PER[unit.strip() or "s"]


def _number(name: str, text: str, least: float, most: float, meaning: str) -> float:
    plain = text.strip()
    factor = 0.01 if plain.endswith("%") and name == "hit" else 1000.0 if plain.endswith("k") and name != "hit" else 1.0
    try:
        value = float(plain.rstrip("%k") if factor != 1.0 else plain) * factor
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise PlanError(f"--demand {name}={text}: no number from {least:g} to {most:g}; write {meaning}")
    return value
