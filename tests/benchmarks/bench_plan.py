"""How long a plan takes for 1, 10, 100 and 1,000 services on six shared pools, and how far from the best it can be.

`python tests/benchmarks/bench_plan.py` runs decide() on a fleet that holds everybody and on one that does not, for a first
round and for one in which the traffic has changed. It prints the seconds of the whole decide() and of the allocation in it,
and writes `build/bench/plan.json`. Everything is emulated but the planning: no cluster and no GPU is involved.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import sys
import time
from pathlib import Path
from types import ModuleType

from equipoise.api.identity import Phase, ServiceKey
from equipoise.decide.allocation.exact import allocate
from equipoise.decide.allocation.types import Allocation, AllocationProblem
from equipoise.decide.decide import decide
from equipoise.decide.types import Decision, PhasePolicy, ServiceInput
from equipoise.perf.types import Targets

OUTPUT = Path("build/bench/plan.json")
SIZES = (1, 10, 100, 1_000)
AMPLE, SHORT = 4, 1  # times the nodes of bench_decide's fleet: that has about twelve GPUs a service


def _bench_decide() -> ModuleType:
    """Its fleet and its traffic."""
    spec = importlib.util.spec_from_file_location("bench_decide", Path(__file__).with_name("bench_decide.py"))
    if spec is None or spec.loader is None:
        raise ImportError("bench_decide.py is not beside this file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_decide"] = module
    spec.loader.exec_module(module)
    return module


def run(count: int, nodes: int) -> list[dict[str, float | int | str | None]]:
    """A first round and one with changed traffic."""
    bench = _bench_decide()
    models = [bench.facts(uri) for uri in bench.MODELS]
    services = [
        ServiceInput(
            ServiceKey("bench", f"service-{index:04d}"),
            models[index % len(models)],
            Targets(2.0, 0.06),
            {phase: PhasePolicy() for phase in Phase},
            created_seconds=float(index),
        )
        for index in range(count)
    ]
    decisions: dict[ServiceKey, Decision] = {}
    found: list[dict[str, float | int | str | None]] = []
    for name, at, seed in (("first", bench.START, 1), ("changed", bench.START + 15, 2)):
        plans: list[tuple[float, Allocation]] = []

        def solve(problem: AllocationProblem, plans: list[tuple[float, Allocation]] = plans) -> Allocation:
            begin = time.perf_counter()
            plan = allocate(problem)
            plans.append((time.perf_counter() - begin, plan))
            return plan

        space, given = bench.fleet(count * nodes, decisions), bench.inputs(services, seed, at, decisions)
        gc.collect()
        begin = time.perf_counter()
        decisions = decide(space, given, solve=solve)
        whole = time.perf_counter() - begin
        seconds, plan = plans[0]
        found.append(
            {
                "services": count,
                "fleet": "ample" if nodes == AMPLE else "short",
                "round": name,
                "seconds": round(seconds, 4),
                "decide_seconds": round(whole, 4),
                "gap": None if math.isnan(plan.gap) else round(plan.gap, 6),
                "method": plan.method,
                "replicas": sum(plan.replicas.values()),
                "shortfalls": len(plan.shortfalls),
            }
        )
    return found


def main() -> None:
    """Print the table and write the file."""
    run(1, AMPLE)  # imports and caches that a process fills once
    runs = []
    print("services  fleet    round  allocation  decide()      gap  replicas  short  method")
    for nodes in (AMPLE, SHORT):
        for count in SIZES:
            for entry in run(count, nodes):
                runs.append(entry)
                gap = "unknown" if entry["gap"] is None else f"{entry['gap']:.3%}"
                print(
                    f"{entry['services']:8d} {entry['fleet']:>6} {entry['round']:>8} {entry['seconds']:9.3f} s "
                    f"{entry['decide_seconds']:7.3f} s {gap:>8} {entry['replicas']:9d} "
                    f"{entry['shortfalls']:6d}  {entry['method']}"
                )
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"runs": runs}, indent=2) + "\n")
    print(f"written to {OUTPUT}")


if __name__ == "__main__":
    main()
