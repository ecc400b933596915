"""Moves and variants as status, Events and people see them."""

from __future__ import annotations

from equipoise.api.identity import Variant
from equipoise.api.status import MoveStatus
from equipoise.decide.types import Move


def move_status(move: Move) -> MoveStatus:
    """A move as the status and Events show it."""
    return MoveStatus(
        kind=move.kind.value,
        donor=short(move.donor) if move.donor else None,
        receiver=short(move.receiver) if move.receiver else None,
        replicas=move.replicas,
        donor_replicas=move.donor_replicas,
        reason=move.reason[:4000],
    )


def short(variant: Variant) -> str:
    """A variant inside its service: phase@pool/shape."""
    return f"{variant.phase.value}@{variant.pool}/{variant.shape}"
