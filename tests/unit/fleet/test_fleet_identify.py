from __future__ import annotations

import re

import pytest

from equipoise.api.identity import Precision
from equipoise.fleet.catalogue import DEVICES, GENERIC, device
from equipoise.fleet.catalogue.identify import identify, normalise_product, recognise
from equipoise.fleet.naming import MAX_POOL_NAME_LENGTH, pool_name, unused_name
from equipoise.fleet.prices import default_price


@pytest.mark.parametrize(
    ("product", "memory_mib", "name"),
    [
        ("NVIDIA-H100-80GB-HBM3", 81559, "H100"),
        ("NVIDIA-H100-PCIe", 81559, "H100-PCIe"),
        ("NVIDIA-H100-NVL", 95830, "H100-NVL"),
        ("NVIDIA-H200", 143771, "H200"),
        ("NVIDIA-B200", 183359, "B200"),
        ("NVIDIA-B200", 189471, "B200"),  # other firmware, 3 % more
        ("NVIDIA-A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA-A100-SXM4-40GB", 40960, "A100-40GB"),
        ("NVIDIA-A100-PCIE-40GB", 40960, "A100-PCIe-40GB"),
        ("NVIDIA-A100-80GB-PCIe", 81920, "A100-PCIe-80GB"),
        ("A100-PCIE-80GB", 81920, "A100-PCIe-80GB"),
        ("NVIDIA-L40S", 46068, "L40S"),
        ("NVIDIA-L4", 23034, "L4"),
        ("NVIDIA-A10G", 23028, "A10G"),
        ("NVIDIA-A30", 24576, "A30"),
        ("Tesla-T4", 15109, "T4"),
        ("NVIDIA-GeForce-RTX-4090", 24564, "RTX-4090"),
        ("NVIDIA-RTX-6000-Ada-Generation", 49140, "RTX-6000-Ada"),
        ("NVIDIA-RTX-A6000", 49140, "RTX-A6000"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97887, "RTX-PRO-6000"),
        ("AMD_Instinct_MI300X_OAM", 196592, "MI300X"),
        ("Intel(R) Arc(TM) Pro B60 Graphics", 24480, "Arc-Pro-B60"),
        ("l40s", None, "L40S"),
        ("nvidia-tesla-a100", None, "A100-40GB"),
        ("nvidia-a100-80gb", None, "A100-80GB"),
        ("nvidia-h100-mega-80gb", None, "H100"),
        ("nvidia-h200-141gb", None, "H200"),
    ],
)
def test_product_and_memory_make_the_device(product: str, memory_mib: int | None, name: str) -> None:
    found = recognise(product, memory_mib)
    assert found.device is DEVICES[name]
    assert found.known
    assert found.problem == ""
    assert identify(product, memory_mib) is DEVICES[name]


@pytest.mark.parametrize(
    ("product", "memory_mib"),
    [
        ("NVIDIA-A10", 23028),  # not an A10G: twice the tensor rate
        ("NVIDIA-L40", 46068),
        ("NVIDIA-GeForce-RTX-4090-D", 24564),
        ("NVIDIA-A100X", 81920),
        ("Quadro-RTX-6000", 24576),
        ("NVIDIA-GB200", 189471),
        ("NVIDIA-H20", 97871),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", 9728),
        ("NVIDIA-A100-SXM4-80GB", 20480),  # a virtual GPU: a quarter of one
        ("NVIDIA-A100-SXM4-80GB", 40960),  # the name says one size, the memory another
    ],
)
def test_what_only_looks_alike_is_generic_under_its_own_name_and_says_so(product: str, memory_mib: int) -> None:
    found = recognise(product, memory_mib)
    assert not found.known
    assert found.device.name == normalise_product(product)
    assert found.device.memory_bytes == pytest.approx(memory_mib * 2**20, rel=0.06)
    assert found.device.memory_bytes <= memory_mib * 2**20
    assert found.device.memory_bytes_per_second == GENERIC.memory_bytes_per_second
    assert repr(product) in found.problem
    assert "conservative generic figures" in found.problem


def test_a_known_product_of_another_size_names_the_sizes_there_are() -> None:
    assert "A100-40GB (43 GB), A100-80GB (86 GB)" in recognise("NVIDIA-A100-SXM4-60GB", 61440).problem


def test_a_product_of_several_sizes_without_memory_is_taken_as_the_smallest() -> None:
    found = recognise("NVIDIA-A100", None)
    assert found.device is DEVICES["A100-40GB"]
    assert "label the node with its memory" in found.problem


def test_nodes_that_report_some_mebibytes_less_are_the_same_device() -> None:
    assert recognise("NVIDIA-GB10", 122_572).device == recognise("NVIDIA-GB10", 122_500).device


def test_catalogue_figures_are_sound() -> None:
    for one in (*DEVICES.values(), GENERIC):
        assert 10e9 < one.memory_bytes < 300e9
        assert 200e9 < one.memory_bytes_per_second < 10e12
        assert Precision.BF16 in one.flops_per_second
        assert all(rate >= one.flops_per_second[Precision.BF16] for rate in one.flops_per_second.values())
        for share in (one.prefill_compute_efficiency, one.weight_read_efficiency, one.kv_read_efficiency):
            assert 0.3 <= share <= 1.0
        assert one.source
    assert all(
        GENERIC.memory_bytes_per_second * GENERIC.weight_read_efficiency
        <= one.memory_bytes_per_second * one.weight_read_efficiency
        for one in DEVICES.values()
    )


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(KeyError, match=r"device 'H1000' is not in the catalogue; it has A100-40GB, .*T4"):
        device("H1000")


def test_pool_names_are_readable_and_short() -> None:
    names = {name: pool_name(one) for name, one in DEVICES.items()}
    assert names["H100"] == "h100-80gb"
    assert names["RTX-4090"] == "rtx-4090-24gb"
    assert names["A100-PCIe-40GB"] == "a100-pcie-40gb"
    assert len(set(names.values())) == len(names)
    for name in names.values():
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
        assert len(name) <= MAX_POOL_NAME_LENGTH


def test_a_name_in_use_gets_a_stable_ending() -> None:
    other = unused_name("rtx-6000-ada-48gb", {"rtx-6000-ada-48gb"})
    assert other == unused_name("rtx-6000-ada-48gb", {"rtx-6000-ada-48gb", "h100-80gb"})
    assert other.startswith("rtx-6000-ada-")
    assert len(other) <= MAX_POOL_NAME_LENGTH
    assert unused_name("rtx-6000-ada-48gb", {"rtx-6000-ada-48gb", other}) not in {"rtx-6000-ada-48gb", other}
    assert unused_name("l4-24gb", set()) == "l4-24gb"


def test_every_device_has_a_price_with_a_source() -> None:
    for one in DEVICES.values():
        price, source = default_price(one)
        assert 0.3 <= price <= 10
        assert source.startswith("built-in list: ")
    price, source = default_price(recognise("NVIDIA-GB10", 122_572).device)
    assert price > 0
    assert "set pricePerGPUHour on a GPUPool" in source
