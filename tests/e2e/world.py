"""The stage of the proof: a control plane, Equipoise installed on it, emulated engines, real routers, clients that count."""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.kube import Api, Object, PodWatch
from tests.e2e.meter import BudgetMeter

from equipoise_stage import Stage
from local_cluster import ClusterOptions, LocalCluster, wait_until
from local_cluster.processes import Component

NAMESPACE = "e2e"
POOLS = {"rtx4090": ("NVIDIA-GeForce-RTX-4090", 24564, 8), "l40s": ("NVIDIA-L40S", 46068, 4)}
POOL_NAMES = {"rtx4090": "rtx-4090-24gb", "l40s": "l40s-48gb"}
TTFT_SECONDS, TPOT_SECONDS = 2.0, 0.1
REPOSITORY = Path(__file__).resolve().parents[2]
SERVICES = f"/apis/equipoise.dev/v1alpha1/namespaces/{NAMESPACE}/inferenceservices"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
OPERATOR: dict[str, Any] = {
    "capacity": {"intervalSeconds": 2},
    # Short leases: a killed operator holds its own for so long.
    "leaderElection": {"leaseSeconds": 5, "renewSeconds": 4, "retrySeconds": 1},
}

Say = Callable[[str], None]


@dataclass
class World:
    """Everything that runs. `routers` is the folder with the routers' programs."""

    cluster: LocalCluster
    stage: Stage
    api: Api
    watch: PodWatch
    meter: BudgetMeter
    say: Say
    routers: Path
    records: list[Path] = field(default_factory=list)
    processes: list[Component] = field(default_factory=list)
    operator_restarts: int = 0

    @classmethod
    def start(cls, routers: Path, say: Say) -> World:
        """Start the cluster, install the chart, start operator and engines."""
        say("starting a control plane: etcd, API server, controllers, scheduler, Prometheus; nodes by KWOK")
        cluster = LocalCluster.start(ClusterOptions(name="e2e", prometheus_scrape_interval_seconds=1.0, audit=True))
        try:
            cluster.add_cpu_nodes(2)
            for prefix, (product, memory_mib, gpus) in POOLS.items():
                cluster.add_gpu_nodes(product, memory_mib, 4, gpus // 4, prefix=prefix)
            stage = Stage(cluster)
            say("installing the chart with Helm; starting the operator with the chart's rights, and the emulated engines")
            stage.install_chart()
            stage.start_operator(OPERATOR)
            stage.start_emulator()
            cluster.kubectl("create", "namespace", NAMESPACE)
            api = Api(cluster.server_url, str(cluster.ca_file), cluster.admin_token)
            meter = BudgetMeter({prefix: pool[2] for prefix, pool in POOLS.items()})
            watch = PodWatch(api, NAMESPACE)
            watch.looks.append(meter.look)
            watch.start()
            return cls(cluster, stage, api, watch, meter, say, routers)
        except BaseException:
            cluster.stop()
            raise

    def stop(self) -> None:
        """Stop everything."""
        self.watch.stop()
        for process in reversed(self.processes):
            process.stop()
        self.stage.stop()
        self.cluster.stop()

    def keep_logs(self, folder: Path) -> None:
        """Copy the logs of operators, emulator, routers and clients: the cluster's own folder is thrown away."""
        target = folder / "logs"
        target.mkdir(parents=True, exist_ok=True)
        for pattern in ("operator-*.log", "emulator-*.log", "router-*.log", "client-*.log", "requests-*.jsonl"):
            for path in self.cluster.folder.glob(pattern):
                (target / path.name).write_bytes(path.read_bytes())

    # --- Services ---------------------------------------------------------------------------------------------------------

    def apply_service(self, name: str, pool: str, prefill: int, decode: int, **spec: Any) -> None:
        """Create a service with fixed counts on one pool."""
        phase = {"scaling": "Fixed", "pools": [POOL_NAMES[pool]], "shape": {"tensorParallel": 1, "precision": "bf16"}}
        engine = {"podTemplate": {"metadata": {"annotations": {"equipoise.dev/emulated-startup-seconds": "3"}}}}
        manifest = {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct", "servedName": name},
                "targets": {"ttft": f"{TTFT_SECONDS:g}s", "tpot": f"{TPOT_SECONDS * 1000:g}ms"},
                "phases": {"prefill": {**phase, "min": prefill}, "decode": {**phase, "min": decode}},
                "engine": engine,
                "router": {"replicas": 1},
                "drain": {"grace": "60s"},
                **spec,
            },
        }
        self.cluster.apply([manifest])

    def service(self, name: str) -> Object:
        """One InferenceService."""
        return self.api.get(f"{SERVICES}/{name}")

    def set_counts(self, name: str, prefill: int, decode: int) -> None:
        """Ask for other counts, as a user edits them."""
        self.api.patch(f"{SERVICES}/{name}", {"spec": {"phases": {"prefill": {"min": prefill}, "decode": {"min": decode}}}})

    def delete_service(self, name: str) -> None:
        """Delete it and wait until its engine pods are gone."""
        self.api.call("DELETE", f"{SERVICES}/{name}")
        self.watch.wait(lambda pods: not any(pod.service == name for pod in pods), 90.0, f"the pods of {name} to go")

    def wait_split(self, name: str, prefill: int, decode: int, timeout_seconds: float) -> float:
        """Wait until exactly these replicas serve, none of the service's pods is anything else, and all have an owner."""

        def met(pods: Sequence[Any]) -> bool:
            own = [pod for pod in pods if pod.service == name]
            roles = sorted(pod.role for pod in own)
            calm = all(pod.ready and not pod.terminating and pod.owner for pod in own)
            return calm and roles == ["decode"] * decode + ["prefill"] * prefill

        return self.watch.wait(met, timeout_seconds, f"{name}: {prefill} prefill and {decode} decode replicas that serve")

    # --- Operator, routers, clients -----------------------------------------------------------------------------------------

    def restart_operator(self) -> None:
        """SIGKILL, then a new process; does not wait until it leads."""
        self.stage.kill_operator()
        self.stage.start_operator(OPERATOR, wait_ready=False)
        self.operator_restarts += 1

    def start_router(self, name: str, program: str = "vllm-router") -> str:
        """The real router, with the command line and the rights that Equipoise rendered for it; returns its address."""
        found = wait_until(lambda: self._router_arguments(name), 30, f"the router's Deployment of {name}", poll_seconds=0.2)
        port, metrics_port = self.cluster.take_port(), self.cluster.take_port()
        here = {"--host": "127.0.0.1", "--port": port, "--prometheus-host": "127.0.0.1", "--prometheus-port": metrics_port}
        kept = [word for word in found or () if word.split("=", 1)[0] not in here]
        command = [str(self.routers / program), *kept, *(f"{flag}={value}" for flag, value in here.items())]
        account = self.cluster.service_account_kubeconfig(NAMESPACE, f"{name}-router")
        process = Component(
            name=f"router-{name}",
            command=lambda: command,
            log=self.cluster.folder / f"router-{name}.log",
            environment={**self.cluster.environment, "KUBECONFIG": str(account)},
            is_ready=lambda: _answers(f"http://127.0.0.1:{port}/readiness"),
        )
        self.processes.append(process)
        process.start()
        process.wait_until_ready(90.0)
        return f"http://127.0.0.1:{port}"

    def _router_arguments(self, name: str) -> list[str] | None:
        try:
            router = self.api.get(f"{DEPLOYMENTS}/{name}-router")
        except RuntimeError:
            return None
        container = router["spec"]["template"]["spec"]["containers"][0]
        return [*container["command"][1:], *container["args"]]

    def start_client(self, name: str, url: str, rate: float, arguments: Mapping[str, object] | None = None) -> Client:
        """Requests at a steady rate until stopped."""
        records = self.cluster.folder / f"requests-{name}-{len(self.records)}.jsonl"
        records.touch()
        self.records.append(records)
        given = [word for flag, value in (arguments or {}).items() for word in (flag, str(value))]
        command = [sys.executable, str(REPOSITORY / "tests" / "e2e" / "client.py"), "--url", url, "--model", name]
        command += ["--records", str(records), "--rate", str(rate), *given]
        process = Component(
            name=f"client-{name}",
            command=lambda: command,
            log=self.cluster.folder / f"client-{name}.log",
            environment=self.cluster.environment,
            is_ready=lambda: True,
        )
        self.processes.append(process)
        process.start()
        return Client(process, records)


@dataclass
class Client:
    """A running client and where its records are."""

    process: Component
    records: Path

    def stop(self) -> None:
        """No more requests; wait for those under way."""
        self.process.stop(grace_seconds=130.0)

    def ended(self) -> int:
        """Requests that have ended so far."""
        return self.records.read_bytes().count(b"\n")

    def wait_for(self, count: int, timeout_seconds: float) -> None:
        """Wait until so many have ended."""
        deadline = time.monotonic() + timeout_seconds
        wait_until(lambda: self.ended() >= count, max(0.1, deadline - time.monotonic()), f"{count} answers", poll_seconds=0.2)


def _answers(url: str) -> bool:
    try:
        with closing(urllib.request.urlopen(url, timeout=2)) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
