"""The command `python -m local_cluster`: build the programs, or run a cluster until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path
from typing import cast

from local_cluster.build import cache_folder, ensure_built
from local_cluster.cluster import LocalCluster
from local_cluster.errors import LocalClusterError
from local_cluster.options import ClusterOptions, Target

REAL = {
    "local": "kube-apiserver, kube-scheduler, kube-controller-manager, etcd, Prometheus, kubectl, Helm",
    "kind": "the kind cluster with its node, Prometheus, kubectl, Helm",
    "kubeconfig": "the cluster of the kubeconfig, Prometheus, kubectl, Helm",
}
EMULATED = "the nodes that are added, their GPUs, and the pods on them (KWOK stands in for their kubelets)"


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "build":
            ensure_built()
            print(f"The local cluster's programs are built; they are kept in {cache_folder()}.")
            return 0
        return _up(parsed)
    except LocalClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m local_cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the programs into the cache (some minutes, once)")
    up = commands.add_parser("up", help="start a cluster and keep it until Ctrl-C")
    up.add_argument(
        "--target",
        choices=("local", "kind", "kubeconfig"),
        default="local",
        help="local: a control plane of its own (default); kind: the running kind cluster; kubeconfig: the current context",
    )
    up.add_argument("--kubeconfig", type=Path, help="the file to use with --target kubeconfig (default: $KUBECONFIG)")
    up.add_argument("--kind-name", default="kind", help="the kind cluster's name (default: kind)")
    up.add_argument("--folder", type=Path, help="keep the cluster's files here, and go on from them next time")
    up.add_argument("--hold", action="store_true", help="stay up when standard input is no terminal, until SIGINT or SIGTERM")
    up.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="PRODUCT,MEMORY_MIB,GPUS_PER_NODE,NODES",
        help="add nodes with GPUs, such as NVIDIA-H100-80GB-HBM3,81559,8,2; may be given several times",
    )
    return parser


def _up(parsed: argparse.Namespace) -> int:
    pools = [_pool(text) for text in parsed.pool]
    options = ClusterOptions(
        target=cast("Target", parsed.target), kubeconfig=parsed.kubeconfig, kind_name=parsed.kind_name, folder=parsed.folder
    )
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, _interrupt)
    started = time.monotonic()
    with LocalCluster.start(options, report=lambda line: print(f"  {line}", flush=True)) as cluster:
        for number, (product, memory_mib, gpus, count) in enumerate(pools):
            names = cluster.add_gpu_nodes(product, memory_mib, gpus, count, prefix=f"pool-{number}-{product.lower()}")
            print(f"  {len(names)} nodes with {gpus} × {product}: ready", flush=True)
        print(_summary(cluster, time.monotonic() - started), flush=True)
        if not (parsed.hold or sys.stdin.isatty()):
            print("Standard input is no terminal, so this was a trial run; use --hold to keep the cluster up.")
            return 0
        print("Ctrl-C stops the cluster.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("\nStopping the cluster.", flush=True)
    return 0


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _pool(text: str) -> tuple[str, int, int, int]:
    fields = text.split(",")
    try:
        product, memory_mib, gpus, count = fields
        return product, int(memory_mib), int(gpus), int(count)
    except ValueError as error:
        raise LocalClusterError(
            f"--pool is {text!r}; write PRODUCT,MEMORY_MIB,GPUS_PER_NODE,NODES, such as NVIDIA-H100-80GB-HBM3,81559,8,2."
        ) from error


def _summary(cluster: LocalCluster, seconds: float) -> str:
    return f"""
The cluster is ready after {seconds:.1f} s.

  export KUBECONFIG={cluster.kubeconfig}

  API server   {cluster.server_url}
  Prometheus   {cluster.prometheus_url}
  Pods         {cluster.pod_cidr}
  Files        {cluster.folder}

  real         {REAL[cluster.options.target]}
  emulated     {EMULATED}
"""


if __name__ == "__main__":
    sys.exit(main())
