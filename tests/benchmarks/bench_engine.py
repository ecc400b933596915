"""How many simulated requests per second of processor time the engine model does: `python tests/benchmarks/bench_engine.py`.

The whole way of a request is counted: generation of the traffic, routing, prefill, KV hand-over, decode, records. Time is this
process's own processor time, so other load on the machine shows only through shared caches and cores; the last column is the
time of a fixed piece of Python on the same machine right beforehand, to tell a slow model from a slow moment.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from dataclasses import asdict, dataclass
from heapq import heappop, heappush

from equipoise.api.identity import Phase
from equipoise.perf.types import StepTimes
from equipoise.simulate.engine.cluster import Cluster
from equipoise.simulate.engine.metrics.exposition import Exposition
from equipoise.simulate.engine.request import Request
from equipoise.simulate.engine.types import ReplicaSpec
from equipoise.simulate.traffic.plan import alternate

# Llama-3.1-8B in bf16 on an H100, fitted to aiconfigurator-core 0.12.0's tables for vLLM.
H100 = StepTimes(3.417e-3, 1.839e-5, 5.727e-10, 6.380e-3, 1.091e-5, 4.175e-8, "fit, 8B on H100")
KV_TOKENS, KV_BYTES = 432_992, 131_072
TTFT_SECONDS, TPOT_SECONDS = 1.0, 0.05
TARGET_REQUESTS_PER_SECOND = 50_000


@dataclass
class Result:
    """One run."""

    traffic: str
    replicas: str
    mode: str
    requests: int
    requests_per_second: int
    goodput: float
    events_per_request: float
    yardstick_milliseconds: float


def yardstick() -> float:
    """Milliseconds for 100,000 pushes and pops of a heap."""
    begin = time.process_time()
    heap: list[tuple[float, int]] = []
    for i in range(100_000):
        heappush(heap, ((i * 7919) % 100_003 * 0.001, i))
    while heap:
        heappop(heap)
    return (time.process_time() - begin) * 1e3


def run(kind: str, rate: float, prefills: int, decodes: int, requests: int, mode: str) -> Result:
    """One traffic through one fleet. `mode`: plain, metrics (kept, read every 15 s of virtual time), reference (step by step)."""
    stick = yardstick()
    done: list[Request] = []
    cluster = Cluster(on_done=done.append, metrics=mode == "metrics", step_by_step=mode == "reference")
    pages = []
    for number in range(prefills + decodes):
        phase = Phase.PREFILL if number < prefills else Phase.DECODE
        spec = ReplicaSpec(H100, KV_TOKENS, KV_BYTES, node=f"node-{number}")
        replica = cluster.add(f"replica-{number}", spec, phase, 0.0)
        if replica.metrics is not None:
            pages.append(Exposition(replica, replica.metrics, "model"))
    gc.collect()
    gc.disable()
    begin = time.process_time()
    scrape = 15.0
    for index, arrival in enumerate(alternate([(kind, requests / rate, rate)]).arrivals(seed=1)):
        at = arrival.at_seconds
        while pages and scrape <= at:
            cluster.advance_to(scrape)
            for page in pages:
                page.page(scrape)
            scrape += 15.0
        cluster.advance_to(at)
        cluster.submit(Request(index, at, arrival.prompt_tokens, arrival.output_tokens), at)
    while (at_next := cluster.next_event_time()) is not None:
        cluster.advance_to(at_next)
    seconds = time.process_time() - begin
    gc.enable()
    good = sum(request.meets(TTFT_SECONDS, TPOT_SECONDS) for request in done)
    return Result(
        f"{kind} {rate:g}/s",
        f"{prefills}P{decodes}D",
        mode,
        len(done),
        round(len(done) / seconds),
        round(good / len(done), 4),
        round(cluster.events_entered / len(done), 2),
        round(stick, 1),
    )


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = [
        ("azure-conv", 22.0, 1, 1),
        ("azure-conv", 44.0, 2, 2),
        ("azure-conv", 160.0, 4, 4),
        ("azure-code", 80.0, 6, 2),
        ("reasoning", 20.0, 1, 7),
    ]
    results = [run(*case, options.requests, mode) for mode in ("plain", "metrics") for case in cases]
    results += [run(*cases[2], options.requests // 4, "reference")]
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
        return
    print(f"{'traffic':18} {'fleet':6} {'mode':9} {'requests/s':>10} {'goodput':>8} {'events':>7} {'yardstick ms':>12}")
    for result in results:
        print(
            f"{result.traffic:18} {result.replicas:6} {result.mode:9} {result.requests_per_second:10,} {result.goodput:8.4f} "
            f"{result.events_per_request:7.2f} {result.yardstick_milliseconds:12.1f}"
        )
    plain = [result.requests_per_second for result in results if result.mode == "plain"]
    print(f"\nplain, mean: {sum(plain) / len(plain):,.0f} requests per second (aim: {TARGET_REQUESTS_PER_SECOND:,})")


if __name__ == "__main__":
    main()
