"""The rules of the election, free of clock and I/O: every function is told what time it is.

Clocks of two machines are never compared. A standby measures on its own clock how long the Lease has not changed (client-go's
observe-then-expire); a leader measures on its own clock how old its last renewal is, from the moment it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from equipoise.reconcile.kube.kinds import LEASE
from equipoise.reconcile.kube.protocol import Object


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: how long a renewal holds, how old it may be for the leader to write, and how often it is tried."""

    lease_seconds: int = 12
    renew_seconds: float = 8.0
    retry_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. An empty `holder` means released."""

    holder: str
    lease_seconds: float
    renew_time: str
    acquire_time: str
    transitions: int
    resource_version: str
    uid: str = ""

    @classmethod
    def of(cls, lease: Object) -> Record:
        """Read a Lease. Fields that are missing read as released, never as held for ever."""
        spec: dict[str, Any] = lease.get("spec") or {}
        return cls(
            holder=str(spec.get("holderIdentity") or ""),
            lease_seconds=float(spec.get("leaseDurationSeconds") or 0),
            renew_time=str(spec.get("renewTime") or ""),
            acquire_time=str(spec.get("acquireTime") or ""),
            transitions=int(spec.get("leaseTransitions") or 0),
            resource_version=str(lease["metadata"].get("resourceVersion") or ""),
            uid=str(lease["metadata"].get("uid") or ""),
        )


class Election:
    """One candidate's knowledge: the Lease as last seen and since when it has not moved; whether it leads, and until when."""

    def __init__(self, identity: str, namespace: str, name: str, timing: Timing) -> None:
        self.identity = identity
        self.namespace = namespace
        self.name = name
        self.timing = timing
        self.record: Record | None = None
        self._unchanged_since = 0.0
        self._renewed_at: float | None = None

    @property
    def leading(self) -> bool:
        """Whether this candidate took the Lease and has not lost it. See `may_write` for whether that is still safe."""
        return self._renewed_at is not None

    def may_write(self, now: float) -> bool:
        """Whether a write sent now goes out under a renewal that no standby can have seen expire."""
        return self._renewed_at is not None and now - self._renewed_at < self.timing.renew_seconds

    def renewal_left_seconds(self, now: float) -> float:
        """Time in which a renewal must succeed. Zero or less: lost."""
        return self.timing.renew_seconds - (now - self._renewed_at) if self._renewed_at is not None else 0.0

    def lease_left_seconds(self, now: float) -> float:
        """Time until a standby may take over: by then this process must be gone."""
        return self.timing.lease_seconds - (now - self._renewed_at) if self._renewed_at is not None else 0.0

    def see(self, record: Record | None, now: float) -> None:
        """Take in what was read. Only a new holder or renewal counts as a sign of life, not any change of the object."""
        if record is None or self.record is None or _life(record) != _life(self.record):
            self._unchanged_since = now
        self.record = record

    def free_in_seconds(self, now: float) -> float:
        """Time until this candidate may take the Lease; zero or less: now."""
        record = self.record
        if record is None or not record.holder or record.holder == self.identity:
            return 0.0
        return record.lease_seconds - (now - self._unchanged_since)

    def lost_to_other(self) -> bool:
        """Whether somebody else holds what this candidate believed to hold."""
        return self.record is not None and self.record.holder not in ("", self.identity)

    def took(self, record: Record, sent_at: float) -> None:
        """A write of ours was accepted; it counts from when it was sent."""
        self.see(record, sent_at)
        self._renewed_at = sent_at

    def give_up(self) -> None:
        """Not leading any more, for whatever reason."""
        self._renewed_at = None

    def manifest(self, wall_time: str, *, release: bool = False) -> Object:
        """The Lease to write: taken, renewed, or released so that the next one need not wait. Guarded by the version seen."""
        record = self.record
        mine = record is not None and record.holder == self.identity
        metadata: Object = {"name": self.name, "namespace": self.namespace}
        if record is not None:
            metadata |= {"resourceVersion": record.resource_version, "uid": record.uid}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": "" if release else self.identity,
                "leaseDurationSeconds": 1 if release else self.timing.lease_seconds,
                "acquireTime": record.acquire_time if mine and record and record.acquire_time else wall_time,
                "renewTime": wall_time,
                "leaseTransitions": 0 if record is None else record.transitions + (0 if mine else 1),
            },
        }


def _life(record: Record) -> tuple[str, str, int]:
    return record.holder, record.renew_time, record.transitions
