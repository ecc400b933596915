"""PodMonitors: the Prometheus operator scrapes engines and routers, with the labels that Equipoise's queries ask for."""

from __future__ import annotations

from typing import Any, Final

from equipoise.api import labels
from equipoise.api.identity import Phase
from equipoise.render.context import Context
from equipoise.render.names import engines_name, router_name

# In series: equipoise_dev_service, llm_d_ai_role, equipoise_dev_variant.
SERIES_LABELS: Final = (labels.SERVICE, labels.ROLE, labels.VARIANT)
SCRAPE_INTERVAL: Final = "5s"
"""Windows follow the scrape interval; fresher signals make faster decisions, and an engine's page is some 50 kB."""


def engine_monitor(context: Context) -> dict[str, Any]:
    """Scrapes the engine pods of both phases, draining ones too."""
    selector = {
        "matchLabels": {labels.SERVICE: context.key.name},
        "matchExpressions": [{"key": labels.COMPONENT, "operator": "In", "values": sorted(phase.value for phase in Phase)}],
    }
    return _monitor(context, engines_name(context.key), context.spec.engine.type.value, "engines", selector, "http")


def router_monitor(context: Context, router: str) -> dict[str, Any]:
    """Scrapes the router pods."""
    selector = {"matchLabels": {labels.SERVICE: context.key.name, labels.COMPONENT: "router"}}
    return _monitor(context, router_name(context.key), router, "router", selector, "metrics")


def _monitor(context: Context, name: str, app: str, component: str, selector: dict[str, Any], port: str) -> dict[str, Any]:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": context.metadata(name, app, component),
        "spec": {
            "selector": selector,
            "podTargetLabels": list(SERIES_LABELS),
            "podMetricsEndpoints": [{"port": port, "path": "/metrics", "interval": SCRAPE_INTERVAL}],
        },
    }
