"""`python -m equipoise.emulate`."""

from __future__ import annotations

import logging
import sys
import time

from equipoise.emulate.emulator import Emulator, run
from equipoise.emulate.kube import KubeConfigError, find_access
from equipoise.emulate.options import parse_options


def main(arguments: list[str] | None = None) -> int:
    """Run the emulator; returns the exit status."""
    options = parse_options(arguments)
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        access = find_access(options.kubeconfig)
    except KubeConfigError as error:
        print(f"emulator: {error}", file=sys.stderr)
        return 2
    emulator = Emulator(options, access, time.time())  # noqa: TID251  (the one place where the wall clock is read)
    run(emulator.run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
