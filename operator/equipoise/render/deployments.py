"""One Deployment per variant."""

from __future__ import annotations

from typing import Any, Final

from equipoise.api import labels
from equipoise.api.identity import Variant
from equipoise.render.context import Context
from equipoise.render.freeze import TEMPLATE, keep_template, match_siblings
from equipoise.render.names import deployment_name
from equipoise.render.pod import pod_template

REVISIONS_KEPT: Final = 3


def deployment(context: Context, variant: Variant, replicas: int | None) -> dict[str, Any]:
    """The variant's Deployment. `replicas` None: the count is not sent, so whoever set it keeps it.

    The selector holds two labels only. So a pod leaves routing (its role label changes) without leaving its Deployment, and
    changes phase by being adopted by the other phase's.
    """
    name = deployment_name(variant)
    live = context.options.live.get(name)
    template = pod_template(context, variant)
    if live is None:
        template = match_siblings(template, (found for _, found in sorted(context.options.live.items())), context.revision)
    template, frozen = keep_template(template, live, context.revision)
    metadata = context.metadata(name, context.spec.engine.type.value, variant.phase.value, _variant_labels(context, variant))
    metadata["annotations"] = {TEMPLATE: frozen}
    spec: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
    spec |= {
        "selector": {"matchLabels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE, labels.VARIANT: name}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(context, variant)},
        "progressDeadlineSeconds": int(context.spec.rollout.progress_deadline_seconds),
        "revisionHistoryLimit": REVISIONS_KEPT,
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _variant_labels(context: Context, variant: Variant) -> dict[str, str]:
    pod = context.pod_labels(variant)
    return {name: pod[name] for name in (labels.VARIANT, labels.POOL, labels.SHAPE)}


def _rolling(context: Context, variant: Variant) -> dict[str, int | str]:
    """Delete first, so that a rollout goes on where every GPU of the pool is taken; surge only where the caller saw room.

    An allowance of no unavailable replica leaves surge as the only way: then it is used, and waits for a free GPU.
    """
    rollout = context.spec.rollout
    unavailable = _count(rollout.max_unavailable)
    if unavailable in (0, "0%", "00%"):
        return {"maxSurge": _count(rollout.max_surge), "maxUnavailable": 0}
    return {"maxSurge": _count(rollout.max_surge) if variant in context.options.surge else 0, "maxUnavailable": unavailable}


def _count(text: str) -> int | str:
    return text if text.endswith("%") else int(text)
