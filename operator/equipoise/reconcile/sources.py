"""Which kinds are read, with which selectors, and how badly they are needed. Shared by lists and watches: they must agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from equipoise.api import labels
from equipoise.reconcile.kube import kinds
from equipoise.reconcile.kube.kinds import Kind

_OURS: Final = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"


@dataclass(frozen=True, slots=True)
class Source:
    """One kind to read. Selectors work on the server, so that strangers' objects never travel."""

    kind: Kind
    label_selector: str = ""
    field_selector: str = ""


PODS: Final = Source(kinds.POD, field_selector="status.phase!=Succeeded,status.phase!=Failed")
"""All pods: whoever holds a GPU takes it from what is free. Finished ones hold nothing, so they are left out on the server.

Memory (measured): about 2 KB in kopf for every pod that is watched; in the store 4 KB (48 KB as decoded JSON) for each that
is ours or holds accelerators, nothing for the others. 10,000 strangers' pods without GPUs cost 20 MB.
"""

WATCHED: Final[tuple[Source, ...]] = (
    Source(kinds.INFERENCE_SERVICE),
    Source(kinds.PHASE_SCALE),
    Source(kinds.GPU_POOL),
    Source(kinds.DEPLOYMENT, _OURS),
    Source(kinds.REPLICA_SET, _OURS),
    Source(kinds.SERVICE, _OURS),
    Source(kinds.SERVICE_ACCOUNT, _OURS),
    Source(kinds.ROLE, _OURS),
    Source(kinds.ROLE_BINDING, _OURS),
    Source(kinds.POD_DISRUPTION_BUDGET, _OURS),
    PODS,
    Source(kinds.NODE),
    Source(kinds.RESOURCE_QUOTA),
    Source(kinds.HORIZONTAL_POD_AUTOSCALER),
)
"""Watched from the start, where they are served and permitted."""

POLLED: Final[tuple[Source, ...]] = (
    Source(kinds.POD_MONITOR, _OURS),
    Source(kinds.INFERENCE_POOL, _OURS),
    Source(kinds.LEADER_WORKER_SET, _OURS),
)
"""Kinds of other projects, which may come and go while the operator runs: a short list now and then instead of a watch, whose
end would be the operator's. A LeaderWorkerSet's pods are watched like all pods, so its progress is seen at once."""
