"""Where the API server is and who we are: from the pod's service account or a kubeconfig, read again before it gets old."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.kube_config import load_kube_config

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFRESH_SECONDS: Final = 60.0  # a projected token is renewed at 80 % of its life, ten minutes at the least


class ConnectionRefused(Exception):
    """There is no usable way to the API server. The message says what was looked for and what to do."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials. Paths are files of the kubeconfig or copies of its inline data."""

    server: str
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    token: str | None = None
    authorization: str | None = None  # the whole header, for anything but a token
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    source: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The Authorization header, if there is one."""
        value = f"Bearer {self.token}" if self.token else self.authorization
        return {"Authorization": value} if value else {}

    @property
    def transport(self) -> tuple[Any, ...]:
        """What a TLS session depends on: when it changes, a new session is needed; a new token needs none."""
        return (
            self.server, self.ca_file, self.certificate_file, self.key_file, self.verify, self.tls_server_name, self.proxy
        )  # fmt: skip

    def configuration(self) -> Configuration:
        """The client library's form, without credentials: they go with each request."""
        configuration = Configuration(host=self.server)
        configuration.ssl_ca_cert = self.ca_file
        configuration.cert_file = self.certificate_file
        configuration.key_file = self.key_file
        configuration.verify_ssl = self.verify
        configuration.tls_server_name = self.tls_server_name
        configuration.proxy = self.proxy
        return configuration


async def load_connection(kubeconfig: str = "", context: str = "", *, service_account: Path = SERVICE_ACCOUNT) -> Connection:
    """The connection that the settings name, else the pod's, else $KUBECONFIG or ~/.kube/config.

    ConnectionRefused tells which of them were tried. Runs an exec plugin or an OIDC refresh where the kubeconfig asks for it.
    """
    if not kubeconfig and (service_account / "token").is_file() and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(service_account)
    path = _kubeconfig_path(kubeconfig)
    configuration = Configuration()
    try:
        await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, context=context or None, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise ConnectionRefused(f"kubeconfig {path}: {error}") from error
    authorization = configuration.api_key.get("BearerToken")
    token = authorization.removeprefix("Bearer ") if authorization and authorization.startswith("Bearer ") else None
    return Connection(
        server=configuration.host.rstrip("/"),
        ca_file=configuration.ssl_ca_cert,
        certificate_file=configuration.cert_file,
        key_file=configuration.key_file,
        token=token.strip() if token else None,
        authorization=None if token else authorization,
        verify=bool(configuration.verify_ssl),
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        source=f"kubeconfig {path}",
    )


def own_namespace(service_account: Path = SERVICE_ACCOUNT) -> str:
    """Namespace of the operator's own pod; `default` outside a pod."""
    try:
        return (service_account / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _kubeconfig_path(kubeconfig: str) -> str:
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(part).expanduser().is_file() for part in path.split(os.pathsep)):
        raise ConnectionRefused(
            f"no kubeconfig at {path}, and this is no pod with a service account: set `kubeconfig` in the settings or $KUBECONFIG"
        )
    return path


def _in_cluster(service_account: Path) -> Connection:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        token = (service_account / "token").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConnectionRefused(f"service account token {service_account / 'token'}: {error.strerror}") from error
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        ca_file=str(service_account / "ca.crt"),
        token=token,
        source="the pod's service account",
    )
