"""What the emulator is told on its command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from equipoise.api.identity import ServiceKey
from equipoise.api.values import parse_duration
from equipoise.simulate.engine.metrics.families import Generation
from equipoise.simulate.traffic.parse import Traffic, parse_traffic
from equipoise.simulate.traffic.parse import __doc__ as traffic_help


@dataclass(frozen=True)
class Options:
    """Everything that can be chosen. `traffic` by service; the key None is for the first service that is ready."""

    kubeconfig: Path | None
    namespace: str | None
    traffic: dict[ServiceKey | None, Traffic]
    seed: int
    ttft_seconds: float | None
    tpot_seconds: float | None
    percentile: float | None
    patience_seconds: float | None
    status_host: str
    status_port: int
    records: Path | None
    router_policy: str
    handshake_seconds: float
    generation: Generation
    default_model: str | None
    verbose: bool


POLICIES = ("auto", "round_robin", "least_loaded", "power_of_two", "cache_aware", "token_aware")


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Read the command line; argparse ends the program with a message when it is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m equipoise.emulate",
        description="Stands in for the engines of all pods that Equipoise manages: answers at their addresses, with a model of "
        "prefill, KV hand-over and decode in real time, and drives generated traffic through it. No GPU is used.",
        epilog=f"--traffic: {traffic_help}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--kubeconfig", type=Path, help="default: $KUBECONFIG, else the pod's own service account, else ~/.kube/config")
    add("--namespace", help="watch the pods of this namespace only")
    add(
        "--traffic",
        action="append",
        default=[],
        metavar="[NAMESPACE/NAME=]TRAFFIC",
        help="requests to drive through a service, from the moment it has a ready pod of each phase; without a name: through the "
        "first service that is ready. May be given for several services",
    )
    add("--seed", type=int, default=0)
    add("--ttft", metavar="DURATION", help="target that figures are judged by; default: the InferenceService's, else 500ms")
    add("--tpot", metavar="DURATION", help="likewise; default 50ms")
    add("--percentile", type=float, help="likewise; default 95")
    add("--patience", metavar="DURATION", help="clients that wait longer for a first token go away; default: they never do")
    add("--status-host", default="127.0.0.1")
    add("--status-port", type=int, default=0, help="serves /status, /metrics, /health; 0 takes a free one and prints it")
    add("--records", type=Path, metavar="FOLDER", help="write requests.csv and seconds.jsonl there")
    add("--router-policy", choices=POLICIES, default="auto", help="auto: what the router pods' arguments say, else round_robin")
    add("--handshake", metavar="DURATION", default="0s", help="extra time of the first KV transfer of each pair of pods")
    add(
        "--metrics-generation",
        choices=[item.value for item in Generation],
        default=Generation.CURRENT.value,
        help="old: metric names of vLLM 0.10 and before",
    )
    add("--model", metavar="NAME", help="step times of this model for pods whose own model is unknown")
    add("--verbose", action="store_true")  # fmt: skip
    given = parser.parse_args(arguments)
    try:
        return Options(
            kubeconfig=given.kubeconfig,
            namespace=given.namespace,
            traffic=dict(_traffic(text) for text in given.traffic),
            seed=given.seed,
            ttft_seconds=_duration(given.ttft, "--ttft"),
            tpot_seconds=_duration(given.tpot, "--tpot"),
            percentile=given.percentile,
            patience_seconds=_duration(given.patience, "--patience"),
            status_host=given.status_host,
            status_port=given.status_port,
            records=given.records,
            router_policy=given.router_policy,
            handshake_seconds=_duration(given.handshake, "--handshake") or 0.0,
            generation=Generation(given.metrics_generation),
            default_model=given.model,
            verbose=given.verbose,
        )
    except ValueError as error:
        parser.error(str(error))


def _duration(text: str | None, flag: str) -> float | None:
    return None if text is None else parse_duration(text, flag)


def _traffic(text: str) -> tuple[ServiceKey | None, Traffic]:
    name, equals, rest = text.partition("=")
    namespace, slash, service = name.partition("/")
    if equals and slash and ":" not in name and namespace and service:
        return ServiceKey(namespace, service), parse_traffic(rest)
    return None, parse_traffic(text)
