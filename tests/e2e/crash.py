"""Crash points: the operator killed before and after every API write of each kind of move, and what comes of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.moves import TIMEOUT_SECONDS, Moves, Section, not_as_said
from tests.e2e.tally import failures, read_answers
from tests.e2e.world import OPERATOR, REPOSITORY, World

from local_cluster import wait_until

PROGRAM = (str(REPOSITORY / "tests" / "e2e" / "killed_operator.py"),)
# One process at a time, by construction: no lease to wait for after each kill.
SETTINGS: dict[str, Any] = {**OPERATOR, "leaderElection": {"enabled": False}}
MOST_WRITES = 60
SILENCE_SECONDS = 6.0
"""Three rounds of decisions without a write after everything is at rest: the move's writes are over."""


@dataclass
class CrashPoints:
    """Points run, and those after which everything came to rest as asked with every invariant kept."""

    run: Counter[str] = field(default_factory=Counter)
    converged: Counter[str] = field(default_factory=Counter)
    writes: dict[str, list[str]] = field(default_factory=dict)  # of each kind of move, in the order of one run
    troubles: list[str] = field(default_factory=list)


@dataclass
class CrashSection:
    """One kind of move, there and back, on one service under load."""

    world: World
    points: CrashPoints
    section: Section
    kind: str
    there: tuple[int, int]
    back: tuple[int, int]

    def run(self) -> None:
        """Every write of the move there, before and after, until the move ends without a kill."""
        world = self.world
        self._start_operator()
        for number in range(1, MOST_WRITES + 1):
            for side in ("before", "after"):
                killed = self._point(number, side)
                if not killed:
                    world.say(f"{self.kind}: {number - 1} writes; each of them was a place to die")
                    return

    def _start_operator(self) -> None:
        world = self.world
        world.stage.kill_operator()
        kill_file = world.cluster.folder / "kill-at"
        for file in (kill_file, world.cluster.folder / "kill-at.log"):
            file.unlink(missing_ok=True)
        world.stage.start_operator(SETTINGS, program=PROGRAM, environment={"E2E_KILL_FILE": str(kill_file)})
        world.operator_restarts += 1

    def _point(self, number: int, side: str) -> bool:
        """One crash point; whether the operator died there."""
        world, section = self.world, self.section
        folder, operator = world.cluster.folder, world.stage.operator
        assert operator is not None
        assert section.client is not None
        self._quiet()
        before = {pod.uid for pod in world.watch.pods(section.name)}
        failed = len(failures(read_answers(section.client.records)))
        violations = len(world.meter.violations)
        budget = max(sum(self.there), sum(self.back))
        world.meter.set_budget(section.name, budget)
        (folder / "kill-at").write_text(f"{number} {side}")
        world.set_counts(section.name, *self.there)
        killed = self._dies_or_rests(number)
        log = folder / "kill-at.log"
        writes = log.read_text().splitlines() if log.exists() else []
        if killed:
            self._start_operator()
            self.points.run[self.kind] += 1
        else:
            self.points.writes[self.kind] = writes
        point = f"{self.kind}, {side} write {number} ({writes[number - 1].split(' ', 1)[1] if killed else 'none'})"
        try:
            seconds = world.wait_split(section.name, *self.there, TIMEOUT_SECONDS)
            after = {pod.uid for pod in world.watch.pods(section.name)}
            section.client.wait_for(section.client.ended() + 5, 60.0)
            wrong = not_as_said(self.kind, before, after)
            lost = failures(read_answers(section.client.records))[failed:]
            over = world.meter.violations[violations:]
            problems = [
                *([f"not a {self.kind}: {wrong}"] if wrong else []),
                *(f"a request failed: {item.error}" for item in lost[:1]),
                *over[:1],
            ]
        except TimeoutError as error:
            seconds, problems = TIMEOUT_SECONDS, [str(error)]
        if problems:
            self.points.troubles.append(f"{point}: {'; '.join(problems)}")
            world.say(f"TROUBLE at {point}: {'; '.join(problems)}")
        elif killed:
            self.points.converged[self.kind] += 1
            world.say(f"{point}: at rest {seconds:.1f} s after the restart")
        (folder / "kill-at").unlink(missing_ok=True)
        (folder / "kill-at.log").unlink(missing_ok=True)
        if not killed:
            self._start_operator()  # its count of writes begins anew
        world.set_counts(section.name, *self.back)
        world.wait_split(section.name, *self.back, TIMEOUT_SECONDS)
        return killed

    def _dies_or_rests(self, number: int) -> bool:
        """Wait until the operator has died; False when the move is over and it writes nothing more."""
        world = self.world
        operator = world.stage.operator
        assert operator is not None
        log = world.cluster.folder / "kill-at.log"

        def outcome() -> str | None:
            if not operator.is_running:
                return "died"
            try:
                world.wait_split(self.section.name, *self.there, 0.05)
            except TimeoutError:
                return None
            seen = self._lines(log)
            end = time.monotonic() + SILENCE_SECONDS
            while time.monotonic() < end:
                if self._lines(log) != seen:
                    return None  # it wrote once more, perhaps the write to die at
                world.watch.idle(0.2)
            return "rests" if operator.process is not None and operator.process.poll() is None else "died"

        return wait_until(outcome, TIMEOUT_SECONDS, f"write {number} of a {self.kind}, or its end") == "died"

    @staticmethod
    def _lines(log: Path) -> int:
        return len(log.read_text().splitlines()) if log.exists() else 0

    def _quiet(self) -> None:
        """Wait until the service's status says that nothing is changing, so that what is counted next is the move's."""

        def calm() -> bool:
            obj = self.world.service(self.section.name)
            conditions = {item["type"]: item for item in obj["status"].get("conditions", ())}
            found = conditions.get("Progressing", {})
            current = found.get("observedGeneration") == obj["metadata"]["generation"]
            return bool(found.get("status") == "False" and current)

        wait_until(calm, 60.0, f"{self.section.name} to be at rest", poll_seconds=0.2)


def crash_points(world: World, moves: Moves, points: CrashPoints, kinds: list[str]) -> None:
    """Grow, shrink, handover and flip, each with a service of its own on the right pool."""
    plans: dict[str, tuple[str, tuple[int, int], tuple[int, int], dict[str, Any]]] = {
        "grow": ("rtx4090", (2, 1), (1, 1), {}),
        "shrink": ("rtx4090", (1, 1), (2, 1), {}),
        "flip": ("l40s", (1, 3), (2, 2), {"capacity": {"maxGPUs": 4}}),
        "handover": ("l40s", (1, 3), (2, 2), {"capacity": {"flips": "Disabled", "maxGPUs": 4}}),
    }
    for kind in kinds:
        pool, there, back, spec = plans[kind]
        section = Section(world, moves, f"crash-{kind}", pool, *back)
        section.begin(**spec)
        try:
            CrashSection(world, points, section, kind, there, back).run()
        finally:
            world.stage.kill_operator()
            world.stage.start_operator(OPERATOR)
            section.end()
