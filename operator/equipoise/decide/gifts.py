"""Who could give what to whom: donors of a handover, before anybody has judged it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide.free import FreeNow
from equipoise.decide.state import ServiceState
from equipoise.fleet.types import Fleet


@dataclass(slots=True)
class Gift:
    """Replicas of one donor for one receiver. `nodes` says where they must go, when the receiver needs its GPUs on one node."""

    owner: ServiceState
    donor: Variant
    receiver: Variant
    donors: int
    receivers: int
    nodes: tuple[str, ...] = ()


Unit = list[Gift]  # all that one receiving replica needs


@dataclass(slots=True)
class _Room:
    """One node: GPUs that are free now, and donors on it."""

    name: str
    free: int
    replicas: dict[Variant, int]
    most: int  # GPUs that they hold


class Donors:
    """Replicas that the plan takes away, by pool; those of lower priority give first."""

    def __init__(self, services: Mapping[ServiceKey, ServiceState], fleet: Fleet, free: FreeNow) -> None:
        self.services = services
        self.spare: dict[Variant, int] = {}
        ranked: dict[str, list[tuple[int, Variant]]] = {}
        for owner in services.values():
            if not owner.active:
                continue
            for state in owner.phases.values():
                if not state.automatic:
                    continue
                for variant, count in state.next.items():
                    if count > state.wanted.get(variant, 0):
                        self.spare[variant] = count - state.wanted.get(variant, 0)
                        ranked.setdefault(variant.pool, []).append((owner.service.priority, variant))
        self.by_pool = {pool: [variant for _, variant in sorted(entries)] for pool, entries in ranked.items()}
        self._rank = {variant: priority for entries in ranked.values() for priority, variant in entries}
        self._fleet, self._free = fleet, free
        self._rooms: dict[str, list[_Room]] = {}

    def units(self, wishes: Mapping[Variant, int]) -> list[Unit]:
        """Donors for each replica that is wished for, nearest kin first. A receiver that finds too few ends the list."""
        promised: dict[Variant, int] = {}
        units: list[Unit] = []
        for receiver, count in wishes.items():
            capped = receiver in self.services[receiver.service].capped
            order = self._order(receiver, capped=capped)
            for _ in range(count):
                wide = not capped and any(v.shape.gpus_per_replica < receiver.shape.gpus_per_replica for v in order)
                found = self._on_one_node(receiver, promised) if wide else self._anywhere(receiver, order, promised)
                if not found:
                    return units
                unit = [self._gift(receiver, donor, taken, node) for donor, taken, node in found]
                unit[-1].receivers = 1
                units.append(unit)
                for donor, taken, _node in found:
                    promised[donor] = promised.get(donor, 0) + taken
        return units

    def given(self, gift: Gift) -> None:
        """A gift that was made is not there for others."""
        self.spare[gift.donor] -= gift.donors

    def _gift(self, receiver: Variant, donor: Variant, taken: int, node: str) -> Gift:
        return Gift(self.services[donor.service], donor, receiver, taken, 0, (node,) if node else ())

    def _anywhere(
        self, receiver: Variant, order: Sequence[Variant], promised: Mapping[Variant, int]
    ) -> list[tuple[Variant, int, str]]:
        missing = receiver.shape.gpus_per_replica
        found = []
        for donor in order:
            left = self.spare[donor] - promised.get(donor, 0)
            taken = min(left, -(-missing // donor.shape.gpus_per_replica))
            if taken > 0:
                found.append((donor, taken, ""))
                missing -= taken * donor.shape.gpus_per_replica
                if missing <= 0:
                    return found
        return []

    def _on_one_node(self, receiver: Variant, promised: Mapping[Variant, int]) -> list[tuple[Variant, int, str]]:
        """The node on which the fewest replicas have to go: donors that leave single GPUs on many nodes help nobody."""
        best: list[tuple[Variant, int, str]] = []
        best_room: _Room | None = None
        fewest = 0
        for room in self._rooms_of(receiver.pool):
            missing = receiver.shape.gpus_per_replica - room.free
            if room.most < missing:
                continue
            found, count = [], 0
            for donor in sorted(room.replicas, key=lambda donor: (donor.service != receiver.service, self._rank[donor], donor)):
                left = min(self.spare[donor] - promised.get(donor, 0), room.replicas[donor])
                taken = min(left, -(-missing // donor.shape.gpus_per_replica))
                if taken > 0:
                    found.append((donor, taken, room.name))
                    count += taken
                    missing -= taken * donor.shape.gpus_per_replica
                    if missing <= 0:
                        break
            if found and missing <= 0 and (not best or count < fewest):
                best, best_room, fewest = found, room, count
                if fewest == 1:
                    break
        if best_room is not None:
            for donor, taken, _ in best:
                best_room.replicas[donor] -= taken
                best_room.free += taken * donor.shape.gpus_per_replica
                best_room.most -= taken * donor.shape.gpus_per_replica
            best_room.free -= receiver.shape.gpus_per_replica
        return best

    def _rooms_of(self, pool: str) -> list[_Room]:
        """Nodes on which somebody could give something."""
        if pool not in self._rooms:
            found = self._fleet.pool(pool)
            left = self._free.by_node(pool)
            rooms = []
            for node in sorted(found.nodes if found is not None else (), key=lambda node: node.name):
                held = {v: gpus // v.shape.gpus_per_replica for v, gpus in node.own_gpus.items() if v in self.spare}
                if held and node.usable:
                    most = sum(v.shape.gpus_per_replica * count for v, count in held.items())
                    rooms.append(_Room(node.name, left.get(node.name, 0), held, most))
            self._rooms[pool] = rooms
        return self._rooms[pool]

    def _order(self, receiver: Variant, *, capped: bool) -> list[Variant]:
        """The service's own replicas first. Where its caps stand in the way only its own help, on whatever pool they are."""
        pool = self.by_pool.get(receiver.pool, [])
        kin = [variant for variant in pool if variant.service == receiver.service]
        if capped:
            elsewhere = [v for name, entries in sorted(self.by_pool.items()) if name != receiver.pool for v in entries]
            return [*kin, *(variant for variant in elsewhere if variant.service == receiver.service)]
        return [*kin, *(variant for variant in pool if variant.service != receiver.service)] if kin else pool


def merge(units: Iterable[Unit]) -> list[Gift]:
    """The gifts of several receivers, one entry for each pair of donor and receiver."""
    merged: dict[tuple[Variant, Variant], Gift] = {}
    for unit in units:
        for gift in unit:
            known = merged.setdefault((gift.donor, gift.receiver), replace(gift, donors=0, receivers=0, nodes=()))
            known.donors += gift.donors
            known.receivers += gift.receivers
            known.nodes += tuple(node for node in gift.nodes if node not in known.nodes)
    return list(merged.values())


def within_floors(units: list[Unit]) -> list[Unit]:
    """As many gifts as leave every phase its minimum of replicas that serve, and at least one: one that starts answers nobody."""
    kept: list[Unit] = []
    given: dict[tuple[ServiceKey, Phase], int] = {}
    for unit in units:
        for gift in unit:
            place = (gift.donor.service, gift.donor.phase)
            given[place] = given.get(place, 0) + gift.donors
        states = {(gift.donor.service, gift.donor.phase): gift.owner.phases[gift.donor.phase] for gift in unit}
        if any(
            min(state.replicas(), sum(state.ready.values())) - given[place] < max(1, state.floor)
            for place, state in states.items()
        ):
            break
        kept.append(unit)
    return kept
