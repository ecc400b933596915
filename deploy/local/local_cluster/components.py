"""The programs of one cluster, in the order in which they start."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from local_cluster import control_plane as plane
from local_cluster.access import Tools
from local_cluster.build import Binaries
from local_cluster.kwok import kwok_command
from local_cluster.options import ClusterOptions
from local_cluster.paths import Paths
from local_cluster.processes import Component
from local_cluster.prometheus import prometheus_command


def control_plane_components(
    binaries: Binaries, paths: Paths, ports: plane.Ports, options: ClusterOptions, pod_cidr: str, environment: dict[str, str]
) -> list[Component]:
    """Return etcd, API server, controller-manager and scheduler."""

    def component(name: str, command: Callable[[], list[str]], is_ready: Callable[[], bool]) -> Component:
        return Component(name, command, paths.log(name), environment, is_ready)

    api_server = f"https://127.0.0.1:{ports.api_server}"
    return [
        component(
            "etcd",
            lambda: plane.etcd_command(binaries, paths, ports),
            lambda: plane.answers_ok(f"http://127.0.0.1:{ports.etcd_client}/readyz"),
        ),
        component(
            "kube-apiserver",
            lambda: plane.api_server_command(binaries, paths, ports, options),
            lambda: plane.answers_ok(f"{api_server}/readyz"),
        ),
        component(
            "kube-controller-manager",
            lambda: plane.controller_manager_command(binaries, paths, ports, options, pod_cidr),
            lambda: plane.answers_ok(f"https://127.0.0.1:{ports.controller_manager}/healthz"),
        ),
        component(
            "kube-scheduler",
            lambda: plane.scheduler_command(binaries, paths, ports, options),
            lambda: plane.answers_ok(f"https://127.0.0.1:{ports.scheduler}/readyz"),
        ),
    ]


def kwok_component(
    binaries: Binaries, paths: Paths, options: ClusterOptions, pod_cidr: str, port: int, environment: dict[str, str]
) -> Component:
    """Return KWOK; its command line changes from start to start."""
    kubeconfig = paths.kubeconfig("kwok") if options.target == "local" else paths.admin_kubeconfig
    generation = itertools.count()
    return Component(
        "kwok",
        lambda: kwok_command(binaries, kubeconfig, pod_cidr, next(generation), port, options),
        paths.log("kwok"),
        environment,
        lambda: plane.answers_ok(f"http://127.0.0.1:{port}/healthz"),
    )


def prometheus_component(
    binaries: Binaries, paths: Paths, options: ClusterOptions, port: int, environment: dict[str, str]
) -> Component:
    """Return Prometheus."""
    interval_seconds = options.prometheus_scrape_interval_seconds
    return Component(
        "prometheus",
        lambda: prometheus_command(binaries, paths.prometheus_config, paths.folder / "prometheus", port, interval_seconds),
        paths.log("prometheus"),
        environment,
        lambda: plane.answers_ok(f"http://127.0.0.1:{port}/-/ready"),
    )


def default_service_account_exists(tools: Tools) -> bool:
    """Tell whether pods can be created yet: the controller-manager has made the namespace's service account."""
    return bool(tools.kubectl("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"))
