"""What it looks like: InferenceService and allocation to manifests. Pure.

`compose` (or `render`) gives all children; `differs` says whether a live object already holds what is wanted.
"""

from equipoise.render.children import RenderRefused, compose, render
from equipoise.render.differs import differences, differs
from equipoise.render.names import MAX_SERVICE_NAME, deployment_name, engines_name, phase_name, router_name
from equipoise.render.options import INFERENCE_POOLS, POD_MONITORS, Problem, Rendering, RenderOptions
from equipoise.render.revision import revision

__all__ = [
    "INFERENCE_POOLS",
    "MAX_SERVICE_NAME",
    "POD_MONITORS",
    "Problem",
    "RenderOptions",
    "RenderRefused",
    "Rendering",
    "compose",
    "deployment_name",
    "differences",
    "differs",
    "engines_name",
    "phase_name",
    "render",
    "revision",
    "router_name",
]
