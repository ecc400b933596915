"""The operator, as it is, in a process that kills itself at one chosen API write. For `tests.e2e.crash` only.

Nothing happens until the file named by E2E_KILL_FILE exists; from then on writes are counted. It holds `NUMBER before` or
`NUMBER after`: the process gets SIGKILL right before that write is sent, or right after the API server has answered it.
Each counted write is noted in the file `<E2E_KILL_FILE>.log` before it is sent. The Lease is left out: its writes are no part of
a move, and a process that cannot write it stops anyway.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from equipoise.reconcile.kube.client import KubeClient
from equipoise.reconcile.kube.errors import Request
from equipoise.reconcile.kube.kinds import LEASE


class Killer:
    """Counts writes of one operator process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._log = Path(f"{file}.log")
        self._count = 0

    def before(self, request: Request) -> int:
        """A write is about to be sent; its number, 0 while nothing is counted."""
        if request.kind == LEASE or not self._file.exists():
            return 0
        self._count += 1
        with self._log.open("a") as log:
            log.write(f"{self._count} {request}\n")
        self._kill_at(self._count, "before")
        return self._count

    def after(self, number: int) -> None:
        """The API server has answered that write."""
        if number:
            self._kill_at(number, "after")

    def _kill_at(self, number: int, side: str) -> None:
        if self._file.read_text().split() == [str(number), side]:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the command line of Equipoise with the killer between it and the API server."""
    killer = Killer(Path(os.environ["E2E_KILL_FILE"]))
    send = KubeClient._write

    async def write(self: KubeClient, request: Request, *arguments: Any, **rest: Any) -> Any:
        number = killer.before(request)
        answer = await send(self, request, *arguments, **rest)
        killer.after(number)
        return answer

    setattr(KubeClient, "_write", write)  # noqa: B010 - a method of the class, replaced on purpose
    from equipoise.cli.main import app

    app(sys.argv[1:])


if __name__ == "__main__":
    main()
