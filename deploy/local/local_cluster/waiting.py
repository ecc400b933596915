"""Waiting on conditions with a deadline, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from local_cluster.errors import LocalClusterError

Result = TypeVar("Result")


def wait_until(
    condition: Callable[[], Result],
    timeout_seconds: float = 30.0,
    description: str = "the condition",
    poll_seconds: float = 0.1,
) -> Result:
    """Call `condition` until it returns something true, and return that.

    An exception of the condition counts as "not yet", since a server that is coming up refuses connections; the last one
    is part of the error.

    Raises:
        LocalClusterError: the deadline passed; names `description` and what was last seen.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        failure: Exception | None = None
        result: Result | None = None
        try:
            result = condition()
            if result:
                return result
        except AssertionError:
            raise
        except Exception as error:
            failure = error
        if time.monotonic() >= deadline:
            seen = f"last error: {failure}" if failure is not None else f"last value: {result!r}"
            raise LocalClusterError(f"Waited {timeout_seconds:g} s for {description} in vain ({seen}).") from failure
        time.sleep(poll_seconds)
