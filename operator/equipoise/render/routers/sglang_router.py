"""sglang-router 0.3.2: sends each request to a prefill and a decode pod at once."""

from __future__ import annotations

from equipoise.render.context import Context
from equipoise.render.routers.workload import RouterParts, addresses, discovery, policies


def sglang_router(context: Context) -> RouterParts:
    """Its command line. This version drops a pod only when it is deleted, not when it is not Ready or changes its role label."""
    return RouterParts(
        name="sglang-router",
        image=context.options.image("sglang-router"),
        command=("sglang-router", "launch"),
        arguments=(
            "--pd-disaggregation",
            *discovery(context),
            *policies(),
            *addresses(),
            f"--shutdown-grace-period-secs={int(context.spec.drain.grace_seconds)}",
        ),
        readiness_path="/readiness",
        liveness_path="/liveness",
    )
