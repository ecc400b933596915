"""One revision over both phases: a digest of what the user set that a running engine depends on.

Replicas, targets, budgets, prices and whatever else changes no process are not part of it, nor is any default: a new release of
Equipoise with other defaults finds the same revision and restarts nothing. The version says how the digest is made.
"""

from __future__ import annotations

from typing import Any, Final

from equipoise.api.base import ApiModel
from equipoise.api.engine import EngineType, RouterType
from equipoise.api.identity import Phase
from equipoise.api.policy import Switch
from equipoise.api.service import InferenceService
from equipoise.render.hashing import digest

REVISION_VERSION: Final = 1
_PHASE_FIELDS: Final = ("engineArgs", "podTemplate")


def revision(service: InferenceService) -> str:
    """The revision, `v1-` and ten hexadecimal digits: value of the label `equipoise.dev/revision`."""
    return f"v{REVISION_VERSION}-{digest(basis(service))}"


def basis(service: InferenceService) -> dict[str, Any]:
    """What the revision is a digest of."""
    spec = service.spec
    model = _set_fields(spec.model)
    architecture = model.pop("architecture", {})
    result = {
        "model": model,
        "maxContext": architecture.get("maxContext"),
        "engine": _set_fields(spec.engine),
        "phases": {
            phase.value: {name: value for name, value in _set_fields(spec.phases.of(phase)).items() if name in _PHASE_FIELDS}
            for phase in Phase
        },
        "drain": _set_fields(spec.drain),
        "routingSidecar": spec.router_type is RouterType.INFERENCE_POOL,
        "unboundedQueues": spec.capacity.bounded_queues is Switch.DISABLED,
        "flipsDisabled": spec.engine.type is EngineType.SGLANG and spec.capacity.flips is Switch.DISABLED,
    }
    return {name: value for name, value in result.items() if value not in (None, {}, False)}


def _set_fields(model: ApiModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
