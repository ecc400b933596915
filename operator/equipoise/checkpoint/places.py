"""Where the config.json of a model is, for each kind of address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

from equipoise.api.model_source import ModelUri

HUB_ENDPOINT: Final = "https://huggingface.co"
CONFIG: Final = "config.json"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


class CannotReadConfig(Exception):
    """The config.json could not be read. The message names the model and the place, what was found, and what to do."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What may be read, and how.

    `hub_endpoint` and `hub_token` are the hub's address and access token (HF_ENDPOINT, HF_TOKEN); `hub_cache` is a folder in the
    layout of the hub's own client (HF_HUB_CACHE), looked into first. `mounts` says where PersistentVolumeClaims are mounted here,
    by the claim's name. `local_paths` admits `file:///PATH`: inside the operator such a path is the engine's container's, not
    ours, so it is off unless asked for.
    """

    hub_endpoint: str = HUB_ENDPOINT
    hub_token: str = field(default="", repr=False)
    hub_cache: Path | None = None
    mounts: Mapping[str, Path] = field(default_factory=dict)
    local_paths: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, local_paths: bool, mounts: Mapping[str, Path]) -> Sources:
        """As the hub's own client takes it from HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME."""
        home = environment.get("HF_HOME") or (
            f"{environment['XDG_CACHE_HOME']}/huggingface" if environment.get("XDG_CACHE_HOME") else "~/.cache/huggingface"
        )
        cache = environment.get("HF_HUB_CACHE") or f"{home}/hub"
        return cls(
            hub_endpoint=environment.get("HF_ENDPOINT") or HUB_ENDPOINT,
            hub_token=environment.get("HF_TOKEN", ""),
            hub_cache=Path(cache).expanduser(),
            mounts=mounts,
            local_paths=local_paths,
        )


@dataclass(frozen=True, slots=True)
class Web:
    """A file behind an address. `token` goes with the request, and is not passed on to another host."""

    url: str
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class Local:
    """A file on this machine, which must lie under `root` when all links are followed."""

    path: Path
    root: Path | None = None

    def __str__(self) -> str:
        return str(self.path)


def config_place(address: str, sources: Sources) -> Web | Local:
    """Where the config.json of the model at `address` is: a form of `spec.model.uri`, an http(s) address, or a path.

    CannotReadConfig when there is no way to it from here.
    """
    scheme = address.partition("://")[0].lower() if "://" in address else ""
    if scheme in {"http", "https"}:
        return _web(address)
    if not scheme:
        return Local(_file(Path(address).expanduser()))
    try:
        uri = ModelUri.parse(address)
    except ValueError as error:
        raise CannotReadConfig(str(error)) from None
    if uri.scheme == "hf":
        return _hub(uri, sources)
    if uri.scheme == "pvc":
        return _claim(address, uri, sources)
    if uri.scheme == "file" and sources.local_paths:
        return Local(_file(Path(uri.path)))
    where = "inside the engine's container" if uri.scheme == "file" else "in an object store"
    raise CannotReadConfig(f"{address}: the model's config.json is {where} and cannot be read from here")


def _web(address: str) -> Web:
    parts = urlsplit(address)
    if not parts.hostname:
        raise CannotReadConfig(f"{address}: no host in it; write https://HOST/PATH")
    if parts.username or parts.password:
        raise CannotReadConfig(f"{parts.scheme}://…@{parts.hostname}: write the address without user and password")
    path = parts.path if parts.path.endswith(".json") else f"{parts.path.rstrip('/')}/{CONFIG}"
    return Web(urlunsplit(parts._replace(path=path)))


def _hub(uri: ModelUri, sources: Sources) -> Web | Local:
    revision = uri.revision or "main"
    cached = _cached(uri.path, revision, sources.hub_cache)
    if cached is not None:
        return Local(cached, sources.hub_cache)
    base = sources.hub_endpoint.rstrip("/")
    if urlsplit(base).scheme not in {"http", "https"}:
        raise CannotReadConfig(f"hub endpoint {sources.hub_endpoint!r} is no http(s) address; correct HF_ENDPOINT")
    return Web(f"{base}/{quote(uri.path)}/resolve/{quote(revision, safe='')}/{CONFIG}", sources.hub_token)


def _cached(path: str, revision: str, cache: Path | None) -> Path | None:
    if cache is None:
        return None
    folder = cache / f"models--{path.replace('/', '--')}"
    commit = revision
    if not _COMMIT.fullmatch(revision):
        reference = folder / "refs" / revision
        try:
            commit = reference.read_text(encoding="ascii").strip() if ".." not in revision else ""
        except (OSError, UnicodeDecodeError):
            return None
        if not _COMMIT.fullmatch(commit):
            return None
    found = folder / "snapshots" / commit / CONFIG
    return found if found.is_file() else None


def _claim(address: str, uri: ModelUri, sources: Sources) -> Local:
    claim, _, path = uri.path.partition("/")
    root = sources.mounts.get(claim)
    if root is None:
        known = ", ".join(sorted(sources.mounts)) or "none"
        raise CannotReadConfig(
            f"{address}: the PersistentVolumeClaim {claim} is not mounted here (mounted: {known}), so its config.json cannot be "
            "read"
        )
    return Local(_file(root / path), root)


def _file(path: Path) -> Path:
    return path if path.suffix == ".json" else path / CONFIG
