"""Starting, watching and stopping the cluster's processes, each in a process group of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster import watchdog
from local_cluster.errors import LocalClusterError


@dataclass
class Component:
    """One program of the cluster.

    Attributes:
        name: such as `kube-apiserver`.
        command: makes the program and its arguments, anew for each start.
        log: where its output goes.
        environment: what it runs with.
        is_ready: tells whether it does its work; may raise while it does not.
    """

    name: str
    command: Callable[[], list[str]]
    log: Path
    environment: dict[str, str]
    is_ready: Callable[[], bool]
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            LocalClusterError: the component is not running.
        """
        if self.process is None or self.process.poll() is not None:
            raise LocalClusterError(f"{self.name} is not running.")
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process; does not wait.

        Raises:
            LocalClusterError: it is running already, or cannot be started.
        """
        if self.is_running:
            raise LocalClusterError(f"{self.name} is running already (process {self.pid}).")
        with self.log.open("ab") as output:
            try:
                self.process = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                    cwd=self.log.parent,
                    start_new_session=True,
                )
            except OSError as error:
                raise LocalClusterError(f"{self.name} could not be started: {error}.") from error

    def wait_until_ready(self, timeout_seconds: float) -> None:
        """Wait for the readiness condition.

        Raises:
            LocalClusterError: it ended or did not become ready in time; carries the last lines of its log.
        """
        deadline = time.monotonic() + timeout_seconds
        failure: Exception | None = None
        while True:
            if not self.is_running:
                code = self.process.returncode if self.process is not None else None
                raise LocalClusterError(f"{self.name} ended with exit code {code} while starting.{self.last_log_lines()}")
            try:
                if self.is_ready():
                    return
            except Exception as error:
                failure = error
            if time.monotonic() > deadline:
                why = f" ({failure})" if failure is not None else ""
                raise LocalClusterError(f"{self.name} was not ready after {timeout_seconds:g} s{why}.{self.last_log_lines()}")
            time.sleep(0.05)

    def stop(self, grace_seconds: float = 5.0) -> None:
        """End the process group: politely, then by force. A grace of 0 goes straight to force."""
        process, self.process = self.process, None
        if process is None:
            return
        if grace_seconds > 0 and process.poll() is None:
            _signal_group(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(grace_seconds)
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()

    def last_log_lines(self, count: int = 15) -> str:
        """Return the end of the log, indented, or a remark that there is none."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()[-count:]
        except OSError:
            lines = []
        if not lines:
            return f" It wrote nothing to {self.log}."
        return f" The last lines of {self.log}:\n" + "\n".join(f"    {line[:400]}" for line in lines)


def _signal_group(process_id: int, which: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the group is gone
        os.killpg(process_id, which)


class Watchdog:
    """The process that cleans up when this one dies, and that `close` uses for the same at an ordinary end."""

    def __init__(self, tag: str, throw_away_folder: Path | None) -> None:
        command = [sys.executable, "-I", "-S", watchdog.__file__, tag, str(os.getpid())]
        if throw_away_folder is not None:
            command.append(str(throw_away_folder))
        environment = {key: value for key, value in os.environ.items() if key != watchdog.TAG_VARIABLE}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, start_new_session=True
        )

    def close(self) -> None:
        """Kill what still carries the tag, remove the throw-away folder, and wait until that is done.

        Raises:
            LocalClusterError: a process would not go.
        """
        assert self._process.stdin is not None  # noqa: S101 - it was opened as a pipe
        self._process.stdin.close()
        if self._process.wait() != 0:
            raise LocalClusterError("A process of the local cluster could not be ended; see `ps -ef`.")
