"""What the tests on the control plane share. Every test in this folder needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

Manifest = dict[str, Any]
MakePod = Callable[..., Manifest]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def make_pod() -> MakePod:
    """Builds a pod of one container with a port named `http`; with GPUs it tolerates the GPU nodes' taint."""

    def make(
        name: str,
        namespace: str,
        *,
        gpus: int = 0,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        node_selector: Mapping[str, str] | None = None,
        readiness_gates: Sequence[str] = (),
        grace_seconds: int = 30,
    ) -> Manifest:
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
            },
            "spec": {
                "terminationGracePeriodSeconds": grace_seconds,
                "nodeSelector": dict(node_selector or {}),
                "readinessGates": [{"conditionType": gate} for gate in readiness_gates],
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}] if gpus else [],
                "containers": [
                    {
                        "name": "engine",
                        "image": "engine:1",
                        "resources": resources,
                        "ports": [{"name": "http", "containerPort": 8000}],
                    }
                ],
            },
        }

    return make
