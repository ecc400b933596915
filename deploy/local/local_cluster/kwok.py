"""KWOK, which plays the kubelets."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from local_cluster.build import MODULE_FOLDER, Binaries
from local_cluster.errors import LocalClusterError
from local_cluster.nodes import EMULATED, KUBELET_LABEL
from local_cluster.options import ClusterOptions

STAGES_FOLDER = MODULE_FOLDER / "stages"


def kwok_command(
    binaries: Binaries, kubeconfig: Path, pod_cidr: str, generation: int, port: int, options: ClusterOptions
) -> list[str]:
    """Return KWOK's command line; `generation` counts its starts on this cluster, from 0.

    Raises:
        LocalClusterError: a stage file does not exist.
    """
    stages = [*binaries.node_stages, *sorted(STAGES_FOLDER.glob("*.yaml")), *options.extra_stage_files]
    for stage in stages:
        if not stage.is_file():
            raise LocalClusterError(f"The KWOK stage file {stage} does not exist.")
    return [
        binaries.program("kwok"),
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-label-selector={KUBELET_LABEL}={EMULATED}",
        f"--cidr={cidr_of_generation(pod_cidr, generation)}",
        "--node-ip=127.0.0.1",
        f"--node-lease-duration-seconds={lease_seconds(options.node_grace_seconds)}",
        f"--server-address=127.0.0.1:{port}",
        *(f"--config={stage}" for stage in stages),
    ]


def lease_seconds(node_grace_seconds: int) -> int:
    """Return how long a node's heartbeat lease lasts; a quarter of it is the time between heartbeats.

    Four fifths of the grace period, as in Kubernetes' own defaults of 40 s and 50 s.
    """
    return max(4, node_grace_seconds * 4 // 5)


def cidr_of_generation(pod_cidr: str, generation: int) -> str:
    """Return the part of the pod range from which a start of KWOK gives out addresses.

    KWOK keeps in memory which addresses are given out and does not learn of earlier ones when it is started again, so it
    would give out addresses that pods still have. The first start has the lower half of the range; each later one has an
    eighth of the upper half, in turn.
    """
    network = ipaddress.ip_network(pod_cidr)
    if generation == 0:
        return str(next(network.subnets(prefixlen_diff=1)))
    eighths = list(network.subnets(prefixlen_diff=4))[8:]
    return str(eighths[(generation - 1) % len(eighths)])
