"""What the state of the metrics is, in sentences: of the source as a whole, and of one service. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from equipoise.api.identity import Phase
from equipoise.observe.types import PhaseObservation, ServiceObservation, Unknown, UnknownReason

# What decisions stand on: without one of these a phase is held. The rest is shown, and missed by nobody.
_ESSENTIAL = (
    "requests_per_second",
    "tokens_per_second",
    "mean_tokens",
    "latency_percentile_seconds",
    "attainment",
    "waiting_requests",
    "kv_usage_share",
)
_HARMLESS = (UnknownReason.TOO_FEW_SAMPLES, UnknownReason.NO_SERIES)  # these pass with traffic, or with the first pod


@dataclass(frozen=True, slots=True)
class ObserverHealth:
    """One round's state of the source. `reason` is CamelCase and `message` a sentence, as a condition wants them."""

    ok: bool
    reason: str
    message: str
    queries: int = 0
    failed: int = 0
    received_bytes: int = 0
    seconds: float = 0.0
    windows_seconds: tuple[float, ...] = ()


NOT_YET = ObserverHealth(False, "NotObservedYet", "No round of observation has been made.")


@dataclass(frozen=True, slots=True)
class MetricsCondition:
    """The MetricsAvailable condition of one service."""

    ok: bool
    reason: str
    message: str


def source_health(
    failures: dict[str, str], queries: int, received_bytes: int, seconds: float, windows: tuple[float, ...]
) -> ObserverHealth:
    """The round's health from the failed readings (name -> sentence)."""
    if not failures:
        message = f"{queries} queries answered in {seconds:.1f} s."
        return ObserverHealth(True, "Answering", message, queries, 0, received_bytes, seconds, windows)
    name, first = next(iter(failures.items()))
    message = f"{len(failures)} of {queries} queries failed; {name}: {first}."
    reason = "QueriesFailed" if len(failures) < queries else "Unreachable"
    return ObserverHealth(False, reason, message, queries, len(failures), received_bytes, seconds, windows)


def metrics_condition(observation: ServiceObservation) -> MetricsCondition:
    """Whether the service's metrics suffice to decide on, with the worst reason first.

    Too little traffic and a phase without a pod are no fault of the metrics.
    """
    findings: list[tuple[str, str]] = []
    for phase in Phase:
        signals = observation.phase(phase)
        missing = {
            name: signal
            for name in _ESSENTIAL
            if isinstance(signal := getattr(signals, name), Unknown) and signal.reason not in _HARMLESS
        }
        by_message: dict[tuple[str, str], list[str]] = {}
        for name, signal in missing.items():
            by_message.setdefault((signal.reason.value, signal.message), []).append(name.replace("_", " "))
        for (reason, message), names in by_message.items():
            what = "all signals" if len(names) == len(_ESSENTIAL) else ", ".join(names)
            findings.append((reason, f"{phase.value} ({what}): {message}"))
    if findings:
        return MetricsCondition(False, findings[0][0], "; ".join(text for _, text in findings))
    if observation.problems:
        return MetricsCondition(True, "Partial", "; ".join(observation.problems))
    return MetricsCondition(True, "Available", f"All signals are read over {observation.window_seconds:.0f} s.")


def unknown_signals(phase: PhaseObservation) -> dict[str, Unknown]:
    """Every signal of a phase that has no value, by field name."""
    values = {item.name: getattr(phase, item.name) for item in fields(phase)}
    return {name: value for name, value in values.items() if isinstance(value, Unknown)}
