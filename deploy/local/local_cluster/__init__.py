"""A Kubernetes cluster on this machine without Docker: a real control plane, real Prometheus, emulated nodes with GPUs."""

from local_cluster.audit import AuditedRequest, audited_requests
from local_cluster.build import ensure_built
from local_cluster.cluster import LocalCluster
from local_cluster.errors import CommandError, LocalClusterError
from local_cluster.options import ClusterOptions
from local_cluster.waiting import wait_until

__all__ = [
    "AuditedRequest",
    "ClusterOptions",
    "CommandError",
    "LocalCluster",
    "LocalClusterError",
    "audited_requests",
    "ensure_built",
    "wait_until",
]
