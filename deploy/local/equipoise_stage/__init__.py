"""Equipoise on a local cluster as users have it: the chart by Helm, the operator with the chart's rights, emulated engines."""

from equipoise_stage.stage import Stage, StageError

__all__ = ["Stage", "StageError"]
