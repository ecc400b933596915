"""When a new status is worth a write: at once when its meaning changed, now and then when only figures did, never at rest."""

from __future__ import annotations

from typing import Any

from equipoise.api.status import InferenceServiceStatus

FIGURES_EVERY_SECONDS = 30.0  # sentences and small figures may lag by this much under load; facts never do


def meaning(status: InferenceServiceStatus) -> dict[str, Any]:
    """The part of a status whose change is news: no sentences, no latencies, no counters of rounds."""
    data = status.to_dict()
    for condition in data.get("conditions") or ():
        condition.pop("message", None)
        condition.pop("lastTransitionTime", None)
    decision = data.get("lastDecision") or {}
    decision.pop("atTime", None)
    for part in (*decision.get("reasons", ()), *decision.get("moves", ())):
        part.pop("message", None)
        part.pop("reason", None)
    if data.get("transaction"):
        data["transaction"].pop("message", None)
    for phase in (data.get("phases") or {}).values():
        for figure in ("latency", "attainment", "lag", "utilisation", *_FLOWS):
            phase.pop(figure, None)
        for variant in phase.get("variants") or ():
            variant.pop("message", None)
    memory = data.pop("memory", None) or {}
    data["memory"] = {name: value for name, value in memory.items() if name.startswith("last_") or name == "allocation"}
    for figure in ("summary", "goodput"):
        data.pop(figure, None)
    return data


_FLOWS = ("demandTokensPerSecond", "neededTokensPerSecond", "capacityTokensPerSecond")


def worth_writing(old: InferenceServiceStatus, new: InferenceServiceStatus, seconds_since_write: float) -> bool:
    """Whether to write `new` over `old`, given how long ago this service's status was last written."""
    if meaning(old) != meaning(new):
        return True
    if _shown(old) == _shown(new):
        return False  # memory that only ticks rides along with the next write: a restart forgets seconds, not decisions
    return seconds_since_write >= FIGURES_EVERY_SECONDS


def _shown(status: InferenceServiceStatus) -> dict[str, Any]:
    data = status.to_dict()
    data.pop("memory", None)
    return data
