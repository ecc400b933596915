"""How to reach a cluster: its kubeconfig, and the command line tools that use it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster.errors import CommandError, LocalClusterError
from local_cluster.options import ClusterOptions
from local_cluster.paths import Paths

# Longer than any wait that a caller gives to kubectl or helm themselves; only a tool that hangs is cut off.
COMMAND_TIMEOUT_SECONDS = 900.0


def run_command(command: Sequence[str], environment: dict[str, str], text_input: str | None = None) -> str:
    """Run a tool and return what it wrote to standard output.

    Raises:
        CommandError: it ended with an error.
    """
    answer = subprocess.run(
        list(command),
        env=environment,
        input=text_input,
        stdin=subprocess.DEVNULL if text_input is None else None,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_TIMEOUT_SECONDS,
    )
    if answer.returncode != 0:
        raise CommandError([Path(command[0]).name, *command[1:]], answer.returncode, answer.stderr)
    return answer.stdout


@dataclass(frozen=True)
class Access:
    """An administrator's way to an API server.

    Attributes:
        kubeconfig: self-contained, its current context being the cluster.
        server_url: the API server.
        ca: the certificates that a client trusts; empty when the kubeconfig names none.
        token: the administrator's bearer token; empty when the kubeconfig uses something else.
    """

    kubeconfig: Path
    server_url: str
    ca: bytes
    token: str


def existing_cluster(options: ClusterOptions, paths: Paths, kubectl: Path) -> Access:
    """Return the way to a cluster that is there already, and write its kubeconfig, stripped to that cluster, into our folder.

    Raises:
        LocalClusterError: kind or the kubeconfig is not there or does not work; says what to do.
    """
    environment = dict(os.environ)
    if options.target == "kind":
        environment["KUBECONFIG"] = str(_kind_kubeconfig(options.kind_name, paths))
    elif options.kubeconfig is not None:
        if not options.kubeconfig.is_file():
            raise LocalClusterError(f"The kubeconfig {options.kubeconfig} does not exist.")
        environment["KUBECONFIG"] = str(options.kubeconfig)
    # --flatten puts certificates into the file, --minify leaves out every other cluster.
    view = [str(kubectl), "config", "view", "--raw", "--flatten", "--minify", "-o", "json"]
    try:
        text = run_command(view, environment)
    except CommandError as error:
        source = environment.get("KUBECONFIG", "~/.kube/config")
        raise LocalClusterError(
            f"The kubeconfig {source} does not lead to a cluster ({error.stderr}). Set $KUBECONFIG, or choose a context with "
            "`kubectl config use-context`; the target local needs no kubeconfig."
        ) from error
    config = json.loads(text)
    path = paths.admin_kubeconfig
    path.touch(mode=0o600)
    path.write_text(text)
    cluster = config["clusters"][0]["cluster"]
    user = (config.get("users") or [{"user": {}}])[0]["user"] or {}
    ca = base64.b64decode(cluster.get("certificate-authority-data", ""))
    return Access(path, cluster["server"], ca, user.get("token", ""))


def _kind_kubeconfig(name: str, paths: Paths) -> Path:
    try:
        text = run_command(["kind", "get", "kubeconfig", "--name", name], dict(os.environ))
    except FileNotFoundError as error:
        raise LocalClusterError(
            "The target is kind, but `kind` is not installed; use the target local, which needs no Docker."
        ) from error
    except CommandError as error:
        raise LocalClusterError(
            f"There is no kind cluster named {name} ({error.stderr}). "
            f"Make one with `kind create cluster --name {name} --config deploy/local/kind-config.yaml`."
        ) from error
    path = paths.folder / "kind.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Tools:
    """The programs kubectl and Helm, bound to one cluster."""

    kubectl_program: Path
    helm_program: str
    environment: dict[str, str]

    def kubectl(self, *arguments: str, text_input: str | None = None) -> str:
        """Run kubectl and return its output; raises CommandError."""
        return run_command([str(self.kubectl_program), *arguments], self.environment, text_input)

    def helm(self, *arguments: str) -> str:
        """Run Helm and return its output; raises CommandError."""
        return run_command([self.helm_program, *arguments], self.environment)

    def apply(self, objects: Sequence[dict[str, Any]], field_manager: str) -> None:
        """Apply objects on the server, taking over fields that others own; raises CommandError."""
        self.feed(objects, "apply", "--server-side", "--force-conflicts", f"--field-manager={field_manager}")

    def feed(self, objects: Sequence[dict[str, Any]], *arguments: str) -> None:
        """Run `kubectl ARGUMENTS -f -` over objects, in their order; raises CommandError."""
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl(*arguments, "-f", "-", text_input=manifest)

    def get_json(self, *arguments: str) -> dict[str, Any]:
        """Return what `kubectl get ARGUMENTS -o json` says; raises CommandError."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "-o", "json"))
        return found
