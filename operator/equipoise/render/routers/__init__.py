"""What sends requests to the two phases: a router of ours, an InferencePool, or nothing."""

from __future__ import annotations

from typing import Any

from equipoise.api.engine import RouterType
from equipoise.api.policy import Switch
from equipoise.render.context import Context
from equipoise.render.monitoring import router_monitor
from equipoise.render.options import INFERENCE_POOLS, POD_MONITORS, Problem
from equipoise.render.routers.access import access
from equipoise.render.routers.inference_pool import inference_pool
from equipoise.render.routers.sglang_router import sglang_router
from equipoise.render.routers.vllm_router import vllm_router
from equipoise.render.routers.workload import RouterParts, router_workload


def router_children(context: Context) -> tuple[list[dict[str, Any]], list[Problem]]:
    """The router's manifests, and what keeps one from being complete without keeping the engines from running."""
    match context.spec.router_type:
        case RouterType.NONE:
            return [], []
        case RouterType.INFERENCE_POOL:
            return _pool_children(context)
        case RouterType.VLLM_ROUTER:
            return _router_children(context, vllm_router(context)), []
        case RouterType.SGLANG_ROUTER:
            return _router_children(context, sglang_router(context)), []


def _router_children(context: Context, parts: RouterParts) -> list[dict[str, Any]]:
    children = [*access(context, parts.name), *router_workload(context, parts)]
    if POD_MONITORS in context.options.available_kinds and context.spec.metrics.pod_monitor is Switch.AUTO:
        children.append(router_monitor(context, parts.name))
    return children


def _pool_children(context: Context) -> tuple[list[dict[str, Any]], list[Problem]]:
    if INFERENCE_POOLS in context.options.available_kinds:
        return [inference_pool(context)], []
    message = (
        f"router.type inference-pool needs the CustomResourceDefinition {INFERENCE_POOLS}, which this cluster lacks; install the "
        "Gateway API Inference Extension (it is noticed at once) or choose another router"
    )
    return [], [Problem("spec.router.type", message)]
