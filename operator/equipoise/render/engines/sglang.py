"""SGLang: `sglang.launch_server` in one of its two disaggregation modes. Flags as of 0.5.23."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from equipoise.api.identity import Precision, Variant
from equipoise.api.policy import Switch
from equipoise.render.context import Context
from equipoise.render.drain import ROUTER_NOTICE_SECONDS
from equipoise.render.engines.base import EngineParts, engine_port, merged, user_flags
from equipoise.render.flags import parse_flags, tokens
from equipoise.render.probes import ProbePaths
from equipoise.render.weights import CACHE_PATH, weight_source

BOOTSTRAP_PORT: Final = 8998
_ALIASES: Final = {"tp": "tp-size", "tensor-parallel-size": "tp-size", "pp": "pp-size", "pipeline-parallel-size": "pp-size"}
_SHAPE: Final = "say it as spec.phases.<phase>.shape, which also counts the GPUs"
RESERVED: Final[Mapping[str, str]] = {
    "model-path": "set spec.model.uri",
    "model": "set spec.model.uri",
    "served-model-name": "set spec.model.servedName, which routing and metrics follow",
    "host": "leave the address to Equipoise: probes and routers need the pod's own",
    "port": "leave the port to Equipoise: probes, routers and scrapes follow it",
    "tp-size": _SHAPE,
    "pp-size": _SHAPE,
    "disaggregation-mode": "leave the mode to Equipoise: it follows the phase",
    "disaggregation-bootstrap-port": "leave the port to Equipoise: the router finds it by the pod's annotation",
}
"""Flags that routing or GPU counts depend on, and where to say it instead."""
_SWITCHING_BACKENDS: Final = frozenset({"mooncake", "mori"})  # SGLang 0.5.23: supports_role_switch
_SWITCH_SINCE: Final = (0, 5, 23)


def parts(context: Context, variant: Variant) -> EngineParts:
    """The container of one variant."""
    common, phase = user_flags(context, variant.phase, _ALIASES, RESERVED)
    weights = weight_source(context, variant)
    shape = variant.shape
    own = [
        f"--model-path={weights.model}",
        "--host=0.0.0.0",
        f"--port={engine_port(context)}",
        f"--served-model-name={context.spec.model.model_name}",
        f"--tp-size={shape.tensor_parallel}",
    ]
    if shape.pipeline_parallel > 1:
        own.append(f"--pp-size={shape.pipeline_parallel}")
    if weights.revision:
        own.append(f"--revision={weights.revision}")
    own.append("--dtype=bfloat16")
    if weights.quantise and shape.precision is Precision.FP8:
        own.append("--quantization=fp8")
    if context.spec.model.architecture.max_context is not None:
        own.append(f"--context-length={context.spec.model.architecture.max_context}")
    own += [
        "--enable-metrics",
        f"--disaggregation-bootstrap-port={BOOTSTRAP_PORT}",
        "--disaggregation-transfer-backend=mooncake",
    ]
    if can_switch_role(context, variant):
        own.append("--enable-pd-role-switch")
    own.append(f"--disaggregation-mode={variant.phase.value}")
    return EngineParts(
        image=context.spec.engine.image or context.options.image("sglang", context.spec.engine.version),
        command=("python3", "-m", "sglang.launch_server"),
        arguments=tuple(tokens(merged(own, common, phase, _ALIASES))),
        environment=({"name": "HF_HOME", "value": f"{CACHE_PATH}/huggingface"},),
        # /health generates a token and takes a second at the least, twenty at the most; /ready is cheap.
        probe_paths=ProbePaths(readiness="/ready", timeout_seconds=25, liveness_period_seconds=30),
        pre_stop_seconds=ROUTER_NOTICE_SECONDS,
        shutdown_seconds=context.spec.drain.grace_seconds,  # it drains without a limit of its own: the grace period is the limit
        ports=({"name": "bootstrap", "containerPort": BOOTSTRAP_PORT},),
        # On both phases, so that a pod may change its phase: the router reads it on prefill pods only.
        annotations={"sglang.ai/bootstrap-port": str(BOOTSTRAP_PORT)},
        sidecar_connector="sglang",
    )


def can_switch_role(context: Context, variant: Variant) -> bool:
    """Whether a running replica can change phase: asked for, a transfer backend that can, a version that has the endpoint."""
    backend = "mooncake"
    for arguments in (context.spec.engine.args, context.spec.phases.of(variant.phase).engine_args):
        for flag in parse_flags(arguments, _ALIASES):
            if flag.key == "disaggregation-transfer-backend":
                backend = flag.value
    wanted = context.spec.capacity.flips is Switch.AUTO
    return wanted and backend in _SWITCHING_BACKENDS and context.engine_version >= _SWITCH_SINCE
