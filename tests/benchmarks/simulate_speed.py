"""How many requests per second of processor time the whole closed loop does: `python tests/benchmarks/simulate_speed.py`.

Counted are traffic, engines with the metrics that are read, scrapes, observation, and the operator's decisions every five s.
The engine alone is measured by bench_engine.py. The yardstick is a fixed piece of Python on the same machine right beforehand, so
that a slow moment can be told from a slow model: `per yardstick` is requests per second at a yardstick of 100 ms.
"""

from __future__ import annotations

import argparse
import time
from heapq import heappop, heappush

from equipoise.simulate.loop.run import run
from equipoise.simulate.rivals.registry import POLICIES
from equipoise.simulate.scenarios.catalogue import scenario

TARGET_REQUESTS_PER_SECOND = 50_000


def yardstick() -> float:
    """Milliseconds for 100,000 pushes and pops of a heap."""
    begin = time.process_time()
    heap: list[tuple[float, int]] = []
    for i in range(100_000):
        heappush(heap, ((i * 7919) % 100_003 * 0.001, i))
    while heap:
        heappop(heap)
    return (time.process_time() - begin) * 1e3


def main() -> None:
    """Run each scenario once and print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", default="alt300,chatcode300,S3,S7")
    options = parser.parse_args()
    print(f"{'scenario':12} {'requests':>9} {'requests/s':>11} {'yardstick ms':>13} {'per yardstick':>14}")
    for name in options.scenarios.split(","):
        world = scenario(name).build(None)
        stick = yardstick()
        result = run(world, POLICIES["equipoise"](world), 0)
        speed = result.requests_per_second
        print(f"{name:12} {result.requests:9,} {speed:11,.0f} {stick:13.0f} {speed * stick / 100.0:14,.0f}")
    print(f"aim: {TARGET_REQUESTS_PER_SECOND:,} requests per second on one core")


if __name__ == "__main__":
    main()
