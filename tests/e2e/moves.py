"""Steady load, and moves under it: grows, shrinks, handovers, flips, with the operator killed in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.tally import failures, read_answers
from tests.e2e.world import Client, World

RATE_PER_SECOND = 5.0
TIMEOUT_SECONDS = 90.0
KILL_EVERY = 5
"""In every fifth move the operator is killed right after the counts were edited, and a new process takes over."""


@dataclass
class Moves:
    """What was done, and how long each took from the edit until everything was at rest, in seconds."""

    done: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    records: list[Path] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)  # moves that reached their counts in another way than their kind's

    def took(self, kind: str, seconds: float) -> None:
        """One move is over."""
        self.done[kind] += 1
        self.seconds.setdefault(kind, []).append(seconds)


def not_as_said(kind: str, before: set[str], after: set[str]) -> str | None:
    """What is wrong with the pods that came and went, by uid; None when they are what this kind of move makes."""
    came, went = len(after - before), len(before - after)
    wanted = {"grow": (1, 0), "shrink": (0, 1), "flip": (0, 0), "handover": (1, 1)}[kind]
    return None if (came, went) == wanted else f"{came} pods came and {went} went, not {wanted[0]} and {wanted[1]}"


@dataclass
class Section:
    """One service under load on one pool."""

    world: World
    moves: Moves
    name: str
    pool: str
    prefill: int
    decode: int
    client: Client | None = None
    made: int = 0

    def begin(self, rate: float = RATE_PER_SECOND, load: Mapping[str, object] | None = None, **spec: Any) -> None:
        """Create the service, wait until it serves, start router and client."""
        world = self.world
        world.meter.set_budget(self.name, self.prefill + self.decode)
        world.apply_service(self.name, self.pool, self.prefill, self.decode, **spec)
        world.wait_split(self.name, self.prefill, self.decode, TIMEOUT_SECONDS)
        url = world.start_router(self.name)
        self.client = world.start_client(self.name, url, rate, load)
        self.moves.records.append(self.client.records)
        self.client.wait_for(10, 60.0)
        world.say(f"{self.name}: the real vllm-router answers at {url}; {rate:g} streams/s begin")

    def go(self, kind: str, prefill: int, decode: int) -> None:
        """One move: edit the counts, perhaps kill the operator, wait until everything is at rest and requests went through."""
        world, client = self.world, self.client
        assert client is not None
        self.made += 1
        kill = self.made % KILL_EVERY == 0
        held, wanted = self.prefill + self.decode, prefill + decode
        world.meter.set_budget(self.name, max(held, wanted))
        failed = len(failures(read_answers(client.records)))
        before = {pod.uid for pod in world.watch.pods(self.name)}
        world.set_counts(self.name, prefill, decode)
        if kill:
            world.restart_operator()
        seconds = world.wait_split(self.name, prefill, decode, TIMEOUT_SECONDS)
        after = {pod.uid for pod in world.watch.pods(self.name)}
        if (trouble := not_as_said(kind, before, after)) is not None:
            self.moves.wrong.append(f"{self.name}, {kind} to {prefill} + {decode}: {trouble}")
            world.say(f"{self.name}: NOT A {kind.upper()}: {trouble}")
        self.prefill, self.decode = prefill, decode
        world.meter.set_budget(self.name, wanted)
        # Requests that began on the other side of the move end, and new ones pass through what it left.
        client.wait_for(client.ended() + int(2 * RATE_PER_SECOND), 60.0)
        self.moves.took(f"{kind} with the operator killed" if kill else kind, seconds)
        if kill:
            self.moves.done[kind] += 1
        fresh = failures(read_answers(client.records))[failed:]
        marks = (" (operator killed meanwhile)" if kill else "") + (f"  {len(fresh)} FAILED: {fresh[0].error}" if fresh else "")
        world.say(f"{self.name}: {kind} to {prefill} prefill + {decode} decode in {seconds:.1f} s{marks}")

    def end(self) -> None:
        """Stop the load, wait for the last answers, delete the service."""
        assert self.client is not None
        self.client.stop()
        self.world.delete_service(self.name)
        self.world.meter.set_budget(self.name, 0)


def grow_and_shrink(world: World, moves: Moves, count: int) -> None:
    """`count` grows and as many shrinks, of prefill and decode in turn."""
    section = Section(world, moves, "grow-and-shrink", "rtx4090", 2, 2)
    section.begin(capacity={"flips": "Disabled"})
    for number in range(count):
        more = (3, 2) if number % 2 == 0 else (2, 3)
        section.go("grow", *more)
        section.go("shrink", 2, 2)
    section.end()


def flip(world: World, moves: Moves, count: int) -> None:
    """`count` flips, there and back: half on a full pool, half with GPUs free, where placeholder pods may find a node."""
    section = Section(world, moves, "flips", "l40s", 2, 2)
    section.begin(capacity={"maxGPUs": 4})
    for number in range(count // 2):
        section.go("flip", *((1, 3) if number % 2 == 0 else (2, 2)))
    section.end()
    section = Section(world, moves, "flips-with-free-gpus", "rtx4090", 2, 2)
    section.begin(capacity={"maxGPUs": 4})
    for number in range(count - count // 2):
        section.go("flip", *((1, 3) if number % 2 == 0 else (2, 2)))
    section.end()


def handover(world: World, moves: Moves, count: int) -> None:
    """`count` handovers on a full pool by a service that may not flip: a donor drains and goes, then the receiver starts."""
    section = Section(world, moves, "handovers", "l40s", 2, 2)
    section.begin(capacity={"flips": "Disabled", "maxGPUs": 4})
    for number in range(count):
        section.go("handover", *((1, 3) if number % 2 == 0 else (2, 2)))
    section.end()
