"""Bringing a cluster up, step by step, and taking it down."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster import components as parts
from local_cluster import control_plane as plane
from local_cluster import credentials
from local_cluster.access import Access, Tools, existing_cluster
from local_cluster.build import Binaries, ensure_built
from local_cluster.errors import LocalClusterError
from local_cluster.options import ClusterOptions
from local_cluster.paths import Paths
from local_cluster.processes import Component, Watchdog
from local_cluster.prometheus import StaticTarget, prometheus_config, reload_prometheus, write_prometheus_config
from local_cluster.slots import Slot, acquire_slot
from local_cluster.tools import find_kubectl
from local_cluster.waiting import wait_until
from local_cluster.watchdog import TAG_VARIABLE

Report = Callable[[str], None]


@dataclass
class RunningCluster:
    """All that belongs to a cluster while it runs."""

    options: ClusterOptions
    paths: Paths
    slot: Slot
    environment: dict[str, str]
    pod_cidr: str
    watchdog: Watchdog
    binaries: Binaries
    components: dict[str, Component] = field(default_factory=dict)
    prometheus_url: str | None = None
    static_targets: list[StaticTarget] = field(default_factory=list)
    _access: Access | None = None
    _tools: Tools | None = None

    @property
    def access(self) -> Access:
        """How to reach the API server."""
        assert self._access is not None  # noqa: S101 - set before the cluster is handed out
        return self._access

    @property
    def tools(self) -> Tools:
        """The programs kubectl and Helm."""
        assert self._tools is not None  # noqa: S101 - set before the cluster is handed out
        return self._tools

    def connect(self, access: Access, tools: Tools) -> None:
        """Remember how to reach the API server."""
        self._access, self._tools = access, tools
        self.paths.ca_file.write_bytes(access.ca)

    def component(self, name: str) -> Component:
        """Return a component.

        Raises:
            LocalClusterError: this cluster has none of that name.
        """
        if name not in self.components:
            raise LocalClusterError(f"This cluster has no component {name!r}; it has {', '.join(self.components)}.")
        return self.components[name]

    def start(self, group: list[Component], report: Report) -> None:
        """Start components together and wait until each is ready."""
        started = time.monotonic()
        for component in group:
            self.components[component.name] = component
            component.start()
        for component in group:
            component.wait_until_ready(self.options.ready_timeout_seconds)
        report(f"{', '.join(component.name for component in group)}: ready after {time.monotonic() - started:.1f} s")

    def write_prometheus_config(self) -> None:
        """Write Prometheus' configuration from the options and the static targets."""
        user = "prometheus" if self.options.target == "local" else "admin"
        config = prometheus_config(
            self.paths.kubeconfig(user),
            self.options.prometheus_scrape_interval_seconds,
            self.static_targets,
            self.options.prometheus_rule_files,
        )
        write_prometheus_config(self.paths.prometheus_config, config)

    def add_static_target(self, target: StaticTarget) -> None:
        """Add an address for Prometheus to scrape, and make it take note."""
        if self.prometheus_url is None:
            raise LocalClusterError("This cluster was started without Prometheus.")
        self.static_targets.append(target)
        self.write_prometheus_config()
        if self.component("prometheus").is_running:
            reload_prometheus(self.prometheus_url)

    def stop(self) -> None:
        """Stop everything in the order that makes the least noise. Without a folder to keep, by force, which is quick."""
        grace_seconds = 5.0 if self.options.folder is not None else 0.0
        try:
            for component in reversed(self.components.values()):
                component.stop(grace_seconds)
            self.watchdog.close()
        finally:
            self.slot.release()


def start_cluster(options: ClusterOptions, report: Report) -> RunningCluster:
    """Start a cluster and wait until it can take pods.

    Raises:
        LocalClusterError: something did not start. What was started is stopped again.
    """
    kubectl = find_kubectl()
    binaries = ensure_built()
    slot = acquire_slot()
    try:
        running = _prepare(options, slot, binaries)
    except BaseException:
        slot.release()
        raise
    try:
        tools = Tools(kubectl, binaries.program("helm"), running.environment)
        if options.target == "local":
            _start_control_plane(running, tools, report)
        else:
            running.connect(existing_cluster(options, running.paths, kubectl), tools)
            version = tools.kubectl("get", "--raw", "/version")
            report(f"using the cluster at {running.access.server_url} ({_git_version(version)})")
        _start_companions(running, report)
    except BaseException:
        running.stop()
        raise
    return running


def _prepare(options: ClusterOptions, slot: Slot, binaries: Binaries) -> RunningCluster:
    """Make the folder, the environment and the watchdog."""
    throw_away = options.folder is None
    folder = Path(tempfile.mkdtemp(prefix=f"equipoise-{options.name}-")) if options.folder is None else options.folder.resolve()
    paths = Paths(folder)
    paths.create_folders()
    tag = secrets.token_hex(8)
    environment = {
        **os.environ,
        TAG_VARIABLE: tag,
        "KUBECONFIG": str(paths.admin_kubeconfig),
        "KUBECACHEDIR": str(folder / "kubectl-cache"),
        "HELM_CACHE_HOME": str(folder / "helm" / "cache"),
        "HELM_CONFIG_HOME": str(folder / "helm" / "config"),
        "HELM_DATA_HOME": str(folder / "helm" / "data"),
        # Otherwise KWOK reads the user's own ~/.kwok/kwok.yaml.
        "KWOK_WORKDIR": str(folder / "kwok"),
        # All of it on one machine: processor time is scarcer than memory. A fifth of the API server's time went into collections.
        "GOGC": os.environ.get("GOGC", "400"),
    }
    watchdog = Watchdog(tag, folder if throw_away else None)
    pod_cidr = options.pod_cidr or slot.pod_cidr
    running = RunningCluster(options, paths, slot, environment, pod_cidr, watchdog, binaries)
    running.static_targets = [StaticTarget(address) for address in options.extra_static_targets]
    return running


def _start_control_plane(running: RunningCluster, tools: Tools, report: Report) -> None:
    paths, slot, options = running.paths, running.slot, running.options
    ports = plane.Ports(*(slot.keep_port() for _ in range(5)))
    tokens = credentials.write_tokens(paths)
    if not paths.service_account_key.exists():
        subprocess.run([running.binaries.program("service-account-key"), str(paths.service_account_key)], check=True)
    paths.audit_policy.write_text(plane.audit_policy())
    etcd, api_server, *controllers = parts.control_plane_components(
        running.binaries, paths, ports, options, running.pod_cidr, running.environment
    )
    running.start([etcd], report)
    running.start([api_server], report)
    server_url = f"https://127.0.0.1:{ports.api_server}"
    ca = paths.serving_certificate.read_bytes()
    credentials.write_kubeconfigs(paths, options.name, server_url, ca, tokens)
    running.connect(Access(paths.admin_kubeconfig, server_url, ca, tokens["admin"]), tools)
    running.start(controllers, report)


def _start_companions(running: RunningCluster, report: Report) -> None:
    """Start KWOK and Prometheus, and wait for what pods need."""
    paths, options, environment = running.paths, running.options, running.environment
    group = []
    if options.with_kwok:
        port = running.slot.keep_port()
        group.append(parts.kwok_component(running.binaries, paths, options, running.pod_cidr, port, environment))
    if options.with_prometheus:
        port = running.slot.keep_port()
        running.prometheus_url = f"http://127.0.0.1:{port}"
        running.write_prometheus_config()
        group.append(parts.prometheus_component(running.binaries, paths, options, port, environment))
    if group:
        running.start(group, report)
    wait_until(
        lambda: parts.default_service_account_exists(running.tools),
        options.ready_timeout_seconds,
        "the controller-manager to make the service account `default`, without which no pod can be created",
    )


def _git_version(version_json: str) -> str:
    """Return `v1.36.3` from the API server's answer."""
    return str(json.loads(version_json).get("gitVersion", "unknown version"))
