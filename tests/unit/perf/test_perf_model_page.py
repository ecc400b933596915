"""The example in docs/concepts/performance-model.md is what the code computes."""

from __future__ import annotations

from pathlib import Path

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.catalogue import DEVICES, device
from equipoise.perf.capacity import replica_capacity
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Refusal, Targets, Workload

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "concepts" / "performance-model.md").read_text(encoding="utf-8")


def test_the_example_table() -> None:
    model = model_facts("hf://any/Llama-3.1-8B")
    assert isinstance(model, ModelFacts)
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
    rows = {cells[0]: cells[1:] for cells in lines if cells[0] in DEVICES}
    assert len(rows) == 7
    for name, shown in rows.items():
        computed: list[str] = []
        for phase in Phase:
            alone, shared = (
                replica_capacity(
                    phase, model, device(name), Shape(), Workload(1155, 211), Targets(0.5, 0.05),
                    network_bytes_per_second=12.5e9, replicas_sharing_queue=group,
                )
                for group in (1, 4)
            )  # fmt: skip
            if isinstance(alone, Refusal) or isinstance(shared, Refusal):
                computed += ["refused"] * 3
                continue
            figures = (alone.tokens_per_second, shared.tokens_per_second, alone.tokens_per_second / alone.utilisation)
            computed += [f"{figure:,.0f}" for figure in figures]
        assert shown == computed, name
