"""An InferencePool of the Gateway API Inference Extension; the user brings the endpoint picker."""

from __future__ import annotations

from typing import Any

from equipoise.api import labels
from equipoise.render.context import Context
from equipoise.render.engines.base import HTTP_PORT
from equipoise.render.names import engines_name
from equipoise.render.options import Problem, Refusal


def inference_pool(context: Context) -> dict[str, Any]:
    """The pool of all engine pods; llm-d's picker tells the phases apart by their role label, and leaves draining pods out."""
    picker = context.spec.router.endpoint_picker
    if picker is None:
        message = "router.type inference-pool needs the Service of an endpoint picker; set spec.router.endpointPicker.name"
        raise Refusal(Problem("spec.router.endpointPicker", message))
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": context.metadata(engines_name(context.key), context.spec.engine.type.value, "engines"),
        "spec": {
            "selector": {"matchLabels": {labels.SERVICE: context.key.name, labels.INFERENCE_SERVING: "true"}},
            "targetPorts": [{"number": HTTP_PORT}],
            "endpointPickerRef": {"name": picker.name, "port": {"number": picker.port}},
        },
    }
