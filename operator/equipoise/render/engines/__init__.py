"""One module per serving engine: its command line, environment, ports and probes."""

from __future__ import annotations

from equipoise.api.engine import EngineType
from equipoise.api.identity import Variant
from equipoise.render.context import Context
from equipoise.render.engines import custom, sglang, vllm
from equipoise.render.engines.base import EngineParts
from equipoise.render.options import Problem, Refusal


def engine_parts(context: Context, variant: Variant) -> EngineParts:
    """What the variant's engine container is made of; a Refusal for what Equipoise cannot run."""
    match context.spec.engine.type:
        case EngineType.VLLM:
            return vllm.parts(context, variant)
        case EngineType.SGLANG:
            return sglang.parts(context, variant)
        case EngineType.CUSTOM:
            return custom.parts(context, variant)
        case EngineType.TRTLLM:
            raise Refusal(
                Problem(
                    "spec.engine.type",
                    "trtllm-serve's disaggregated server reads its workers from a static list of addresses, so replicas that "
                    "come, go or change phase would not be served; use vllm or sglang, or custom with an image that "
                    "registers its workers",
                )
            )
