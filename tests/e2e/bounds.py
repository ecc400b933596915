"""Goodput as status bounds it, against goodput as the client measured it, while surges make requests late."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.e2e.moves import Moves, Section
from tests.e2e.tally import Answer, goodput, read_answers
from tests.e2e.world import TPOT_SECONDS, TTFT_SECONDS, World

SECONDS = 150.0
WINDOW_SECONDS = 15.0
"""What the operator's shares are taken over at a scrape interval of one second."""
OLDEST_SECONDS = 40.0
"""How old what status says may be: a scrape and a round, a write that waits for more news, and its rounding's inertia."""
ROUNDING = 0.02
"""What status rounds away. Beside it one request may fall on either side of a window's edge."""
LOAD = {"--prompt-characters": 6400, "--surge-every": 20, "--surge-rate": 5}


@dataclass
class Bounds:
    """What was compared. Shares are from 0 to 1."""

    samples: int = 0
    held: int = 0
    true: float | None = None
    lowest_true: float | None = None
    narrowest: float | None = None
    examples: list[str] = field(default_factory=list)


def goodput_bounds(world: World, moves: Moves, bounds: Bounds) -> None:
    """Let surges come and go for a while; judge each status that reports bounds, once per second."""
    section = Section(world, moves, "surges", "rtx4090", 1, 3)
    section.begin(2.0, LOAD, capacity={"boundedQueues": "Disabled"})
    client = section.client
    assert client is not None
    seen: list[tuple[float, float, float]] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        reported = (world.service("surges").get("status") or {}).get("goodput")
        if reported:
            seen.append((time.monotonic(), float(reported["least"]), float(reported["most"])))
        world.watch.idle(1.0)
    section.end()
    answers = read_answers(client.records)
    bounds.true = goodput(answers, TTFT_SECONDS, TPOT_SECONDS)
    for at, least, most in seen:
        _judge(bounds, answers, at, least, most)
    world.say(
        f"surges: true goodput {bounds.true or 0.0:.3f}, {bounds.lowest_true or 0.0:.3f} in the worst window; status reported "
        f"bounds in {bounds.samples} looks, the truth was inside in {bounds.held}"
    )


def _judge(bounds: Bounds, answers: Sequence[Answer], at: float, least: float, most: float) -> None:
    """Inside: at some age that the report may have, the truth over the window before lay between the bounds."""
    truths: list[float] = []
    inside = False
    for half_seconds in range(int(2 * OLDEST_SECONDS) + 1):
        end = at - half_seconds / 2
        # TTFT is known at the first token, TPOT at the end: windows by either clock.
        for clock in (_ended, _began_to_answer):
            window = [answer for answer in answers if end - WINDOW_SECONDS < clock(answer) <= end]
            truth = goodput(window, TTFT_SECONDS, TPOT_SECONDS)
            if truth is None or len(window) < 10:
                continue
            truths.append(truth)
            slack = ROUNDING + 1.0 / len(window)
            inside = inside or least - slack <= truth <= most + slack
    if not truths:
        return
    bounds.samples += 1
    low = min(truths)
    bounds.lowest_true = low if bounds.lowest_true is None else min(low, bounds.lowest_true)
    width = most - least
    bounds.narrowest = width if bounds.narrowest is None else min(width, bounds.narrowest)
    if inside:
        bounds.held += 1
    else:
        bounds.examples.append(f"status said {least:.3f} to {most:.3f}, the truth was {low:.3f} to {max(truths):.3f}")


def _ended(answer: Answer) -> float:
    return answer.end


def _began_to_answer(answer: Answer) -> float:
    return answer.begin + (answer.ttft or 0.0)
