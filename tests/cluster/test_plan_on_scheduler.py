"""Plans of many random fleets on the real scheduler: every replica of every plan finds its node.

The nodes are emulated by KWOK; the API server and the scheduler with its default plugins are real, and so is the pod template,
which also asks for replicas to be spread. Pods are created as the operator creates replicas: in waves, of which
`widths_that_may_start` says what each may hold.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
import urllib.parse
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.api.service import InferenceService
from equipoise.decide.allocation.exact import allocate
from equipoise.decide.allocation.order import widths_that_may_start
from equipoise.decide.allocation.types import Allocation, AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand
from equipoise.decide.types import VariantOption
from equipoise.fleet.types import Device, Pool
from equipoise.perf.types import ReplicaCapacity
from equipoise.render import render

if TYPE_CHECKING:
    from local_cluster import LocalCluster

FLEETS = 200
LABEL = "test.equipoise.dev/pool"
DEVICE = Device("H100", 80 * 2**30, 3.35e12, {Precision.BF16: 989e12}, 4.5e11, 8, 0.5, 0.7, 0.7, "test")

Manifest = dict[str, Any]
Kind = tuple[ServiceKey, str, Shape]  # pods that may take one another's place by a flip


@dataclass
class RandomFleet:
    """Nodes by pool, services, and where their pods are: name of the pod to (variant, node)."""

    name: str
    source: random.Random
    nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    shapes: dict[tuple[str, Phase, str], Shape] = field(default_factory=dict)
    services: list[str] = field(default_factory=list)
    pods: dict[str, tuple[Variant, str]] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        for pool in ("east", "west")[: self.source.randint(1, 2)]:
            sizes = [self.source.choice((2, 4, 4, 8)) for _ in range(self.source.randint(1, 3))]
            self.nodes[pool] = {f"{self.name}-{pool}-{place}": gpus for place, gpus in enumerate(sizes)}
        self.services = [f"{self.name}-{letter}" for letter in "abcd"[: self.source.randint(1, 4)]]
        for service in self.services:
            for pool, sizes_of in self.nodes.items():
                widths = [width for width in (1, 1, 2, 4, 8) if width <= max(sizes_of.values())]
                same = self.source.random() < 0.5  # one shape for both phases: then replicas can flip
                first = Shape(self.source.choice(widths))
                self.shapes[service, Phase.PREFILL, pool] = first
                self.shapes[service, Phase.DECODE, pool] = first if same else Shape(self.source.choice(widths))

    def problem(self, namespace: str) -> AllocationProblem:
        """Demands drawn anew, more than there is in about every second fleet; what runs is where the scheduler put it."""
        own: dict[str, Counter[Variant]] = {}
        for variant, node in self.pods.values():
            own.setdefault(node, Counter())[variant] += variant.shape.gpus_per_replica
        pools = {
            pool: tuple(NodeSpace(node, gpus, dict(own.get(node, {}))) for node, gpus in nodes.items())
            for pool, nodes in self.nodes.items()
        }
        running = Counter(variant for variant, _ in self.pods.values())
        demands = []
        for place, service in enumerate(self.services):
            phases = {}
            for phase in Phase:
                options = []
                for pool in self.nodes:
                    shape = self.shapes[service, phase, pool]
                    variant = Variant(ServiceKey(namespace, service), phase, pool, shape)
                    capacity = ReplicaCapacity(phase, 100.0 * shape.gpus_per_replica**0.9, 64, 10_000, 0.1, "compute", "test")
                    options.append(
                        VariantOption(variant, capacity, shape.gpus_per_replica * (1.0 + 0.5 * (pool == "west")), 60.0)
                    )
                needed = self.source.choice((0.0, 90.0, 150.0, 280.0, 400.0, 700.0))
                current = {option.variant: running[option.variant] for option in options if running[option.variant]}
                phases[phase] = PhaseDemand(phase, needed, 1, None, tuple(options), current)
            demands.append(ServiceDemand(ServiceKey(namespace, service), 0, float(place), phases, change_price_usd=0.25))
        return AllocationProblem(pools, tuple(demands))

    def free(self) -> dict[str, list[int]]:
        """Free GPUs per node, by pool."""
        used: Counter[str] = Counter()
        for variant, node in self.pods.values():
            used[node] += variant.shape.gpus_per_replica
        return {pool: [gpus - used[node] for node, gpus in nodes.items()] for pool, nodes in self.nodes.items()}


def test_every_plan_of_random_fleets_is_scheduled(cluster: LocalCluster, namespace: str) -> None:
    """Twice: from nothing, and again after the demand has changed, around the pods that stay where the scheduler put them."""
    fleets = [RandomFleet(f"f{number:03d}", random.Random(number)) for number in range(FLEETS)]
    added = _add_nodes(cluster, fleets)
    try:
        planned = wide = 0
        for _ in range(2):
            plans = {fleet.name: allocate(fleet.problem(namespace)) for fleet in fleets}
            planned += sum(sum(plan.replicas.values()) for plan in plans.values())
            wide += sum(
                n for plan in plans.values() for variant, n in plan.replicas.items() if variant.shape.gpus_per_replica > 1
            )
            starting = _release(cluster, namespace, fleets, plans)
            waves = 0
            while any(starting.values()):
                _start_wave(cluster, namespace, fleets, starting)
                waves += 1
                assert waves <= 8, f"still waiting: {starting}"
            for fleet in fleets:
                running = Counter(variant for variant, _ in fleet.pods.values())
                for kind, count in _kinds(plans[fleet.name].replicas).items():
                    assert sum(n for variant, n in running.items() if _kind(variant) == kind) == count
        assert planned > 5 * FLEETS
        assert wide > FLEETS
    finally:
        _send(cluster, "DELETE", [(f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0", None)])
        _send(cluster, "DELETE", [(f"/api/v1/nodes?labelSelector={LABEL}", None)])
        cluster.remove_nodes(added)


def _add_nodes(cluster: LocalCluster, fleets: list[RandomFleet]) -> list[str]:
    from local_cluster.nodes import gpu_node

    manifests = [
        gpu_node(node, "NVIDIA-H100-80GB-HBM3", 81559, gpus, labels={LABEL: f"{fleet.name}-{pool}"})
        for fleet in fleets
        for pool, nodes in fleet.nodes.items()
        for node, gpus in nodes.items()
    ]
    return cluster._add(manifests)


def _release(
    cluster: LocalCluster, namespace: str, fleets: list[RandomFleet], plans: Mapping[str, Allocation]
) -> dict[str, Counter[Variant]]:
    """Delete pods that the plan does not keep on their node; what has to start is returned."""
    starting: dict[str, Counter[Variant]] = {}
    gone: list[str] = []
    for fleet in fleets:
        plan = plans[fleet.name]
        keep: Counter[tuple[Kind, str]] = Counter((_kind(v), node) for v, places in plan.placements.items() for node in places)
        kept: Counter[Kind] = Counter()
        for pod, (variant, node) in sorted(fleet.pods.items()):
            kind = _kind(variant)
            if keep[kind, node] > 0:
                keep[kind, node] -= 1
                kept[kind] += 1
            else:
                gone.append(pod)
                del fleet.pods[pod]
        wanted: Counter[Variant] = Counter()
        for variant, count in sorted(plan.replicas.items()):
            stays = min(count, kept[_kind(variant)])
            kept[_kind(variant)] -= stays
            if count > stays:
                wanted[variant] = count - stays
        starting[fleet.name] = wanted
    if gone:
        _send(cluster, "DELETE", [(f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0", None) for name in gone])
    return starting


def _start_wave(cluster: LocalCluster, namespace: str, fleets: list[RandomFleet], starting: dict[str, Counter[Variant]]) -> None:
    from local_cluster import wait_until

    made: dict[str, tuple[RandomFleet, Variant]] = {}
    manifests = []
    for fleet in fleets:
        left, free = starting[fleet.name], fleet.free()
        for pool, gpus in free.items():
            new: Counter[int] = Counter()
            for variant, count in left.items():
                if variant.pool == pool:
                    new[variant.shape.gpus_per_replica] += count
            widths = widths_that_may_start(gpus, {}, {width: count for width, count in new.items() if count})
            # The narrow ones are listed first: the order inside a wave must not matter.
            for variant in sorted(left, key=lambda variant: (variant.shape.gpus_per_replica, variant)):
                if variant.pool == pool and variant.shape.gpus_per_replica in widths:
                    for _ in range(left.pop(variant)):
                        fleet.made += 1
                        name = f"{fleet.name}-{fleet.made}"
                        made[name] = (fleet, variant)
                        manifests.append(_pod(name, namespace, variant, f"{fleet.name}-{pool}"))
    _send(cluster, "POST", [(f"/api/v1/namespaces/{namespace}/pods", manifest) for manifest in manifests])

    def without_node() -> list[str]:
        return cluster.kubectl("get", "pods", "-n", namespace, "--field-selector=spec.nodeName=", "-o", "name").split()

    try:
        wait_until(lambda: not without_node(), timeout_seconds=90, description="all pods of a wave to have a node")
    except Exception as error:
        pending = [f"{name} ({made[name.removeprefix('pod/')][1]})" for name in without_node()]
        raise AssertionError(f"{len(pending)} of {len(made)} pods have no node: {pending[:10]}") from error
    columns = "custom-columns=N:.metadata.name,W:.spec.nodeName"
    lines = cluster.kubectl("get", "pods", "-n", namespace, "--no-headers", "-o", columns).splitlines()
    found = {pod: node.strip() for pod, _, node in (line.partition(" ") for line in lines)}
    for name, (fleet, variant) in made.items():
        fleet.pods[name] = (variant, found[name])


def _send(cluster: LocalCluster, method: str, requests: Sequence[tuple[str, Manifest | None]]) -> None:
    """Many requests over a few connections, in the order given as far as that goes: kubectl takes minutes for as many."""
    address = urllib.parse.urlsplit(cluster.server_url)
    trust = ssl.create_default_context(cafile=str(cluster.ca_file))
    headers = {"Authorization": f"Bearer {cluster.admin_token}", "Content-Type": "application/json"}

    def share(part: Sequence[tuple[str, Manifest | None]]) -> None:
        with closing(http.client.HTTPSConnection(str(address.hostname), address.port, context=trust, timeout=60)) as connection:
            for path, body in part:
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                with connection.getresponse() as answer:
                    text = answer.read()
                    assert answer.status < 300, text

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(share, [requests[start::4] for start in range(min(4, len(requests)))]))


def _pod(name: str, namespace: str, variant: Variant, label: str) -> Manifest:
    text = _template(namespace, variant.phase, variant.pool, variant.shape)
    template = json.loads(text.replace("the-service", variant.service.name).replace("the-pool", label))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": template["metadata"]["labels"]},
        "spec": template["spec"],
    }


@cache
def _template(namespace: str, phase: Phase, pool: str, shape: Shape) -> str:
    """The pod template that the operator renders for a variant, with names to put in."""
    key = ServiceKey(namespace, "the-service")
    resource = InferenceService.parse(
        {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": {"model": {"uri": "hf://org/model"}, "targets": {"ttft": "500ms", "tpot": "50ms"}},
        }
    )
    variant = Variant(key, phase, pool, shape)
    children = render(resource, "uid", {variant: 1}, {pool: Pool(pool, DEVICE, (), 2.0, node_selector={LABEL: "the-pool"})})
    deployments = (child["spec"]["template"] for child in children if child["kind"] == "Deployment")
    template = next(entry for entry in deployments if entry["spec"].get("nodeSelector"))
    spec = dict(template["spec"])
    spec.pop("serviceAccountName", None)  # that of the sidecar, which is not made here
    return json.dumps({"metadata": template["metadata"], "spec": spec})


def _kind(variant: Variant) -> Kind:
    return variant.service, variant.pool, variant.shape


def _kinds(replicas: Mapping[Variant, int]) -> Counter[Kind]:
    found: Counter[Kind] = Counter()
    for variant, count in replicas.items():
        found[_kind(variant)] += count
    return found
