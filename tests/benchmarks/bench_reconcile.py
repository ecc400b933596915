"""A hundred services created, updated and deleted at five per second, beside the floor: bare pairs of Deployments.

The floor is what Kubernetes alone takes for the same pods: the driver writes the very Deployments that Equipoise renders, without
an operator's label. The floor of small Deployments (one container, one argument) is shown beside it: the larger a template, the
longer the API server and the controllers take for each of its copies.

Prints a table and writes build/bench/reconcile.json; all are measured in the same run. Real: API server, controllers,
scheduler, Helm, the operator with the chart's rights. Emulated: kubelets (KWOK), whose pods are ready at once, so that what
is measured is the control plane and the operator.
Absolute times vary between machines: read the ratios.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "deploy" / "local")]

from tests.benchmarks.control_plane import PER_SECOND, SETTLE_SECONDS, Client, Ready, paced, percentiles, settled  # noqa: E402

from equipoise_stage import Stage  # noqa: E402
from local_cluster import ClusterOptions, LocalCluster, audited_requests  # noqa: E402

SERVICES = 100
NAMESPACE = "bench"
ARGUMENT = "--a=0"
LABEL = "app.kubernetes.io/managed-by"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
API = "/apis/equipoise.dev/v1alpha1/namespaces/" + NAMESPACE + "/inferenceservices"
DEPLOYMENTS = "/apis/apps/v1/namespaces/" + NAMESPACE + "/deployments"


def service(number: int, argument: str) -> dict[str, Any]:
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": f"service-{number:03d}", "namespace": NAMESPACE},
        "spec": {
            "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
            "targets": {"ttft": "1s", "tpot": "50ms"},
            "engine": {"args": [argument]},
            "router": {"type": "none"},
            "phases": {"prefill": {"min": 1}, "decode": {"min": 2}},
        },
    }


Pair = Callable[[int, str], list[dict[str, Any]]]
"""The two Deployments of one floor number, with one engine argument."""


def small_pair(number: int, argument: str) -> list[dict[str, Any]]:
    """The smallest floor: two Deployments with as many pods and next to nothing in their templates."""
    result = []
    for phase, replicas in (("prefill", 1), ("decode", 2)):
        name = f"bare-{number:03d}-{phase}"
        container = {
            "name": "engine", "image": "vllm/vllm-openai", "args": [argument],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }  # fmt: skip
        result.append({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {"containers": [container], "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]},
                },
            },
        })  # fmt: skip
    return result


async def rendered_pair(client: Client) -> Pair:
    """The floor: the Deployments that the operator makes of one service, copied under names of their own, owned by nobody."""
    await client.send("POST", API, service(0, ARGUMENT))
    made: list[dict[str, Any]] = []
    deadline = time.monotonic() + SETTLE_SECONDS
    while len(made) < 2 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
        made = (await client.send("GET", DEPLOYMENTS))["items"]
    await client.send("DELETE", f"{API}/service-000")

    def pair(number: int, argument: str) -> list[dict[str, Any]]:
        result = []
        for source in made:
            text = json.dumps({"spec": source["spec"]}).replace(ARGUMENT, argument).replace('"equipoise"', '"floor"')
            copied = json.loads(text)
            name = f"bare-{number:03d}-{source['metadata']['labels']['app.kubernetes.io/component']}"
            copied["spec"]["selector"] = {"matchLabels": {"app": name}}
            copied["spec"]["template"]["metadata"]["labels"]["app"] = name
            metadata = {"name": name, "namespace": NAMESPACE, "labels": {**source["metadata"]["labels"], LABEL: "floor"}}
            metadata["annotations"] = {
                k: v for k, v in source["metadata"]["annotations"].items() if k.startswith("equipoise.dev/")
            }
            result.append({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, **copied})
        return result

    return pair


async def run_floor(client: Client, pair_of: Pair) -> dict[str, Any]:
    ready = Ready()
    watch = asyncio.create_task(client.watch(DEPLOYMENTS, ready.deployment))
    await asyncio.sleep(0.5)
    result = {}
    for step, generation, argument in (("create", 1, "--a=1"), ("update", 2, "--b=1")):

        async def submit(number: int, generation: int = generation, argument: str = argument) -> None:
            for obj in pair_of(number, argument):
                if generation == 1:
                    await client.send("POST", DEPLOYMENTS, obj)
                else:
                    path = f"{DEPLOYMENTS}/{obj['metadata']['name']}"
                    patch = {"spec": {"template": obj["spec"]["template"]}}
                    await client.send("PATCH", path, patch, "application/merge-patch+json")

        begun = await paced(SERVICES, submit)
        names = [[obj["metadata"]["name"] for obj in pair_of(number, argument)] for number in range(SERVICES)]

        def done(generation: int = generation, names: list[list[str]] = names) -> list[int]:
            return [i for i, pair in enumerate(names) if all((name, generation) in ready.at for name in pair)]

        await settled(SERVICES, lambda: len(done()))
        result[step] = percentiles([max(ready.at[name, generation] for name in names[i]) - begun[i] for i in done()])
    await client.send("DELETE", DEPLOYMENTS, {"propagationPolicy": "Background"})
    watch.cancel()
    return result


async def run_equipoise(client: Client) -> dict[str, Any]:
    ready, gone = Ready(), {}

    def seen(event: dict[str, Any]) -> None:
        if event["type"] == "DELETED":
            gone[event["object"]["metadata"]["name"]] = time.monotonic()
        else:
            ready.service(event)

    watch = asyncio.create_task(client.watch(API, seen))
    await asyncio.sleep(0.5)
    result = {}
    for step, generation, argument in (("create", 1, "--a=1"), ("update", 2, "--b=1")):

        async def submit(number: int, generation: int = generation, argument: str = argument) -> None:
            obj = service(number, argument)
            if generation == 1:
                await client.send("POST", API, obj)
            else:
                patch = {"spec": {"engine": {"args": [argument]}}}
                await client.send("PATCH", f"{API}/{obj['metadata']['name']}", patch, "application/merge-patch+json")

        begun = await paced(SERVICES, submit)
        names = [f"service-{number:03d}" for number in range(SERVICES)]
        await settled(SERVICES, lambda: sum((name, generation) in ready.at for name in names))  # noqa: B023
        result[step] = percentiles(
            [ready.at[name, generation] - begun[i] for i, name in enumerate(names) if (name, generation) in ready.at]
        )

    async def remove(number: int) -> None:
        await client.send("DELETE", f"{API}/service-{number:03d}")

    begun = await paced(SERVICES, remove)
    await settled(SERVICES, lambda: len(gone))
    children = client.send
    deadline = time.monotonic() + SETTLE_SECONDS
    while (await children("GET", DEPLOYMENTS))["items"] and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    result["delete"] = {"all_children_gone_seconds": round(time.monotonic() - begun[-1], 2)}
    watch.cancel()
    return result


def writes_between(log: Path, user: str, since: int) -> tuple[Counter[str], int, int]:
    """Writes of a user since a position in the audit log, by resource; conflicts among them; the new position."""
    found = list(audited_requests(log))
    mine = [item for item in found[since:] if item.user == user and item.verb in WRITES and item.resource != "leases"]
    return Counter(item.resource for item in mine), sum(item.code == 409 for item in mine), len(found)


def memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


async def measure(cluster: LocalCluster, stage: Stage) -> dict[str, Any]:
    assert cluster.audit_log is not None
    client = Client(cluster)
    try:
        small = await run_floor(client, small_pair)
        await settled_pods(client)
        pair_of = await rendered_pair(client)
        await settled_pods(client)
        floor = await run_floor(client, pair_of)
        await settled_pods(client)
        user = f"system:serviceaccount:{stage.namespace}:{stage.release}"
        _, _, start = writes_between(cluster.audit_log, user, 0)
        ours = await run_equipoise(client)
        writes, conflicts, _ = writes_between(cluster.audit_log, user, start)
    finally:
        await client.close()
    assert stage.operator is not None
    return {
        "services": SERVICES,
        "per_second": PER_SECOND,
        "floor": floor,
        "floor_of_small_deployments": small,
        "equipoise": ours,
        "writes_by_resource": dict(sorted(writes.items())),
        "conflicts": conflicts,
        "operator_peak_memory_mib": round(memory_mib(stage.operator.pid), 1),
        "ratio_to_floor": {
            step: {q: round(ours[step][q] / floor[step][q], 2) for q in ("p50_seconds", "p99_seconds")}
            for step in ("create", "update")
        },
        "ratio_to_floor_of_small_deployments": {
            step: round(ours[step]["p50_seconds"] / small[step]["p50_seconds"], 2) for step in ("create", "update")
        },
    }


async def settled_pods(client: Client) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS
    while (await client.send("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"] and time.monotonic() < deadline:
        await asyncio.sleep(0.2)


def report(result: dict[str, Any]) -> str:
    lines = [f"{SERVICES} services at {PER_SECOND:g}/s, 1 prefill + 2 decode replicas each; seconds from submit to Ready"]
    lines.append(f"{'':10}{'floor P50':>11}{'P99':>8}{'equipoise P50':>16}{'P99':>8}{'ratio P50':>12}{'P99':>8}")
    for step in ("create", "update"):
        low, ours, ratio = result["floor"][step], result["equipoise"][step], result["ratio_to_floor"][step]
        lines.append(
            f"{step:10}{low['p50_seconds']:11.3f}{low['p99_seconds']:8.3f}{ours['p50_seconds']:16.3f}{ours['p99_seconds']:8.3f}"
            f"{ratio['p50_seconds']:12.2f}{ratio['p99_seconds']:8.2f}   ({ours['count']} of {SERVICES} ready)"
        )
    for step in ("create", "update"):
        low, ratio = result["floor_of_small_deployments"][step], result["ratio_to_floor_of_small_deployments"][step]
        lines.append(f"  {step}: floor of small Deployments P50 {low['p50_seconds']:.3f}, ratio {ratio:.2f}")
    total = sum(result["writes_by_resource"].values())
    lines.append(f"writes per service over create, update and delete: {total / SERVICES:.2f}; conflicts: {result['conflicts']}")
    lines.append(f"  by resource: {result['writes_by_resource']}")
    lines.append(f"operator's peak memory: {result['operator_peak_memory_mib']:.0f} MiB")
    return "\n".join(lines)


def main() -> None:
    options = ClusterOptions(name="bench", pod_cidr="10.244.0.0/16", audit=True, with_prometheus=True)
    with LocalCluster.start(options, report=print) as cluster:
        cluster.add_cpu_nodes(1)
        cluster.add_gpu_nodes("NVIDIA-H100-80GB-HBM3", 81559, 8, 40, prefix="h100")
        cluster.kubectl("create", "namespace", NAMESPACE)
        stage = Stage(cluster)
        stage.install_chart()
        stage.start_operator({"capacity": {"intervalSeconds": 15}})
        try:
            result = asyncio.run(measure(cluster, stage))
        finally:
            stage.stop()
    print(report(result))
    path = ROOT / "build" / "bench" / "reconcile.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
