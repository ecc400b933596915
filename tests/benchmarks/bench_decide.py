"""How long one round of decide() takes on one core, for 1, 10, 100 and 1,000 services on six shared pools.

`python tests/benchmarks/bench_decide.py` prints seconds for the first round (nothing remembered or cached), a round with
nearly the same traffic, and a round in which every service's traffic has changed.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Mapping
from dataclasses import replace

from equipoise.api.identity import Phase, ServiceKey, Variant
from equipoise.decide.decide import decide
from equipoise.decide.memory import ServiceMemory
from equipoise.decide.types import DecideInput, Decision, PhasePolicy, ServiceInput, VariantStatus
from equipoise.fleet.catalogue import device
from equipoise.fleet.types import Fleet, NodeCapacity, Pool
from equipoise.observe.types import Known, PhaseObservation, ServiceObservation
from equipoise.perf.models import model_facts
from equipoise.perf.types import ModelFacts, Targets

PRICES = {"H200": 5.75, "H100": 4.5, "A100-80GB": 3.5, "L40S": 1.8, "A10G": 1.3, "L4": 0.8}
MODELS = ("hf://meta-llama/Llama-3.1-8B-Instruct", "hf://Qwen/Qwen3-32B", "hf://meta-llama/Llama-3.1-70B-Instruct")
START = 1_000_000.0


def fleet(services: int, allocations: Mapping[ServiceKey, Decision]) -> Fleet:
    """Six pools with about twelve GPUs a service in all; replicas sit on the first nodes that have room."""
    held: dict[str, list[Variant]] = {}
    for decision in allocations.values():
        for variant, count in decision.allocation.items():
            held.setdefault(variant.pool, []).extend([variant] * count)
    pools = []
    for name, price in PRICES.items():
        nodes, waiting = [], sorted(held.get(name.lower(), []), key=lambda v: -v.shape.gpus_per_replica)
        for index in range(max(1, services // 4)):
            own: dict[Variant, int] = {}
            left, rest = 8, []
            for variant in waiting:
                if variant.shape.gpus_per_replica <= left:
                    left -= variant.shape.gpus_per_replica
                    own[variant] = own.get(variant, 0) + variant.shape.gpus_per_replica
                else:
                    rest.append(variant)
            waiting = rest
            nodes.append(NodeCapacity(f"{name.lower()}-{index:04d}", 8, own_gpus=own))
        pools.append(Pool(name.lower(), device(name), tuple(nodes), price))
    return Fleet(tuple(pools))


def traffic(key: ServiceKey, source: random.Random, at: float) -> ServiceObservation:
    """Requests of random shape."""
    rate, prompt, output = source.uniform(1, 20), source.uniform(300, 4000), source.uniform(50, 600)
    n = rate * 30
    first = PhaseObservation(
        requests_per_second=Known(rate, n),
        served_requests_per_second=Known(rate, n),
        tokens_per_second=Known(rate * prompt, n),
        mean_tokens=Known(prompt, n),
        prefix_hit_share=Known(0.1),
        attainment=Known(0.97, n),
        waiting_requests=Known(0.0),
    )
    second = replace(first, tokens_per_second=Known(rate * output, n), mean_tokens=Known(output, n))
    return ServiceObservation(key, at, 30.0, first, second)


def inputs(services: list[ServiceInput], seed: int, at: float, decisions: Mapping[ServiceKey, Decision]) -> DecideInput:
    """One round's input, with everything decided before running."""
    source = random.Random(seed)
    given = []
    for service in services:
        decision = decisions.get(service.key)
        statuses = (
            tuple(VariantStatus(v, desired=n, ready=n, startup_seconds=90.0) for v, n in decision.allocation.items())
            if decision is not None
            else ()
        )
        given.append(replace(service, variants=statuses))
    memories = {key: ServiceMemory.from_dict(decision.memory.to_dict()) for key, decision in decisions.items()}
    return DecideInput(tuple(given), {s.key: traffic(s.key, source, at) for s in services}, memories, at)


def facts(uri: str) -> ModelFacts:
    """A model of the catalogue."""
    found = model_facts(uri)
    if not isinstance(found, ModelFacts):
        raise TypeError(found.message)
    return found


def main() -> None:
    """Print the table."""
    print(f"{'services':>8} {'first':>8} {'same':>8} {'changed':>8}  replicas  moves")
    models = [facts(uri) for uri in MODELS]
    for count in (1, 10, 100, 1000):
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
        seconds, moves = [], 0
        for at, seed in ((START, 1), (START + 15, 1), (START + 30, 1), (START + 45, 2)):
            space, given = fleet(count, decisions), inputs(services, seed, at, decisions)
            begin = time.process_time()
            decisions = decide(space, given)
            seconds.append(time.process_time() - begin)
            moves += sum(len(decision.moves) for decision in decisions.values())
        replicas = sum(sum(decision.allocation.values()) for decision in decisions.values())
        print(f"{count:8d} {seconds[0]:8.3f} {seconds[2]:8.3f} {seconds[3]:8.3f}  {replicas:8d}  {moves:5d}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
