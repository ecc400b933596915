"""What a user of the local cluster may choose."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from local_cluster.errors import LocalClusterError

Target = Literal["local", "kind", "kubeconfig"]


@dataclass(frozen=True)
class ClusterOptions:
    """Options of one cluster; the defaults give a complete local one.

    Attributes:
        name: shown in messages, and the name of the kubeconfig's context.
        target: `local` starts a control plane of its own; `kind` uses the running kind cluster `kind_name`; `kubeconfig` uses
            any other cluster. With the latter two only KWOK and Prometheus are started, beside that cluster.
        kind_name: the kind cluster's name.
        kubeconfig: for target `kubeconfig`: the file to use, its current context; without it $KUBECONFIG, else ~/.kube/config.
        folder: where the cluster keeps its files. Without it a throw-away folder that is removed at the end.
        pod_cidr: where emulated pods get their addresses. Without it a loopback range (127.x.0.0/16) that no other
            cluster on this machine has, so that emulated engines can listen on the pods' addresses.
        with_kwok: start the emulated kubelets.
        with_prometheus: start Prometheus.
        prometheus_scrape_interval_seconds: may be a fraction.
        prometheus_rule_files: recording and alerting rules to load.
        extra_static_targets: `host:port` addresses that Prometheus scrapes besides the pods (job `static`).
        audit: let the API server write each request as a JSON line (who, what, which object; no bodies).
        extra_stage_files: more KWOK stages.
        kube_api_qps: client limit of controller-manager and scheduler, requests per second. Their own default of 20 makes a
            hundred Deployments take half a minute.
        kube_api_burst: the burst that goes with it.
        node_grace_seconds: how long a node may be silent until the control plane holds it for lost. 50 s is Kubernetes' own;
            tests of lost nodes may take less, down to 5, on clusters of few nodes (heartbeats come more often then).
        ready_timeout_seconds: how long each component may take to become ready.
    """

    name: str = "equipoise"
    target: Target = "local"
    kind_name: str = "kind"
    kubeconfig: Path | None = None
    folder: Path | None = None
    pod_cidr: str | None = None
    with_kwok: bool = True
    with_prometheus: bool = True
    prometheus_scrape_interval_seconds: float = 5.0
    prometheus_rule_files: tuple[Path, ...] = ()
    extra_static_targets: tuple[str, ...] = ()
    audit: bool = False
    extra_stage_files: tuple[Path, ...] = field(default=())
    kube_api_qps: int = 500
    kube_api_burst: int = 1000
    node_grace_seconds: int = 50
    ready_timeout_seconds: float = 120.0

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            LocalClusterError: names the option, what was given, and what to give.
        """
        if self.target not in ("local", "kind", "kubeconfig"):
            raise LocalClusterError(f"target is {self.target!r}; use local, kind or kubeconfig.")
        if self.prometheus_scrape_interval_seconds < 0.1:
            raise LocalClusterError(
                f"prometheus_scrape_interval_seconds is {self.prometheus_scrape_interval_seconds:g}; use 0.1 or more."
            )
        if self.node_grace_seconds < 5:
            raise LocalClusterError(f"node_grace_seconds is {self.node_grace_seconds}; use 5 or more.")
        if self.audit and self.target != "local":
            raise LocalClusterError(
                f"audit works only with the target local, where the API server is ours; the target is {self.target}."
            )
        if self.kubeconfig is not None and self.target != "kubeconfig":
            raise LocalClusterError(f"kubeconfig is given, but the target is {self.target}; use target kubeconfig.")
        if self.pod_cidr is not None:
            try:
                network = ipaddress.ip_network(self.pod_cidr)
            except ValueError as error:
                raise LocalClusterError(f"pod_cidr is {self.pod_cidr!r}: {error}; write it like 10.244.0.0/16.") from error
            if network.version != 4 or network.prefixlen > 24:
                raise LocalClusterError(f"pod_cidr is {self.pod_cidr}; use an IPv4 range of /24 or larger.")
