"""Step times of one replica: the fitted table where it has exactly this case, else the roofline."""

from __future__ import annotations

from functools import lru_cache

from equipoise.api.identity import Shape
from equipoise.fleet.types import Device
from equipoise.perf.memory import shape_refusal
from equipoise.perf.roofline import roofline_step_times
from equipoise.perf.table import fitted_step_times
from equipoise.perf.types import ModelFacts, Refusal, StepTimes


@lru_cache(maxsize=8192)
def step_times(model: ModelFacts, device: Device, shape: Shape) -> StepTimes | Refusal:
    """Step times of one replica of this shape on this device; a Refusal when the shape cannot run here (memory is not looked
    at).
    """
    refusal = shape_refusal(model, device, shape)
    if refusal is not None:
        return refusal
    return fitted_step_times(model, device, shape) or roofline_step_times(model, device, shape)
