"""PhaseScale: the /scale of one phase, for HPA, KEDA and `kubectl scale`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from equipoise.api.base import ApiModel, ApiObject


class PhaseScaleSpec(ApiModel):
    """What is asked for."""

    replicas: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Replicas wanted of the phase over all its variants, a count. Obeyed when the phase's scaling is External; Equipoise sets it
    once, when it creates the PhaseScale, and never again."""


class PhaseScaleStatus(ApiModel):
    """What there is."""

    replicas: Annotated[int, Field(ge=0)] = 0
    """Replicas of the phase that exist, a count."""
    selector: Annotated[str, Field(max_length=1024)] = ""
    """Label selector of the phase's pods, in the text form that autoscalers read."""


class PhaseScale(ApiObject):
    """The replica count of one phase of an InferenceService: `<name>-prefill` or `<name>-decode`."""

    kind: Literal["PhaseScale"] = "PhaseScale"
    spec: PhaseScaleSpec = PhaseScaleSpec()
    """What is asked for."""
    status: PhaseScaleStatus = PhaseScaleStatus()
    """What there is; written by Equipoise."""
