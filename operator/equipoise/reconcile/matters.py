"""Which changes call for a look at their service, and how soon: most events of a child say nothing that a look would act on.

A service that starts causes some forty events (a Deployment's controller alone writes its status four times), and a look for each
would cost more than all the rest. Nothing is lost by waiting: a look reads everything anew, whatever called for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from equipoise.reconcile.kube.kinds import DEPLOYMENT, POD, REPLICA_SET
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.store import Change

COUNTS_SECONDS: Final = 0.5  # a pod that came or was given a node changes a count in the status, and no step

_METADATA: Final = ("uid", "generation", "labels", "ownerReferences", "deletionTimestamp")
_OF_CONTROLLERS: Final = "deployment.kubernetes.io/"  # the Deployment controller's own annotations
_COMING_UP: Final = ("", "ContainerCreating", "PodInitializing")
_POD_STEPS: Final = ("uid", "labels", "annotations", "ownerReferences", "deletionTimestamp")


def look_after_seconds(change: Change) -> float | None:
    """In how many seconds to look at the service of a changed object; None: no look for this."""
    old, new = change.old, change.new
    if change.kind == REPLICA_SET:
        return None  # pods tell what a ReplicaSet did; a step that waits for a ReplicaSet looks again by itself
    if old is None and new is not None:
        return COUNTS_SECONDS if change.kind == POD and not _ready(new) else 0.0
    if old is None or new is None:
        return 0.0
    if change.kind == POD:
        return 0.0 if _pod_steps(old) != _pod_steps(new) else COUNTS_SECONDS
    return 0.0 if _asked(change, old) != _asked(change, new) else None


def _asked(change: Change, obj: Object) -> object:
    """All but the status, which is our own report, or other controllers' to one another.

    Of a Deployment's status the store keeps its failures, which are ours to tell, and which generation was seen, which is not.
    """
    metadata = obj["metadata"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if not k.startswith(_OF_CONTROLLERS)}
    failures = (obj.get("status") or {}).get("conditions") if change.kind == DEPLOYMENT else None
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    return [metadata.get(name) for name in _METADATA], annotations, failures, rest


def _pod_steps(pod: Mapping[str, Any]) -> object:
    """What of a pod a step or a verdict may hang on."""
    metadata = pod["metadata"]
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    waiting = [((item.get("state") or {}).get("waiting") or {}).get("reason", "") for item in containers]
    troubles = [reason for reason in waiting if reason not in _COMING_UP]
    return [metadata.get(name) for name in _POD_STEPS], _ready(pod), status.get("phase") in ("Failed", "Succeeded"), troubles


def _ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
