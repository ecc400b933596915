"""Virtual time for asyncio: an hour of waiting passes in a millisecond, deterministically. For tests of what waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

Value = TypeVar("Value")

EPOCH_SECONDS = 1_800_000_000.0  # where virtual wall time starts: an instant in 2027


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer as soon as nothing else is left to do.

    Code under it may use asyncio.sleep, timeouts and call_later as always. It must not wait for the world outside: with no
    timer and nothing ready, nothing could ever happen, and the loop says so instead of hanging.
    """

    def __init__(self) -> None:
        self._virtual_seconds = 0.0
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_seconds

    def _jump(self, seconds: float) -> None:
        self._virtual_seconds += seconds


class VirtualClock:
    """A Clock that shows the running loop's time."""

    def wall_seconds(self) -> float:
        """Seconds since the epoch."""
        return EPOCH_SECONDS + asyncio.get_running_loop().time()

    def monotonic_seconds(self) -> float:
        """The loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Come back after that long."""
        await asyncio.sleep(seconds)


def run_in_virtual_time(main: Coroutine[Any, Any, Value]) -> Value:
    """Run `main` under virtual time. RuntimeError when it can never end."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


class _JumpingSelector(selectors.BaseSelector):
    """Polls the real selector without waiting, and lets time jump instead."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._real = selectors.DefaultSelector()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if not ready and timeout is None:
            raise RuntimeError("virtual time stands still: everything waits, and no timer is set")
        if not ready and timeout:
            self._jump(timeout)
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()
