"""How long a pod may take to end, consistent by construction: the grace period holds the hook and the engine's own drain."""

from __future__ import annotations

import math
from typing import Any, Final

KV_LEASE_SECONDS: Final = 30.0
"""vLLM's NixlConnector keeps KV for the decode side that long (kv_lease_duration, default). On SIGTERM the engine does not wait
for transfers that are still to come, so the hook has to."""
ROUTER_NOTICE_SECONDS: Final = 10.0
"""Time for routers and endpoint lists to hear that the pod is leaving; both routers react to the deletion at once."""
MARGIN_SECONDS: Final = 15
"""Between the engine's own deadline and the kill: process exit, CUDA teardown."""


def pre_stop(seconds: float) -> dict[str, Any]:
    """A hook that waits. The kubelet does it itself (Kubernetes 1.30 and later), so the image needs no shell."""
    return {"preStop": {"sleep": {"seconds": math.ceil(seconds)}}}


def grace_seconds(pre_stop_seconds: float, shutdown_seconds: float) -> int:
    """A terminationGracePeriodSeconds that is longer than the hook and the engine's drain together."""
    return math.ceil(pre_stop_seconds) + math.ceil(shutdown_seconds) + MARGIN_SECONDS
