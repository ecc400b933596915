"""Whether a running replica of a service can change phase, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from equipoise.api.engine import EngineType
from equipoise.api.identity import Phase
from equipoise.api.policy import Switch
from equipoise.api.service import InferenceServiceSpec

_VERIFIED_VLLM: Final = (0, 32)
"""Roles were swapped on a running pair of this version in every direction (measured). Later ones may fix the role at the start
(vllm-project/vllm#43807), earlier ones were not tried: both get handovers."""


def flip_support(spec: InferenceServiceSpec) -> tuple[bool, str]:
    """(possible, reason). Decided by engine, version and KV connector, never by trying it on a serving pod."""
    engine = spec.engine
    if spec.capacity.flips is Switch.DISABLED:
        return False, "spec.capacity.flips is Disabled"
    if engine.type is EngineType.SGLANG:
        return (
            False,
            "SGLang switches the role of an idle replica only, and sglang-router (0.3.2) keeps a worker in its role until its pod"
            " is deleted: replicas are handed over instead",
        )
    if engine.type is not EngineType.VLLM:
        return False, f"engine {engine.type.value} is not known to change phase while it runs: replicas are handed over"
    version = tuple(int(part) for part in re.findall(r"\d+", engine.version or "")[:2])
    if version and version != _VERIFIED_VLLM:
        verified = ".".join(map(str, _VERIFIED_VLLM))
        return False, f"changing phase on a running replica is verified with vLLM {verified}, not with {engine.version}"
    for phase in Phase:
        connector = _connector([*engine.args, *spec.phases.of(phase).engine_args])
        if connector != "NixlConnector":
            return False, f"KV connector {connector} of {phase.value} fixes the role at the start; NixlConnector does not"
    text = "vLLM with NixlConnector: the role is a matter of routing"
    if spec.phases.prefill.engine_args != spec.phases.decode.engine_args:
        text += "; engineArgs differ by phase, and a flipped replica keeps those it was started with until the next rollout"
    return True, text


def _connector(arguments: Iterable[str]) -> str:
    """The KV connector that these arguments ask for; Equipoise's own when they do not."""
    connector = "NixlConnector"
    expected = False
    for token in arguments:
        name, equals, value = token.partition("=")
        key = name.replace("_", "-").lstrip("-")
        if expected:
            connector = _name_of(token, connector)
        expected = key.startswith("kv-transfer-config") and not equals
        if key == "kv-transfer-config" and equals:
            connector = _name_of(value, connector)
        elif key == "kv-transfer-config.kv-connector":
            connector = value if equals else connector
    return connector


def _name_of(text: str, default: str) -> str:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return default
    name = found.get("kv_connector", default) if isinstance(found, Mapping) else default
    return name if isinstance(name, str) else default
