"""Pods as the emulator sees them: which engine or router they are, where, and whether a router would send them work. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from equipoise.api import labels
from equipoise.api.identity import Phase, ServiceKey

SELECTOR: Final = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"
ENGINE_CONTAINER: Final = "engine"
HTTP_PORT: Final = 8000
ROUTER_METRICS_PORT: Final = 29000


@dataclass(frozen=True, slots=True)
class SeenPod:
    """One pod. `role` is the role label's phase, None for any other value; `up` once its containers have been ready.

    `uid` counts restarts: a container that starts again is a new engine.
    """

    uid: str
    namespace: str
    name: str
    service: ServiceKey
    is_router: bool
    role: Phase | None
    role_label: str
    ready: bool
    terminating: bool
    over: bool
    address: str
    node: str
    pool: str
    variant: str
    shape: str
    arguments: tuple[str, ...]
    image: str

    @property
    def routed_role(self) -> Phase | None:
        """The phase for which a router would send it work now: by label, while it is Ready and not on its way out."""
        return self.role if self.ready and not self.terminating else None


def seen_pod(pod: Mapping[str, Any]) -> SeenPod | None:
    """A pod as it is now; None for pods that are neither an engine nor a router of a service."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    found: Mapping[str, str] = metadata.get("labels") or {}
    service = found.get(labels.SERVICE)
    is_router = found.get(labels.COMPONENT) == "router"
    if not service or not (is_router or labels.ROLE in found):
        return None
    container = _container(spec, None if is_router else ENGINE_CONTAINER)
    role_label = found.get(labels.ROLE, "")
    conditions = {item.get("type"): item.get("status") for item in status.get("conditions") or ()}
    restarts = sum(item.get("restartCount", 0) for item in status.get("containerStatuses") or ())
    return SeenPod(
        uid=f"{metadata['uid']}/{restarts}",
        namespace=metadata["namespace"],
        name=metadata["name"],
        service=ServiceKey(metadata["namespace"], service),
        is_router=is_router,
        role=Phase(role_label) if role_label in {phase.value for phase in Phase} else None,
        role_label=role_label,
        ready=conditions.get("Ready") == "True",
        terminating="deletionTimestamp" in metadata,
        over=status.get("phase") in {"Succeeded", "Failed"},
        address=status.get("podIP") or "",
        node=spec.get("nodeName") or "",
        pool=found.get(labels.POOL, ""),
        variant=found.get(labels.VARIANT, ""),
        shape=found.get(labels.SHAPE, ""),
        arguments=(*(container.get("command") or ()), *(container.get("args") or ())),
        image=container.get("image") or "",
    )


def _container(spec: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    containers: list[Mapping[str, Any]] = spec.get("containers") or []
    return next((item for item in containers if item.get("name") == name), containers[0] if containers else {})
