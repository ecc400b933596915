"""An engine of the user's own: their image and arguments, our labels, and the variant in the environment."""

from __future__ import annotations

from typing import Any

from equipoise.api.identity import Variant
from equipoise.render.context import Context
from equipoise.render.drain import KV_LEASE_SECONDS
from equipoise.render.engines.base import HTTP_PORT, EngineParts
from equipoise.render.flags import overlay, parse_flags, tokens
from equipoise.render.options import Problem, Refusal
from equipoise.render.probes import ProbePaths
from equipoise.render.weights import CACHE_PATH, weight_source


def parts(context: Context, variant: Variant) -> EngineParts:
    """The container of one variant. It must serve the OpenAI API, `/health` and vLLM's metrics on port 8000."""
    if context.spec.engine.image is None:
        raise Refusal(Problem("spec.engine.image", "engine.type custom needs the image to run; set spec.engine.image"))
    weights = weight_source(context, variant)
    shape = variant.shape
    values: dict[str, str] = {
        "EQUIPOISE_PHASE": variant.phase.value,
        "EQUIPOISE_MODEL": weights.model,
        "EQUIPOISE_MODEL_REVISION": weights.revision,
        "EQUIPOISE_SERVED_MODEL_NAME": context.spec.model.model_name,
        "EQUIPOISE_PORT": str(HTTP_PORT),
        "EQUIPOISE_TENSOR_PARALLEL": str(shape.tensor_parallel),
        "EQUIPOISE_PIPELINE_PARALLEL": str(shape.pipeline_parallel),
        "EQUIPOISE_PRECISION": shape.precision.value,
        "EQUIPOISE_DRAIN_SECONDS": str(int(context.spec.drain.grace_seconds)),
        "HF_HOME": f"{CACHE_PATH}/huggingface",
    }
    environment: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items() if value]
    environment.append({"name": "EQUIPOISE_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    flags = overlay(parse_flags(context.spec.engine.args), parse_flags(context.spec.phases.of(variant.phase).engine_args))
    return EngineParts(
        image=context.spec.engine.image,
        command=(),
        arguments=tuple(tokens(flags)),
        environment=tuple(environment),
        probe_paths=ProbePaths(),
        pre_stop_seconds=KV_LEASE_SECONDS,
        shutdown_seconds=context.spec.drain.grace_seconds,
    )
