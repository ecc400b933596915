"""One step of a rollout: how many replicas each revision shall have now.

Level-triggered like every move: the answer follows from what is, so it does not matter which step was taken last, or whether the
process that took it lives. Rules, in the order in which they speak:

1. Old replicas that do not serve go at once: their loss costs nothing, and their GPUs are needed.
2. What the allocation asks for and no replica holds a GPU for is started in the new revision.
3. Where the GPU of one more replica is free, one starts on top (surge), and an old one goes when it serves.
4. Where none is free, an old one goes first, while no more are missing than allowed. The last one that serves a phase stays.
5. Lockstep: a phase takes its next step only while what it has begun is not ahead of what already serves in the other by more
   than one allowance of the other.

So the replicas of a phase stay between its count less `unavailable` and its count plus `surge`, and both phases are replaced at
the same pace. A revision that cannot start costs a phase at most its allowance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from equipoise.api.identity import Phase, Variant
from equipoise.decide.rollout.tables import Tables
from equipoise.decide.rollout.types import Allowance, RolloutInput, RolloutStep


def plan_rollout(given: RolloutInput) -> RolloutStep:
    """Counts for now, and what is waited for."""
    tables = Tables(given)
    if given.flips:
        _flip(tables)
    tables.settle_new()
    started = _refill(tables)
    reasons: dict[Phase, str] = {}
    # Replicas that were just counted take GPUs that `room` may still show.
    asked = frozenset[Variant]() if started else _surge(tables, reasons)
    while _take_one_away(tables, reasons):
        pass
    return _answer(tables, reasons, asked)


def unavailable(allowance: Allowance, wanted: int) -> int:
    """Replicas that may be missing of a phase of that many: the last one stays, unless that is expressly allowed.

    Percentages of both allowances may round to nothing; then one may be missing, or nothing could ever be replaced.
    """
    least = 1 if allowance.surge == 0 else 0
    return max(least, allowance.unavailable) if allowance.may_stop else min(max(least, allowance.unavailable), max(0, wanted - 1))


def _flip(tables: Tables) -> None:
    """A phase that lost a replica to the other of the same place gives it away running, in whichever revision it is."""
    for receiver in tables.variants:
        donor = receiver.with_phase(receiver.phase.other)
        lacking = tables.count(receiver) - tables.new[receiver] - tables.held[receiver]
        over = tables.new[donor] + sum(table[donor] for table in tables.old.values()) - tables.count(donor)
        for _ in range(max(0, min(lacking, over))):
            table = tables.running_at(donor)
            if table is None:
                return
            table[donor] -= 1
            table[receiver] += 1
            if table is not tables.new:
                tables.held[donor] -= 1
                tables.held[receiver] += 1


def _refill(tables: Tables) -> bool:
    """Start what is wanted and has no GPU; whether anything was."""
    started = False
    for variant in tables.variants:
        missing = tables.count(variant) - tables.new[variant] - tables.held[variant]
        if missing > 0:
            tables.new[variant] += missing
            started = True
    return started


def _surge(tables: Tables, reasons: dict[Phase, str]) -> frozenset[Variant]:
    """One replica on top per look: the next look knows what it took. None while a new one of the phase finds no node.

    Returns variants for which one would have been started, had there been room.
    """
    asked: set[Variant] = set()
    for phase in sorted(Phase, key=lambda phase: (tables.share(phase), phase)):
        allowance, wanted = tables.given.allowances[phase], tables.wanted(phase)
        if not tables.left(phase) or tables.stuck(phase) or tables.total(phase) + 1 > wanted + allowance.surge:
            continue
        useful = [variant for variant in tables.of(phase) if tables.new[variant] < tables.count(variant)]
        if not useful or not _may_step(tables, phase):
            continue
        able = [variant for variant in useful if tables.given.room.get(variant, 0) > 0]
        if able:
            tables.new[min(able, key=lambda variant: (tables.new[variant] / tables.count(variant), variant))] += 1
            break
        asked.update(useful)
        reasons[phase] = "no GPU is free for one more replica"
    return frozenset(asked)


def _take_one_away(tables: Tables, reasons: dict[Phase, str]) -> bool:
    """Take one old replica that serves out, if its phase can do without; whether one was found."""
    for phase in Phase:
        if not tables.left(phase):
            continue
        wanted, serving = tables.wanted(phase), tables.serving(phase)
        if serving > wanted or not wanted:
            _remove_one(tables, phase)
            return True
        if any(tables.total(each) - tables.stuck(each) > tables.wanted(each) for each in Phase):
            continue  # what is on top will serve, an old one may go then, and its GPU serves the next one on top
        allowed = unavailable(tables.given.allowances[phase], wanted)
        if not allowed and phase in reasons:
            count = "only one replica" if wanted == 1 else f"{wanted} replicas, none of which may be missing"
            cure = "free a GPU, or set spec.rollout.maxUnavailable"
            reasons[phase] = f"{reasons[phase]}, and {phase.value} has {count}: {cure} (100% lets a phase stop)"
        if serving > wanted - allowed and _may_step(tables, phase):
            _remove_one(tables, phase)
            return True
    return False


def _remove_one(tables: Tables, phase: Phase) -> None:
    """First where more are than wanted, then what never served as a whole, then where least is replaced."""

    def worth(place: tuple[str, Variant]) -> tuple[bool, int, float, Variant]:
        revision, variant = place
        wanted = tables.count(variant)
        over = tables.new[variant] + sum(table[variant] for table in tables.old.values()) > wanted
        return not over, tables.former.index(revision), tables.new[variant] / wanted if wanted else 0.0, variant

    revision, variant = min(_old_of(tables, phase), key=worth)
    tables.old[revision][variant] -= 1


def _old_of(tables: Tables, phase: Phase) -> Iterator[tuple[str, Variant]]:
    return ((revision, v) for revision in tables.former for v in tables.of(phase) if tables.old[revision][v] > 0)


def _may_step(tables: Tables, phase: Phase) -> bool:
    """Lockstep: what is begun here must not be ahead of what serves there by more than one allowance of the other phase."""
    other = phase.other
    if not tables.wanted(other):
        return True
    allowance = tables.given.allowances[other]
    mine, theirs = tables.progress(phase) + 1, tables.ready(other) + max(1, allowance.surge, allowance.unavailable)
    ahead = mine * tables.wanted(other) - theirs * tables.wanted(phase)
    return ahead < 0 or (ahead == 0 and tables.progress(other) <= tables.ready(other))  # of equals one begins


def _answer(tables: Tables, reasons: Mapping[Phase, str], asked: frozenset[Variant]) -> RolloutStep:
    given = tables.given
    mine = [item for item in given.replicas if item.revision == given.target and not item.terminating]
    old = [item for item in given.replicas if item.revision != given.target]
    leaving = [f"{item.name} still holds its GPU while it ends" for item in old if item.terminating and item.bound]
    starting = [item.message or f"{item.name} starts" for item in mine if not item.serving and not item.draining]
    held_up = [f"{phase.value}: {reasons[phase]}" for phase in Phase if phase in reasons and tables.left(phase) and not starting]
    counted = any(count for revision, table in given.live.items() if revision != given.target for count in table.values())
    replaced = not counted and all(item.terminating for item in old)
    serve = all(sum(item.serving for item in mine if item.variant.phase is phase) >= tables.wanted(phase) for phase in Phase)
    return RolloutStep(
        counts={given.target: dict(tables.new), **{name: dict(table) for name, table in tables.old.items()}},
        waiting=(*starting, *leaving, *held_up),
        complete=replaced and serve,
        replaced=replaced,
        ready=sum(item.serving for item in mine),
        serves=all(any(item.serving for item in mine if item.variant.phase is phase) for phase in Phase if tables.wanted(phase)),
        replicas=sum(given.allocation.values()),
        asked=asked,
        draining=any(item.draining and not item.terminating for item in given.replicas),
    )
