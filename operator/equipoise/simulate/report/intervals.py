"""Several seeds of one run: means with their 95 % intervals (Student's t, since five runs are few)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Final

# Two-sided 95 % points of Student's distribution for 1, 2, … degrees of freedom; beyond, the normal's 1.96 is near enough.
_STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_NORMAL: Final = 1.96
FIGURES: Final = ("goodput", "cost", "gpu_hours", "moves_per_hour")


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and how far the true mean may lie from it on either side; None of a single run."""

    mean: float
    half_width: float | None

    def text(self, form: str) -> str:
        """`98.13% ± 0.20%` in the given format."""
        if self.half_width is None:
            return format(self.mean, form)
        return f"{self.mean:{form}} ± {self.half_width:{form}}"


def interval(values: Sequence[float]) -> Interval:
    """Of independent runs. ValueError without any."""
    if not values:
        raise ValueError("a mean needs at least one run")
    if len(values) == 1:
        return Interval(values[0], None)
    freedom = len(values) - 1
    factor = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    return Interval(fmean(values), factor * stdev(values) / math.sqrt(len(values)))


def by_policy(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, float, bool], dict[str, Interval]]:
    """Rows of `summary.row` over seeds: figures by (scenario, policy, start-up time, flips), in the order of the rows."""
    groups: dict[tuple[str, str, float, bool], list[Mapping[str, Any]]] = {}
    for entry in rows:
        key = (entry["scenario"], entry["policy"], entry["startup_seconds"], entry["flips"])
        groups.setdefault(key, []).append(entry)
    return {key: {name: interval([entry[name] for entry in found]) for name in FIGURES} for key, found in groups.items()}


def table_of_means(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows over seeds as text, a line per policy."""
    seeds = len({entry["seed"] for entry in rows})
    lines = [
        f"{'policy':24} {'goodput':>16} {'cost USD':>14} {'GPU-h':>14} {'moves/h':>14}   mean of {seeds} seeds ± 95 % interval"
    ]
    lines += [
        f"{policy:24} {found['goodput'].text('.2%'):>16} {found['cost'].text('.2f'):>14} "
        f"{found['gpu_hours'].text('.2f'):>14} {found['moves_per_hour'].text('.1f'):>14}"
        for (_, policy, _, _), found in by_policy(rows).items()
    ]
    return "\n".join(lines)
