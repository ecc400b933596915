"""Kinds of the Kubernetes API that Equipoise reads or writes, and the URLs they live under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from equipoise.api.identity import GROUP, VERSION


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """One resource of the API: where it lives and what it is called."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apiVersion` as a manifest writes it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path of the collection, of one object, or of its subresource.

        Without `namespace` the collection spans all namespaces. ValueError when an object of a namespaced kind is named
        without its namespace: the server would answer 404, which reads as "absent".
        """
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace: it is a namespaced kind")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


DEPLOYMENT: Final = Kind("apps", "v1", "deployments", "Deployment")
REPLICA_SET: Final = Kind("apps", "v1", "replicasets", "ReplicaSet")
POD: Final = Kind("", "v1", "pods", "Pod")
SERVICE: Final = Kind("", "v1", "services", "Service")
SERVICE_ACCOUNT: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount")
CONFIG_MAP: Final = Kind("", "v1", "configmaps", "ConfigMap")
NODE: Final = Kind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACE: Final = Kind("", "v1", "namespaces", "Namespace", namespaced=False)
RESOURCE_QUOTA: Final = Kind("", "v1", "resourcequotas", "ResourceQuota")
ROLE: Final = Kind("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
POD_DISRUPTION_BUDGET: Final = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
HORIZONTAL_POD_AUTOSCALER: Final = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
LEASE: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease")
EVENT: Final = Kind("", "v1", "events", "Event")
CUSTOM_RESOURCE_DEFINITION: Final = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
INFERENCE_SERVICE: Final = Kind(GROUP, VERSION, "inferenceservices", "InferenceService")
PHASE_SCALE: Final = Kind(GROUP, VERSION, "phasescales", "PhaseScale")
GPU_POOL: Final = Kind(GROUP, VERSION, "gpupools", "GPUPool", namespaced=False)
# Kinds of other projects: absent on most clusters, and may arrive while the operator runs.
POD_MONITOR: Final = Kind("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor")
INFERENCE_POOL: Final = Kind("inference.networking.k8s.io", "v1", "inferencepools", "InferencePool")
LEADER_WORKER_SET: Final = Kind("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")

ALL: Final[tuple[Kind, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Kind))
OPTIONAL: Final[frozenset[Kind]] = frozenset({POD_MONITOR, INFERENCE_POOL, LEADER_WORKER_SET})

_BY_NAME: Final[Mapping[tuple[str, str], Kind]] = {(kind.api_version, kind.kind): kind for kind in ALL}


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """The Kind of a manifest, from its `apiVersion` and `kind`.

    ValueError names both when Equipoise has no such kind: a manifest without a known place must not reach the network.
    """
    key = (str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    kind = _BY_NAME.get(key)
    if kind is None:
        raise ValueError(f"no known kind has apiVersion {key[0]!r} and kind {key[1]!r}: add it to equipoise.reconcile.kube.kinds")
    return kind
