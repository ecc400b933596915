"""The command lines of etcd and the three Kubernetes programs."""

from __future__ import annotations

import ipaddress
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass

from local_cluster.build import Binaries
from local_cluster.options import ClusterOptions
from local_cluster.paths import Paths

ISSUER = "https://kubernetes.default.svc.cluster.local"
ENDPOINT_CONTROLLERS = ("endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller")


@dataclass(frozen=True)
class Ports:
    """The ports of a control plane, all on 127.0.0.1."""

    api_server: int
    etcd_client: int
    etcd_peer: int
    controller_manager: int
    scheduler: int


def etcd_command(binaries: Binaries, paths: Paths, ports: Ports) -> list[str]:
    """Return etcd's command line; it does not flush to disk, since nothing here has to survive a power cut."""
    client, peer = f"http://127.0.0.1:{ports.etcd_client}", f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        binaries.program("etcd"),
        f"--data-dir={paths.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    ]


def api_server_command(binaries: Binaries, paths: Paths, ports: Ports, options: ClusterOptions) -> list[str]:
    """Return the API server's command line."""
    command = [
        binaries.program("kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd_client}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        # The Service `kubernetes` cannot have an endpoint here: the API refuses loopback addresses.
        "--endpoint-reconciler-type=none",
        f"--secure-port={ports.api_server}",
        f"--cert-dir={paths.certificates}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={paths.service_account_key}",
        f"--service-account-signing-key-file={paths.service_account_key}",
        f"--token-auth-file={paths.tokens}",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if options.audit:
        command += [
            f"--audit-policy-file={paths.audit_policy}",
            f"--audit-log-path={paths.audit_log}",
            "--audit-log-format=json",
            "--audit-log-maxsize=4096",
        ]
    return command


def controller_manager_command(
    binaries: Binaries, paths: Paths, ports: Ports, options: ClusterOptions, pod_cidr: str
) -> list[str]:
    """Return the controller-manager's command line.

    On loopback pod addresses the controllers of endpoints are off: the API refuses such addresses in EndpointSlices, and they
    would try for ever and fill each namespace with events.
    """
    kubeconfig = paths.kubeconfig("kube-controller-manager")
    command = [
        binaries.program("kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup",
        f"--service-account-private-key-file={paths.service_account_key}",
        f"--root-ca-file={paths.ca_file}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controller_manager}",
        f"--node-monitor-grace-period={options.node_grace_seconds}s",
        f"--cert-dir={paths.folder / 'kube-controller-manager'}",
        f"--kube-api-qps={options.kube_api_qps}",
        f"--kube-api-burst={options.kube_api_burst}",
    ]
    if is_loopback(pod_cidr):
        command.append("--controllers=*," + ",".join(f"-{name}" for name in ENDPOINT_CONTROLLERS))
    return command


def scheduler_command(binaries: Binaries, paths: Paths, ports: Ports, options: ClusterOptions) -> list[str]:
    """Return the scheduler's command line."""
    kubeconfig = paths.kubeconfig("kube-scheduler")
    return [
        binaries.program("kube-scheduler"),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.scheduler}",
        f"--cert-dir={paths.folder / 'kube-scheduler'}",
        f"--kube-api-qps={options.kube_api_qps}",
        f"--kube-api-burst={options.kube_api_burst}",
    ]


def audit_policy() -> str:
    """Return what the API server records: every finished request but the heartbeats of emulated nodes, without bodies."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {
                "level": "None",
                "namespaces": ["kube-node-lease"],
                "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
            },
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
            {"level": "Metadata"},
        ],
    }
    return json.dumps(policy, indent=1)


def is_loopback(cidr: str) -> bool:
    """Tell whether the addresses of a range are this machine's own."""
    return ipaddress.ip_network(cidr, strict=False).is_loopback


def answers_ok(url: str, timeout_seconds: float = 2.0) -> bool:
    """Tell whether a health address answers 200; serving certificates are not checked, since each component makes its own."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, timeout=timeout_seconds, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
