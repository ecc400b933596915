"""When a new status is worth a write: at once when its meaning changed, now and then when only figures did, never at rest."""

from __future__ import annotations

from typing import Any

from equipoise.api.conditions import ConditionType
from equipoise.api.status import InferenceServiceStatus

COUNTS_EVERY_SECONDS = 1.0  # counts of pods that come up or go may lag by this much; verdicts never do
FIGURES_EVERY_SECONDS = 30.0  # sentences and small figures may lag by this much under load


def meaning(status: InferenceServiceStatus) -> dict[str, Any]:
    """The part of a status whose change is news: no sentences, no latencies, no counters of rounds."""
    data = status.to_dict()
    data["conditions"] = [item for item in data.get("conditions") or () if not _waits_for_news(item)]
    for condition in data["conditions"]:
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


def _waits_for_news(condition: dict[str, Any]) -> bool:
    """Nobody waits to hear that metrics are there or were not looked for yet; that they are missing, or back, is news."""
    return bool(condition.get("type") == ConditionType.METRICS_AVAILABLE and condition.get("status") != "False")


_FLOWS = ("demandTokensPerSecond", "neededTokensPerSecond", "capacityTokensPerSecond")


def verdicts(status: InferenceServiceStatus) -> dict[str, Any]:
    """The part of a status that somebody may be waiting for: whether conditions hold, what was decided, for which generation.

    While a service is not Ready, which of its phases already is does not count: pods come up one by one, each would be a write.
    """
    data = meaning(status)
    found = {item["type"]: item["status"] for item in data.get("conditions") or ()}
    if found.get("Ready") != "True":
        found = {kind: value for kind, value in found.items() if kind not in ("PrefillReady", "DecodeReady")}
    rollout = data.get("rollout") or {}
    found["Rollout"] = f"{rollout.get('stage')} {rollout.get('wanted')}"
    found["Transaction"] = str((data.get("transaction") or {}).get("id"))
    kept = ("observedGeneration", "lastDecision", "allocation", "endpoint", "revision", "lagging", "memory")
    return {"conditions": found, **{name: data.get(name) for name in kept}}


def write_due_seconds(old: InferenceServiceStatus, new: InferenceServiceStatus, seconds_since_write: float) -> float | None:
    """In how many seconds `new` is to be written over `old`, given how long ago this service's status was last written.

    0: now. None: not on its own account; figures ride along with the next write, or with a look after their time.
    """
    if verdicts(old) != verdicts(new):
        return 0.0
    if meaning(old) != meaning(new):
        return max(0.0, COUNTS_EVERY_SECONDS - seconds_since_write)
    if _shown(old) == _shown(new):
        return None  # memory that only ticks rides along with the next write: a restart forgets seconds, not decisions
    return 0.0 if seconds_since_write >= FIGURES_EVERY_SECONDS else None


def _shown(status: InferenceServiceStatus) -> dict[str, Any]:
    data = status.to_dict()
    data.pop("memory", None)
    return data
