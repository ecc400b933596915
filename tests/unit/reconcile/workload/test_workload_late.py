"""A phase's budget and addresses wait for pods that serve, and stay once they are there."""

from __future__ import annotations

import pytest

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.reconcile.kube.kinds import SERVICE
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.store import Store
from equipoise.reconcile.view.pods import EnginePod
from equipoise.reconcile.workload.late import unsettled_phases, without_late

KEY = ServiceKey("prod", "chat")
NOW = 1000.0


def _pod(phase: Phase, ready_since: float | None, *, terminating: bool = False) -> EnginePod:
    variant = Variant(KEY, phase, "h100-80gb", Shape())
    ready = ready_since is not None
    return EnginePod(
        "prod", "pod", "u", "d", variant, "r1", ready, True, terminating, False, "", "node-1", 0.0, None, ready_since, None
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "unsettled"),
    [
        ([], {Phase.PREFILL, Phase.DECODE}),
        ([_pod(Phase.PREFILL, None)], {Phase.PREFILL, Phase.DECODE}),
        ([_pod(Phase.PREFILL, NOW - 0.5)], {Phase.PREFILL, Phase.DECODE}),
        ([_pod(Phase.PREFILL, NOW - 1.0)], {Phase.DECODE}),
        ([_pod(Phase.PREFILL, NOW - 60.0, terminating=True)], {Phase.PREFILL, Phase.DECODE}),
        ([_pod(Phase.PREFILL, NOW - 5.0), _pod(Phase.DECODE, NOW - 5.0), _pod(Phase.DECODE, NOW)], set()),
    ],
)
def test_a_phase_is_settled_by_one_pod_that_has_been_ready_for_a_second(pods: list[EnginePod], unsettled: set[Phase]) -> None:
    assert unsettled_phases(pods, NOW) == unsettled


def _child(kind: str, name: str) -> Object:
    version = {"Service": "v1", "PodDisruptionBudget": "policy/v1", "Deployment": "apps/v1"}[kind]
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": "prod", "name": name, "uid": f"u-{name}"}}


def test_only_the_budget_and_addresses_of_an_unsettled_phase_wait_and_only_while_they_are_missing() -> None:
    children = [
        _child("Deployment", "chat-prefill-h100-80gb-tp1"),
        _child("PodDisruptionBudget", "chat-prefill"),
        _child("Service", "chat-prefill"),
        _child("Service", "chat-decode"),
        _child("Service", "chat-router"),
    ]
    store = Store()
    unsettled = frozenset({Phase.PREFILL})
    kept = [(child["kind"], child["metadata"]["name"]) for child in without_late(children, store, KEY, unsettled)]
    assert kept == [("Deployment", "chat-prefill-h100-80gb-tp1"), ("Service", "chat-decode"), ("Service", "chat-router")]
    store.upsert(SERVICE, children[2])
    kept = [(child["kind"], child["metadata"]["name"]) for child in without_late(children, store, KEY, unsettled)]
    assert ("Service", "chat-prefill") in kept
    assert without_late(children, Store(), KEY, frozenset()) == children
