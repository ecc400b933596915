"""Time as a thing that is handed in: the system's clock, or the virtual one of a test."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is shown and written, monotonic time for what is measured, sleep for what waits."""

    def wall_seconds(self) -> float:
        """Seconds since the epoch. May jump; never measure with it."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds since some moment. Never jumps back, and goes on while the machine sleeps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Come back after that long."""
        ...


class SystemClock:
    """The real clock.

    Monotonic time is CLOCK_BOOTTIME where the system has it: CLOCK_MONOTONIC stands still while a virtual machine is
    suspended, and a leader that wakes up would take its expired lease for fresh.
    """

    def wall_seconds(self) -> float:
        """Seconds since the epoch."""
        return time.time()  # noqa: TID251  (this is the clock that is passed in)

    def monotonic_seconds(self) -> float:
        """Seconds since boot, suspended time included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Asyncio's sleep."""
        await asyncio.sleep(seconds)


def rfc3339(wall_seconds: float) -> str:
    """`metav1.Time`: whole seconds, UTC."""
    return datetime.fromtimestamp(int(wall_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(wall_seconds: float) -> str:
    """`metav1.MicroTime`: microseconds, UTC."""
    return datetime.fromtimestamp(wall_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """Seconds since the epoch from a timestamp of the API. ValueError names the text when it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{text!r} is no RFC 3339 time") from error
