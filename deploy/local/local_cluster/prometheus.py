"""Prometheus, which finds the engine pods through the API server."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cluster.build import Binaries

PORT_NAMES = ("http", "metrics")


@dataclass(frozen=True)
class StaticTarget:
    """An address to scrape that is no pod, such as the operator's own metrics.

    Attributes:
        address: `host:port`.
        labels: added to its series.
    """

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


def prometheus_command(binaries: Binaries, config: Path, data: Path, port: int, scrape_interval_seconds: float) -> list[str]:
    """Return Prometheus' command line.

    A new pod is scraped after at most the discovery's 5 s and the scraping's own throttle, by default 5 s more; with a
    shorter scrape interval the throttle is as short.
    """
    return [
        binaries.program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=1d",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-lifecycle",
        f"--scrape.discovery-reload-interval={round(min(5.0, scrape_interval_seconds) * 1000)}ms",
    ]


def prometheus_config(
    kubeconfig: Path,
    scrape_interval_seconds: float,
    static_targets: Sequence[StaticTarget] = (),
    rule_files: Sequence[Path] = (),
) -> dict[str, Any]:
    """Return the configuration, as Prometheus' own YAML keys.

    Every pod label becomes a label of the series (`llm-d.ai/role` as `llm_d_ai_role`), beside `namespace`, `pod` and `node`.
    """
    interval = f"{round(scrape_interval_seconds * 1000)}ms"
    pods = {
        "job_name": "equipoise-pods",
        "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
        "relabel_configs": [
            _keep("__meta_kubernetes_pod_label_app_kubernetes_io_managed_by", "equipoise"),
            _keep("__meta_kubernetes_pod_container_port_name", "|".join(PORT_NAMES)),
            {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Succeeded|Failed", "action": "drop"},
            # Pending pods have no address yet.
            _keep("__meta_kubernetes_pod_ip", ".+"),
            {"action": "labelmap", "regex": "__meta_kubernetes_pod_label_(.+)"},
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
            {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"},
        ],
    }
    static = {
        "job_name": "static",
        "static_configs": [{"targets": [target.address], "labels": dict(target.labels)} for target in static_targets],
    }
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(path.resolve()) for path in rule_files],
        "scrape_configs": [pods, static],
    }


def write_prometheus_config(path: Path, config: dict[str, Any]) -> None:
    """Write the configuration; JSON is YAML, and needs no library."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(config, indent=1) + "\n")
    temporary.rename(path)


def reload_prometheus(url: str) -> None:
    """Make Prometheus read its configuration again; raises OSError with Prometheus' answer when it refuses."""
    request = urllib.request.Request(f"{url}/-/reload", method="POST")
    with urllib.request.urlopen(request, timeout=30):
        pass


def query_prometheus(url: str, expression: str) -> list[dict[str, Any]]:
    """Return the result of an instant query, as Prometheus' API gives it; raises OSError with its answer when it refuses."""
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=30) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    return found


def _keep(label: str, regex: str) -> dict[str, Any]:
    return {"source_labels": [label], "regex": regex, "action": "keep"}
