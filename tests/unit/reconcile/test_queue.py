"""The work queue, walked in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from equipoise.reconcile.queue import Backoff, Outcome, Result, WorkQueue
from equipoise.reconcile.virtual_time import run_in_virtual_time


class Recorder:
    """A reconcile that notes when each key started and ended, and does what it is told."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.starts: list[tuple[float, str]] = []
        self.running: set[str] = set()
        self.overlaps = 0
        self.widest = 0
        self.do: Callable[[str], Awaitable[Result]] | None = None

    async def __call__(self, key: str) -> Result:
        self.starts.append((now(), key))
        self.overlaps += key in self.running
        self.running.add(key)
        self.widest = max(self.widest, len(self.running))
        try:
            if self.seconds:
                await asyncio.sleep(self.seconds)
            return await self.do(key) if self.do else Result()
        finally:
            self.running.discard(key)

    def times(self, key: str) -> list[float]:
        return [round(at, 4) for at, who in self.starts if who == key]


def now() -> float:
    return asyncio.get_running_loop().time()


async def run_for(queue: WorkQueue[str], seconds: float) -> None:
    task = asyncio.create_task(queue.run())
    await asyncio.sleep(seconds)
    queue.stop()
    await task


def test_a_key_added_many_times_runs_once() -> None:
    work = Recorder()

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work)
        for _ in range(100):
            queue.add("a")
        queue.add("b")
        assert queue.depth == 2
        await run_for(queue, 1.0)

    run_in_virtual_time(main())
    assert [key for _, key in work.starts] == ["a", "b"]


def test_a_key_added_while_it_runs_runs_again_afterwards_and_never_twice_at_once() -> None:
    work = Recorder(seconds=1.0)

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work, workers=4)
        queue.add("a")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(0.5)
        for _ in range(5):
            queue.add("a")
        await asyncio.sleep(5)
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert work.times("a") == [0.0, 1.0]
    assert work.overlaps == 0


def test_a_burst_of_events_is_one_run_and_the_first_event_of_a_quiet_key_is_answered_at_once() -> None:
    work = Recorder()

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work, spacing_seconds=0.05)
        task = asyncio.create_task(queue.run())
        for _ in range(21):
            queue.add("a")
            await asyncio.sleep(0.004)
        await asyncio.sleep(1.0)
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1.0)
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert work.times("a") == [0.0, 0.05, 0.1, 1.084]
    assert work.times("b") == [1.084]


def test_workers_share_the_keys_first_come_first_served() -> None:
    work = Recorder(seconds=1.0)

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work, workers=3)
        for n in range(9):
            queue.add(f"k{n}")
        await run_for(queue, 10)

    run_in_virtual_time(main())
    assert [key for _, key in work.starts] == [f"k{n}" for n in range(9)]
    assert [at for at, _ in work.starts] == [0.0] * 3 + [1.0] * 3 + [2.0] * 3
    assert work.widest == 3


def test_a_busy_key_does_not_starve_the_others() -> None:
    work = Recorder(seconds=1.0)

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work, workers=1)

        async def again(key: str) -> Result:
            if key == "busy":
                queue.add("busy")
            return Result()

        work.do = again
        queue.add("busy")
        for n in range(3):
            queue.add(f"quiet{n}")
        await run_for(queue, 4.5)

    run_in_virtual_time(main())
    assert [key for _, key in work.starts][:5] == ["busy", "quiet0", "quiet1", "quiet2", "busy"]


def test_failures_back_off_exponentially_to_the_cap_and_success_resets() -> None:
    work = Recorder()
    delays: list[float] = []

    async def main() -> None:
        failing = True

        async def fail(_: str) -> Result:
            if failing:
                raise ValueError("boom")
            return Result()

        work.do = fail
        queue: WorkQueue[str] = WorkQueue(
            work,
            backoff=Backoff(first_seconds=1.0, longest_seconds=10.0, jitter=0.0),
            on_failure=lambda _key, _error, delay: delays.append(delay),
        )
        queue.add("a")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(36)
        failing = False
        await asyncio.sleep(20)
        assert queue.failing == 0
        failing = True
        queue.add("a")
        await asyncio.sleep(0.5)
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 1.0]
    assert work.times("a")[:7] == [0.0, 1.0, 3.0, 7.0, 15.0, 25.0, 35.0]


@pytest.mark.parametrize(("draw", "expected"), [(0.0, 0.8), (0.5, 1.0), (0.999999, 1.2)])
def test_jitter_spreads_the_delay(draw: float, expected: float) -> None:
    assert Backoff(first_seconds=1.0, jitter=0.2).seconds(1, draw) == pytest.approx(expected, abs=1e-5)


def test_the_delay_never_passes_the_cap_even_after_very_many_failures() -> None:
    assert Backoff().seconds(10_000, 0.999) == 300.0


def test_an_event_shortens_a_backoff_to_the_floor_but_not_below() -> None:
    work = Recorder()

    async def main() -> None:
        async def fail(_: str) -> Result:
            raise ValueError("boom")

        work.do = fail
        queue: WorkQueue[str] = WorkQueue(
            work, backoff=Backoff(first_seconds=100.0, jitter=0.0), event_floor_seconds=1.0, on_failure=lambda *_: None
        )
        queue.add("a")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(10)
        for _ in range(50):
            queue.add("a")
        await asyncio.sleep(20)
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert work.times("a") == [0.0, 11.0]


def test_a_reconcile_that_fails_after_causing_its_own_event_does_not_spin() -> None:
    work = Recorder()

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work, backoff=Backoff(first_seconds=60.0, jitter=0.0), on_failure=lambda *_: None)

        async def write_then_fail(key: str) -> Result:
            queue.add(key)
            raise ValueError("boom")

        work.do = write_then_fail
        queue.add("a")
        await run_for(queue, 10.5)

    run_in_virtual_time(main())
    assert len(work.starts) == 11  # once a second: the floor


def test_requeue_after_runs_again_later_and_an_event_comes_first() -> None:
    work = Recorder()

    async def main() -> None:
        async def later(_: str) -> Result:
            return Result(requeue_after_seconds=30.0)

        work.do = later
        queue: WorkQueue[str] = WorkQueue(work)
        queue.add("a")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(40)
        queue.add("a")
        await asyncio.sleep(35)
        assert queue.delayed == 1
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert work.times("a") == [0.0, 30.0, 40.0, 70.0]


def test_of_two_delays_the_shorter_one_holds() -> None:
    work = Recorder()

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work)
        queue.add("a", after_seconds=10)
        queue.add("a", after_seconds=5)
        queue.add("a", after_seconds=20)
        await run_for(queue, 60)

    run_in_virtual_time(main())
    assert work.times("a") == [5.0]


def test_a_timer_that_rings_while_the_key_runs_is_not_lost() -> None:
    work = Recorder(seconds=10.0)

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work)
        queue.add("a")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(1)
        queue.add("a", after_seconds=2)
        await asyncio.sleep(30)
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert work.times("a") == [0.0, 10.0]


def test_forget_drops_timers_and_failures() -> None:
    work = Recorder()

    async def main() -> None:
        async def fail(_: str) -> Result:
            raise ValueError("boom")

        work.do = fail
        queue: WorkQueue[str] = WorkQueue(work, backoff=Backoff(first_seconds=5.0, jitter=0.0), on_failure=lambda *_: None)
        queue.add("a")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(1)
        queue.forget("a")
        assert (queue.failing, queue.delayed) == (0, 0)
        await asyncio.sleep(60)
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert work.times("a") == [0.0]


def test_stop_finishes_what_is_in_work_and_takes_nothing_new() -> None:
    work = Recorder(seconds=3.0)

    async def main() -> float:
        queue: WorkQueue[str] = WorkQueue(work, workers=1)
        queue.add("a")
        queue.add("b")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(1)
        queue.stop()
        queue.add("c")
        await task
        return now()

    assert run_in_virtual_time(main()) == 3.0
    assert [key for _, key in work.starts] == ["a"]


def test_cancelling_run_cuts_off_what_is_in_work() -> None:
    work = Recorder(seconds=1000.0)

    async def main() -> float:
        queue: WorkQueue[str] = WorkQueue(work)
        queue.add("a")
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.running == set()
        return now()

    assert run_in_virtual_time(main()) == 1.0


def test_figures_for_probes_and_metrics() -> None:
    work = Recorder(seconds=4.0)
    seen: list[tuple[str, float]] = []

    class Observer:
        def started(self, waited_seconds: float) -> None:
            seen.append(("waited", waited_seconds))

        def finished(self, worked_seconds: float, outcome: Outcome) -> None:
            seen.append((outcome.value, worked_seconds))

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue(work, workers=1, observer=Observer())
        queue.add("a")
        queue.add("b")
        assert queue.oldest_in_flight_seconds() == 0.0
        task = asyncio.create_task(queue.run())
        await asyncio.sleep(3)
        assert queue.oldest_in_flight_seconds() == 3.0
        idle_before = queue.idle
        await asyncio.sleep(7)
        assert (idle_before, queue.idle) == (False, True)
        queue.stop()
        await task

    run_in_virtual_time(main())
    assert seen == [("waited", 0.0), ("ok", 4.0), ("waited", 4.0), ("ok", 4.0)]


def test_a_failure_is_logged_with_the_key_and_the_delay(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def fail(_: str) -> Result:
            raise ValueError("no such pool")

        queue: WorkQueue[str] = WorkQueue(fail, backoff=Backoff(first_seconds=50.0, jitter=0.0))
        queue.add("prod/chat")
        await run_for(queue, 1)

    with caplog.at_level(logging.ERROR):
        run_in_virtual_time(main())
    assert "reconcile of prod/chat failed, again in 50.00 s: no such pool" in caplog.text
