"""The errors of the local cluster. Each message says what happened and what to do."""

from __future__ import annotations


class LocalClusterError(RuntimeError):
    """The local cluster could not be built, started or used; the message is meant for the person at the terminal."""


class CommandError(LocalClusterError):
    """A command line tool (kubectl, helm) ended with an error.

    Attributes:
        command: the program and its arguments.
        exit_code: what it ended with.
        stderr: what it said.
    """

    def __init__(self, command: list[str], exit_code: int, stderr: str) -> None:
        self.command = command
        self.exit_code = exit_code
        self.stderr = stderr.strip()
        super().__init__(f"`{' '.join(command)}` ended with exit code {exit_code}: {self.stderr}")
