"""Which nodes are about to go, and that their pods are the first to be given up."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.reconcile.moves.choose import by_least_loss
from equipoise.reconcile.moves.leaving import is_leaving
from equipoise.reconcile.view.pods import EnginePod

DECODE = Variant(ServiceKey("prod", "chat"), Phase.DECODE, "h100-80gb", Shape())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, False),
        ({"unschedulable": True}, True),
        ({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}, False),
        ({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}, True),
        ({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}, True),
    ],
)
def test_cordons_and_announcements_are_told_from_ordinary_taints(spec: dict[str, Any], expected: bool) -> None:
    assert is_leaving({"metadata": {"name": "n"}, "spec": spec}) is expected


def test_a_node_that_is_not_seen_is_no_such_case() -> None:
    assert not is_leaving(None)


def test_what_is_on_such_a_node_goes_first() -> None:
    def pod(name: str, node: str, created: float) -> EnginePod:
        return EnginePod("prod", name, name, "d", DECODE, "r1", True, True, False, False, "", node, created, None, None, None)

    pods = [pod("young", "a", 9.0), pod("old", "b", 1.0)]
    assert [item.name for item in by_least_loss(pods)] == ["young", "old"]
    assert [item.name for item in by_least_loss(pods, ("b",))] == ["old", "young"]
