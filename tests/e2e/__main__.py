"""`make e2e`: moves under load with the real router. Prints what it does and writes build/e2e/summary.json."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.e2e import moves as under_load
from tests.e2e.bounds import Bounds, goodput_bounds
from tests.e2e.crash import CrashPoints, crash_points
from tests.e2e.summary import summarise, write
from tests.e2e.world import REPOSITORY, Say, World

from local_cluster import LocalClusterError

PARTS = {"grow": under_load.grow_and_shrink, "flip": under_load.flip, "handover": under_load.handover}
CRASHES = ["grow", "shrink", "flip", "handover"]


def main() -> int:
    """Run the parts asked for; 0 when all that was promised held."""
    parser = argparse.ArgumentParser(prog="make e2e", description=__doc__)
    parser.add_argument("--routers", type=Path, required=True, help="folder with the routers' programs")
    parser.add_argument("--moves", type=int, default=20, help="of each kind")
    parser.add_argument("--only", nargs="*", choices=[*PARTS, "none"], default=[*PARTS], help="moves under load")
    parser.add_argument("--crash", nargs="*", choices=CRASHES, default=CRASHES, help="kinds of moves to crash in")
    parser.add_argument("--no-goodput", action="store_true", help="leave out the goodput under surges")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "build" / "e2e" / "summary.json")
    options = parser.parse_args()
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begin:6.1f} s] {text}", flush=True)

    world = World.start(options.routers.absolute(), say)
    found = under_load.Moves()
    points, bounds = CrashPoints(), Bounds()
    troubles: list[str] = []
    try:
        for name in options.only:
            if name in PARTS:
                _attempt(lambda part=PARTS[name]: part(world, found, options.moves), troubles, say)  # type: ignore[misc]
        for kind in options.crash:
            _attempt(lambda kind=kind: crash_points(world, found, points, [kind]), troubles, say)  # type: ignore[misc]
        if not options.no_goodput:
            _attempt(lambda: goodput_bounds(world, found, bounds), troubles, say)
        summary = summarise(world, found, points, bounds, troubles, time.monotonic() - begin)
        write(summary, options.output, say)
    finally:
        world.keep_logs(options.output.parent)
        world.stop()
    return 0 if summary["passed"] else 1


def _attempt(part: Callable[[], None], troubles: list[str], say: Say) -> None:
    """One part; what it could not do is kept, and the others are still run."""
    try:
        part()
    except (TimeoutError, LocalClusterError) as error:
        troubles.append(str(error))
        say(f"NOT DONE: {error}")


if __name__ == "__main__":
    sys.exit(main())
