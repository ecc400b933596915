"""Time of one call of the performance model: `python tests/benchmarks/perf_speed.py`.

A round asks for services x pools x phases x shapes: 1,000 x 6 x 2 x 2 = 24,000 capacities. Known answers come from a cache by
value; new ones (another traffic, another target) are computed. Times are the best of many, for other load only adds.
"""

from __future__ import annotations

import timeit
from itertools import count

from equipoise.api.identity import Phase, Shape
from equipoise.fleet.catalogue import device
from equipoise.perf.capacity import capacity_at_demand, replica_capacity
from equipoise.perf.models import model_facts
from equipoise.perf.step_times import step_times
from equipoise.perf.types import Refusal, Targets, Workload

CACHED_TARGET_MICROSECONDS = 20.0


def microseconds(call: object, number: int) -> float:
    """Best time of one call."""
    assert callable(call)
    return min(timeit.repeat(call, number=number, repeat=20)) / number * 1e6


def main() -> None:
    """Print the times; fail when a cached answer takes longer than promised."""
    model = model_facts("hf://meta-llama/Llama-3.1-8B-Instruct")
    if isinstance(model, Refusal):
        raise SystemExit(model.message)
    where, targets, fresh = device("A100-80GB"), Targets(0.5, 0.05), count(1000)
    chat = Workload(1155, 211)
    print(f"step_times, cached: {microseconds(lambda: step_times(model, where, Shape()), 2000):.1f} us")
    slowest = 0.0
    for phase in Phase:

        def known(phase: Phase = phase) -> object:
            return replica_capacity(phase, model, where, Shape(), chat, targets, network_bytes_per_second=12.5e9)

        def new(phase: Phase = phase) -> object:
            work = Workload(next(fresh), 211)
            return replica_capacity(phase, model, where, Shape(), work, targets, network_bytes_per_second=12.5e9)

        def group(phase: Phase = phase) -> object:
            return capacity_at_demand(phase, model, where, Shape(), chat, targets, 1e5, network_bytes_per_second=12.5e9)

        cached = max(microseconds(known, 2000), microseconds(group, 500) / 4)
        slowest = max(slowest, cached)
        print(f"{phase.value}: cached {cached:.1f} us, new {microseconds(new, 100):.0f} us")
    if slowest > CACHED_TARGET_MICROSECONDS:
        raise SystemExit(f"a cached answer takes {slowest:.1f} us, promised are {CACHED_TARGET_MICROSECONDS:.0f}")


if __name__ == "__main__":
    main()
