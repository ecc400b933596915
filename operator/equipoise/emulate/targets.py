"""Which targets a service's figures are judged by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from equipoise.api.values import parse_duration
from equipoise.emulate.options import Options
from equipoise.perf.types import Targets

DEFAULT: Final = Targets(ttft_seconds=0.5, tpot_seconds=0.05, percentile=95.0)


def targets_of(options: Options, spec_targets: Mapping[str, Any] | None) -> Targets:
    """The command line's, else the InferenceService's, else 500 ms, 50 ms and 95."""
    spec = spec_targets or {}
    return Targets(
        ttft_seconds=_first(options.ttft_seconds, spec.get("ttft"), DEFAULT.ttft_seconds),
        tpot_seconds=_first(options.tpot_seconds, spec.get("tpot"), DEFAULT.tpot_seconds),
        percentile=options.percentile or float(spec.get("percentile") or DEFAULT.percentile),
    )


def _first(option: float | None, text: object, default: float) -> float:
    if option is not None:
        return option
    return parse_duration(text) if isinstance(text, str) and text else default
