"""Probes of engine pods: patient at the start, quick in routing, slow to kill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from equipoise.api.identity import Precision
from equipoise.render.context import Context, weight_bytes

STARTUP_BASE_SECONDS: Final = 600.0
"""Process start, graph capture and warm-up; what KServe allows a vLLM pod in all, without the download."""
DOWNLOAD_BYTES_PER_SECOND: Final = 100e6
"""Slowest download worth waiting for: 0.8 Gbit/s per pod. Only a bound on patience; start-up times are learned from the pods."""
STARTUP_UNKNOWN_SECONDS: Final = 1800.0
"""For models whose size is not known: as long as sglang-router waits for a worker."""
_STARTUP_PERIOD: Final = 10


@dataclass(frozen=True, slots=True)
class ProbePaths:
    """HTTP paths of an engine, and how long an answer may take there."""

    startup: str = "/health"
    readiness: str = "/health"
    liveness: str = "/health"
    timeout_seconds: int = 5
    readiness_timeout_seconds: int = 5
    liveness_period_seconds: int = 10


def probes(context: Context, stored: Precision, paths: ProbePaths, port: str) -> dict[str, Any]:
    """The three probes of an engine's container, whose weights are read in the precision `stored`.

    Liveness begins after the start-up probe has passed, and ends a container only after two minutes without an answer: a busy
    event loop answers late, and a restart costs a whole model load.
    """
    budget = startup_seconds(context, stored)
    return {
        "startupProbe": {
            "httpGet": {"path": paths.startup, "port": port},
            "periodSeconds": _STARTUP_PERIOD,
            "timeoutSeconds": paths.timeout_seconds,
            "failureThreshold": math.ceil(budget / _STARTUP_PERIOD),
        },
        "readinessProbe": {
            "httpGet": {"path": paths.readiness, "port": port},
            "periodSeconds": 5,
            "timeoutSeconds": paths.readiness_timeout_seconds,
            "failureThreshold": 3,
        },
        "livenessProbe": {
            "httpGet": {"path": paths.liveness, "port": port},
            "periodSeconds": paths.liveness_period_seconds,
            "timeoutSeconds": paths.timeout_seconds,
            "failureThreshold": math.ceil(120 / paths.liveness_period_seconds),
        },
    }


def startup_seconds(context: Context, stored: Precision) -> float:
    """How long a replica may take until it serves: the base and the download of its weights."""
    size = weight_bytes(context, stored)
    return STARTUP_UNKNOWN_SECONDS if size is None else STARTUP_BASE_SECONDS + size / DOWNLOAD_BYTES_PER_SECOND
