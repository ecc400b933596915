"""Settings from file, environment and flags, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from equipoise.reconcile.settings import LogFormat, Settings, SettingsError, load_settings


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "equipoise.yaml"
    file.write_text(text)
    return file


def test_everything_has_a_default() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.namespaces == ()
    assert settings.capacity.interval_seconds == 15.0
    assert settings.leader_election.enabled


def test_a_file_sets_camel_case_keys(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "namespaces: [prod, test]\nprometheus: {url: 'http://prometheus:9090', bearerTokenFile: /t}\n"
        "leaderElection: {leaseSeconds: 30, renewSeconds: 20}\nlogging: {format: text}\n",
    )
    settings = load_settings(file)
    assert settings.namespaces == ("prod", "test")
    assert settings.prometheus.bearer_token_file == "/t"
    assert (settings.leader_election.lease_seconds, settings.leader_election.retry_seconds) == (30, 2.0)
    assert settings.logging.format is LogFormat.TEXT


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, "# nothing\n")) == Settings()


def test_environment_beats_the_file_and_flags_beat_both(tmp_path: Path) -> None:
    file = written(tmp_path, "http: {port: 1, host: '::'}\nworkers: 2\n")
    environment = {"EQUIPOISE_HTTP__PORT": "2", "EQUIPOISE_WORKERS": "3", "PATH": "/bin"}
    settings = load_settings(file, environment, {"http.port": "4", "kubeconfig": None})
    assert (settings.http.port, settings.http.host, settings.workers) == (4, "::", 3)


def test_environment_names_follow_the_keys() -> None:
    environment = {
        "EQUIPOISE_PROMETHEUS__BEARER_TOKEN_FILE": "/token",
        "EQUIPOISE_NAMESPACES": "prod, test",
        "EQUIPOISE_LEADER_ELECTION__ENABLED": "false",
    }
    settings = load_settings(None, environment)
    assert settings.prometheus.bearer_token_file == "/token"
    assert settings.namespaces == ("prod", "test")
    assert not settings.leader_election.enabled


def test_variables_of_other_tools_are_none_of_our_business() -> None:
    assert load_settings(None, {"EQUIPOISE_SHARED_DATA": "/data", "EQUIPOISE_HTTP__COLOUR": "red"}) == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("workers: 0", "workers (file {file}): Input should be greater than or equal to 1, found 0"),
        ("http: {port: eighty}", "http.port (file {file}): Input should be a valid integer"),
        ("prometheus: {url: 'ftp://x'}", "prometheus.url (file {file}): String should match pattern"),
        ("prometheus: {uri: x}", "prometheus.uri (file {file}): no such key; prometheus has bearerTokenFile, caFile, "),
        ("wrokers: 3", "wrokers (file {file}): no such key; the top has api, capacity, context, http, "),
        ("namespaces: [Prod]", "namespaces.0 (file {file}): String should match pattern"),
        (
            "leaderElection: {renewSeconds: 20}",
            "leaderElection (file {file}): needs retrySeconds < renewSeconds < leaseSeconds, found 2, 20, 12: "
            "raise leaseSeconds or lower the others",
        ),
    ],
)
def test_a_wrong_key_is_named_with_what_was_found_and_what_to_do(tmp_path: Path, text: str, expected: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    assert str(caught.value).startswith(expected.format(file=file))


def test_the_origin_of_a_wrong_value_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^workers \(variable EQUIPOISE_WORKERS\): .*found 'many'$"):
        load_settings(None, {"EQUIPOISE_WORKERS": "many"})
    with pytest.raises(SettingsError, match=r"^http\.port \(flag\): .*found '99999'$"):
        load_settings(None, None, {"http.port": "99999"})


def test_all_wrong_keys_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(None, {"EQUIPOISE_WORKERS": "0"}, {"http.port": "-1"})
    assert len(str(caught.value).splitlines()) == 2


def test_a_missing_file_and_no_yaml_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory: give an existing file with --config"):
        load_settings(tmp_path / "none.yaml")
    with pytest.raises(SettingsError, match="is no YAML"):
        load_settings(written(tmp_path, "a: [b"))
    with pytest.raises(SettingsError, match="expected keys and values at the top, found a list"):
        load_settings(written(tmp_path, "- a"))
