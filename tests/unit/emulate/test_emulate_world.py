"""Pods into engines, and requests through them: everything but sockets and the clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape
from equipoise.emulate.driver import Driver
from equipoise.emulate.engine_spec import EngineSpec, Problem, engine_spec
from equipoise.emulate.ledger import Ledger
from equipoise.emulate.options import parse_options
from equipoise.emulate.pods import SeenPod, seen_pod
from equipoise.emulate.world import Service, World
from equipoise.perf.types import Targets
from equipoise.simulate.traffic.parse import parse_traffic

H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
KEY = ServiceKey("prod", "chat")


def pod(name: str, role: str = "prefill", address: str = "127.64.0.1", *arguments: str, **more: Any) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/managed-by": "equipoise",
        "app.kubernetes.io/component": role,
        "equipoise.dev/service": "chat",
        "equipoise.dev/variant": f"chat-{role}",
        "llm-d.ai/role": role,
    } | more.get("labels", {})
    kv_role = "kv_producer" if role == "prefill" else "kv_consumer"
    args = [
        "serve",
        "meta-llama/Llama-3.1-8B-Instruct",
        "--served-model-name=chat",
        f'--kv-transfer-config={{"kv_role":"{kv_role}"}}',
    ]
    metadata: dict[str, Any] = {"uid": f"uid-{name}", "name": name, "namespace": "prod", "labels": labels}
    if more.get("terminating"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n1", "containers": [{"name": "engine", "command": ["vllm"], "args": [*args, *arguments]}]},
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True" if more.get("ready", True) else "False"}],
            "containerStatuses": [{"restartCount": more.get("restarts", 0)}],
        },
    }


def seen(*arguments: str, role: str = "prefill", **more: Any) -> SeenPod:
    found = seen_pod(pod("p", role, "127.64.0.1", *arguments, **more))
    assert found is not None
    return found


def spec_of(*arguments: str, node: Mapping[str, str] = H100, **more: Any) -> EngineSpec:
    spec = engine_spec(seen(*arguments, **more), node)
    assert isinstance(spec, EngineSpec), spec
    return spec


def test_command_line_and_node_make_the_engine() -> None:
    spec = spec_of("--max-num-seqs=100", "--max-num-queued-tokens", "32k", "--max-num-batched-tokens=4K", "--block-size=32")
    assert (spec.model_name, spec.device, spec.shape, spec.fetches_kv) == ("chat", "H100", Shape(), False)
    limits = spec.replica.limits
    assert (limits.max_num_seqs, limits.max_num_queued_tokens, limits.max_num_batched_tokens, limits.block_size) == (
        100,
        32_000,
        4096,
        32,
    )
    assert spec.replica.kv_bytes_per_token == 131_072
    assert 400_000 < spec.replica.kv_tokens < 480_000
    assert spec_of(role="decode").fetches_kv


def test_defaults_follow_the_device_as_in_vllm() -> None:
    large, a100 = spec_of().replica.limits, spec_of(node=A100).replica.limits
    assert (large.max_num_batched_tokens, large.max_num_seqs) == (8192, 1024)
    assert (a100.max_num_batched_tokens, a100.max_num_seqs) == (2048, 256)


def test_shape_comes_from_the_label_or_the_flags() -> None:
    assert spec_of("--tensor-parallel-size=2", "--quantization=fp8").shape == Shape(2, 1, Precision.FP8)
    assert spec_of(labels={"equipoise.dev/shape": "tp4-bf16"}).shape == Shape(4)
    assert spec_of("-tp", "2").shape == Shape(2)


def test_a_shell_command_line_is_understood() -> None:
    one = pod("p")
    one["spec"]["containers"][0] |= {"command": ["sh", "-c", "vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2"], "args": []}
    found = seen_pod(one)
    assert found is not None
    spec = engine_spec(found, H100)
    assert isinstance(spec, EngineSpec)
    assert (spec.model_name, spec.shape) == ("Qwen/Qwen3-32B", Shape(2))


@pytest.mark.parametrize(
    ("arguments", "node", "message"),
    [
        ((), {}, "has no label that names its GPU"),
        ((), {"nvidia.com/gpu.product": "Abacus-9000", "nvidia.com/gpu.memory": "1"}, "Abacus-9000"),
        (("--model=acme/unheard-of",), H100, "not in the catalogue"),
        (("--tensor-parallel-size=3",), H100, "not divisible"),
    ],
)
def test_what_cannot_be_emulated_is_said(arguments: tuple[str, ...], node: dict[str, str], message: str) -> None:
    problem = engine_spec(seen(*arguments), node)
    assert isinstance(problem, Problem)
    assert message in problem.message


def test_an_unknown_model_can_be_emulated_as_a_known_one() -> None:
    spec = engine_spec(seen("--model=acme/unheard-of"), H100, default_model="meta-llama/Llama-3.1-8B")
    assert isinstance(spec, EngineSpec)
    assert spec.model_name == "chat"


def test_routing_follows_label_readiness_and_deletion() -> None:
    assert seen().routed_role is Phase.PREFILL
    assert seen(ready=False).routed_role is None
    assert seen(terminating=True).routed_role is None
    assert seen(labels={"llm-d.ai/role": "draining"}).routed_role is None
    assert seen_pod({"metadata": {"uid": "u", "name": "n", "namespace": "x", "labels": {}}}) is None


class Stage:
    """A world with a clock of its own."""

    def __init__(self, *arguments: str) -> None:
        self.time = 0.0
        self.open: set[str] = set()
        options = parse_options(arguments)
        self.world = World(
            options, lambda: self.time, lambda: self.time, lambda address, _: self.open.add(address),
            lambda address, _: self.open.discard(address),
        )  # fmt: skip
        self.world.node_changed({"metadata": {"name": "n1", "labels": H100}}, False)

    def put(self, *pods: dict[str, Any]) -> None:
        for item in pods:
            self.world.pod_changed(item, False)

    def drive(self, traffic: str) -> Driver:
        return Driver(self.service, Ledger(Targets(0.5, 0.05)), parse_traffic(traffic), 1)

    @property
    def service(self) -> Service:
        return self.world.services[KEY]

    def pass_time(self, until: float, step: float = 0.25) -> None:
        while self.time < until:
            self.time += step
            self.world.advance(self.time)

    def roles(self) -> dict[str, str]:
        routing = self.service.cluster.in_routing
        names = {engine.replica: engine.pod.name for engine in self.service.engines.values()}
        return {names[replica]: phase.value for phase in Phase for replica in routing[phase]}


def test_engines_come_with_readiness_and_go_with_the_pod() -> None:
    stage = Stage()
    stage.put(pod("p0", ready=False), pod("d0", "decode", "127.64.0.2"))
    assert stage.open == {"127.64.0.2"}  # an engine that loads does not listen
    stage.put(pod("p0"))
    assert stage.roles() == {"p0": "prefill", "d0": "decode"}
    stage.put(pod("p0", ready=False))
    assert stage.roles() == {"d0": "decode"}
    assert "127.64.0.1" in stage.open  # it runs on
    stage.world.pod_changed(pod("p0"), True)
    assert stage.open == {"127.64.0.2"}
    assert [engine.pod.name for engine in stage.service.engines.values()] == ["d0"]


def test_a_flip_is_followed_at_once_and_loses_nothing() -> None:
    stage = Stage()
    stage.put(*(pod(f"d{i}", "decode", f"127.64.0.{i + 2}") for i in range(3)), pod("p0"))
    driver = stage.drive("=500+300:20s@20")
    stage.pass_time(8.0)
    stage.put(pod("d2", "prefill", "127.64.0.4"))
    assert stage.roles() == {"d0": "decode", "d1": "decode", "d2": "prefill", "p0": "prefill"}
    stage.pass_time(60.0)
    totals = driver.ledger.totals
    assert totals["completed"] == totals["offered"] > 350
    assert stage.service.engines["uid-d2/0"].replica.metrics is not None
    stage.service.engines["uid-d2/0"].replica.metrics.collect(stage.time)
    assert stage.service.engines["uid-d2/0"].replica.metrics.success["length"] > 0  # it answered prefill legs


def test_draining_pods_get_nothing_new_and_their_deletion_then_loses_nothing() -> None:
    stage = Stage()
    stage.put(pod("p0"), *(pod(f"d{i}", "decode", f"127.64.0.{i + 2}") for i in range(2)))
    driver = stage.drive("=200+100:20s@10")
    stage.pass_time(5.0)
    stage.put(pod("d1", "decode", "127.64.0.3", labels={"llm-d.ai/role": "draining"}))
    stage.pass_time(10.0)
    assert stage.service.engines["uid-d1/0"].replica.is_idle
    stage.world.pod_changed(pod("d1", "decode", "127.64.0.3"), True)
    stage.pass_time(40.0)
    assert driver.ledger.totals["completed"] == driver.ledger.totals["offered"]


def test_a_deleted_pod_takes_its_requests_with_it_and_the_cause_is_kept() -> None:
    stage = Stage()
    stage.put(pod("p0"), *(pod(f"d{i}", "decode", f"127.64.0.{i + 2}") for i in range(2)))
    driver = stage.drive("=200+2000:10s@5")
    stage.pass_time(8.0)
    stage.world.pod_changed(pod("d1", "decode", "127.64.0.3"), True)
    stage.pass_time(60.0)
    totals = driver.ledger.totals
    assert totals["lost"] > 5
    assert totals["lost"] + totals["completed"] == totals["offered"]
    assert all("pod deleted" in cause for cause in driver.ledger.causes)


def test_a_restarted_container_is_a_new_engine() -> None:
    stage = Stage()
    stage.put(pod("p0"), pod("d0", "decode", "127.64.0.2"))
    driver = stage.drive("=200+2000:5s@4")
    stage.pass_time(4.0)
    stage.put(pod("d0", "decode", "127.64.0.2", restarts=1))
    assert set(stage.service.engines) == {"uid-p0/0", "uid-d0/1"}
    stage.pass_time(60.0)
    assert driver.ledger.totals["lost"] > 0
    assert "container restarted" in next(iter(driver.ledger.causes))


def test_a_pod_on_a_node_not_yet_seen_waits_for_it() -> None:
    stage = Stage()
    waiting = pod("p0")
    waiting["spec"]["nodeName"] = "n2"
    stage.put(waiting)
    assert not stage.open
    stage.world.node_changed({"metadata": {"name": "n2", "labels": A100}}, False)
    assert stage.service.engines["uid-p0/0"].spec.device.startswith("A100")


def test_problems_are_listed_and_go_with_the_pod() -> None:
    stage = Stage()
    stage.put(pod("p0", "prefill", "127.64.0.1", "--model=acme/unheard-of"))
    assert "not in the catalogue" in next(iter(stage.world.problems.values()))
    stage.world.pod_changed(pod("p0"), True)
    assert not stage.world.problems


def test_router_pods_count_what_a_router_would() -> None:
    stage = Stage()
    router = pod("r0", "router", "127.64.0.9")
    del router["metadata"]["labels"]["llm-d.ai/role"]
    router["spec"]["containers"] = [{"name": "router", "args": ["--policy=power_of_two", "--prefill-policy=cache_aware"]}]
    stage.put(pod("p0"), pod("d0", "decode", "127.64.0.2"), router)
    driver = stage.drive("=500+50:10s@10")
    stage.pass_time(30.0)
    page = stage.world.routers_by_address["127.64.0.9"][1].stats.page(stage.service.cluster.in_routing)
    offered = driver.ledger.totals["offered"]
    assert f'vllm_router_pd_requests_total{{route="/v1/completions"}} {offered}\n' in page
    assert f'vllm_router_pd_prefill_requests_total{{worker="http://127.64.0.1:8000"}} {offered}\n' in page
    assert f'vllm_router_pd_decode_requests_total{{worker="http://127.64.0.2:8000"}} {offered}\n' in page
    assert 'vllm_router_pd_prefill_occupancy{rank="aggregate",worker="http://127.64.0.1:8000"} 0\n' in page
    # As measured: for a stream the router's duration is the prefill leg.
    replica = stage.service.engines["uid-p0/0"].replica
    assert replica.metrics is not None
    replica.metrics.collect(stage.time)
    total = float(page.split("vllm_router_pd_request_duration_seconds_sum")[1].split("} ")[1].split()[0])
    assert total == pytest.approx(replica.metrics.time_to_first_token.total)


def test_the_routers_own_arguments_choose_the_policy() -> None:
    stage = Stage("--router-policy", "token_aware")
    stage.put(pod("p0"), pod("d0", "decode", "127.64.0.2"))
    driver = stage.drive("chat:5s@20")
    stage.pass_time(20.0)
    assert driver.ledger.totals["completed"] == driver.ledger.totals["offered"] > 50


def test_status_of_traffic_is_plain_json() -> None:
    stage = Stage()
    stage.put(pod("p0"))
    driver = stage.drive("chat:5s@20,code:5s@10")
    stage.pass_time(2.0)
    assert driver.status(stage.time)["state"] == "waiting"
    stage.put(pod("d0", "decode", "127.64.0.2"))
    stage.pass_time(9.0)
    status = driver.status(stage.time)
    assert (status["state"], status["kind"], status["turns"]) == ("running", "code", [[0.0, "chat"], [5.0, "code"]])
    stage.pass_time(20.0)
    assert driver.status(stage.time)["state"] == "ended"
    json.dumps(driver.status(stage.time))
