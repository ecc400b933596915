"""One Deployment per variant."""

from __future__ import annotations

from typing import Any, Final

from equipoise.api import labels
from equipoise.api.identity import Variant
from equipoise.render.context import Context
from equipoise.render.freeze import TEMPLATE, frozen_template, keep_template, match_siblings
from equipoise.render.names import deployment_name, revision_deployment_name
from equipoise.render.options import Problem, Refusal
from equipoise.render.pod import pod_template

REVISIONS_KEPT: Final = 3


def deployment(context: Context, variant: Variant, replicas: int | None) -> dict[str, Any]:
    """The variant's Deployment of the context's revision. `replicas` None: the count is not sent, so whoever set it keeps it.

    The selector holds three labels only. So a pod leaves routing (its role label changes) without leaving its Deployment, and
    changes phase by being adopted by the other phase's. A revision has Deployments of its own: what replaces what, and when, is
    decided by counts (`decide.rollout`), and no template is ever changed under pods that run.
    """
    options = context.options
    name = revision_deployment_name(variant, context.revision, options.live)
    live = options.live.get(name)
    if context.known:
        template = pod_template(context, variant)
        if live is None:
            template = match_siblings(template, (found for _, found in sorted(options.live.items())), context.revision)
        template, frozen = keep_template(template, live, context.revision)
    else:
        kept = frozen_template(live, context.revision) if live is not None else None
        if kept is None:
            text = f"revision {context.revision} is no longer known; no replica of {variant} is started in it"
            raise Refusal(Problem("status.revisions", f"{text}: change spec.engine to begin a new one", variant))
        template, frozen = kept
    metadata = context.metadata(name, context.spec.engine.type.value, variant.phase.value, _variant_labels(context, variant))
    metadata["annotations"] = {TEMPLATE: frozen}
    spec: dict[str, Any] = {} if replicas is None else {"replicas": replicas}
    selector = {
        labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
        labels.VARIANT: deployment_name(variant),
        labels.REVISION: context.revision,
    }
    spec |= {
        "selector": {"matchLabels": selector},
        # Templates change only by a hand, which is undone: then delete first, for the pool may be full.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "progressDeadlineSeconds": int(context.spec.rollout.progress_deadline_seconds),
        "revisionHistoryLimit": REVISIONS_KEPT,
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _variant_labels(context: Context, variant: Variant) -> dict[str, str]:
    pod = context.pod_labels(variant)
    return {name: pod[name] for name in (labels.VARIANT, labels.POOL, labels.SHAPE, labels.REVISION)}
