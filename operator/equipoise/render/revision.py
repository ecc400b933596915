"""One revision over both phases: a digest of what the user set that a running engine depends on.

Replicas, targets, budgets, prices and whatever else changes no process are not part of it, nor are defaults: a value counts only
where it differs from the neutral one below, which is fixed for ever. So neither other defaults nor new fields of a later release
give another digest, and an upgrade restarts nothing.
"""

from __future__ import annotations

from typing import Any, Final

from equipoise.api.engine import EngineType, EnvVar, RouterType
from equipoise.api.identity import Phase, Precision
from equipoise.api.policy import Switch
from equipoise.api.service import InferenceService
from equipoise.render.hashing import digest

REVISION_VERSION: Final = 1
"""How the digest is made. Another way needs another number, and revisions of this one must still be recognised."""
_NEUTRAL: Final[dict[str, Any]] = {
    "engine.type": EngineType.VLLM.value,
    "model.weights.precision": Precision.BF16.value,
    "drain.grace": 300.0,
}


def revision(service: InferenceService) -> str:
    """The revision, `v1-` and ten hexadecimal digits: value of the label `equipoise.dev/revision`."""
    return f"v{REVISION_VERSION}-{digest(basis(service))}"


def basis(service: InferenceService) -> dict[str, Any]:
    """What the revision is a digest of: fields by their path, those that are unset or neutral left out."""
    spec = service.spec
    fields: dict[str, Any] = {
        "model.uri": spec.model.uri,
        "model.servedName": spec.model.served_name,
        "model.architecture.maxContext": spec.model.architecture.max_context,
        "model.weights.precision": spec.model.weights.precision.value,
        "model.weights.calibrated": sorted([entry.precision.value, entry.uri or ""] for entry in spec.model.weights.calibrated),
        "engine.type": spec.engine.type.value,
        "engine.image": spec.engine.image,
        "engine.version": spec.engine.version,
        "engine.args": list(spec.engine.args),
        "engine.env": [_variable(variable) for variable in spec.engine.env],
        "engine.podTemplate": spec.engine.pod_template,
        "drain.grace": spec.drain.grace_seconds,
        "routingSidecar": spec.router_type is RouterType.INFERENCE_POOL,
        "unboundedQueues": spec.capacity.bounded_queues is Switch.DISABLED,
        "flipsDisabled": spec.engine.type is EngineType.SGLANG and spec.capacity.flips is Switch.DISABLED,
    }
    for phase in Phase:
        fields[f"phases.{phase.value}.engineArgs"] = list(spec.phases.of(phase).engine_args)
        fields[f"phases.{phase.value}.podTemplate"] = spec.phases.of(phase).pod_template
    return {name: value for name, value in fields.items() if value and value != _NEUTRAL.get(name)}


def _variable(variable: EnvVar) -> dict[str, Any]:
    return {"name": variable.name, "value": variable.value, "valueFrom": variable.value_from}
