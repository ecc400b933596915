"""The numbers of one look at a rollout, by variant: what is new, what is old and may stay, what holds a GPU besides."""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from equipoise.api.identity import Phase, Variant
from equipoise.decide.rollout.types import Replica, RolloutInput


class Tables:
    """`new` replicas of the target and `old` ones by revision change as steps are taken; those that leave are in neither.

    `held` are replicas with a GPU that are not in `new`: old ones, and all that drain or end.
    """

    def __init__(self, given: RolloutInput) -> None:
        self.given = given
        target = given.target
        names = {*given.live, *(item.revision for item in given.replicas)} - {target}
        self.former = sorted(names, key=lambda name: (name == given.stable, name))
        self._draining = Counter(
            (item.revision, item.variant) for item in given.replicas if item.draining and not item.terminating
        )
        self._existing = Counter((item.revision, item.variant) for item in given.replicas if not item.terminating)
        self.new = self._less_draining(target)
        self.held: Counter[Variant] = Counter()
        for item in given.replicas:
            if item.bound and (item.revision != target or item.draining or item.terminating):
                self.held[item.variant] += 1
        self.old: dict[str, Counter[Variant]] = {}
        for revision in self.former:
            staying = Counter(item.variant for item in given.replicas if item.revision == revision and _stays(item))
            counted = self._less_draining(revision)
            live = {*given.live.get(revision, {}), *staying}
            self.old[revision] = Counter({variant: min(staying[variant], counted[variant]) for variant in live})
        self.variants = sorted({*given.allocation, *self.new, *self.held, *(v for table in self.old.values() for v in table)})
        self._serving = Counter((item.revision, item.variant) for item in given.replicas if item.serving)

    def _less_draining(self, revision: str) -> Counter[Variant]:
        """Counts without the replicas that drain. One that was let go is not counted any more, though it may still be there."""
        result: Counter[Variant] = Counter()
        for variant, count in self.given.live.get(revision, {}).items():
            let_go = max(0, self._existing[revision, variant] - count)
            result[variant] = max(0, count - max(0, self._draining[revision, variant] - let_go))
        return result

    def settle_new(self) -> None:
        """No more new replicas than wanted; where more are wanted, those that drain stay."""
        for variant in self.variants:
            wanted, draining = self.count(variant), self._draining[self.given.target, variant]
            back = max(0, min(draining, wanted - self.new[variant]))
            self.held[variant] -= back
            self.new[variant] = min(self.new[variant] + back, wanted)

    def count(self, variant: Variant) -> int:
        """Replicas of a variant that the allocation asks for."""
        return self.given.allocation.get(variant, 0)

    def wanted(self, phase: Phase) -> int:
        """Replicas of a phase that the allocation asks for."""
        return sum(count for variant, count in self.given.allocation.items() if variant.phase is phase)

    def of(self, phase: Phase) -> list[Variant]:
        """The variants of a phase."""
        return [variant for variant in self.variants if variant.phase is phase]

    def left(self, phase: Phase) -> int:
        """Old replicas that are to stay for now."""
        return sum(table[variant] for table in self.old.values() for variant in self.of(phase))

    def total(self, phase: Phase) -> int:
        """Replicas that hold a GPU or are to have one."""
        return sum(self.new[variant] + self.held[variant] for variant in self.of(phase))

    def stuck(self, phase: Phase) -> int:
        """New replicas that find no node."""
        return sum(item.waits_for_node for item in self._target_replicas if item.variant.phase is phase)

    def progress(self, phase: Phase) -> int:
        """Replicas that are replaced, or on their way to be."""
        return max(sum(self.new[variant] for variant in self.of(phase)), self.wanted(phase) - self.left(phase))

    def ready(self, phase: Phase) -> int:
        """New replicas that serve."""
        return sum(item.serving for item in self._target_replicas if item.variant.phase is phase)

    def share(self, phase: Phase) -> float:
        """The progress as a share of the phase."""
        return self.progress(phase) / max(1, self.wanted(phase))

    def serving(self, phase: Phase) -> int:
        """Replicas that serve and are to stay: those taken out in this look are not counted any more."""
        new = sum(min(self._serving[self.given.target, variant], self.new[variant]) for variant in self.of(phase))
        return new + sum(
            min(self._serving[revision, variant], table[variant])
            for revision, table in self.old.items()
            for variant in self.of(phase)
        )

    def running_at(self, variant: Variant) -> Counter[Variant] | None:
        """The table, the target's first, that has a replica of this variant which serves."""
        tables = {self.given.target: self.new, **self.old}
        return next((table for name, table in tables.items() if min(table[variant], self._serving[name, variant]) > 0), None)

    @cached_property
    def _target_replicas(self) -> list[Replica]:
        return [item for item in self.given.replicas if item.revision == self.given.target]


def _stays(item: Replica) -> bool:
    return not (item.broken or item.draining or item.terminating)
