"""What one round hands to the next. It lives in the status of the InferenceService, so that a restart forgets nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """Memory of one phase. Times are seconds since the epoch, 0.0 for never. Keep it small: it is written to the API server."""

    trim: float = 1.0  # multiplies the needed capacity; grows when attainment stays short, decays when it stays good
    short_rounds: int = 0  # rounds in a row with attainment below target
    good_since_seconds: float = 0.0  # since when attainment has been above target without a break
    pressed_rounds: int = 0  # rounds in a row in which this phase wanted a move
    low_since_seconds: float = 0.0  # since when less would have been enough: shrink waits for it


@dataclass(frozen=True, slots=True)
class VariantMemory:
    """What calibration has seen of one variant (`decide.calibration`).

    `samples` are (seconds since the epoch, load in tokens, seconds) of windows. `ready` is the count of ready replicas since
    `since_seconds`: a window counts only when it has not changed for long enough.
    """

    engine: str = ""
    speed: float = 1.0
    samples: tuple[tuple[float, float, float], ...] = ()
    ready: int = -1
    since_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "engine": self.engine,
            "speed": self.speed,
            "samples": [list(sample) for sample in self.samples],
            "ready": self.ready,
            "since_seconds": self.since_seconds,
        }

    @classmethod
    def from_dict(cls, data: Any) -> VariantMemory | None:
        """Read what `to_dict` wrote; None for anything that does not make sense."""
        entry, numbers = _mapping(data), _numbers(data)
        speed, samples, given = numbers.get("speed", 1.0), [], entry.get("samples")
        if not 0.1 <= speed <= 10.0 or not isinstance(entry.get("engine"), str):
            return None
        for sample in given if isinstance(given, list) else ():
            values = tuple(_numbers(dict(enumerate(sample))).values()) if isinstance(sample, list) else ()
            if len(values) == 3:
                samples.append(values)
        ready, since = int(numbers.get("ready", -1)), numbers.get("since_seconds", 0.0)
        return cls(entry["engine"], speed, tuple(samples), ready, since)


@dataclass(frozen=True, slots=True)
class ServiceMemory:
    """Memory of one service."""

    allocation: Mapping[str, int] = field(default_factory=dict)  # str(variant without service) -> replicas, as last decided
    last_grow_seconds: float = 0.0
    last_shrink_seconds: float = 0.0
    last_flip_seconds: float = 0.0
    phases: Mapping[Phase, PhaseMemory] = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)  # small figures of single rules, by a dotted name
    variants: Mapping[str, VariantMemory] = field(default_factory=dict)  # calibration, by variant without service

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, only what differs from the defaults."""
        result: dict[str, Any] = {}
        if self.allocation:
            result["allocation"] = dict(sorted(self.allocation.items()))
        for name in ("last_grow_seconds", "last_shrink_seconds", "last_flip_seconds"):
            value = getattr(self, name)
            if value:
                result[name] = value
        phases = {}
        for phase, memory in sorted(self.phases.items()):
            entry = {name: getattr(memory, name) for name, default in _PHASE_DEFAULTS.items() if getattr(memory, name) != default}
            if entry:
                phases[phase.value] = entry
        if phases:
            result["phases"] = phases
        if self.extra:
            result["extra"] = dict(sorted(self.extra.items()))
        if self.variants:
            result["variants"] = {name: entry.to_dict() for name, entry in sorted(self.variants.items())}
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> ServiceMemory:
        """Read what `to_dict` wrote. Unknown or ill-typed parts are dropped: memory is advice, never a reason to fail."""
        if not isinstance(data, Mapping):
            return cls()
        allocation = {
            str(k): v
            for k, v in _mapping(data.get("allocation")).items()
            if isinstance(v, int) and not isinstance(v, bool) and v >= 0
        }
        phases = {}
        for name, entry in _mapping(data.get("phases")).items():
            if name in {phase.value for phase in Phase}:
                numbers = _numbers(entry)
                phases[Phase(name)] = PhaseMemory(
                    trim=numbers.get("trim", 1.0),
                    short_rounds=int(numbers.get("short_rounds", 0)),
                    good_since_seconds=numbers.get("good_since_seconds", 0.0),
                    pressed_rounds=int(numbers.get("pressed_rounds", 0)),
                    low_since_seconds=numbers.get("low_since_seconds", 0.0),
                )
        variants = {str(name): VariantMemory.from_dict(entry) for name, entry in _mapping(data.get("variants")).items()}
        times = {k: v for k, v in _numbers(data).items() if k.startswith("last_")}
        return cls(
            allocation=allocation,
            last_grow_seconds=times.get("last_grow_seconds", 0.0),
            last_shrink_seconds=times.get("last_shrink_seconds", 0.0),
            last_flip_seconds=times.get("last_flip_seconds", 0.0),
            phases=phases,
            extra=_numbers(data.get("extra")),
            variants={name: entry for name, entry in variants.items() if entry is not None},
        )


def variant_key(variant: Variant) -> str:
    """The variant without its service, as memory keeps it: `prefill@h100-80gb/tp1-bf16`."""
    return f"{variant.phase.value}@{variant.pool}/{variant.shape}"


def parse_variant_key(service: ServiceKey, text: str) -> Variant | None:
    """Read what `variant_key` wrote; None for anything else: memory is advice, never a reason to fail."""
    phase, at, place = text.partition("@")
    pool, slash, shape = place.rpartition("/")
    if not at or not slash or not pool or phase not in {item.value for item in Phase}:
        return None
    try:
        return Variant(service, Phase(phase), pool, Shape.parse(shape))
    except ValueError:
        return None


_PHASE_DEFAULTS: Mapping[str, float | int] = {
    "trim": 1.0,
    "short_rounds": 0,
    "good_since_seconds": 0.0,
    "pressed_rounds": 0,
    "low_since_seconds": 0.0,
}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _numbers(value: Any) -> dict[str, float]:
    return {
        str(k): float(v)
        for k, v in _mapping(value).items()
        if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
    }
