"""Comparing wanted with live, by the API server's own ways of writing things."""

from __future__ import annotations

from typing import Any

import pytest

from equipoise.render import differences, differs


@pytest.mark.parametrize(
    ("wanted", "live"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 1, "b": 2}, "status": {"c": 3}}),
        ({"kind": "X", "apiVersion": "v1", "a": 1}, {"a": 1}),
        (
            {"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}},
            {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
        ),
        ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, {"resources": {"limits": {"nvidia.com/gpu": "1"}}}),
        ({"resources": {"requests": {"cpu": "0.7"}}}, {"resources": {"requests": {"cpu": "700m"}}}),
        ({"sizeLimit": "2048Mi"}, {"sizeLimit": "2Gi"}),
        ({"readOnly": False, "value": "", "labels": {}, "args": []}, {}),
        ({"env": [{"name": "b"}, {"name": "a"}]}, {"env": [{"name": "a"}, {"name": "x"}, {"name": "b"}]}),
        ({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 1, "protocol": "TCP", "name": "p"}]}),
        ({"a": None}, {}),
        ({"seconds": 5}, {"seconds": 5.0}),
    ],
)
def test_equal_in_meaning(wanted: dict[str, Any], live: dict[str, Any]) -> None:
    assert differences(wanted, live) == ()
    assert not differs(wanted, live)


@pytest.mark.parametrize(
    ("wanted", "live", "path"),
    [
        ({"a": 1}, {}, "a"),
        ({"a": True}, {"a": 1}, "a"),
        ({"a": False}, {"a": True}, "a"),
        ({"args": ["x"]}, {"args": ["x", "y"]}, "args"),
        ({"args": ["x", "y"]}, {"args": ["x", "z"]}, "args[1]"),
        ({"env": [{"name": "a", "value": "1"}]}, {"env": [{"name": "a", "value": "2"}]}, "env[a].value"),
        ({"env": [{"name": "a", "value": "1"}]}, {"env": []}, "env[a]"),
        (
            {"ports": [{"containerPort": 1, "protocol": "UDP"}]},
            {"ports": [{"containerPort": 1, "protocol": "TCP"}]},
            "ports[1/UDP]",
        ),
        ({"emptyDir": {}}, {"hostPath": {}}, "emptyDir"),
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}, "requests.cpu"),
        ({"image": "1000m"}, {"image": "1"}, "image"),
        ({"rules": [{"verbs": ["get"]}]}, {"rules": [{"verbs": ["get"]}, {"verbs": ["*"]}]}, "rules"),
        ({"spec": {"kind": "x"}}, {"spec": {}}, "spec.kind"),
    ],
)
def test_different_in_meaning(wanted: dict[str, Any], live: dict[str, Any], path: str) -> None:
    found = differences(wanted, live)
    assert len(found) == 1
    assert found[0].startswith(f"{path}: wanted ")
    assert differs(wanted, live)
