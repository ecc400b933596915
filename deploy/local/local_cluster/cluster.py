"""The local cluster: starting it, using it, stopping it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from local_cluster import fleet, nodes
from local_cluster.credentials import kubeconfig_text
from local_cluster.errors import LocalClusterError
from local_cluster.options import ClusterOptions
from local_cluster.prometheus import StaticTarget, query_prometheus
from local_cluster.startup import RunningCluster, start_cluster

NODE_TIMEOUT_SECONDS = 120.0
FIELD_MANAGER = "equipoise-local-cluster"


class LocalCluster:
    """A Kubernetes cluster on this machine: a real control plane, real Prometheus, emulated nodes.

    Use it as a context manager:

        with LocalCluster.start(ClusterOptions(name="demo")) as cluster:
            cluster.add_gpu_nodes("NVIDIA-H100-80GB-HBM3", 81559, gpus_per_node=8, count=2, prefix="h100")
            print(cluster.kubectl("get", "nodes"))

    Several can run side by side. Nothing is left running or on disk when the program that started it ends, however it ends.
    """

    def __init__(self, running: RunningCluster) -> None:
        self._running = running
        self._tools = running.tools
        self._added_nodes: list[str] = []
        self._stopped = False

    @classmethod
    def start(cls, options: ClusterOptions | None = None, *, report: Callable[[str], None] | None = None) -> LocalCluster:
        """Start a cluster and wait until it is ready for pods, building its programs first when they are not in the cache.

        Args:
            options: what to start.
            report: is told each step, as a short line.

        Raises:
            LocalClusterError: something did not start; carries the last log lines of what failed. Nothing is left running.
        """
        return cls(start_cluster(options or ClusterOptions(), report or (lambda _line: None)))

    def stop(self) -> None:
        """Stop everything, and remove the folder if it is a throw-away one. May be called twice."""
        if self._stopped:
            return
        self._stopped = True
        try:
            if self.options.target != "local" and self._added_nodes:
                fleet.remove_nodes(self._tools, self._added_nodes)
        finally:
            self._running.stop()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    # --- Where things are -------------------------------------------------------------------------------------------------

    @property
    def options(self) -> ClusterOptions:
        """What the cluster was started with."""
        return self._running.options

    @property
    def folder(self) -> Path:
        """Configuration, logs and data."""
        return self._running.paths.folder

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._running.access.kubeconfig

    @property
    def server_url(self) -> str:
        """The API server's address."""
        return self._running.access.server_url

    @property
    def ca_file(self) -> Path:
        """The certificates that a client of the API server trusts."""
        if not self._running.access.ca:
            raise LocalClusterError(f"The kubeconfig of {self.server_url} names no certificate authority.")
        return self._running.paths.ca_file

    @property
    def admin_token(self) -> str:
        """The administrator's bearer token."""
        if not self._running.access.token:
            raise LocalClusterError(f"The kubeconfig of {self.server_url} has no token; use the kubeconfig itself.")
        return self._running.access.token

    @property
    def prometheus_url(self) -> str:
        """Prometheus' address."""
        if self._running.prometheus_url is None:
            raise LocalClusterError("This cluster was started without Prometheus.")
        return self._running.prometheus_url

    @property
    def pod_cidr(self) -> str:
        """Where emulated pods get their addresses."""
        return self._running.pod_cidr

    @property
    def audit_log(self) -> Path | None:
        """The API server's audit log, JSON lines; None without the option `audit`."""
        return self._running.paths.audit_log if self.options.audit else None

    @property
    def environment(self) -> dict[str, str]:
        """Environment for programs that work with this cluster (KUBECONFIG and so on); they end with the cluster."""
        return dict(self._running.environment)

    def take_port(self) -> int:
        """Return a free port of 127.0.0.1 that no other cluster uses, for a program of the caller's.

        May be called any number of times: ports that nobody listens on any more come round again.
        """
        return self._running.slot.lend_port()

    # --- Tools ------------------------------------------------------------------------------------------------------------

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """Run kubectl as administrator and return its output; raises CommandError with what kubectl said."""
        return self._tools.kubectl(*args, text_input=input)

    def helm(self, *args: str) -> str:
        """Run Helm as administrator and return its output; raises CommandError with what Helm said."""
        return self._tools.helm(*args)

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        """Apply objects by server-side apply; raises CommandError."""
        self._tools.apply(objects, FIELD_MANAGER)

    def get_json(self, *args: str) -> dict[str, Any]:
        """Return `kubectl get ARGS -o json`; raises CommandError."""
        return self._tools.get_json(*args)

    def prometheus_query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant PromQL query: a list of `{"metric": labels, "value": [time, text]}`."""
        return query_prometheus(self.prometheus_url, expression)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig that acts as a service account, with a token of 24 hours; raises CommandError."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration=24h").strip()
        path = self.folder / f"service-account-{namespace}-{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(kubeconfig_text(self.options.name, self.server_url, self._running.access.ca, name, token, namespace))
        return path

    # --- Nodes ------------------------------------------------------------------------------------------------------------

    def add_gpu_nodes(
        self,
        product: str,
        memory_mib: int,
        gpus_per_node: int,
        count: int,
        *,
        prefix: str,
        labels: Mapping[str, str] | None = None,
        cpu: str = "128",
        memory: str = "1Ti",
        start_at: int = 0,
    ) -> list[str]:
        """Add nodes `PREFIX-START_AT`, … with GPUs, wait until they are Ready, and return their names.

        Args:
            product: as GPU Feature Discovery names it, such as `NVIDIA-H100-80GB-HBM3`.
            memory_mib: memory of one device in MiB.
            gpus_per_node: devices per node.
            count: how many nodes.
            prefix: beginning of their names.
            labels: more labels.
            cpu: cores per node, as a quantity.
            memory: main memory per node, as a quantity.
            start_at: the first node's number.
        """
        return self._add(
            [
                nodes.gpu_node(f"{prefix}-{n}", product, memory_mib, gpus_per_node, labels=labels, cpu=cpu, memory=memory)
                for n in range(start_at, start_at + count)
            ]
        )

    def add_cpu_nodes(
        self, count: int, *, prefix: str = "cpu", labels: Mapping[str, str] | None = None, start_at: int = 0
    ) -> list[str]:
        """Add nodes without GPUs, wait until they are Ready, and return their names."""
        return self._add([nodes.cpu_node(f"{prefix}-{n}", labels=labels) for n in range(start_at, start_at + count)])

    def _add(self, manifests: list[dict[str, Any]]) -> list[str]:
        self._added_nodes += [manifest["metadata"]["name"] for manifest in manifests]
        return fleet.create_nodes(self._tools, manifests, NODE_TIMEOUT_SECONDS + 0.1 * len(manifests))

    def remove_nodes(self, names: Sequence[str]) -> None:
        """Delete nodes and the pods on them."""
        fleet.remove_nodes(self._tools, names)
        self._added_nodes = [name for name in self._added_nodes if name not in set(names)]

    def lose_node(self, name: str) -> None:
        """Let a node fall silent, as at a power failure, and wait until the control plane has noticed (`node_grace_seconds`).

        The node turns NotReady (Unknown) and is tainted, and its pods are marked not Ready. They are evicted after their
        tolerations (300 s unless a pod says otherwise) and then stay Terminating until the node is removed or comes back.
        """
        fleet.lose_node(self._tools, name, NODE_TIMEOUT_SECONDS + self.options.node_grace_seconds)

    def recover_node(self, name: str) -> None:
        """Bring a lost node back, with its pods."""
        fleet.recover_node(self._tools, name, NODE_TIMEOUT_SECONDS)

    # --- Components -------------------------------------------------------------------------------------------------------

    def stop_component(self, name: str, grace_seconds: float = 5.0) -> None:
        """Stop etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok or prometheus. Grace 0 kills it outright."""
        self._running.component(name).stop(grace_seconds)

    def start_component(self, name: str) -> None:
        """Start a stopped component again, at its old ports and with its old data, and wait until it is ready."""
        component = self._running.component(name)
        if name == "kwok":
            fleet.release_leases(self._tools, all_nodes_are_ours=self.options.target == "local")
        component.start()
        component.wait_until_ready(self.options.ready_timeout_seconds)

    def component_pid(self, name: str) -> int:
        """Return a component's process id; raises LocalClusterError when it is not running."""
        return self._running.component(name).pid

    def component_log(self, name: str) -> Path:
        """Return the file with a component's output."""
        return self._running.component(name).log

    def add_static_target(self, address: str, labels: Mapping[str, str] | None = None) -> None:
        """Let Prometheus scrape `host:port` as well (job `static`), from now on."""
        self._running.add_static_target(StaticTarget(address, dict(labels or {})))
