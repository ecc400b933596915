"""Instant vectors into rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from equipoise.api.identity import ServiceKey
from equipoise.observe.readings import Failure, Outcome, PodSighting, RollCall, Row, Sample
from equipoise.observe.settings import LabelNames


def to_table(samples: list[Sample] | Failure, labels: LabelNames) -> Outcome:
    """Rows by service; a failure stays one."""
    if isinstance(samples, Failure):
        return samples
    table: dict[ServiceKey, list[Row]] = {}
    keys: dict[tuple[str, str], ServiceKey] = {}
    namespace_label, service_label = labels.namespace, labels.service
    model_label, role_label, variant_label = labels.model, labels.role, labels.variant
    for sample in samples:
        metric = sample.labels
        pair = (metric.get(namespace_label, ""), metric.get(service_label, ""))
        key = keys.get(pair)
        if key is None:
            key = keys[pair] = ServiceKey(*pair)
            table[key] = []
        edge = metric.get("le")
        table[key].append(
            Row(
                metric.get(model_label, ""),
                metric.get(role_label, ""),
                metric.get(variant_label, ""),
                float(edge) if edge is not None else 0.0,
                sample.value,
            )
        )
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
