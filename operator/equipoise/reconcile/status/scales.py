"""The `/scale` of each phase, for HPA, KEDA and `kubectl scale`: first count, current count, selector."""

from __future__ import annotations

from equipoise.api.identity import Phase, ServiceKey
from equipoise.reconcile.contract import Context
from equipoise.reconcile.kube.errors import Conflict, NotFound
from equipoise.reconcile.kube.kinds import PHASE_SCALE
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.status.facts import Facts
from equipoise.render.context import role_selector
from equipoise.render.names import phase_name


async def write_scales(context: Context, key: ServiceKey, facts: Facts) -> None:
    """Bring every PhaseScale of the service up to date; writes only what differs."""
    for phase in Phase:
        live = context.store.get(PHASE_SCALE, key.namespace, phase_name(key, phase))
        if live is None:
            continue
        if (live.get("spec") or {}).get("replicas") is None:
            await _seed(context, live, facts, phase)
        await _tell(context, key, live, facts, phase)


async def _seed(context: Context, live: Object, facts: Facts, phase: Phase) -> None:
    """The first count, once: an autoscaler takes an absent count for zero, and zero for "scaling is switched off".

    A merge patch at the version that was seen, so that neither a count set meanwhile is overwritten nor the field becomes ours
    to apply.
    """
    metadata = live["metadata"]
    count = sum(item.desired for item in facts.variants if item.variant.phase is phase)
    try:
        seeded = await context.api.patch(
            PHASE_SCALE,
            metadata["namespace"],
            metadata["name"],
            {"spec": {"replicas": count}},
            resource_version=metadata["resourceVersion"],
        )
    except (Conflict, NotFound):
        return  # somebody was faster; their event leads here again
    context.store.upsert(PHASE_SCALE, seeded)


async def _tell(context: Context, key: ServiceKey, live: Object, facts: Facts, phase: Phase) -> None:
    existing = [item.ready + item.starting + item.pending for item in facts.variants if item.variant.phase is phase]
    status = {
        "replicas": sum(existing),
        "selector": ",".join(f"{name}={value}" for name, value in sorted(role_selector(key, phase).items())),
    }
    if live.get("status") == status:
        return
    body = {
        "apiVersion": PHASE_SCALE.api_version,
        "kind": PHASE_SCALE.kind,
        "metadata": {"namespace": key.namespace, "name": phase_name(key, phase)},
        "status": status,
    }
    context.store.upsert(PHASE_SCALE, await context.api.apply_status(body))
