"""Users, tokens and kubeconfigs."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass

from local_cluster.paths import Paths


@dataclass(frozen=True)
class User:
    """A user of the API server's token file.

    The components have users of their own, so that they get the rights that they have in any cluster, and so that the audit
    log tells them apart.
    """

    file_name: str
    user: str
    group: str = ""


ADMIN = User("admin", "equipoise-admin", "system:masters")
USERS = (
    ADMIN,
    User("kube-controller-manager", "system:kube-controller-manager"),
    User("kube-scheduler", "system:kube-scheduler"),
    User("kwok", "kwok", "system:masters"),
    User("prometheus", "prometheus", "system:masters"),
)


def write_tokens(paths: Paths) -> dict[str, str]:
    """Make a token for each user, write the API server's token file, and return the tokens by file name."""
    tokens = {user.file_name: secrets.token_urlsafe(24) for user in USERS}
    lines = [f'{tokens[user.file_name]},{user.user},{user.file_name},"{user.group}"' for user in USERS]
    paths.tokens.touch(mode=0o600)
    paths.tokens.write_text("\n".join(lines) + "\n")
    return tokens


def kubeconfig_text(cluster: str, server_url: str, ca: bytes, user: str, token: str, namespace: str = "default") -> str:
    """Return a kubeconfig that carries all it needs."""
    return f"""\
apiVersion: v1
kind: Config
current-context: {cluster}
clusters:
- name: {cluster}
  cluster:
    server: {server_url}
    certificate-authority-data: {base64.b64encode(ca).decode()}
users:
- name: {user}
  user:
    token: {token}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
    namespace: {namespace}
"""


def write_kubeconfigs(paths: Paths, cluster: str, server_url: str, ca: bytes, tokens: dict[str, str]) -> None:
    """Write one kubeconfig per user, readable by the owner only."""
    for user in USERS:
        path = paths.kubeconfig(user.file_name)
        path.touch(mode=0o600)
        path.write_text(kubeconfig_text(cluster, server_url, ca, user.file_name, tokens[user.file_name]))
