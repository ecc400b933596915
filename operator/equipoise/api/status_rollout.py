"""The part of status that remembers revisions: which served last, and how far the next one has come."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from equipoise.api.base import ApiModel, FreeObject, shortened

_Text = Annotated[str, BeforeValidator(shortened(253)), Field(max_length=253)]
_Count = Annotated[int, Field(ge=0)]


class RevisionRecord(ApiModel):
    """A revision that served as a whole."""

    revision: _Text
    """Its name: value of the label `equipoise.dev/revision`."""
    since: _Text = ""
    """When it had replaced what was before, as an RFC 3339 time in UTC."""
    spec: FreeObject | None = None
    """The fields of the spec that it stands for, as they were; defaults are left out."""


class RolloutStatus(ApiModel):
    """One revision replaces another over both phases."""

    stage: _Text
    """Rolling, RollingBack (the wanted revision did not come up in time) or RolledBack (the stable one serves until the spec
    asks for yet another)."""
    wanted: _Text
    """The revision that the spec asks for."""
    stable: _Text = ""
    """The revision that last served as a whole."""
    started_at: _Text = ""
    """When it began, as an RFC 3339 time in UTC."""
    progressed_at: _Text = ""
    """When it last got on, as an RFC 3339 time in UTC: `spec.rollout.progressDeadline` counts from here."""
    ready: _Count = 0
    """Most replicas of the revision it goes to that were ready so far, a count."""
    replicas: _Count = 0
    """Replicas wanted in all, a count."""
    draining: bool = False
    """Whether it waits for a replica to finish its answers: the deadline does not count then."""
    reason: Annotated[str, BeforeValidator(shortened(4096)), Field(max_length=4096)] = ""
    """Why it was rolled back."""
