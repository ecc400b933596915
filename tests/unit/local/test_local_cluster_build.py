from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from local_cluster import build, tools
from local_cluster.errors import LocalClusterError
from local_cluster.progress import Progress, format_elapsed

GO_MOD = (build.MODULE_FOLDER / "go.mod").read_text()


def test_every_staging_module_has_the_version_of_kubernetes() -> None:
    """A staging module of another version compiles, and then behaves like no released Kubernetes."""
    kubernetes = build.version_of("k8s.io/kubernetes", GO_MOD)
    replaced = re.findall(r"^\s*(k8s\.io/\S+) => (k8s\.io/\S+) (v\S+)$", GO_MOD, re.MULTILINE)
    assert len(replaced) >= 30
    assert {version for _, _, version in replaced} == {kubernetes.replace("v1.", "v0.", 1)}
    assert all(old == new for old, new, _ in replaced)


def test_no_registry_address_in_the_module() -> None:
    for name in ("go.mod", "go.sum", "main.go", "key.go"):
        text = (build.MODULE_FOLDER / name).read_text()
        assert re.search(r"https?://|proxy\.", text) is None, name


def test_link_flags_say_what_the_versions_are() -> None:
    go_mod = "\n".join(
        f"\t{module} {version}"
        for module, version in {
            "k8s.io/kubernetes": "v1.36.3",
            "helm.sh/helm/v4": "v4.2.4",
            "github.com/prometheus/prometheus": "v0.313.5",
            "sigs.k8s.io/kwok": "v0.8.0",
        }.items()
    )
    flags = build.link_flags(go_mod)
    for expected in (
        "gitVersion=v1.36.3",
        "gitMajor=1",
        "gitMinor=36",
        "version.version=v4.2.4",
        "common/version.Version=3.13.5",
    ):
        assert expected in flags
    with pytest.raises(LocalClusterError, match=r"does not require k8s\.io/kubernetes"):
        build.link_flags("module x")


def test_the_cache_key_follows_every_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("go.mod", "go.sum", "main.go", "key.go"):
        (tmp_path / name).write_bytes((build.MODULE_FOLDER / name).read_bytes())
    original = build.cache_key()
    monkeypatch.setattr(build, "MODULE_FOLDER", tmp_path)
    assert build.cache_key() == original
    seen = {original}
    for name in ("go.mod", "go.sum", "main.go", "key.go"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content + b"\n")
        seen.add(build.cache_key())
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(build, "BUILD_TAGS", "other")
    seen.add(build.cache_key())
    assert len(seen) == 6


def test_the_cache_is_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_folder() == tmp_path / "equipoise" / "local"
    assert build.built_binaries() is None
    (build.cache_folder() / build.cache_key()).mkdir(parents=True)
    found = build.built_binaries()
    assert found is not None
    assert found.program("etcd") == str(tmp_path / "equipoise" / "local" / build.cache_key() / "bin" / "etcd")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert build.cache_folder() == Path.home() / ".cache" / "equipoise" / "local"


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("link: write /x: no space left on device", "disk is full"),
        ("dial tcp: lookup host: no such host", "could not fetch the sources"),
        ("compile: signal: killed", "out of memory"),
        ("verifying x@v1: checksum mismatch", "go clean -modcache"),
        ("go: go.mod requires go >= 1.26.0 (running go 1.24)", "too old"),
        ("./main.go:3: undefined: y\n\n", "Go said: ./main.go:3: undefined: y"),
        ("", "exit code 7 and no message"),
    ],
)
def test_a_failed_build_says_what_to_do(output: str, advice: str) -> None:
    message = build.explain_failure(output, 7, Path("/logs/build.log"))
    assert advice in message
    assert "/logs/build.log" in message
    assert "\n" not in message


def fake_go(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho go version {version} linux/amd64\n")
    program.chmod(0o755)
    return program


def test_go_comes_from_the_path_when_new_enough_else_from_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, on_path = tmp_path / "site", tmp_path / "bin"
    (site / "go").mkdir(parents=True)
    (site / "go" / "__init__.py").touch()
    wheel = fake_go(site / "go" / "bin", "go1.27.3")
    system = fake_go(on_path, "go1.24.1")
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.syspath_prepend(str(site))
    assert tools.find_go() == wheel
    fake_go(on_path, "go1.26.0")
    assert tools.find_go() == system
    fake_go(on_path, "go1.24.1")
    wheel.unlink()
    with pytest.raises(LocalClusterError, match=r"Go 1\.26 or newer\. Found only .*\(1\.24\)\. Install Go, or `pip install"):
        tools.find_go()


def test_progress_prints_plain_lines_now_and_then_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = Progress("Building", stream, plain_interval_seconds=3600)
    for number in range(5):
        progress.update(f"step {number}")
    progress.finish("done")
    assert stream.getvalue() == "Building: step 0 (0 s)\nBuilding: done (0 s)\n"
    assert [format_elapsed(seconds) for seconds in (0.4, 59.9, 60, 187)] == ["0 s", "59 s", "1 min 00 s", "3 min 07 s"]


def test_progress_rewrites_its_line_on_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    progress = Progress("Building", stream)
    progress.update("a long step")
    progress.finish("done")
    assert stream.getvalue() == "\r\x1b[2KBuilding: a long step (0 s)\r\x1b[2KBuilding: done (0 s)\n"
