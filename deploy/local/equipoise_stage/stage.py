"""Installs the chart and runs the operator and the emulator beside a cluster.

The chart is installed with no operator pods, because nothing here could run them; the operator is a process on this machine
that holds a token of the chart's ServiceAccount, so a right that the chart forgets is missing here too.
"""

from __future__ import annotations

import itertools
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from local_cluster import LocalCluster, wait_until
from local_cluster.processes import Component

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "equipoise"


class StageError(Exception):
    """A part of the stage did not do what it should; the message says which and what to look at."""


class Stage:
    """One installation of Equipoise on one cluster."""

    def __init__(self, cluster: LocalCluster, namespace: str = "equipoise-system", release: str = "equipoise") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.release = release
        self.operator: Component | None = None
        self.emulator: Component | None = None
        self.operator_port = 0
        self.emulator_port = 0
        self._serial = itertools.count(1)

    def install_chart(self, values: Mapping[str, Any] | None = None) -> None:
        """`helm upgrade --install` of the project's own chart, and wait until the API server serves the kinds."""
        settings = self.cluster.folder / f"{self.release}-values.yaml"
        settings.write_text(yaml.safe_dump({"replicaCount": 0, **(values or {})}))
        self.cluster.helm(
            "upgrade", "--install", self.release, str(CHART), "--namespace", self.namespace, "--create-namespace",
            "--values", str(settings),
        )  # fmt: skip
        self.cluster.kubectl(
            "wait", "--for=condition=Established", "--timeout=30s",
            "crd/inferenceservices.equipoise.dev", "crd/gpupools.equipoise.dev", "crd/phasescales.equipoise.dev",
        )  # fmt: skip

    def uninstall_chart(self) -> None:
        """`helm uninstall`."""
        self.cluster.helm("uninstall", self.release, "--namespace", self.namespace, "--wait")

    def start_operator(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        wait_ready: bool = True,
        program: Sequence[str] = ("-m", "equipoise"),
        environment: Mapping[str, str] | None = None,
    ) -> Component:
        """Start one operator process; by default wait until it leads and has its store primed.

        `program` is what Python runs: a test may start the operator inside a program of its own.
        """
        number = next(self._serial)
        self.operator_port = self.cluster.take_port()
        account = self.cluster.service_account_kubeconfig(self.namespace, self.release)
        base: dict[str, Any] = {
            "kubeconfig": str(account),
            "prometheus": {"url": self.cluster.prometheus_url} if self.cluster.options.with_prometheus else {},
            "capacity": {"intervalSeconds": 5},
            "http": {"host": "127.0.0.1", "port": self.operator_port},
            "leaderElection": {"namespace": self.namespace},
            "logging": {"format": "text"},
        }
        config = self.cluster.folder / f"operator-{number}.yaml"
        config.write_text(yaml.safe_dump(_merge(base, settings or {})))
        port = self.operator_port
        self.operator = Component(
            name=f"operator-{number}",
            command=lambda: [sys.executable, *program, "operator", "--config", str(config)],
            log=self.cluster.folder / f"operator-{number}.log",
            environment={**self.cluster.environment, **(environment or {})},
            is_ready=lambda: _answers(port, "/readyz"),
        )
        self.operator.start()
        if wait_ready:
            self.operator.wait_until_ready(60.0)
        return self.operator

    def kill_operator(self) -> None:
        """SIGKILL: no lease released, nothing said goodbye to."""
        if self.operator is not None:
            self.operator.stop(grace_seconds=0)

    def start_emulator(self, arguments: Sequence[str] = ()) -> Component:
        """Start the process that is the engine at every engine pod's address."""
        number = next(self._serial)
        self.emulator_port = self.cluster.take_port()
        port = self.emulator_port
        self.emulator = Component(
            name=f"emulator-{number}",
            command=lambda: [
                sys.executable, "-m", "equipoise.emulate", "--kubeconfig", str(self.cluster.kubeconfig),
                "--status-port", str(port), *arguments,
            ],
            log=self.cluster.folder / f"emulator-{number}.log",
            environment=self.cluster.environment,
            is_ready=lambda: _answers(port, "/status"),
        )  # fmt: skip
        self.emulator.start()
        self.emulator.wait_until_ready(60.0)
        return self.emulator

    def emulator_status(self) -> dict[str, Any]:
        """What the emulator's clients see: rolling figures, see docs/concepts/emulator.md."""
        return get_json(f"http://127.0.0.1:{self.emulator_port}/status")

    def operator_metrics(self) -> str:
        """The operator's own metrics page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.operator_port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def service(self, namespace: str, name: str) -> dict[str, Any]:
        """One InferenceService as the API server has it."""
        return self.cluster.get_json("inferenceservice", name, "-n", namespace)

    def wait_condition(
        self, namespace: str, name: str, kind: str, status: str = "True", timeout_seconds: float = 60.0
    ) -> dict[str, Any]:
        """Wait for a condition of an InferenceService that was judged on its present generation; returns the condition."""

        def met() -> dict[str, Any] | None:
            obj = self.service(namespace, name)
            for condition in obj.get("status", {}).get("conditions", ()):
                current = condition.get("observedGeneration") == obj["metadata"]["generation"]
                if condition["type"] == kind and condition["status"] == status and current:
                    return dict(condition)
            return None

        found = wait_until(met, timeout_seconds, f"{namespace}/{name}: {kind}={status}", poll_seconds=0.2)
        if found is None:
            raise StageError(f"{namespace}/{name}: {kind} is not {status}")
        return found

    def stop(self) -> None:
        """Stop both processes."""
        for process in (self.emulator, self.operator):
            if process is not None:
                process.stop()


def get_json(url: str) -> dict[str, Any]:
    """GET a JSON object."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return dict(json.loads(answer.read()))


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        before = result.get(key)
        result[key] = _merge(before, value) if isinstance(before, Mapping) and isinstance(value, Mapping) else value
    return result
