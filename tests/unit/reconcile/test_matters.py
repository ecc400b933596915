"""Which changes call for a look: those that a step or a verdict hangs on at once, counts soon, other controllers' notes never."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from equipoise.reconcile.kube.kinds import DEPLOYMENT, INFERENCE_SERVICE, POD, POD_DISRUPTION_BUDGET, REPLICA_SET, Kind
from equipoise.reconcile.kube.protocol import Object
from equipoise.reconcile.matters import COUNTS_SECONDS, look_after_seconds
from equipoise.reconcile.store import Change

Edit = Callable[[Object], Any]

BASE: Object = {
    "metadata": {"name": "x", "namespace": "prod", "uid": "u", "generation": 1, "labels": {"a": "b"}, "annotations": {}},
    "spec": {"replicas": 1},
    "status": {"conditions": [], "containerStatuses": []},
}


def _after(kind: Kind, edit: Edit) -> float | None:
    new = copy.deepcopy(BASE)
    edit(new)
    return look_after_seconds(Change(kind, BASE, new))


def _set(*path: str, to: Any) -> Edit:
    def edit(obj: Object) -> None:
        for name in path[:-1]:
            obj = obj[name]
        obj[path[-1]] = to

    return edit


def _waiting(reason: str) -> Edit:
    return _set("status", "containerStatuses", to=[{"state": {"waiting": {"reason": reason}}}])


READY = _set("status", "conditions", to=[{"type": "Ready", "status": "True"}])


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        pytest.param(INFERENCE_SERVICE, _set("spec", to={"replicas": 2}), id="a spec"),
        pytest.param(INFERENCE_SERVICE, _set("metadata", "deletionTimestamp", to="now"), id="a deletion that begins"),
        pytest.param(DEPLOYMENT, _set("spec", to={"replicas": 2}), id="a count changed by hand"),
        pytest.param(DEPLOYMENT, _set("metadata", "annotations", to={"equipoise.dev/spec-hash": "y"}), id="a child's annotation"),
        pytest.param(DEPLOYMENT, _set("status", "conditions", to=[{"type": "ReplicaFailure"}]), id="a Deployment that fails"),
        pytest.param(POD, READY, id="a pod that becomes ready"),
        pytest.param(POD, _set("metadata", "deletionTimestamp", to="now"), id="a pod that ends"),
        pytest.param(POD, _set("metadata", "labels", to={"llm-d.ai/role": "decode"}), id="a pod that changes phase"),
        pytest.param(POD, _set("metadata", "ownerReferences", to=[{"uid": "rs"}]), id="a pod that its ReplicaSet let go"),
        pytest.param(POD, _waiting("CrashLoopBackOff"), id="a container that does not run"),
        pytest.param(POD, _set("status", "phase", to="Failed"), id="a pod that failed"),
    ],
)  # fmt: skip
def test_what_a_step_hangs_on_is_looked_at_at_once(kind: Kind, edit: Edit) -> None:
    assert _after(kind, edit) == 0.0


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(_set("spec", to={"nodeName": "node-1"}), id="given a node"),
        pytest.param(_waiting("ContainerCreating"), id="coming up"),
        pytest.param(_set("status", "podIP", to="10.0.0.1"), id="an address"),
    ],
)
def test_what_only_changes_a_count_may_wait_a_moment(edit: Edit) -> None:
    assert _after(POD, edit) == COUNTS_SECONDS


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        pytest.param(INFERENCE_SERVICE, _set("status", to={"summary": "ok"}), id="our own report"),
        pytest.param(DEPLOYMENT, _set("status", "observedGeneration", to=1), id="a Deployment that was seen"),
        pytest.param(
            DEPLOYMENT, _set("metadata", "annotations", to={"deployment.kubernetes.io/revision": "1"}), id="its controller's note"
        ),
        pytest.param(POD_DISRUPTION_BUDGET, _set("status", to={"currentHealthy": 2}), id="a budget's count"),
        pytest.param(REPLICA_SET, _set("spec", to={"replicas": 2}), id="a ReplicaSet: its pods tell"),
    ],
)
def test_what_others_tell_each_other_is_no_reason_to_look(kind: Kind, edit: Edit) -> None:
    assert _after(kind, edit) is None


def test_what_comes_or_goes_is_looked_at() -> None:
    assert look_after_seconds(Change(DEPLOYMENT, None, BASE)) == 0.0
    assert look_after_seconds(Change(DEPLOYMENT, BASE, None)) == 0.0
    assert look_after_seconds(Change(POD, BASE, None)) == 0.0
    assert look_after_seconds(Change(POD, None, BASE)) == COUNTS_SECONDS
