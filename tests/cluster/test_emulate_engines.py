"""The emulator on a real control plane: pods of hand-written Deployments, real Prometheus, the real vllm-router."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from local_cluster import LocalCluster, wait_until
from local_cluster.processes import Component

ROUTER = Path(sys.executable).parent / "vllm-router"


class Bench:
    """One service's Deployments in a namespace, and the emulator behind them."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.port = 0
        self.processes: list[Any] = []

    def deploy(self, role: str, replicas: int, *arguments: str, annotations: dict[str, str] | None = None) -> None:
        name = f"chat-{role}"
        labels = {
            "app.kubernetes.io/managed-by": "equipoise", "app.kubernetes.io/component": role, "equipoise.dev/service": "chat",
            "equipoise.dev/variant": name, "llm-d.ai/role": role,
        }  # fmt: skip
        transfer = {"kv_connector": "NixlConnector", "kv_role": "kv_producer" if role == "prefill" else "kv_consumer"}
        container = {
            "name": "engine",
            "image": "vllm/vllm-openai:v0.32.0",
            "command": ["vllm"],
            "args": [
                "serve", "meta-llama/Llama-3.1-8B-Instruct", "--served-model-name=chat",
                f"--kv-transfer-config={json.dumps(transfer)}", *arguments,
            ],
            "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }  # fmt: skip
        template = {
            "metadata": {"labels": labels, "annotations": annotations or {}},
            "spec": {"containers": [container], "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
        }
        selector = {"app.kubernetes.io/managed-by": "equipoise", "equipoise.dev/variant": name}
        self.cluster.apply(
            [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": name, "namespace": self.namespace},
                    "spec": {"replicas": replicas, "selector": {"matchLabels": selector}, "template": template},
                }
            ]
        )

    def start(self, *arguments: str) -> None:
        self.port = self.cluster.take_port()
        command = [sys.executable, "-m", "equipoise.emulate", "--kubeconfig", str(self.cluster.kubeconfig)]
        command += ["--namespace", self.namespace, "--status-port", str(self.port), "--verbose", *arguments]
        process = Component(
            name=f"emulator-{self.namespace}",
            command=lambda: command,
            log=self.cluster.folder / f"emulator-{self.namespace}.log",
            environment=self.cluster.environment,
            is_ready=lambda: bool(self.get("/health")),
        )
        self.processes.append(process)
        process.start()
        process.wait_until_ready(60.0)

    def start_router(self) -> int:
        """The real vllm-router, discovering the pods of this namespace at this API server."""
        port, metrics_port = self.cluster.take_port(), self.cluster.take_port()
        selector = ["equipoise.dev/service=chat"]
        command = [
            str(ROUTER), "--vllm-pd-disaggregation", "--service-discovery", "--service-discovery-namespace", self.namespace,
            "--service-discovery-port", "8000", "--prefill-selector", *selector, "llm-d.ai/role=prefill", "--decode-selector",
            *selector, "llm-d.ai/role=decode", "--kv-connector", "nixl", "--policy", "round_robin", "--host", "127.0.0.1",
            "--port", str(port), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port),
            "--health-check-interval-secs", "2",
        ]  # fmt: skip

        def is_ready() -> bool:
            try:
                with closing(urllib.request.urlopen(f"http://127.0.0.1:{port}/readiness", timeout=2)) as answer:
                    return bool(answer.status == 200)
            except urllib.error.HTTPError as error:  # it answers, and has not found its pods yet
                error.close()
                return False

        process = Component(
            name=f"router-{self.namespace}",
            command=lambda: command,
            log=self.cluster.folder / f"router-{self.namespace}.log",
            environment={**self.cluster.environment, "KUBECONFIG": str(self.cluster.kubeconfig)},
            is_ready=is_ready,
        )
        self.processes.append(process)
        process.start()
        process.wait_until_ready(60.0)
        return port

    def get(self, path: str) -> str:
        with closing(urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5)) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/status"))["services"].get(f"{self.namespace}/chat") or {})

    def wait_for(self, condition: Callable[[dict[str, Any]], object], what: str, seconds: float = 40.0) -> dict[str, Any]:
        def met() -> dict[str, Any] | None:
            status = self.status()
            return status if status and condition(status) else None

        found = wait_until(met, seconds, what, poll_seconds=0.2)
        assert found is not None, f"never: {what}; {json.dumps(self.status())[:2000]}"
        return found

    def query(self, expression: str) -> dict[str, float]:
        """Values by role."""
        rows = self.cluster.prometheus_query(expression.replace("NS", f'namespace="{self.namespace}"'))
        return {row["metric"].get("llm_d_ai_role", ""): float(row["value"][1]) for row in rows}

    def pods(self, role: str) -> list[str]:
        names = self.cluster.kubectl("get", "pods", "-n", self.namespace, "-l", f"llm-d.ai/role={role}", "-o", "name").split()
        return [name.removeprefix("pod/") for name in names]

    def stop(self) -> None:
        for process in self.processes:
            process.stop()


@pytest.fixture(scope="module")
def gpu_nodes(cluster: LocalCluster) -> Iterator[None]:
    names = cluster.add_gpu_nodes("NVIDIA-H100-80GB-HBM3", 81559, gpus_per_node=8, count=1, prefix="emulated")
    yield
    cluster.remove_nodes(names)


@pytest.fixture
def bench(cluster: LocalCluster, namespace: str, gpu_nodes: None) -> Iterator[Bench]:
    made = Bench(cluster, namespace)
    yield made
    made.stop()


def mean(histogram: str, window: str) -> str:
    """A histogram's mean by role over a window."""
    part = "sum by (llm_d_ai_role) (rate({}{{NS}}[{}]))"
    return f"{part.format(histogram + '_sum', window)} / {part.format(histogram + '_count', window)}"


def test_prometheus_scrapes_the_pods_and_the_legs_add_up_to_what_clients_see(bench: Bench) -> None:
    bench.deploy("prefill", 2)
    bench.deploy("decode", 2)
    bench.start("--traffic", "=1000+50:120s@20")
    bench.wait_for(lambda status: status["totals"]["completed"] > 200, "200 requests")
    assert bench.query("count by (llm_d_ai_role) (up{NS} == 1)") == {"prefill": 2, "decode": 2}
    ttft = mean("vllm:time_to_first_token_seconds", "30s")
    wait_until(lambda: len(bench.query(ttft)) == 2, 20, "both legs in Prometheus")
    legs = bench.query(ttft)
    client = bench.status()["windows"]["60"]["ttft_seconds"]["mean"]
    assert legs["prefill"] + legs["decode"] == pytest.approx(client, rel=0.15)
    tpot = mean("vllm:request_time_per_output_token_seconds", "10s")
    assert bench.query(tpot)["decode"] == pytest.approx(bench.status()["windows"]["15"]["tpot_seconds"]["mean"], rel=0.1)
    assert bench.query(tpot)["prefill"] == 0.0
    assert bench.query('sum by (llm_d_ai_role) (vllm:prompt_tokens_by_source_total{NS,source="local_compute"})')["decode"] == 0.0


def test_a_prefill_overload_shows_on_prefill_alone(bench: Bench) -> None:
    bench.deploy("prefill", 1)
    bench.deploy("decode", 2)
    bench.start("--traffic", "=4000+20:120s@20")  # 80,000 tokens/s where one H100 does about 50,000
    bench.wait_for(lambda status: (status["windows"]["5"]["ttft_seconds"]["mean"] or 0.0) > 3.0, "a TTFT of 3 s")
    signal = "max by (llm_d_ai_role) (max_over_time(vllm:num_requests_waiting_by_reason{NS,reason='capacity'}[10s]))"
    waiting = bench.query(signal)
    assert waiting["prefill"] > 20
    assert waiting["decode"] <= 1
    leg = mean("vllm:time_to_first_token_seconds", "5s")
    legs = bench.query(leg)
    assert legs["prefill"] > 2.0 > 0.2 > legs["decode"]
    assert bench.status()["windows"]["5"]["ttft_attainment"] == 0.0


def test_a_decode_overload_has_the_measured_signature(bench: Bench) -> None:
    """KV usage high on prefill together with requests that wait for capacity on decode (data/metrics of a real pair)."""
    bench.deploy("prefill", 1, "--num-gpu-blocks-override=2000")
    bench.deploy("decode", 1, "--num-gpu-blocks-override=2500")
    bench.start("--traffic", "=1000+800:120s@12")
    kv = "max by (llm_d_ai_role) (vllm:kv_cache_usage_perc{NS})"
    capacity = "max by (llm_d_ai_role) (vllm:num_requests_waiting_by_reason{NS,reason='capacity'})"
    wait_until(
        lambda: bench.query(kv).get("prefill", 0.0) > 0.8 and bench.query(capacity).get("decode", 0.0) > 0,
        40,
        "the signature of a decode that lags",
    )
    status = bench.wait_for(lambda status: status["windows"]["5"]["ttft_attainment"] == 0.0, "TTFT missed because of decode")
    prefill = next(pod for pod in status["pods"] if pod["role"] == "prefill")
    assert prefill["held"] > 10


def test_a_flip_by_label_is_followed_within_a_second_and_loses_nothing(bench: Bench) -> None:
    bench.deploy("prefill", 1)
    bench.deploy("decode", 3)
    bench.start("--traffic", "chat:15s@20")
    bench.wait_for(lambda status: status["totals"]["completed"] > 60, "60 requests")
    flipped = bench.pods("decode")[0]
    bench.cluster.kubectl("label", "pod", flipped, "-n", bench.namespace, "llm-d.ai/role=prefill", "--overwrite")
    bench.wait_for(
        lambda status: any(pod["name"] == flipped and pod["role"] == "prefill" for pod in status["pods"]), "the flip", seconds=2.0
    )

    def is_over(status: dict[str, Any]) -> bool:
        totals = status["totals"]
        return bool(status["traffic"]["state"] == "ended" and totals["offered"] == totals["completed"])

    status = bench.wait_for(is_over, "all answers")
    assert status["totals"]["lost"] == status["totals"]["refused"] == 0
    assert status["causes"] == {}


def test_draining_first_loses_nothing_and_deleting_at_once_is_counted(bench: Bench) -> None:
    bench.deploy("prefill", 1)
    bench.deploy("decode", 3)
    bench.start("--traffic", "=300+1500:20s@6")
    bench.wait_for(lambda status: status["totals"]["offered"] > 30, "30 requests")
    drained, killed = bench.pods("decode")[:2]
    bench.cluster.kubectl("label", "pod", drained, "-n", bench.namespace, "llm-d.ai/role=draining", "--overwrite")
    bench.wait_for(
        lambda status: any(
            pod["name"] == drained and pod["state"] == "draining" and pod["running"] + pod["waiting"] + pod["promised"] == 0
            for pod in status["pods"]
        ),
        "the drained pod to be empty",
    )
    bench.cluster.kubectl("delete", "pod", drained, "-n", bench.namespace, "--wait=false")
    bench.wait_for(lambda status: all(pod["name"] != drained for pod in status["pods"]), "the drained pod to go")
    assert bench.status()["totals"]["lost"] == 0
    bench.cluster.kubectl("delete", "pod", killed, "-n", bench.namespace, "--wait=false")
    status = bench.wait_for(lambda status: status["totals"]["lost"] > 0, "requests lost with the pod")
    assert all("pod deleted" in cause for cause in status["causes"])


def test_an_engine_that_loads_does_not_answer_yet(bench: Bench) -> None:
    bench.deploy("decode", 1)
    bench.deploy("prefill", 1, annotations={"equipoise.dev/emulated-startup-seconds": "6"})
    bench.start("--traffic", "chat:5s@10")
    bench.wait_for(lambda status: len(status["pods"]) == 1, "the decode pod")
    assert bench.status()["traffic"]["state"] == "waiting"
    assert bench.query("max by (llm_d_ai_role) (up{NS})").get("prefill", 0.0) == 0.0
    bench.wait_for(lambda status: len(status["pods"]) == 2 and status["traffic"]["state"] == "running", "the prefill pod")


async def _stream(session: aiohttp.ClientSession, port: int, number: int) -> int:
    body = {"model": "chat", "prompt": f"{number} " * 800, "max_tokens": 30, "stream": True}
    async with session.post(f"http://127.0.0.1:{port}/v1/completions", json=body) as answer:
        assert answer.status == 200, await answer.text()
        lines = [line async for line in answer.content if line.startswith(b"data: ")]
    assert lines[-1].strip() == b"data: [DONE]"
    return len(lines) - 1


async def test_the_real_router_completes_streams_through_both_legs(bench: Bench) -> None:
    if not ROUTER.exists():
        pytest.skip("vllm-router is not installed; it is in the development dependencies")
    bench.deploy("prefill", 2)
    bench.deploy("decode", 2)
    bench.start()
    bench.wait_for(lambda status: len(status["pods"]) == 4, "four engines")
    port = bench.start_router()
    async with aiohttp.ClientSession() as session:
        tokens = await asyncio.gather(*(_stream(session, port, number) for number in range(40)))
    assert tokens == [30] * 40
    status = bench.wait_for(lambda status: status["windows"]["60"]["ttft_seconds"]["count"] == 40, "the second to be over")
    assert status["totals"]["completed"] == 40
    pages = {}
    for pod in status["pods"]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{pod['address']}:8000/metrics") as answer:
            pages[pod["name"]] = (pod["role"], await answer.text())
    transferred = [_value(text, 'source="external_kv_transfer"') for role, text in pages.values() if role == "decode"]
    computed = [_value(text, 'source="local_compute"') for role, text in pages.values() if role == "prefill"]
    assert sum(transferred) == sum(computed) > 40 * 300
    assert all(value > 0 for value in transferred + computed)  # every pod had its turn


def _value(page: str, label: str) -> float:
    lines = [line for line in page.splitlines() if line.startswith("vllm:prompt_tokens_by_source_total") and label in line]
    return float(lines[0].rsplit(" ", 1)[1])
