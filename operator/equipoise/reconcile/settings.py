"""Settings of the operator: one YAML file, then environment variables, then command-line flags. The last one wins.

A variable is named after the key: `prometheus.bearerTokenFile` is EQUIPOISE_PROMETHEUS__BEARER_TOKEN_FILE. Lists take commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel, to_snake

ENVIRONMENT_PREFIX: Final = "EQUIPOISE_"
_NAMESPACE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class SettingsError(ValueError):
    """The settings cannot be used. The message names each key, what was found, and what to do."""


class _Section(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


def _comma_separated(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


class PrometheusSettings(_Section):
    """Where measurements come from. Without a URL nothing is known, and every service holds."""

    url: str = Field("", pattern=r"^(https?://\S+)?$", description="base URL, such as http://prometheus.monitoring:9090")
    bearer_token_file: str = Field("", description="file with a token, read again for each round")
    ca_file: str = Field("", description="PEM file of the authority that signed Prometheus' certificate")
    timeout_seconds: float = Field(10.0, gt=0, le=120)


class CapacitySettings(_Section):
    """The capacity loop."""

    interval_seconds: float = Field(15.0, ge=1, le=600)


class LeaderElectionSettings(_Section):
    """One leader at a time.

    A standby that saw a renewal late takes over `lease_seconds` + `retry_seconds` after a crash at the worst: 14 s with the
    defaults, inside the promised 15 s (client-go's 15/10/2 would need 17 s). Once a renewal is `renew_seconds` old, the
    leader stops writing; the gap up to `lease_seconds` is for what is still on its way.
    """

    enabled: bool = True
    lease_name: str = Field("equipoise-leader", pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)
    namespace: str = Field("", pattern=rf"({_NAMESPACE}|^$)", max_length=63, description="empty: the operator's own namespace")
    lease_seconds: int = Field(12, ge=2, le=600)
    renew_seconds: float = Field(8.0, gt=0)
    retry_seconds: float = Field(2.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                f"needs retrySeconds < renewSeconds < leaseSeconds, found {self.retry_seconds:g}, {self.renew_seconds:g}, "
                f"{self.lease_seconds}: raise leaseSeconds or lower the others"
            )
        return self


class HttpSettings(_Section):
    """Probes and metrics."""

    host: str = "0.0.0.0"  # noqa: S104  (probes and Prometheus come from outside the pod)
    port: int = Field(8080, ge=0, le=65535, description="0: any free port")


class ApiSettings(_Section):
    """How Equipoise talks to the API server."""

    timeout_seconds: float = Field(15.0, gt=0, le=120)
    attempts: int = Field(4, ge=1, le=20, description="tries of a read or an idempotent write in all")
    page_size: int = Field(200, ge=10, le=10_000, description="objects per page of a list")


class LogFormat(StrEnum):
    """Shape of log lines."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """Least severe line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LoggingSettings(_Section):
    """Log lines."""

    format: LogFormat = LogFormat.JSON
    level: LogLevel = LogLevel.INFO


class Settings(_Section):
    """All settings. Every key has a default."""

    kubeconfig: str = Field("", description="file; empty: the pod's service account, else $KUBECONFIG or ~/.kube/config")
    context: str = Field("", description="context of the kubeconfig; empty: its current one")
    namespaces: Annotated[
        tuple[Annotated[str, Field(pattern=_NAMESPACE, max_length=63)], ...], BeforeValidator(_comma_separated)
    ] = Field((), description="namespaces to serve; empty: all")
    prometheus: PrometheusSettings = PrometheusSettings()
    capacity: CapacitySettings = CapacitySettings()
    workers: int = Field(8, ge=1, le=256, description="reconciles that may run at once")
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    http: HttpSettings = HttpSettings()
    api: ApiSettings = ApiSettings()
    resync_seconds: float = Field(300.0, ge=10, le=86_400, description="between authoritative lists of everything watched")
    poll_seconds: float = Field(30.0, ge=1, le=3600, description="between looks for kinds that are absent or forbidden")
    shutdown_seconds: float = Field(20.0, ge=2, le=600, description="from SIGTERM to a hard exit")
    logging: LoggingSettings = LoggingSettings()


def load_settings(
    file: Path | None = None, environment: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from `file`, variables named EQUIPOISE_..., and `overrides` by dotted key (`{"http.port": "9090"}`).

    SettingsError names every key that is wrong, where it came from, and what is accepted.
    """
    data = _read(file) if file is not None else {}
    origins: dict[str, str] = {}
    for name, value in sorted((environment or {}).items()):
        if name.startswith(ENVIRONMENT_PREFIX) and _known(path := _path_of(name)):
            _put(data, path, value)
            origins[".".join(path)] = f"variable {name}"
    for key, value in (overrides or {}).items():
        if value is not None:
            _put(data, key.split("."), value)
            origins[key] = "flag"
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        where = f"file {file}" if file else "defaults"
        raise SettingsError("\n".join(_explain(item, origins, where) for item in error.errors())) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"settings file {file}: {error.strerror}: give an existing file with --config") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"settings file {file} is no YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise SettingsError(f"settings file {file}: expected keys and values at the top, found a {type(data).__name__}")
    return data


def _path_of(variable: str) -> list[str]:
    return [to_camel(part.lower()) for part in variable.removeprefix(ENVIRONMENT_PREFIX).split("__")]


def _known(path: list[str]) -> bool:
    """Other EQUIPOISE_ variables belong to other tools (tests, the local cluster): they are no typing errors of settings."""
    section: Any = Settings
    for part in path:
        fields = getattr(section, "model_fields", {})
        field = fields.get(to_snake(part))
        if field is None:
            return False
        section = field.annotation
    return True


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = data.get(part)
        data[part] = inner = dict(inner) if isinstance(inner, dict) else {}
        data = inner
    data[path[-1]] = value


def _explain(item: Any, origins: Mapping[str, str], where: str) -> str:
    parts = [str(part) for part in item["loc"]]
    key = ".".join(to_camel(part) if "_" in part else part for part in parts)
    origin = next((source for name, source in origins.items() if key == name or key.startswith(name + ".")), where)
    if item["type"] == "extra_forbidden":
        section = ".".join(parts[:-1])
        known = ", ".join(sorted(_keys(parts[:-1])))
        return f"{key} ({origin}): no such key; {section or 'the top'} has {known}"
    found = "" if isinstance(item["input"], dict) else f", found {item['input']!r}"
    return f"{key or 'settings'} ({origin}): {item['msg'].removeprefix('Value error, ')}{found}"


def _keys(path: list[str]) -> list[str]:
    section: Any = Settings
    for part in path:
        section = section.model_fields[to_snake(part)].annotation
    return [field.alias or name for name, field in section.model_fields.items()]
