"""The label of a decision is the rule that decided, not the first that spoke."""

from __future__ import annotations

import pytest
from tests.unit.reconcile.status.facts import decision

from equipoise.decide.types import Reason, Verdict
from equipoise.reconcile.status.deciding import deciding_reason


@pytest.mark.parametrize(
    ("verdict", "names", "decided"),
    [
        (Verdict.HOLD, ("SingleReplica", "Demand", "WithinTargets"), "WithinTargets"),
        (Verdict.HOLD, ("Demand", "BestSplit", "CapacityLimited"), "CapacityLimited"),
        (Verdict.MOVE, ("SingleReplica", "Demand", "Flipped", "ShrinkDelayed"), "Flipped"),
        (Verdict.MOVE, ("Demand", "Grown", "HandedOver"), "Grown"),
        (Verdict.MOVE, ("Demand",), "Demand"),
        (Verdict.HOLD, (), ""),
    ],
)
def test_what_decided(verdict: Verdict, names: tuple[str, ...], decided: str) -> None:
    spoken = tuple(Reason(name, "a sentence") for name in names)
    assert deciding_reason(decision(verdict=verdict, reasons=spoken)) == decided
