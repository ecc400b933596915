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
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "deploy" / "local")]

from tests.benchmarks.control_plane import PER_SECOND, SETTLE_SECONDS, Client, Ready, paced, percentiles, settled  # noqa: E402
from tests.benchmarks.reconcile_floor import (  # noqa: E402
    API,
    DEPLOYMENTS,
    NAMESPACE,
    SERVICES,
    rendered_pair,
    run_floor,
    service,
    small_pair,
)

from equipoise_stage import Stage  # noqa: E402
from local_cluster import ClusterOptions, LocalCluster, audited_requests  # noqa: E402

LATE_SECONDS = 3.0  # what follows Ready (budgets, addresses) belongs to the step
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


async def run_equipoise(client: Client, done: Callable[[str], None]) -> dict[str, Any]:
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
        await asyncio.sleep(LATE_SECONDS)
        done(step)

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
    done("delete")
    return result


def writes_between(log: Path, user: str, since: int) -> tuple[Counter[str], int, int]:
    """Writes of a user since a position in the audit log, by resource; conflicts among them; the new position."""
    found = list(audited_requests(log))
    mine = [item for item in found[since:] if item.user == user and item.verb in WRITES and item.resource != "leases"]
    return Counter(item.resource for item in mine), sum(item.code == 409 for item in mine), len(found)


def processor_seconds(pid: int) -> float:
    """Of a process so far, user and system (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


async def measure(cluster: LocalCluster, stage: Stage) -> dict[str, Any]:
    assert cluster.audit_log is not None
    assert stage.operator is not None
    client, operator = Client(cluster), stage.operator
    try:
        small = await run_floor(client, small_pair)
        await settled_pods(client)
        pair_of = await rendered_pair(client)
        await settled_pods(client)
        floor = await run_floor(client, pair_of)
        await settled_pods(client)
        user = f"system:serviceaccount:{stage.namespace}:{stage.release}"
        _, _, start = writes_between(cluster.audit_log, user, 0)
        at, spent, used = start, processor_seconds(operator.pid), {}
        writes: Counter[str] = Counter()
        by_step: dict[str, dict[str, float]] = {}
        conflicts = 0

        def done(step: str) -> None:
            nonlocal at, spent, conflicts
            assert cluster.audit_log is not None
            found, refused, at = writes_between(cluster.audit_log, user, at)
            writes.update(found)
            conflicts += refused
            by_step[step] = {name: round(count / SERVICES, 2) for name, count in sorted(found.items())}
            now = processor_seconds(operator.pid)
            used[step], spent = round(1000.0 * (now - spent) / SERVICES, 1), now

        ours = await run_equipoise(client, done)
    finally:
        await client.close()
    return {
        "services": SERVICES,
        "per_second": PER_SECOND,
        "floor": floor,
        "floor_of_small_deployments": small,
        "equipoise": ours,
        "writes_by_resource": dict(sorted(writes.items())),
        "writes_per_service": {step: round(sum(found.values()), 2) for step, found in by_step.items()},
        "writes_per_service_by_resource": by_step,
        "operator_processor_ms_per_service": used,
        "processors": os.cpu_count(),
        "conflicts": conflicts,
        "operator_peak_memory_mib": round(memory_mib(operator.pid), 1),
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
    for step, found in result["writes_per_service_by_resource"].items():
        used = result["operator_processor_ms_per_service"][step]
        parts = ", ".join(f"{name} {count:g}" for name, count in found.items())
        lines.append(f"  {step}: {sum(found.values()):.2f} ({parts}); operator's processor time {used:.0f} ms")
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
