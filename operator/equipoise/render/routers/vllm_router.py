"""vllm-router 0.1.17: hands a prompt to a prefill pod, and what that returns to a decode pod."""

from __future__ import annotations

from equipoise.api.engine import EngineType
from equipoise.render.context import Context
from equipoise.render.engines.vllm import router_connector
from equipoise.render.routers.workload import RouterParts, addresses, discovery, policies

HEALTH_CHECK_SECONDS = 5
"""Its default of 60 s, three times over, would leave a dead engine in turn for three minutes."""


def vllm_router(context: Context) -> RouterParts:
    """Its command line. It follows readiness, role labels and deletion of pods, which drains and flips rely on (since 0.1.17)."""
    connector = router_connector(context) if context.spec.engine.type is EngineType.VLLM else "nixl"
    return RouterParts(
        name="vllm-router",
        image=context.options.image("vllm-router"),
        command=("vllm-router",),
        arguments=(
            "--vllm-pd-disaggregation",
            *discovery(context),
            f"--kv-connector={connector}",
            *policies(),
            *addresses(),
            f"--health-check-interval-secs={HEALTH_CHECK_SECONDS}",
        ),
        # 503 while a phase has no pod. /health says 200 even then.
        readiness_path="/readiness",
        liveness_path="/health",
    )
