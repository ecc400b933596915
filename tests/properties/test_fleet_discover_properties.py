from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.catalogue.identify import recognise
from equipoise.fleet.discover import discover
from equipoise.fleet.naming import MAX_POOL_NAME_LENGTH, pool_name

GPU = "nvidia.com/gpu"
PRODUCTS = (
    ("NVIDIA-H100-80GB-HBM3", "81559"), ("NVIDIA-A100-SXM4-40GB", "40960"), ("NVIDIA-A100-SXM4-80GB", "81920"),
    ("NVIDIA-L40S", "46068"), ("NVIDIA-L4", "23034"), ("Tesla-T4", "15360"), ("NVIDIA-GB10", "122572"),
    ("NVIDIA-GB10", ""), ("", ""),
    ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "9728"), ("NVIDIA-L4-SHARED", "23034"),
)  # fmt: skip
VARIANTS = tuple(Variant(ServiceKey("n", "s"), phase, "p", Shape()) for phase in Phase)

labels = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="-_."), min_size=1, max_size=63)
memories = st.one_of(st.none(), st.integers(1, 300_000))


@given(st.lists(st.tuples(labels, memories), max_size=30))
@settings(max_examples=200, deadline=None)
def test_pools_of_distinct_devices_never_share_a_name(pairs: list[tuple[str, int | None]]) -> None:
    found = {recognise(product, memory).device for product, memory in pairs} | set(DEVICES.values())
    names = [pool_name(device) for device in found]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= MAX_POOL_NAME_LENGTH
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)


@given(labels, memories)
def test_any_label_is_a_device_or_a_device_with_a_problem(product: str, memory: int | None) -> None:
    found = recognise(product, memory)
    assert found.device.memory_bytes > 0
    assert found.known or found.problem
    assert recognise(product.lower(), memory).device == recognise(product.upper(), memory).device


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    nodes, pods = [], []
    for index in range(draw(st.integers(0, 8))):
        product, memory = draw(st.sampled_from(PRODUCTS))
        marks = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory, "zone": draw(st.sampled_from("xyz"))}
        gpus = draw(st.integers(0, 8))
        taints = [{"key": draw(st.sampled_from((GPU, "team"))), "effect": "NoSchedule"}] if draw(st.booleans()) else []
        nodes.append(
            {
                "metadata": {"name": f"n{index}", "labels": {key: value for key, value in marks.items() if value}},
                "spec": {"unschedulable": draw(st.booleans()), "taints": taints},
                "status": {
                    "allocatable": {GPU: str(gpus)},
                    "conditions": [{"type": "Ready", "status": draw(st.sampled_from(("True", "True", "False", "Unknown")))}],
                },
            }
        )
        room = gpus
        while room and draw(st.booleans()):
            taken = draw(st.integers(1, room))
            room -= taken
            pods.append(
                {
                    "metadata": {"variant": draw(st.sampled_from((None, 0, 1)))},
                    "spec": {"nodeName": f"n{index}", "containers": [{"resources": {"limits": {GPU: taken}}}]},
                    "status": {"phase": draw(st.sampled_from(("Running", "Pending", "Succeeded")))},
                }
            )
    selectors = st.sampled_from(({"zone": "x"}, {"zone": "y"}, {"nvidia.com/gpu.product": "NVIDIA-L4"}, {"zone": "none"}))
    pools = [
        {"metadata": {"name": name}, "spec": {"nodeSelector": draw(selectors), "paused": draw(st.booleans())}}
        for name in draw(st.sets(st.sampled_from(("alpha", "beta", "h100-80gb", "l4-24gb")), max_size=3))
    ]
    return nodes, pods, pools


def own(pod: Any) -> Variant | None:
    index = pod["metadata"]["variant"]
    return None if index is None else VARIANTS[index]


@given(clusters(), st.randoms())
@settings(max_examples=200, deadline=None)
def test_a_fleet_counts_every_gpu_once_and_nothing_that_is_not_free(
    world: tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]], chance: Any
) -> None:
    nodes, pods, pools = world
    found = discover(nodes, pods, pools, own=own)
    names = [pool.name for pool in found.pools]
    assert names == sorted(set(names))
    seen = [node.name for pool in found.pools for node in pool.nodes]
    assert len(seen) == len(set(seen))
    by_name = {node["metadata"]["name"]: node for node in nodes}
    for pool in found.pools:
        assert pool.nodes
        for node in pool.nodes:
            raw = by_name[node.name]
            held = sum(
                pod["spec"]["containers"][0]["resources"]["limits"][GPU]
                for pod in pods
                if pod["spec"]["nodeName"] == node.name and pod["status"]["phase"] != "Succeeded"
            )
            assert node.foreign_gpus + sum(node.own_gpus.values()) == held
            assert 0 <= node.free_gpus <= int(raw["status"]["allocatable"][GPU]) - held
            assert node.usable == (not node.unusable_reason)
            if raw["spec"]["unschedulable"] or raw["status"]["conditions"][0]["status"] != "True":
                assert node.free_gpus == 0
            assert all(raw["metadata"]["labels"].get(key) == value for key, value in pool.node_selector.items())
    missing = {name for name, raw in by_name.items() if int(raw["status"]["allocatable"][GPU])} - set(seen)
    assert found.problems or not missing
    chance.shuffle(nodes)
    chance.shuffle(pods)
    chance.shuffle(pools)
    again = discover(nodes, pods, pools, own=own)
    assert {pool.name: pool for pool in again.pools} == {pool.name: pool for pool in found.pools}
    assert sorted(again.problems) == sorted(found.problems)
