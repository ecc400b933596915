"""Conditions in the form of metav1.Condition, and the one way to change them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from equipoise.api.base import ApiModel, shortened


class ConditionType(StrEnum):
    """Conditions of an InferenceService."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    PREFILL_READY = "PrefillReady"
    DECODE_READY = "DecodeReady"
    METRICS_AVAILABLE = "MetricsAvailable"
    TARGETS_MET = "TargetsMet"
    CAPACITY_LIMITED = "CapacityLimited"
    REBALANCING = "Rebalancing"


class Condition(ApiModel):
    """One condition."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the condition, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds: True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
    """Why, as one CamelCase word for programs."""
    message: Annotated[str, BeforeValidator(shortened(4096)), Field(max_length=4096)] = ""
    """Why, as a sentence with numbers for people."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """The metadata.generation that this was judged on."""
    last_transition_time: Annotated[str, Field(max_length=64)] = ""
    """When `status` changed last, as an RFC 3339 time in UTC."""


def set_condition(conditions: Sequence[Condition], new: Condition, now_iso: str) -> list[Condition]:
    """The conditions with `new` in the place of its type, or at the end.

    lastTransitionTime stays as long as the status stays, whatever reason and message say; else it becomes `now_iso` (RFC 3339).
    """
    old = find_condition(conditions, new.type)
    kept = old.last_transition_time if old is not None and old.status == new.status else ""
    stamped = new.model_copy(update={"last_transition_time": kept or now_iso})
    if old is None:
        return [*conditions, stamped]
    return [stamped if condition.type == new.type else condition for condition in conditions]


def find_condition(conditions: Sequence[Condition], kind: str) -> Condition | None:
    """The condition of that type, if it was ever set."""
    return next((condition for condition in conditions if condition.type == kind), None)
