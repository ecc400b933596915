"""A label waits until the receiver's ReplicaSet is known to have heard of its count."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from equipoise.reconcile.kube.kinds import Kind
from equipoise.reconcile.kube.protocol import KubeApi, Object
from equipoise.reconcile.moves.heard import has_room


class TwoObjects:
    """Answers reads of one Deployment and its ReplicaSet, in the order in which they must be read."""

    def __init__(self, deployment: Object | None, replica_set: Object | None) -> None:
        self.found = {"Deployment": deployment, "ReplicaSet": replica_set}
        self.reads: list[str] = []

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        self.reads.append(f"{kind.kind} {namespace}/{name}")
        return self.found[kind.kind]


def _object(replicas: int, generation: int, observed: int | None) -> dict[str, Any]:
    status = {} if observed is None else {"observedGeneration": observed}
    return {"metadata": {"generation": generation}, "spec": {"replicas": replicas}, "status": status}


def _ask(api: TwoObjects, count: int = 3) -> bool:
    return asyncio.run(has_room(cast("KubeApi", api), "prod", "chat-prefill", "aaa", count))


def test_heard_when_both_have_worked_on_their_newest_count() -> None:
    api = TwoObjects(_object(3, 5, 5), _object(3, 2, 2))
    assert _ask(api)
    assert api.reads == ["Deployment prod/chat-prefill", "ReplicaSet prod/chat-prefill-aaa"]


@pytest.mark.parametrize(
    ("deployment", "replica_set"),
    [
        pytest.param(None, _object(3, 2, 2), id="no Deployment"),
        pytest.param(_object(3, 5, 5), None, id="no ReplicaSet of this template yet"),
        pytest.param(_object(3, 5, 4), _object(3, 2, 2), id="an older count may still come to the ReplicaSet"),
        pytest.param(_object(3, 5, None), _object(3, 2, 2), id="a Deployment that no controller has seen"),
        pytest.param(_object(3, 5, 5), _object(3, 2, 1), id="the ReplicaSet's controller has not seen its count"),
        pytest.param(_object(3, 5, 5), _object(2, 2, 2), id="somebody holds the ReplicaSet lower"),
        pytest.param(_object(2, 5, 5), _object(3, 2, 2), id="somebody lowered the Deployment again"),
    ],
)
def test_not_heard_while_any_of_it_is_missing(deployment: Object | None, replica_set: Object | None) -> None:
    assert not _ask(TwoObjects(deployment, replica_set))
