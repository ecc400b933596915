"""Whose series are there: which pods are seen, which are missing, which must not count. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from equipoise.api.identity import Phase, ServiceKey
from equipoise.observe.readings import Failure, PodSighting, RollCall
from equipoise.observe.scope import PodScope, ServiceScope
from equipoise.observe.settings import ObserveSettings
from equipoise.observe.types import Unknown, UnknownReason

_ROLES = frozenset(phase.value for phase in Phase)
_GRACE_INTERVALS = 2.0  # a pod may be ready for so long before its first sample is due


@dataclass(frozen=True, slots=True)
class PhaseCensus:
    """The pods of one phase against their series.

    `unknown` says why nothing can be read of the phase, None when it can. `verified` is False when the roll call itself
    failed: readings still count, but their absence proves nothing. `scale` takes sums over the sampled pods to all ready
    ones.
    """

    unknown: Unknown | None = None
    verified: bool = True
    ready: int = 0
    sampled: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    scale: float = 1.0
    age_seconds: float = 0.0  # of the oldest last sample among the sampled pods
    variant_pods: Mapping[str, int] = field(default_factory=dict)
    warm: bool = True  # at least one sampled pod has warmed up
    countable: bool = True  # at least one sampled pod has two scrapes behind it, so that its counters have an increase
    covers_start: bool = True  # at least one sampled pod served before the window began


@dataclass(frozen=True, slots=True)
class Census:
    """The roll call's outcome for all services, and the pods that queries must leave out."""

    phases: Mapping[tuple[ServiceKey, Phase], PhaseCensus]
    unknown_pods: frozenset[str]  # have series, but the caller does not know them: gone, or draining
    cold_pods: frozenset[str]  # still warming up
    problems: Mapping[ServiceKey, tuple[str, ...]]


def take_census(
    scopes: Sequence[ServiceScope],
    roll_call: RollCall | Failure,
    intervals: Mapping[ServiceKey, float],
    windows: Mapping[ServiceKey, float],
    settings: ObserveSettings,
    now_seconds: float,
) -> Census:
    """Compare the pods that exist with the pods that have series."""
    by_service: dict[ServiceKey, list[PodSighting]] = {}
    if isinstance(roll_call, RollCall):
        for sighting in roll_call.sightings:
            by_service.setdefault(sighting.service, []).append(sighting)
    phases: dict[tuple[ServiceKey, Phase], PhaseCensus] = {}
    unknown_pods: set[str] = set()
    cold_pods: set[str] = set()
    problems: dict[ServiceKey, tuple[str, ...]] = {}
    for scope in scopes:
        sightings = by_service.get(scope.key, [])
        known = {pod.name for pods in scope.pods.values() for pod in pods}
        unknown_pods.update(item.pod for item in sightings if item.pod and item.pod not in known and item.role in _ROLES)
        until = now_seconds - settings.warm_up_seconds - windows[scope.key]
        for pods in scope.pods.values():
            # The window still holds what a pod did while it was cold, so it stays out for one window longer.
            cold_pods.update(pod.name for pod in pods if pod.serving_since_seconds is None or pod.serving_since_seconds > until)
        notes: list[str] = []
        for phase in Phase:
            if isinstance(roll_call, Failure):
                phases[scope.key, phase] = _unverified(scope.pods_of(phase), cold_pods)
                continue
            census = _count(scope, phase, sightings, cold_pods, intervals[scope.key], windows[scope.key], settings, now_seconds)
            phases[scope.key, phase] = census
            notes += _notes(phase, census)
        problems[scope.key] = tuple(notes)
    return Census(phases, frozenset(unknown_pods), frozenset(cold_pods), problems)


def _unverified(pods: Sequence[PodScope], cold_pods: set[str]) -> PhaseCensus:
    ready = [pod for pod in pods if pod.ready]
    if not ready:
        return PhaseCensus(unknown=Unknown(UnknownReason.NO_SERIES, "no pod is ready"), verified=False)
    counts: dict[str, int] = {}
    for pod in ready:
        counts[pod.variant] = counts.get(pod.variant, 0) + 1
    warm = any(pod.name not in cold_pods for pod in ready)
    return PhaseCensus(verified=False, ready=len(ready), variant_pods=counts, warm=warm)


def _count(
    scope: ServiceScope,
    phase: Phase,
    sightings: Sequence[PodSighting],
    cold_pods: set[str],
    interval_seconds: float,
    window_seconds: float,
    settings: ObserveSettings,
    now_seconds: float,
) -> PhaseCensus:
    pods = {pod.name: pod for pod in scope.pods_of(phase)}
    stale_after = max(settings.stale_scrapes * interval_seconds, settings.minimum_stale_seconds)
    of_phase = [
        item for item in sightings if item.pod in pods and item.role == phase.value and item.model == scope.served_model_name
    ]
    ages = {item.pod: now_seconds - item.last_seconds for item in of_phase if item.last_seconds is not None}
    fresh = {name: max(0.0, age) for name, age in ages.items() if age <= stale_after}
    ready = [pod for pod in pods.values() if pod.ready]
    due = now_seconds - _GRACE_INTERVALS * interval_seconds
    missing = tuple(sorted(pod.name for pod in ready if pod.name not in fresh and (pod.serving_since_seconds or 0.0) <= due))
    counts: dict[str, int] = {}
    for item in of_phase:
        if item.pod in fresh:
            counts[item.variant] = counts.get(item.variant, 0) + 1
    unknown = None
    scale = 1.0
    if not fresh:
        unknown = _why_nothing(scope, phase, pods, ready, of_phase, ages, sightings, due, interval_seconds)
    elif missing:
        seen_ready = sum(1 for pod in ready if pod.name in fresh)
        expected = seen_ready + len(missing)
        scale = expected / max(1, seen_ready)
        if seen_ready < settings.minimum_coverage * expected:
            unknown = Unknown(
                UnknownReason.STALE if any(name in ages for name in missing) else UnknownReason.NO_SERIES_WHILE_READY,
                f"only {seen_ready} of {expected} ready {phase.value} pods have fresh samples; missing: {_names(missing)}",
            )
    since = [pods[name].serving_since_seconds for name in fresh]
    return PhaseCensus(
        unknown=unknown,
        ready=len(ready),
        sampled=tuple(sorted(fresh)),
        missing=missing,
        scale=scale,
        age_seconds=max(fresh.values(), default=0.0),
        variant_pods=counts,
        warm=any(name not in cold_pods for name in fresh),
        countable=any(item.samples >= 2 for item in of_phase if item.pod in fresh),
        covers_start=any(start is not None and start <= now_seconds - window_seconds for start in since),
    )


def _why_nothing(
    scope: ServiceScope,
    phase: Phase,
    pods: Mapping[str, PodScope],
    ready: Sequence[PodScope],
    of_phase: Sequence[PodSighting],
    ages: Mapping[str, float],
    sightings: Sequence[PodSighting],
    due: float,
    interval_seconds: float,
) -> Unknown:
    if not ready:
        return Unknown(UnknownReason.NO_SERIES, f"no {phase.value} pod is ready")
    if ages:
        return Unknown(
            UnknownReason.STALE,
            f"the last sample of {_names(ages)} is {min(ages.values()):.0f} s old; scrapes are {interval_seconds:.0f} s apart",
        )
    gone = [item.pod for item in of_phase if item.samples > 0]
    if gone:
        return Unknown(UnknownReason.STALE, f"the last scrape of {_names(gone)} failed: samples until lately, none now")
    if all((pod.serving_since_seconds or 0.0) > due for pod in ready):
        return Unknown(UnknownReason.NO_SERIES, f"{_names(pods)} became ready just now: the first scrape is due")
    mine = [item for item in sightings if item.pod in pods]
    models = sorted({item.model for item in mine if item.role == phase.value})
    roles = sorted({item.role or "none" for item in mine})
    if models and scope.served_model_name not in models:
        detail = f"their series carry model_name {', '.join(models)}, not the served name {scope.served_model_name}"
    elif roles and phase.value not in roles:
        detail = (
            f"their series carry the role {', '.join(roles)}, not {phase.value}:"
            " does the scrape configuration copy the label llm-d.ai/role?"
        )
    elif sightings:
        detail = (
            "series of the service exist, but none of these pods: are all of them scraped, and with a label for the pod's name?"
        )
    else:
        detail = (
            "no series carries the service's labels: is there a PodMonitor (or scrape configuration) for the pods that copies"
            " equipoise.dev/service and llm-d.ai/role?"
        )
    return Unknown(UnknownReason.NO_SERIES_WHILE_READY, f"{len(ready)} {phase.value} pods are ready, but {detail}")


def _notes(phase: Phase, census: PhaseCensus) -> list[str]:
    if census.unknown is not None:
        return [] if census.unknown.reason is UnknownReason.NO_SERIES else [census.unknown.message]
    if census.missing:
        return [
            f"{len(census.missing)} of {census.ready} ready {phase.value} pods have no fresh samples ({_names(census.missing)});"
            f" their share of the load is inferred from the others"
        ]
    return []


def _names(names: Iterable[str]) -> str:
    ordered = sorted(set(names))
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")
