from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from equipoise.api.identity import Phase, Precision, ServiceKey, Shape, Variant
from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.discover import discover
from equipoise.fleet.types import Fleet, Pool

GPU = "nvidia.com/gpu"
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
L40S = {"nvidia.com/gpu.product": "NVIDIA-L40S", "nvidia.com/gpu.memory": "46068"}
L4 = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034"}
A100_40 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960"}
A100_80 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
CHAT = Variant(ServiceKey("prod", "chat"), Phase.PREFILL, "h100-80gb", Shape())


def node(
    name: str, labels: Mapping[str, str], gpus: int = 8, *, resource: str = GPU, ready: str = "True", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", resource: str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(where: str, gpus: int = 1, *, mine: bool = False, phase: str = "Running", resource: str = GPU) -> dict[str, Any]:
    containers = [{"name": "engine", "resources": {"limits": {resource: str(gpus)}}}]
    return {"metadata": {"mine": mine}, "spec": {"nodeName": where, "containers": containers}, "status": {"phase": phase}}


def definition(name: str, selector: Mapping[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeSelector": dict(selector), **spec}}


def fleet(*, nodes: list[Any], pods: list[Any] | None = None, pools: list[Any] | None = None) -> Fleet:
    return discover(nodes, pods or [], pools or [], own=lambda one: CHAT if one["metadata"].get("mine") else None)


def only(found: Fleet, name: str) -> Pool:
    pool = found.pool(name)
    assert pool is not None, (name, [one.name for one in found.pools], found.problems)
    return pool


def test_nodes_of_one_device_are_one_pool() -> None:
    found = fleet(nodes=[node("b", H100), node("a", H100), node("c", L40S, 4)])
    assert [pool.name for pool in found.pools] == ["h100-80gb", "l40s-48gb"]
    pool = only(found, "h100-80gb")
    assert pool.device is DEVICES["H100"]
    assert [one.name for one in pool.nodes] == ["a", "b"]
    assert (pool.usable_gpus, pool.free_gpus) == (16, 16)
    assert pool.resource_name == GPU
    assert pool.node_selector == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert pool.tolerations == ({"key": GPU, "operator": "Exists"},)
    assert pool.price_usd_per_gpu_hour == 4.50
    assert pool.price_source == "built-in list: gpu_catalog of llm-d-planner 0.3.3"
    assert found.problems == ()


def test_forty_and_eighty_gigabytes_never_mix() -> None:
    found = fleet(
        nodes=[node("a", A100_40), node("b", A100_80), node("c", {**A100_40, "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB"})]
    )
    assert {pool.name: pool.device.name for pool in found.pools} == {
        "a100-40gb": "A100-40GB", "a100-80gb": "A100-80GB", "a100-pcie-40gb": "A100-PCIe-40GB",
    }  # fmt: skip


def test_one_label_for_two_sizes_needs_the_memory_in_the_selector() -> None:
    same = "NVIDIA-A100-SXM4"
    found = fleet(nodes=[
        node("a", {"nvidia.com/gpu.product": same, "nvidia.com/gpu.memory": "40960"}),
        node("b", {"nvidia.com/gpu.product": same, "nvidia.com/gpu.memory": "81920"}),
    ])  # fmt: skip
    assert only(found, "a100-40gb").node_selector == {"nvidia.com/gpu.product": same, "nvidia.com/gpu.memory": "40960"}
    assert only(found, "a100-80gb").node_selector == {"nvidia.com/gpu.product": same, "nvidia.com/gpu.memory": "81920"}


def test_free_is_what_nobody_holds_whoever_it_is() -> None:
    pods = [
        pod("a", 2, mine=True),
        pod("a", 1, mine=True) | {"metadata": {"mine": True, "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        pod("a", 3),
        pod("a", 8, phase="Succeeded"),
        pod("", 4),
        pod("elsewhere", 4),
    ]
    only_node = only(fleet(nodes=[node("a", H100)], pods=pods), "h100-80gb").nodes[0]
    assert (only_node.allocatable_gpus, only_node.foreign_gpus, dict(only_node.own_gpus), only_node.free_gpus) == (
        8,
        3,
        {CHAT: 3},
        2,
    )


def test_nodes_that_take_no_pods_are_kept_with_the_reason() -> None:
    found = fleet(
        nodes=[
            node("cordoned", H100, unschedulable=True),
            node("down", H100, ready="Unknown"),
            node("others", H100, taints=[{"key": "team", "effect": "NoSchedule"}]),
            node("tainted", H100, taints=[{"key": GPU, "value": "present", "effect": "NoSchedule"}]),
        ]
    )
    pool = only(found, "h100-80gb")
    assert {one.name: one.unusable_reason for one in pool.nodes} == {
        "cordoned": "cordoned",
        "down": "not Ready",
        "others": "tainted team:NoSchedule, which engines do not tolerate; add a toleration to its GPUPool",
        "tainted": "",
    }
    assert (pool.usable_gpus, pool.free_gpus) == (8, 8)


def test_parts_of_gpus_make_no_pool_and_the_reason_names_the_nodes() -> None:
    mig = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "nvidia.com/gpu.memory": "9728"}
    shared = {**L4, "nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
    found = fleet(nodes=[node("m", mig), *(node(f"s{index}", shared) for index in range(5))])
    assert found.pools == ()
    assert len(found.problems) == 2
    assert found.problems[0].startswith("node m: no pool, for its GPUs are MIG slices")
    assert found.problems[1].startswith("nodes s0, s1, s2 and 2 more: no pool, for its GPUs are shared")


def test_a_device_nobody_knows_is_a_pool_with_a_problem() -> None:
    found = fleet(nodes=[node("a", {"nvidia.com/gpu.product": "NVIDIA-GB10", "nvidia.com/gpu.memory": "122572"}, 1)])
    assert len(found.pools) == 1
    assert found.pools[0].device.memory_bytes == pytest.approx(128e9, rel=0.02)
    assert "node a: product 'NVIDIA-GB10' (129 GB) is not in the device catalogue" in found.problems[0]


def test_gpus_without_labels_are_named_not_guessed() -> None:
    found = fleet(nodes=[node("a", {"kubernetes.io/arch": "amd64"})])
    assert found.pools == ()
    assert "node a: GPUs, but no label names the product; run GPU Feature Discovery" in found.problems[0]


def test_nodes_without_gpus_and_broken_objects_are_passed_over() -> None:
    assert fleet(nodes=[node("a", {}, 0), {"metadata": {"name": "b"}}, {}, node("c", H100, 0)]) == Fleet(())


def test_other_vendors() -> None:
    amd = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"}
    found = fleet(
        nodes=[
            node("a", amd, resource="amd.com/gpu"),
            node("b", {"gpu.intel.com/product": "Arc_Pro_B60"}, 4, resource="gpu.intel.com/xe"),
        ],
        pods=[pod("a", 2, resource="amd.com/gpu"), pod("a", 2)],
    )
    pool = only(found, "mi300x-192gb")
    assert (pool.resource_name, pool.free_gpus) == ("amd.com/gpu", 6)
    assert pool.tolerations == ({"key": "amd.com/gpu", "operator": "Exists"},)
    assert only(found, "arc-b60-24gb").free_gpus == 4


def test_a_gpu_pool_sets_price_network_and_tolerations() -> None:
    found = fleet(
        nodes=[node("a", L40S, taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}]), node("b", H100)],
        pools=[definition(
            "cheap", {"nvidia.com/gpu.product": "NVIDIA-L40S"}, pricePerGPUHour="0.72", networkBandwidth="3125M",
            networkDomain="rack-1",
            tolerations=[{"key": "team", "operator": "Equal", "value": "ml"}],
        )],
    )  # fmt: skip
    assert [pool.name for pool in found.pools] == ["cheap", "h100-80gb"]
    pool = only(found, "cheap")
    assert (pool.price_usd_per_gpu_hour, pool.price_source) == (0.72, "GPUPool cheap")
    assert (pool.network_bytes_per_second, pool.network_domain) == (3.125e9, "rack-1")
    assert pool.free_gpus == 8
    assert pool.tolerations[1] == {"key": "team", "operator": "Equal", "value": "ml"}
    assert found.problems == ()


def test_a_gpu_pool_without_price_uses_the_built_in_list_and_says_so() -> None:
    pool = only(fleet(nodes=[node("a", L40S)], pools=[definition("mine", L40S)]), "mine")
    assert (pool.price_usd_per_gpu_hour, pool.price_source) == (1.80, "built-in list: vllm-sr-sim 0.1.0")


def test_overlapping_gpu_pools_go_to_the_first_by_name() -> None:
    found = fleet(
        nodes=[node("a", {**H100, "zone": "x"}), node("b", {**H100, "zone": "y"})],
        pools=[definition("zeta", {"zone": "x"}), definition("alpha", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})],
    )
    assert [pool.name for pool in found.pools] == ["alpha"]
    assert found.problems == (
        "GPUPools alpha and zeta both select node a; alpha has them, as the first by name; make the selectors disjoint",
    )


def test_a_gpu_pool_that_matches_nothing_says_so() -> None:
    found = fleet(nodes=[node("a", H100)], pools=[definition("spare", {"zone": "nowhere"})])
    assert [pool.name for pool in found.pools] == ["h100-80gb"]
    assert found.problems == (
        "GPUPool spare: no node with nvidia.com/gpu matches zone=nowhere; correct the selector or add nodes",
    )


def test_a_gpu_pool_of_two_devices_keeps_the_larger_and_leaves_the_rest_to_themselves() -> None:
    found = fleet(
        nodes=[node("a", {**H100, "zone": "x"}), node("b", {**L4, "zone": "x"}, 2), node("c", {**L4, "zone": "x"}, 2)],
        pools=[definition("zone-x", {"zone": "x"})],
    )
    assert {pool.name: [one.name for one in pool.nodes] for pool in found.pools} == {"l4-24gb": ["b", "c"], "zone-x": ["a"]}
    assert only(found, "zone-x").node_selector == {"zone": "x", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    assert "matches devices of several kinds; only H100 (node a) belong to it, not nodes b, c" in found.problems[0]


def test_nodes_without_labels_join_a_pool_whose_device_is_beyond_doubt() -> None:
    bare = {"zone": "x"}
    sure = fleet(nodes=[node("a", {**H100, **bare}), node("b", bare)], pools=[definition("zone-x", bare)])
    assert [one.name for one in only(sure, "zone-x").nodes] == ["a", "b"]
    assert only(sure, "zone-x").node_selector == bare
    unsure = fleet(
        nodes=[node("a", {**H100, **bare}), node("b", bare), node("c", {**L4, **bare}, 1)], pools=[definition("zone-x", bare)]
    )
    assert [one.name for one in only(unsure, "zone-x").nodes] == ["a"]
    assert any("node b: GPUs, but no label names the product" in problem for problem in unsure.problems)


def test_the_rest_of_a_device_does_not_take_the_name_of_a_gpu_pool() -> None:
    found = fleet(
        nodes=[node("a", {**H100, "zone": "x"}), node("b", {**H100, "zone": "y"})], pools=[definition("h100-80gb", {"zone": "x"})]
    )
    names = [pool.name for pool in found.pools]
    assert len(set(names)) == 2
    assert [one.name for one in only(found, "h100-80gb").nodes] == ["a"]


def test_a_gpu_pool_describes_a_device_without_labels() -> None:
    found = fleet(
        nodes=[node("a", {"zone": "x"})],
        pools=[definition("lab", {"zone": "x"}, device={
            "name": "H20", "memory": "96Gi", "memoryBandwidth": "4T", "flops": {"bf16": "148T", "fp8": "296T"},
            "linkBandwidth": "450G", "maxTensorParallel": 8, "efficiency": {"prefillCompute": 80, "weightRead": 70},
        })],
    )  # fmt: skip
    device = only(found, "lab").device
    assert (device.name, device.memory_bytes, device.memory_bytes_per_second) == ("H20", 96 * 2**30, 4e12)
    assert device.flops_per_second == {Precision.BF16: 148e12, Precision.FP8: 296e12, Precision.INT4: 148e12}
    assert (device.max_tensor_parallel, device.prefill_compute_efficiency, device.weight_read_efficiency) == (8, 0.8, 0.7)
    assert device.source.endswith("corrected by GPUPool")
    assert found.problems == ()


def test_a_gpu_pool_names_a_device_of_the_catalogue() -> None:
    named = only(
        fleet(nodes=[node("a", {"zone": "x"})], pools=[definition("lab", {"zone": "x"}, device={"name": "L40S"})]), "lab"
    )
    assert named.device is DEVICES["L40S"]
    faster = definition("lab", {"zone": "x"}, device={"name": "L40S", "memoryBandwidth": "1T"})
    corrected = only(fleet(nodes=[node("a", {"zone": "x"})], pools=[faster]), "lab").device
    assert corrected.fitted_name is None  # the table measured another device


def test_a_gpu_pool_that_nothing_describes_is_left_out() -> None:
    found = fleet(nodes=[node("a", {"zone": "x"})], pools=[definition("lab", {"zone": "x"})])
    assert found.pools == ()
    assert (
        "GPUPool lab: no label on node a tells the device; set spec.device.name to one of the catalogue, or spec.device.memory"
        in found.problems
    )


def test_a_paused_gpu_pool_keeps_what_is_there_and_takes_nothing_new() -> None:
    found = fleet(
        nodes=[node("a", H100), node("b", H100)],
        pods=[pod("a", 2, mine=True), pod("a", 1)],
        pools=[definition("old", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, paused=True)],
    )
    pool = only(found, "old")
    assert (pool.free_gpus, pool.usable_gpus) == (0, 2)


def test_unreadable_and_dying_gpu_pools_are_named_or_passed_over() -> None:
    dying = definition("dying", H100)
    dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = fleet(
        nodes=[node("a", H100)],
        pools=[dying, definition("broken", H100, pricePerGPUHour="cheap"), {"metadata": {"name": "empty"}}, {}],
    )
    assert [pool.name for pool in found.pools] == ["h100-80gb"]
    assert any("GPUPool broken: spec.pricePerGPUHour: " in problem and "cheap" in problem for problem in found.problems)
    assert any(problem.startswith("GPUPool empty: spec: Field required") for problem in found.problems)
    assert not any("dying" in problem for problem in found.problems)
