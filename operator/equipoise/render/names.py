"""Every name and label value that Equipoise derives. Nothing else in the project builds a name.

Limits (Kubernetes): Service names and label values hold at most 63 characters; a Deployment's name is also the value of
`equipoise.dev/variant`. Distinct variants get distinct names: what is cut, or could be read in two ways, carries a digest of the
whole variant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from equipoise.api import labels
from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.api.service import MAX_NAME_LENGTH
from equipoise.render.hashing import digest

MAX_SERVICE_NAME: Final = MAX_NAME_LENGTH
"""Longest name of an InferenceService, as the CRD admits it: every name below fits with it (property-tested)."""
MAX_LABEL: Final = 63
_DIGEST_LENGTH: Final = 8
_PHASE_INSIDE: Final = re.compile(rf"(^|-)({'|'.join(phase.value for phase in Phase)})(-|$)")
_NO_LABEL_CHARACTER: Final = re.compile(r"[^A-Za-z0-9._-]")
_NO_DNS_CHARACTER: Final = re.compile(r"[^a-z0-9-]")
_REMEMBERED: Final = 16_384  # names are asked for many times in a round, for every pod and Deployment


@lru_cache(_REMEMBERED)
def deployment_name(variant: Variant) -> str:
    """A variant's name: value of the `equipoise.dev/variant` label, and the name of its Deployment while one revision runs.

    `<service>-<phase>-<pool>-<shape>` where that is short and can be read in one way only; else cut, with a digest at the end. A
    plain name ends in a precision and a cut one in eight hexadecimal digits, so the two never meet.
    """
    pool = _dns_label(variant.pool)
    plain = f"{variant.service.name}-{variant.phase.value}-{pool}-{variant.shape}"
    ambiguous = pool != variant.pool or bool(_PHASE_INSIDE.search(variant.service.name)) or bool(_PHASE_INSIDE.search(pool))
    if len(plain) <= MAX_LABEL and not ambiguous:
        return plain
    mark = digest([variant.service.name, variant.phase.value, variant.pool, str(variant.shape)], _DIGEST_LENGTH)
    return f"{plain[: MAX_LABEL - _DIGEST_LENGTH - 1].rstrip('-')}-{mark}"


def revision_deployment_name(variant: Variant, revision: str, live: Mapping[str, Mapping[str, Any]]) -> str:
    """Name of the Deployment of one revision of a variant, given the service's Deployments as they are, by name.

    Each revision has a Deployment of its own. The one that exists keeps its name; a new one takes the variant's plain name
    where it is free, else one that ends in the revision. So names change only while, and after, two revisions meet.
    """
    plain = deployment_name(variant)
    for name in _of_variant(plain, live):
        if template_label(live[name], labels.REVISION) == revision:
            return name
    if plain not in live:
        return plain
    if len(plain) + 1 + len(revision) <= MAX_LABEL:
        return f"{plain}-{revision}"
    mark = digest([plain, revision])
    return f"{plain[: MAX_LABEL - len(mark) - 1].rstrip('-')}-{mark}"


def _of_variant(plain: str, live: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    return (name for name in sorted(live) if template_label(live[name], labels.VARIANT) == plain)


def template_label(deployment: Mapping[str, Any], name: str) -> str:
    """A label of a Deployment's pod template; empty when it has none of that name."""
    template = ((deployment.get("spec") or {}).get("template") or {}).get("metadata") or {}
    return str((template.get("labels") or {}).get(name, ""))


def phase_name(service: ServiceKey, phase: Phase) -> str:
    """Name of a phase's headless Service, PodDisruptionBudget and PhaseScale."""
    return f"{service.name}-{phase.value}"


def router_name(service: ServiceKey) -> str:
    """Name of the router's Deployment, Service, ServiceAccount, Role, RoleBinding, PodDisruptionBudget and PodMonitor."""
    return f"{service.name}-router"


def engines_name(service: ServiceKey) -> str:
    """Name of what covers the engine pods of both phases: PodMonitor and InferencePool."""
    return f"{service.name}-engines"


@lru_cache(_REMEMBERED)
def label_value(text: str) -> str:
    """A valid label value for free text such as a model's name: other characters become `_`; a digest marks what was cut."""
    clean = _NO_LABEL_CHARACTER.sub("_", text)
    if len(clean) > MAX_LABEL:
        clean = f"{clean[: MAX_LABEL - _DIGEST_LENGTH - 1]}-{digest(text, _DIGEST_LENGTH)}"
    return clean.strip("._-") or digest(text, _DIGEST_LENGTH)


def _dns_label(text: str) -> str:
    return _NO_DNS_CHARACTER.sub("-", text.lower()).strip("-")
