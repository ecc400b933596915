"""Instruments as PromQL: one query per reading for the whole fleet, whatever the number of services. Pure.

Every query is made of the same layers, from the inside:

1. the selector: exact metric name, the service and role labels, the caller's extra matchers, less the pods that must not count;
2. the window function of the instrument's kind;
3. `max by (...)` over what identifies a series: copies of it (two Prometheus replicas, two scrape jobs) collapse into one, and a
   copy that lost scrapes does not count. Parts of a mean and buckets take `avg by (...)`: they must stay in proportion, which
   the largest of each would not;
4. `or on (namespace, pod, rank)`: a pod without the newer metric is read by its older name;
5. `sum` (average, max) over pods and ranks, by namespace, service, served model, role and variant (`le` in place of the
   variant for buckets).

Amounts of work are `increase`, which survives resets and lost scrapes and guesses what lies between the window's edges and
the nearest samples. It does so for each series apart, and never beyond the point where that counter would have been zero:
for a sum that was small and a count that was not, the guesses differ, and a mean made of the two was 4 % short on the
recorded pair (it may be more in a window of four scrapes). Means, percentiles and shares therefore come from plain
differences between the window's ends. These would be wrong after a reset, but a pod that restarted has just become ready and
is left out of latencies as cold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from equipoise.observe.engines.table import EngineTable, Instrument, Kind, Metric
from equipoise.observe.settings import LabelNames

_DURATION_STEP_SECONDS = 0.001
_Function = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a round of queries looks at. Pods are left out by name: `unknown_pods` everywhere, `cold_pods` from latencies.

    `services` limits the round to services by (namespace, name) where it is not None.
    """

    labels: LabelNames
    rank_label: str
    window_seconds: float
    extra_matchers: Mapping[str, str]
    unknown_pods: frozenset[str] = frozenset()
    cold_pods: frozenset[str] = frozenset()
    services: frozenset[tuple[str, str]] | None = None


def duration(seconds: float) -> str:
    """A PromQL duration; milliseconds are its finest unit. ValueError for less than one."""
    if seconds < _DURATION_STEP_SECONDS:
        raise ValueError(f"window of {seconds} s: PromQL knows no duration below 1 ms")
    milliseconds = round(seconds * 1000)
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def quote(text: str) -> str:
    """A PromQL string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def one_of(values: Iterable[str]) -> str:
    """A regular expression literal that matches exactly these values. Prometheus turns such an alternation into a set look-up."""
    return quote("|".join(re.escape(value).replace("\\-", "-") for value in sorted(values)))


def instrument_query(instrument: Instrument, selection: Selection) -> str:
    """The query of one engine instrument."""
    labels = selection.labels
    identity = [labels.namespace, labels.service, labels.role, labels.variant, labels.model, labels.pod, selection.rank_label]
    group = [labels.namespace, labels.service, labels.model, labels.role]
    group.append("le" if instrument.kind is Kind.BUCKETS else labels.variant)
    roles = "|".join(phase.value for phase in instrument.phases)
    return _layers(instrument, selection, identity, group, [f"{labels.role}=~{quote(roles)}"])


def router_query(instrument: Instrument, selection: Selection) -> str:
    """The query of one router instrument: routers have neither role nor served model."""
    labels = selection.labels
    identity = [labels.namespace, labels.service, labels.pod]
    return _layers(instrument, selection, identity, [labels.namespace, labels.service], [])


def last_sample_query(table: EngineTable, selection: Selection) -> str:
    """When each pod's last sample was. One row per pod: the only readings that grow with pods and not with variants."""
    return _roll_call(table, selection, lambda series: f"timestamp({series})", "")


def sample_count_query(table: EngineTable, selection: Selection, probe_seconds: float) -> str:
    """How many samples each pod has in the probe window, from which the scrape interval follows."""
    return _roll_call(table, selection, lambda series: f"count_over_time({series})", f"[{duration(probe_seconds)}]")


def _roll_call(table: EngineTable, selection: Selection, function: _Function, suffix: str) -> str:
    labels = selection.labels
    by = ", ".join([labels.namespace, labels.service, labels.model, labels.role, labels.variant, labels.pod])
    # No role is asked for here: a pod whose role label is missing shall be told from one that is not scraped.
    parts = [f"max by ({by}) ({function(_series(metric, selection, [], frozenset()) + suffix)})" for metric in table.presence]
    return " or ".join(parts)


def _layers(instrument: Instrument, selection: Selection, identity: list[str], group: list[str], matchers: list[str]) -> str:
    labels = selection.labels
    bucket = ["le"] if instrument.kind is Kind.BUCKETS else []
    copies = ", ".join([*identity, *instrument.split, *bucket])
    without = selection.unknown_pods | (selection.cold_pods if instrument.warm_only else frozenset())
    parts = []
    for metric in instrument.metrics:
        series = _series(metric, selection, matchers, without)
        collapse = "avg" if instrument.kind in (Kind.DIFFERENCE, Kind.BUCKETS) else "max"
        parts.append(f"{collapse} by ({copies}) ({_over_window(instrument.kind, series, selection.window_seconds)})")
    same_pod = f" or on ({labels.namespace}, {labels.pod}, {selection.rank_label}) "
    outer = {Kind.AVERAGE: "avg", Kind.PEAK: "max"}.get(instrument.kind, "sum")
    return f"{outer} by ({', '.join(group)}) ({same_pod.join(parts)})"


def _over_window(kind: Kind, series: str, window_seconds: float) -> str:
    window = duration(window_seconds)
    match kind:
        case Kind.INCREASE:
            return f"increase({series}[{window}])"
        case Kind.DIFFERENCE | Kind.BUCKETS:
            return f"clamp_min({series} - {series} offset {window}, 0)"
        case Kind.MEAN | Kind.AVERAGE:
            # A range still holds the samples of pods that went away; `and` keeps those that are there now.
            return f"avg_over_time({series}[{window}]) and {series}"
        case Kind.PEAK:
            return f"max_over_time({series}[{window}]) and {series}"
        case Kind.NOW:
            return series
        case Kind.BEFORE:
            return f"{series} offset {window}"


def _series(metric: Metric, selection: Selection, matchers: list[str], without: frozenset[str]) -> str:
    labels = selection.labels
    parts = [f"{name}={quote(value)}" for name, value in {**metric.labels, **selection.extra_matchers}.items()]
    if selection.services is None:
        parts.append(f'{labels.service}!=""')
    else:
        parts.append(f"{labels.namespace}=~{one_of({namespace for namespace, _ in selection.services})}")
        parts.append(f"{labels.service}=~{one_of({name for _, name in selection.services})}")
    parts += matchers
    if without:
        parts.append(f"{labels.pod}!~{one_of(without)}")
    return f"{metric.name}{{{','.join(parts)}}}"
