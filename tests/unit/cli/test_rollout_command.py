"""`equipoise rollout`: what is said at each stage, and the patch that leads back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from equipoise.api.service import InferenceService
from equipoise.cli import rollout
from equipoise.render.revision import revision
from equipoise.render.saved import saved_fields


def resource(args: list[str], **status: Any) -> dict[str, Any]:
    engine = {"args": args} if args else {}
    spec = {
        "model": {"uri": "hf://meta-llama/Llama-3.1-8B-Instruct"},
        "targets": {"ttft": "1s", "tpot": "50ms"},
        "engine": engine,
    }
    return {"kind": "InferenceService", "metadata": {"name": "chat", "namespace": "prod"}, "spec": spec, "status": status}


def record(args: list[str]) -> dict[str, Any]:
    service = InferenceService.parse(resource(args))
    return {"revision": revision(service), "since": "2026-01-01T00:00:00Z", "spec": saved_fields(service)}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    def hold(obj: dict[str, Any]) -> None:
        monkeypatch.setattr(rollout, "read_service", lambda name, namespace: obj)

    return hold


def test_a_revision_that_serves_alone_is_done(cluster: Any, capsys: Any) -> None:
    now = record(["--a"])
    cluster(resource(["--a"], revision=now["revision"], revisions=[now]))
    assert rollout.show_rollout("chat", None) == 0
    assert "serves alone" in capsys.readouterr().out


def test_a_change_that_the_operator_has_not_seen_is_not_done(cluster: Any) -> None:
    old = record(["--a"])
    cluster(resource(["--b"], revision=old["revision"], revisions=[old]))
    assert rollout.show_rollout("chat", None) == 3


def test_a_rollback_is_told_with_its_reason(cluster: Any, capsys: Any) -> None:
    old, wanted = record(["--a"]), record(["--b"])
    state = {"stage": "RolledBack", "wanted": wanted["revision"], "stable": old["revision"], "reason": "chat-x: ImagePullBackOff"}
    cluster(resource(["--b"], revision=old["revision"], revisions=[old], rollout=state))
    assert rollout.show_rollout("chat", None) == 4
    assert "ImagePullBackOff" in capsys.readouterr().out


def test_undo_goes_to_the_last_good_revision_that_is_not_the_specs(cluster: Any, capsys: Any) -> None:
    cluster(resource(["--b"], revisions=[record(["--b"]), record([]), record(["--c"])]))
    assert rollout.undo_rollout("chat", None, None, dry_run=True) == 0
    assert json.loads(capsys.readouterr().out)["spec"]["engine"] == {"args": None}


def test_undo_to_a_named_revision(cluster: Any, capsys: Any) -> None:
    named = record(["--c"])
    cluster(resource(["--b"], revisions=[record(["--b"]), record([]), named]))
    assert rollout.undo_rollout("chat", None, named["revision"], dry_run=True) == 0
    assert json.loads(capsys.readouterr().out)["spec"]["engine"] == {"args": ["--c"]}


@pytest.mark.parametrize(("to", "text"), [(None, "no earlier revision"), ("v1-nowhere", "not remembered")])
def test_undo_without_a_way_back_says_so(cluster: Any, capsys: Any, to: str | None, text: str) -> None:
    cluster(resource(["--b"], revisions=[record(["--b"])]))
    assert rollout.undo_rollout("chat", None, to) == 1
    assert text in capsys.readouterr().err
