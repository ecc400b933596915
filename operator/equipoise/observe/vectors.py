"""Instant vectors into rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.api.identity import ServiceKey
from equipoise.observe.readings import Failure, Group, Outcome, PodSighting, RollCall, Row, Sample
from equipoise.observe.settings import LabelNames


def to_table(samples: list[Sample] | Failure, labels: LabelNames) -> Outcome:
    """Rows by group; a failure stays one."""
    if isinstance(samples, Failure):
        return samples
    table: dict[Group, list[Row]] = {}
    namespace_label, service_label, role_label = labels.namespace, labels.service, labels.role
    model_label, variant_label = labels.model, labels.variant
    for metric, value in samples:
        get = metric.get
        group = Group(get(namespace_label, ""), get(service_label, ""), get(role_label, ""), get(model_label, ""))
        edge = get("le")
        try:
            row = Row(get(variant_label, ""), float(edge) if edge is not None else 0.0, value)
        except (TypeError, ValueError):
            return Failure(f"a bucket of {group.namespace}/{group.service} has the bound {edge!r}, which is no number")
        rows = table.get(group)
        if rows is None:
            table[group] = [row]
        else:
            rows.append(row)
    return table


def to_roll_call(
    last: list[Sample] | Failure, counts: list[Sample] | Failure, labels: LabelNames, probe_seconds: float
) -> RollCall | Failure:
    """Join the two roll-call queries. Without the first there is none; without the second only the intervals are unknown."""
    if isinstance(last, Failure):
        return last
    names = (labels.namespace, labels.service, labels.pod, labels.role, labels.model, labels.variant)

    def identities(samples: Iterable[Sample]) -> dict[tuple[str, ...], float]:
        return {tuple(sample.labels.get(name, "") for name in names): sample.value for sample in samples}

    seen = identities(last)
    counted = identities(counts) if not isinstance(counts, Failure) else {}
    sightings = []
    for identity in seen.keys() | counted.keys():
        namespace, service, pod, role, model, variant = identity
        # Without the count a pod that is seen is taken to have been scraped before.
        samples = counted.get(identity, 2.0 if isinstance(counts, Failure) else 0.0)
        sightings.append(PodSighting(ServiceKey(namespace, service), pod, role, model, variant, seen.get(identity), samples))
    return RollCall(tuple(sightings), 0.0 if isinstance(counts, Failure) else probe_seconds)
