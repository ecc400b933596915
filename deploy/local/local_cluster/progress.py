"""Progress of something long: one line that changes on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO


def format_elapsed(seconds: float) -> str:
    """Return `42 s` or `3 min 07 s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Progress:
    """Shows what is being done and for how long.

    On a terminal the line is rewritten at most five times a second; elsewhere a new line is printed every
    `plain_interval_seconds`, so that a log shows life without filling up.
    """

    def __init__(self, title: str, stream: TextIO | None = None, plain_interval_seconds: float = 20.0) -> None:
        self._title = title
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._interval_seconds = 0.2 if self._live else plain_interval_seconds
        self._started = time.monotonic()
        self._last_shown: float | None = None

    @property
    def elapsed_seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._started

    def update(self, what: str) -> None:
        """Show `what`, unless something was shown just before."""
        now = time.monotonic()
        if self._last_shown is not None and now - self._last_shown < self._interval_seconds:
            return
        self._last_shown = now
        self._show(f"{self._title}: {what} ({format_elapsed(self.elapsed_seconds)})", end="" if self._live else "\n")

    def finish(self, what: str) -> None:
        """Show the last word."""
        self._show(f"{self._title}: {what} ({format_elapsed(self.elapsed_seconds)})", end="\n")

    def _show(self, line: str, end: str) -> None:
        # Carriage return and erase-line keep the live line from leaving remains of a longer one.
        self._stream.write(f"\r\x1b[2K{line}{end}" if self._live else f"{line}{end}")
        self._stream.flush()
