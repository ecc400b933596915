"""Ends a cluster's processes when the program that started the cluster is gone, however it went.

Run as a script beside the cluster: `watchdog.py TAG PARENT_PID [FOLDER]`, standard input being a pipe from that program. When
the pipe closes or the parent changes, every process that carries the cluster's tag in its environment is killed, and the
throw-away folder is removed. The tag is looked up at that moment, so nothing has to be told about processes that come and
go, and a process that was just being started is found too.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

TAG_VARIABLE = "EQUIPOISE_LOCAL_CLUSTER"


def tagged_processes(tag: str) -> list[int]:
    """Return the process ids whose environment has the tag."""
    wanted = f"{TAG_VARIABLE}={tag}".encode()
    everyone = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [process_id for process_id in everyone if process_id != os.getpid() and _has(process_id, wanted)]


def kill_tagged_processes(tag: str, timeout_seconds: float = 10.0) -> list[int]:
    """Kill every process with the tag and wait until they are gone; return the ids of those that are still there."""
    wanted = f"{TAG_VARIABLE}={tag}".encode()
    deadline = time.monotonic() + timeout_seconds
    while (remaining := tagged_processes(tag)) and time.monotonic() < deadline:
        for process_id in remaining:
            _kill(process_id, wanted)
        time.sleep(0.02)
    return remaining


def _has(process_id: int, wanted: bytes) -> bool:
    try:
        return wanted in Path(f"/proc/{process_id}/environ").read_bytes().split(b"\0")
    except OSError:  # ended meanwhile, or another user's
        return False


def _kill(process_id: int, wanted: bytes) -> None:
    # A handle first, then a second look: a process id that was given to someone else in between is not hit.
    try:
        handle = os.pidfd_open(process_id)
    except OSError:
        return
    try:
        if _has(process_id, wanted):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def main(arguments: list[str]) -> int:
    """Wait for the parent's end, then clean up."""
    tag, parent = arguments[0], int(arguments[1])
    folder = Path(arguments[2]) if len(arguments) > 2 else None
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 1):
            break
    remaining = kill_tagged_processes(tag)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if remaining else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
