"""vLLM: `vllm serve` with a KV connector. Flags as of 0.32; those that an older version lacks are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from equipoise.api.identity import Phase, Precision, Variant
from equipoise.render.context import Context
from equipoise.render.drain import KV_LEASE_SECONDS
from equipoise.render.engines.base import EngineParts, engine_port, merged, user_flags
from equipoise.render.flags import Flag, parse_flags, tokens
from equipoise.render.options import Problem, Refusal
from equipoise.render.probes import ProbePaths
from equipoise.render.weights import CACHE_PATH, WeightSource, weight_source

SIDE_CHANNEL_PORT: Final = 5600
MOONCAKE_BOOTSTRAP_PORT: Final = 8998
_ALIASES: Final = {"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "q": "quantization", "dp": "data-parallel-size"}
_SHAPE: Final = "say it as spec.phases.<phase>.shape, which also counts the GPUs"
RESERVED: Final[Mapping[str, str]] = {
    "model": "set spec.model.uri",
    "served-model-name": "set spec.model.servedName, which routing and metrics follow",
    "host": "leave the address to Equipoise: probes and routers need the pod's own",
    "port": "leave the port to Equipoise: probes, routers and scrapes follow it",
    "tensor-parallel-size": _SHAPE,
    "pipeline-parallel-size": _SHAPE,
    "data-parallel-size": "let Equipoise scale replicas: a data parallel replica would need more GPUs than its shape holds",
    "shutdown-timeout": "set spec.drain.grace, which the pod's grace period follows",
}
"""Flags that routing, GPU counts or draining depend on, and where to say it instead."""
_SHUTDOWN_TIMEOUT_SINCE: Final = (0, 18, 0)  # vllm-project/vllm#36666
_QUEUE_BOUND_SINCE: Final = (0, 32, 0)  # vllm-project/vllm#55812
_ROLES: Final = {Phase.PREFILL: "kv_producer", Phase.DECODE: "kv_consumer"}
_ROUTER_CONNECTORS: Final = {"NixlConnector": "nixl", "MooncakeConnector": "mooncake"}
_SIDECAR_CONNECTORS: Final = {"NixlConnector": "nixlv2", "MooncakeConnector": "mooncake"}


def parts(context: Context, variant: Variant) -> EngineParts:
    """The container of one variant."""
    common, phase = user_flags(context, variant.phase, _ALIASES, RESERVED)
    connector = kv_transfer(context, variant.phase)
    name = connector["kv_connector"]
    own = ["serve", *_own_arguments(context, variant, weight_source(context, variant))]
    ours = [Flag("kv-transfer-config", (f"--kv-transfer-config={json.dumps(connector, separators=(',', ':'))}",))]
    theirs = [[flag for flag in layer if flag.key != "kv-transfer-config"] for layer in (common, phase)]
    flags = merged(own, theirs[0], theirs[1], _ALIASES) + ours
    mooncake = name == "MooncakeConnector"
    return EngineParts(
        image=context.spec.engine.image or context.options.image("vllm", context.spec.engine.version),
        command=("vllm",),
        arguments=tuple(tokens(flags)),
        environment=_environment(mooncake),
        probe_paths=ProbePaths(),
        # The same in both phases: a flipped pod keeps its hook, and may end as a prefill pod whose KV is still to be fetched.
        pre_stop_seconds=_lease_seconds(connector),
        shutdown_seconds=context.spec.drain.grace_seconds,
        ports=({"name": "nixl", "containerPort": SIDE_CHANNEL_PORT},) if not mooncake else (),
        annotations={"vllm.ai/bootstrap-port": str(MOONCAKE_BOOTSTRAP_PORT)} if mooncake else {},
        sidecar_connector=_SIDECAR_CONNECTORS.get(name),
    )


def router_connector(context: Context) -> str:
    """vllm-router's name for the KV connector of this service; a Refusal for one that it cannot drive."""
    name = kv_transfer(context, Phase.PREFILL)["kv_connector"]
    found = _ROUTER_CONNECTORS.get(name)
    if found is None:
        known = ", ".join(_ROUTER_CONNECTORS)
        raise Refusal(
            Problem("spec.engine.args", f"vllm-router cannot drive KV connector {name!r}; use {known}, or router.type none")
        )
    return found


def kv_transfer(context: Context, phase: Phase) -> dict[str, Any]:
    """The KV transfer configuration: Equipoise's, with the user's JSON laid over it key by key.

    The role follows the phase unless the user asks for kv_both. Weights at several addresses make vLLM's handshake refuse pairs
    that fit (it compares the model's name), so the check is then off; data type and KV type are pinned instead.
    """
    config: dict[str, Any] = {"kv_connector": "NixlConnector", "kv_role": _ROLES[phase], "kv_load_failure_policy": "fail"}
    if several_addresses(context):
        config["kv_connector_extra_config"] = {"enforce_handshake_compat": False}
    layers = (
        ("spec.engine.args", context.spec.engine.args),
        (f"spec.phases.{phase.value}.engineArgs", context.spec.phases.of(phase).engine_args),
    )
    for source, arguments in layers:
        for flag in parse_flags(arguments, _ALIASES):
            if flag.key == "kv-transfer-config":
                config = _lay_over(config, _json_object(flag, source))
    if config["kv_role"] != "kv_both":
        config["kv_role"] = _ROLES[phase]
    return config


def several_addresses(context: Context) -> bool:
    """Whether replicas of one service may load their weights from different addresses."""
    return any(entry.uri is not None for entry in context.spec.model.weights.calibrated)


def _own_arguments(context: Context, variant: Variant, weights: WeightSource) -> list[str]:
    shape = variant.shape
    arguments = [
        weights.model,
        "--host=0.0.0.0",
        f"--port={engine_port(context)}",
        f"--served-model-name={context.spec.model.model_name}",
        f"--tensor-parallel-size={shape.tensor_parallel}",
    ]
    if shape.pipeline_parallel > 1:
        arguments.append(f"--pipeline-parallel-size={shape.pipeline_parallel}")
    if weights.revision:
        arguments.append(f"--revision={weights.revision}")
    if weights.streamed:
        arguments.append("--load-format=runai_streamer")
    arguments.append("--dtype=bfloat16")
    if weights.quantise and shape.precision is Precision.FP8:
        arguments.append("--quantization=fp8")
    arguments += _pins(context)
    max_context = context.spec.model.architecture.max_context
    if max_context is not None:
        arguments.append(f"--max-model-len={max_context}")
    version = context.engine_version
    if version >= _SHUTDOWN_TIMEOUT_SINCE:
        arguments.append(f"--shutdown-timeout={int(context.spec.drain.grace_seconds)}")
    bound = context.options.queue_bounds.get(variant)
    if bound is not None and version >= _QUEUE_BOUND_SINCE:
        arguments.append(f"--max-num-queued-tokens={bound}")
    return arguments


def _pins(context: Context) -> list[str]:
    """What engines choose by device, held the same over devices: two that chose differently refuse each other's KV."""
    mixed = len(context.usable_devices()) > 1
    pins = ["--kv-cache-dtype=bfloat16"] if mixed or several_addresses(context) else []
    return pins + (["--attention-backend=FLASH_ATTN"] if mixed else [])


def _lease_seconds(connector: Mapping[str, Any]) -> float:
    """The KV lease in effect, never taken for shorter than the default."""
    extra = connector.get("kv_connector_extra_config")
    lease = extra.get("kv_lease_duration") if isinstance(extra, dict) else None
    return max(KV_LEASE_SECONDS, float(lease)) if isinstance(lease, int | float) else KV_LEASE_SECONDS


def _environment(mooncake: bool) -> tuple[dict[str, Any], ...]:
    transfer: list[dict[str, Any]] = (
        [{"name": "VLLM_MOONCAKE_BOOTSTRAP_PORT", "value": str(MOONCAKE_BOOTSTRAP_PORT)}]
        if mooncake
        else [
            {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": str(SIDE_CHANNEL_PORT)},
        ]
    )
    caches = [
        {"name": "HF_HOME", "value": f"{CACHE_PATH}/huggingface"},
        {"name": "VLLM_CACHE_ROOT", "value": f"{CACHE_PATH}/vllm"},
    ]
    return (*transfer, *caches)


def _json_object(flag: Flag, source: str) -> dict[str, Any]:
    try:
        value = json.loads(flag.value)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        message = f"{flag.tokens[0]!r}: the value must be one JSON object, such as --kv-transfer-config='{{\"kv_connector\":…}}'"
        raise Refusal(Problem(source, message))
    return value


def _lay_over(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _lay_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
