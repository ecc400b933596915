"""`equipoise rollout status` and `equipoise rollout undo`: how far a new revision has come, and the way back."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from equipoise.api.base import problems
from equipoise.api.service import InferenceService
from equipoise.api.status_rollout import RevisionRecord
from equipoise.cli.cluster import CannotRead, kubectl_program, read_service
from equipoise.render.revision import revision
from equipoise.render.saved import patch_to


def show_rollout(name: str, namespace: str | None) -> int:
    """Print it. The exit code is 0 when the revision that the spec asks for serves alone, 3 while it does not, 4 when it was
    rolled back, and 1 when the service cannot be read.
    """
    found = _read(name, namespace)
    if found is None:
        return 1
    console, status, wanted = Console(), found.status, revision(found)
    current = status.rollout
    if current is None:
        code = 0 if status.revision == wanted else 3
        word = (
            "serves alone"
            if code == 0
            else f"is asked for; the operator has not begun yet ({status.revision or 'nothing'} serves)"
        )
        console.print(f"[bold]{found.key}[/]  revision {wanted} {word}")
    else:
        code = 4 if current.stage in ("RollingBack", "RolledBack") else 3
        console.print(f"[bold]{found.key}[/]  {current.stage}: {current.ready} of {current.replicas} replicas ready")
        console.print(f"  wanted {current.wanted}, last good {current.stable}, begun {current.started_at}")
        if current.reason:
            console.print(f"  {current.reason}", markup=False)
        if status.transaction is not None and status.transaction.message:
            console.print(f"  {status.transaction.message}", markup=False)
        if code == 4:
            console.print("  `equipoise rollout undo` puts the spec back to what serves; another change of it tries anew")
    console.print(_history(status.revisions, wanted))
    return code


def undo_rollout(name: str, namespace: str | None, to: str | None, *, dry_run: bool = False) -> int:
    """Put the spec's engine fields back to an earlier revision's, by the user's own kubectl; the exit code is 1 when not."""
    found = _read(name, namespace)
    if found is None:
        return 1
    try:
        target = _target(found, to)
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 1
    patch = patch_to(found, target.spec or {})
    if dry_run:
        print(json.dumps(patch, indent=2))
        return 0
    try:
        _patch(found, patch)
    except CannotRead as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{found.key}: spec put back to revision {target.revision}; `equipoise rollout status {name}` shows how it goes")
    return 0


def _target(service: InferenceService, to: str | None) -> RevisionRecord:
    """The record to return to. LookupError, with what to do, when there is none."""
    now, records = revision(service), service.status.revisions
    known = ", ".join(item.revision for item in records) or "none"
    if to is None:
        found = next((item for item in records if item.revision != now), None)
        if found is None:
            raise LookupError(f"{service.key}: no earlier revision is remembered (known: {known}); change the spec by hand")
    else:
        found = next((item for item in records if item.revision == to), None)
        if found is None:
            raise LookupError(f"{service.key}: revision {to} is not remembered (known: {known})")
    if found.spec is None:
        raise LookupError(f"{service.key}: the fields of revision {found.revision} were not kept; change the spec by hand")
    return found


def _patch(service: InferenceService, patch: dict[str, Any]) -> None:
    key = service.key
    command = [kubectl_program(), "patch", "inferenceservices.equipoise.dev", key.name, "--namespace", key.namespace]
    answer = subprocess.run(
        [*command, "--type=merge", f"--patch={json.dumps(patch)}"], capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise CannotRead(answer.stderr.strip() or f"kubectl ended with {answer.returncode}")


def _history(records: tuple[RevisionRecord, ...], wanted: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("revision", "served as a whole since", "spec"):
        table.add_column(column, overflow="fold")
    for item in records:
        mark = "as the spec has it now" if item.revision == wanted else "kept" if item.spec is not None else "not kept"
        table.add_row(item.revision, item.since, mark)
    return table


def _read(name: str, namespace: str | None) -> InferenceService | None:
    try:
        return InferenceService.parse(read_service(name, namespace))
    except CannotRead as error:
        print(error, file=sys.stderr)
    except ValidationError as error:
        print(f"InferenceService {name} is of another version than this command: {problems(error)}", file=sys.stderr)
    return None
