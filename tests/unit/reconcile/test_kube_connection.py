"""Where the API server is and who we are, from each source that a user may have."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.reconcile.kube.connection import ConnectionRefused, load_connection, own_namespace


def kubeconfig(tmp_path: Path, *, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "other", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://one.example:6443/", **(cluster or {})}},
            {"name": "other", "cluster": {"server": "https://two.example:6443"}},
        ],
        "users": [{"name": "u", "user": user if user is not None else {"token": "secret"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "namespace").write_text("equipoise-system")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


async def test_a_kubeconfig_gives_server_and_token(tmp_path: Path) -> None:
    connection = await load_connection(kubeconfig(tmp_path))
    assert (connection.server, connection.token, connection.verify) == ("https://one.example:6443", "secret", True)
    assert connection.headers == {"Authorization": "Bearer secret"}


async def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    assert (await load_connection(kubeconfig(tmp_path), "two")).server == "https://two.example:6443"


async def test_inline_certificates_become_files(tmp_path: Path) -> None:
    data = base64.b64encode(b"certificate").decode()
    path = kubeconfig(
        tmp_path,
        user={"client-certificate-data": data, "client-key-data": data},
        cluster={"certificate-authority-data": data, "tls-server-name": "api", "proxy-url": "http://proxy:3128"},
    )
    connection = await load_connection(path)
    assert connection.token is None
    assert connection.headers == {}
    for file in (connection.ca_file, connection.certificate_file, connection.key_file):
        assert Path(file or "").read_bytes() == b"certificate"  # noqa: ASYNC240  (a small local file in a test)
    assert (connection.tls_server_name, connection.proxy) == ("api", "http://proxy:3128")


async def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    path = kubeconfig(tmp_path, user={"tokenFile": str(token)})
    for text in ("first", "second"):
        token.write_text(text)
        assert (await load_connection(path)).token == text


async def test_a_plugin_is_run(tmp_path: Path) -> None:
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-plugin"}}
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "echo",
        "args": [json.dumps(credential)],
        "interactiveMode": "Never",
    }
    assert (await load_connection(kubeconfig(tmp_path, user={"exec": plugin}))).token == "from-plugin"


async def test_a_password_is_no_token(tmp_path: Path) -> None:
    connection = await load_connection(kubeconfig(tmp_path, user={"username": "a", "password": "b"}))
    assert connection.token is None
    assert connection.headers == {"Authorization": "Basic " + base64.b64encode(b"a:b").decode()}


async def test_in_a_pod_the_service_account_is_used_and_a_new_token_needs_no_new_session(service_account: Path) -> None:
    first = await load_connection(service_account=service_account)
    assert (first.server, first.token, first.ca_file) == ("https://10.96.0.1:443", "pod-token", str(service_account / "ca.crt"))
    (service_account / "token").write_text("rotated")
    second = await load_connection(service_account=service_account)
    assert second.token == "rotated"
    assert second.transport == first.transport


async def test_an_ipv6_service_address_is_bracketed(service_account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert (await load_connection(service_account=service_account)).server == "https://[fd00::1]:443"


async def test_settings_beat_the_pod(service_account: Path, tmp_path: Path) -> None:
    connection = await load_connection(kubeconfig(tmp_path), service_account=service_account)
    assert connection.server == "https://one.example:6443"


async def test_the_environment_names_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path))
    assert (await load_connection(service_account=tmp_path / "none")).server == "https://one.example:6443"


async def test_nothing_usable_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(ConnectionRefused, match=r"no kubeconfig at /none.*set `kubeconfig` in the settings or \$KUBECONFIG"):
        await load_connection("/none", service_account=tmp_path)
    path = kubeconfig(tmp_path)
    with pytest.raises(ConnectionRefused, match="Expected object with name nowhere"):
        await load_connection(path, "nowhere")


def test_the_operators_namespace_is_the_pods_or_default(service_account: Path, tmp_path: Path) -> None:
    assert own_namespace(service_account) == "equipoise-system"
    assert own_namespace(tmp_path / "none") == "default"
