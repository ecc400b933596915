"""docs/concepts/devices.md states the catalogue; it must not fall behind it."""

from __future__ import annotations

from pathlib import Path

from equipoise.api.identity import Precision
from equipoise.fleet.catalogue import DEVICES
from equipoise.fleet.naming import pool_name
from equipoise.fleet.node_labels import MEMORY_LABELS, PRODUCT_LABELS
from equipoise.fleet.prices import default_price

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "concepts" / "devices.md").read_text(encoding="utf-8")


def test_the_table_is_the_catalogue() -> None:
    rows = {
        cells[0]: cells[1:]
        for cells in (_cells(line) for line in PAGE.splitlines() if line.startswith("| "))
        if cells[0] in DEVICES
    }
    assert set(rows) == set(DEVICES)
    for name, one in DEVICES.items():
        shares = (one.prefill_compute_efficiency, one.weight_read_efficiency, one.kv_read_efficiency)
        assert rows[name][:7] == [
            f"`{pool_name(one)}`",
            f"{one.memory_bytes / 1e9:.1f}",
            f"{one.memory_bytes_per_second / 1e9:,.0f}",
            f"{one.flops_per_second[Precision.BF16] / 1e12:,.0f}",
            "yes" if Precision.FP8 in one.flops_per_second else "no",
            str(one.max_tensor_parallel),
            " / ".join(f"{share:.2f}" for share in shares),
        ]
        assert rows[name][7] in {"fitted", "measured", "assumed"}
        assert (rows[name][7] == "fitted") == (one.fitted_name is not None)
        assert ("not measured" in one.source or "assumed" in one.source) == (rows[name][7] == "assumed")
        assert rows[name][8] == f"{default_price(one)[0]:.2f}"


def test_every_label_is_on_the_page() -> None:
    for label in PRODUCT_LABELS:
        assert label in PAGE
    for label in MEMORY_LABELS:
        assert label.removeprefix("beta.") in PAGE or label.partition("/")[2] in PAGE


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
