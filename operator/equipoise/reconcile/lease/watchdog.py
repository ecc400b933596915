"""The last resort of a leader that cannot stop: the interpreter's own watchdog."""

from __future__ import annotations

import faulthandler
import sys


class ProcessWatchdog:
    """Exits the process (status 1, tracebacks of all threads on stderr) when it is not armed again in time.

    faulthandler waits in a C thread that needs neither the event loop nor the interpreter lock, so a blocked loop is caught
    too. One per process.
    """

    def arm(self, seconds: float) -> None:
        """Exit in that many seconds unless armed again or disarmed."""
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)

    def disarm(self) -> None:
        """Do not exit."""
        faulthandler.cancel_dump_traceback_later()
