"""Labels and annotations on what Equipoise creates. The `llm-d.ai/*` ones make llm-d's picker and an InferencePool work."""

from __future__ import annotations

from typing import Final

NAME: Final = "app.kubernetes.io/name"
INSTANCE: Final = "app.kubernetes.io/instance"  # the InferenceService's name
COMPONENT: Final = "app.kubernetes.io/component"  # prefill, decode, router
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_BY_VALUE: Final = "equipoise"

ROLE: Final = "llm-d.ai/role"  # prefill, decode; ROLE_DRAINING takes a pod out of routing without orphaning it
ROLE_DRAINING: Final = "draining"
MODEL: Final = "llm-d.ai/model"
INFERENCE_SERVING: Final = "llm-d.ai/inference-serving"
ENGINE_TYPE: Final = "llm-d.ai/engine-type"

SERVICE: Final = "equipoise.dev/service"  # the InferenceService's name
VARIANT: Final = "equipoise.dev/variant"  # the Deployment's name: with managed-by, all of a Deployment's selector
POOL: Final = "equipoise.dev/pool"
SHAPE: Final = "equipoise.dev/shape"
REVISION: Final = "equipoise.dev/revision"  # one over both phases; replicas excluded
POD_TEMPLATE_HASH: Final = "pod-template-hash"

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
SPEC_HASH: Final = "equipoise.dev/spec-hash"  # of what Equipoise applied last: no write without a change
EMULATED_STARTUP_SECONDS: Final = "equipoise.dev/emulated-startup-seconds"  # read by the local cluster only
