"""What all engines have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from equipoise.api.engine import EnvVar, RouterType
from equipoise.api.identity import Phase
from equipoise.render.context import Context
from equipoise.render.flags import Flag, overlay, parse_flags
from equipoise.render.options import Problem, Refusal
from equipoise.render.probes import ProbePaths

HTTP_PORT: Final = 8000
SIDECAR_ENGINE_PORT: Final = 8200
"""Where the engine listens when llm-d's routing sidecar has the pod's own port."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """The engine's container, as far as engines differ. `ports` are those besides HTTP; `environment` is Equipoise's own."""

    image: str
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: tuple[dict[str, Any], ...]
    probe_paths: ProbePaths
    pre_stop_seconds: float
    shutdown_seconds: float
    ports: tuple[dict[str, Any], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    sidecar_connector: str | None = None  # llm-d's name for the KV hand-over; None: no sidecar can drive it


def engine_port(context: Context) -> int:
    """The port the engine listens on."""
    return SIDECAR_ENGINE_PORT if context.spec.router_type is RouterType.INFERENCE_POOL else HTTP_PORT


def environment(context: Context, own: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Equipoise's variables and then the user's; the user's wins where both have a name."""
    theirs = [_env(variable) for variable in context.spec.engine.env]
    names = {variable["name"] for variable in theirs}
    return [dict(variable) for variable in own if variable["name"] not in names] + theirs


def user_flags(
    context: Context, phase: Phase, aliases: Mapping[str, str], reserved: Mapping[str, str]
) -> tuple[list[Flag], list[Flag]]:
    """The user's flags: for both phases and for this one. A Refusal names a flag of `reserved` and what to do instead."""
    layers = (
        ("spec.engine.args", context.spec.engine.args),
        (f"spec.phases.{phase.value}.engineArgs", context.spec.phases.of(phase).engine_args),
    )
    result = []
    for source, arguments in layers:
        flags = parse_flags(arguments, aliases)
        for flag in flags:
            if not flag.key:
                raise Refusal(
                    Problem(source, f"{flag.tokens[0]!r} stands before any flag; the model and the command are Equipoise's own")
                )
            if flag.key in reserved:
                raise Refusal(Problem(source, f"{flag.tokens[0]!r} is set by Equipoise; take it out and {reserved[flag.key]}"))
        result.append(flags)
    return result[0], result[1]


def merged(own: Iterable[str], common: list[Flag], phase: list[Flag], aliases: Mapping[str, str]) -> list[Flag]:
    """Equipoise's flags, then the user's for both phases, then for this one; the later one wins."""
    return overlay(parse_flags(own, aliases), common, phase)


def _env(variable: EnvVar) -> dict[str, Any]:
    if variable.value_from is not None:
        return {"name": variable.name, "valueFrom": variable.value_from}
    return {"name": variable.name, "value": variable.value or ""}
