"""Whatever is added and whatever fails: no key runs twice at once, none is forgotten, none is hurried past its backoff."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.reconcile.queue import Backoff, Result, WorkQueue
from equipoise.reconcile.virtual_time import run_in_virtual_time

FLOOR_SECONDS = 1.0
KEYS = ["a", "b", "c", "d"]


@dataclass(frozen=True)
class Step:
    """Add a key (at once or for later) after a pause; its next reconcile lasts so long, then fails, asks to come back, or not."""

    pause: float
    key: str
    after: float
    lasts: float
    fails: bool
    again_after: float | None


@dataclass
class Log:
    added: list[tuple[float, str]] = field(default_factory=list)
    runs: list[tuple[float, float, str]] = field(default_factory=list)
    failed_at: dict[str, float] = field(default_factory=dict)
    hurried: list[str] = field(default_factory=list)


steps = st.lists(
    st.builds(
        Step,
        pause=st.sampled_from([0.0, 0.1, 1.0, 7.0]),
        key=st.sampled_from(KEYS),
        after=st.sampled_from([0.0, 0.0, 0.2, 1.5]),
        lasts=st.sampled_from([0.0, 0.3, 2.0]),
        fails=st.booleans(),
        again_after=st.sampled_from([None, 0.5, 3.0]),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(steps, st.integers(1, 4))
def test_no_key_is_lost_doubled_or_hurried(plan: list[Step], workers: int) -> None:
    log = Log()
    behaviour: dict[str, Step] = {}

    async def main() -> None:
        clock = asyncio.get_running_loop().time

        async def reconcile(key: str) -> Result:
            started = clock()
            if key in log.failed_at and started - log.failed_at[key] < FLOOR_SECONDS - 1e-9:
                log.hurried.append(key)
            step = behaviour.get(key)
            try:
                if step is not None:
                    await asyncio.sleep(step.lasts)
                    del behaviour[key]  # once: the next run of this key is content unless it is added again
                    if step.fails:
                        log.failed_at[key] = clock()
                        raise ValueError
                    if step.again_after is not None:
                        return Result(step.again_after)
                log.failed_at.pop(key, None)
                return Result()
            finally:
                log.runs.append((started, clock(), key))

        queue: WorkQueue[str] = WorkQueue(
            reconcile,
            workers=workers,
            backoff=Backoff(first_seconds=2.0, longest_seconds=20.0, jitter=0.0),
            event_floor_seconds=FLOOR_SECONDS,
            on_failure=lambda *_: None,
        )
        task = asyncio.create_task(queue.run())
        for step in plan:
            await asyncio.sleep(step.pause)
            behaviour.setdefault(step.key, step)
            log.added.append((clock(), step.key))
            queue.add(step.key, after_seconds=step.after)
        await asyncio.sleep(10_000)
        assert queue.idle
        assert (queue.delayed, queue.failing) == (0, 0)
        queue.stop()
        await task

    run_in_virtual_time(main())
    for key in KEYS:
        spans = sorted((start, end) for start, end, who in log.runs if who == key)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    for at, key in log.added:
        assert any(start >= at for start, _, who in log.runs if who == key), f"{key} added at {at} never ran"
    assert not log.hurried
    points = sorted(start for start, _, _ in log.runs)
    for point in points:
        assert sum(start <= point < end for start, end, _ in log.runs) <= workers
