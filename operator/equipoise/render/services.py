"""What stands around the engine pods: a headless Service, a disruption budget and a PhaseScale for each phase."""

from __future__ import annotations

from typing import Any

from equipoise.api.identity import GROUP, VERSION, Phase
from equipoise.render.context import Context, role_selector
from equipoise.render.names import phase_name


def headless_service(context: Context, phase: Phase) -> dict[str, Any]:
    """Addresses of the pods of a phase that are in routing, for clients and scrapers that look them up by DNS."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(phase_name(context.key, phase), context.spec.engine.type.value, phase.value),
        "spec": {
            "clusterIP": "None",
            "selector": role_selector(context.key, phase),
            "ports": [{"name": "http", "port": 8000, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def disruption_budget(context: Context, phase: Phase) -> dict[str, Any]:
    """At most one replica of a phase may be evicted at a time; pods that do not serve may always go, so no node drain hangs."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(phase_name(context.key, phase), context.spec.engine.type.value, phase.value),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": role_selector(context.key, phase)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def phase_scale(context: Context, phase: Phase) -> dict[str, Any]:
    """The `/scale` of a phase. Its count is never sent: it belongs to the autoscaler, or to whoever sets it first."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "PhaseScale",
        "metadata": context.metadata(phase_name(context.key, phase), context.spec.engine.type.value, phase.value),
    }
