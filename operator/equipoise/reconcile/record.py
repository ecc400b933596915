"""What the process knows of each service between rounds. Everything in it comes back from status after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from equipoise.api.identity import ServiceKey, Variant
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.types import Decision, Reason
from equipoise.fleet.types import Fleet
from equipoise.observe.types import ServiceObservation


@dataclass(frozen=True, slots=True)
class Record:
    """One service. `allocation` None: nothing is decided and nothing was found in status."""

    uid: str = ""
    allocation: Mapping[Variant, int] | None = None
    decision: Decision | None = None
    observation: ServiceObservation | None = None
    memory: ServiceMemory = field(default_factory=ServiceMemory)
    problem: Reason | None = None  # the spec cannot be carried out: what runs is left alone
    trouble: Reason | None = None  # a child could not be written
    flips: bool = False


class Records:
    """All services, the fleet as last read, and what is wrong with the metrics."""

    def __init__(self) -> None:
        self._records: dict[ServiceKey, Record] = {}
        self.fleet = Fleet(())
        self.metrics_reason = ""
        self.metrics_problem = ""

    def of(self, key: ServiceKey) -> Record:
        """The record of a service; an empty one when nothing is known."""
        return self._records.get(key, Record())

    def put(self, key: ServiceKey, record: Record) -> None:
        """Replace a record."""
        self._records[key] = record

    def note_trouble(self, key: ServiceKey, trouble: Reason | None) -> None:
        """Remember why a child could not be written, or that all is well."""
        record = self.of(key)
        if record.trouble != trouble:
            self._records[key] = replace(record, trouble=trouble)

    def forget(self, key: ServiceKey) -> None:
        """The service is gone."""
        self._records.pop(key, None)

    def keys(self) -> set[ServiceKey]:
        """Services with a record."""
        return set(self._records)
