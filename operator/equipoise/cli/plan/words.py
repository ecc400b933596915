"""How figures and limits are put for people."""

from __future__ import annotations

from typing import Final

from equipoise.api.identity import Phase
from equipoise.api.values import format_duration
from equipoise.perf.types import ReplicaCapacity, Targets

NOTHING: Final = "–"

_BOUND_BY: Final = {
    (Phase.PREFILL, "compute"): "compute",
    (Phase.PREFILL, "target"): "TTFT",
    (Phase.DECODE, "target"): "bandwidth",
    (Phase.DECODE, "kv memory"): "KV memory",
    (Phase.DECODE, "batch limit"): "batch",
}
LEGEND: Final = {
    "compute": "compute: the replica is 90 % busy",
    "TTFT": "TTFT: it must stay free enough for prompts not to wait past the target",
    "bandwidth": "bandwidth: reading weights and KV for a larger batch takes longer than TPOT allows",
    "KV memory": "KV memory: no room for more sequences",
    "batch": "batch: the engine's limit of sequences",
    "link": "link: the node's network carries no more KV",
}


def bound_by(capacity: ReplicaCapacity) -> str:
    """What limits a capacity, in the legend's words."""
    if capacity.binds == "network":
        return "link"
    return _BOUND_BY.get((capacity.phase, capacity.binds), capacity.binds)


def tokens(value: float | None) -> str:
    """Tokens per second."""
    return NOTHING if value is None else f"{value:,.0f}"


def money(value: float | None) -> str:
    """USD per hour."""
    return NOTHING if value is None else f"{value:,.2f}"


def per_million(value: float | None) -> str:
    """USD per million tokens, to three figures."""
    if value is None:
        return NOTHING
    return f"{value:.3f}" if value < 0.9995 else f"{value:.2f}" if value < 99.95 else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """A ratio to two decimals."""
    return NOTHING if value is None else f"{value:.2f}" if value < 99.95 else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share in per cent."""
    return NOTHING if value is None else f"{value:.0%}".replace("%", " %")


def targets(value: Targets) -> str:
    """`TTFT ≤ 500ms and TPOT ≤ 50ms for 95 % of requests`."""
    ttft, tpot = format_duration(value.ttft_seconds), format_duration(value.tpot_seconds)
    return f"TTFT ≤ {ttft} and TPOT ≤ {tpot} for {value.percentile:.0f} % of requests"


def count(number: int, thing: str) -> str:
    """`1 GPU`, `3 GPUs`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
