"""Small allocation problems drawn at random, what any plan of them must keep, and the best plan by trying every one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from equipoise.api.identity import Phase, ServiceKey, Shape, Variant
from equipoise.decide.allocation.exact.layout import Layout
from equipoise.decide.allocation.exact.score import Score, score, within_limits
from equipoise.decide.allocation.types import Allocation, AllocationProblem, NodeSpace, PhaseDemand, ServiceDemand
from equipoise.decide.types import VariantOption
from equipoise.perf.types import ReplicaCapacity

RATES = (60.0, 100.0, 170.0)
PRICES = (0.7, 1.0, 2.5)


@st.composite
def problems(draw: st.DrawFn, most_services: int = 2, running: bool = True, most_gpus: int = 4) -> AllocationProblem:
    """Up to two pools of up to two nodes, replicas of one or two GPUs, limits of every kind; some replicas run already."""
    names = ("east", "west")[: draw(st.integers(1, 2))]
    sizes = {name: draw(st.lists(st.integers(1, most_gpus), min_size=1, max_size=2)) for name in names}
    price = {name: draw(st.sampled_from(PRICES)) for name in names}
    left = {(name, place): gpus for name in names for place, gpus in enumerate(sizes[name])}
    own: dict[tuple[str, int], dict[Variant, int]] = {}
    services = []
    for index in range(draw(st.integers(1, most_services))):
        key = ServiceKey("prod", "abcd"[index])
        phases = {}
        for phase in Phase:
            options: list[VariantOption] = []
            current: dict[Variant, int] = {}
            for name in names:
                shape = Shape(draw(st.sampled_from((1, 1, 2))))
                variant = Variant(key, phase, name, shape)
                rate = draw(st.sampled_from(RATES)) * shape.gpus_per_replica
                capacity = ReplicaCapacity(phase, rate, 64, 10_000, 0.1, "compute", "test")
                options.append(VariantOption(variant, capacity, price[name] * shape.gpus_per_replica, 60.0))
                for place in range(len(sizes[name])):
                    if running and left[name, place] >= shape.gpus_per_replica and draw(st.integers(0, 3)) == 0:
                        left[name, place] -= shape.gpus_per_replica
                        nodes = own.setdefault((name, place), {})
                        nodes[variant] = nodes.get(variant, 0) + shape.gpus_per_replica
                        current[variant] = current.get(variant, 0) + 1
            needed = draw(st.sampled_from((None, 0.0, 50.0, 130.0, 210.0, 480.0)))
            minimum = draw(st.integers(0, 2))
            maximum = draw(st.sampled_from((None, max(1, minimum), 3)))
            held = draw(st.integers(0, 7)) == 0
            phases[phase] = PhaseDemand(phase, needed, minimum, maximum, tuple(options), current, held)
        services.append(
            ServiceDemand(
                key,
                draw(st.integers(0, 1)),
                float(draw(st.integers(0, 2))),
                phases,
                draw(st.sampled_from((None, None, 2, 4))),
                draw(st.sampled_from((None, None, 2.6, 5.0))),
                draw(st.sampled_from((0.0, 0.25))),
                draw(st.booleans()),
            )
        )
    pools = {
        name: tuple(NodeSpace(f"{name}-{place}", gpus, own.get((name, place), {})) for place, gpus in enumerate(sizes[name]))
        for name in names
    }
    return AllocationProblem(pools, tuple(services))


def used_by_node(found: Allocation) -> dict[str, int]:
    """GPUs per node, as the plan places its replicas."""
    used: dict[str, int] = {}
    for variant, places in found.placements.items():
        for place in places:
            nodes = place.split("+")
            for node in nodes:
                used[node] = used.get(node, 0) + variant.shape.gpus_per_replica // len(nodes)
    return used


def broken_rules(problem: AllocationProblem, found: Allocation) -> list[str]:
    """Everything that a plan does and must not do."""
    wrong = []
    room = {node.name: node.gpus for nodes in problem.pools.values() for node in nodes}
    where = {node.name: pool for pool, nodes in problem.pools.items() for node in nodes}
    wrong += [f"{node} has {room[node]}, {gpus} used" for node, gpus in used_by_node(found).items() if gpus > room[node]]
    for variant, count in found.replicas.items():
        places = found.placements.get(variant, ())
        if len(places) != count or any(where[node] != variant.pool for place in places for node in place.split("+")):
            wrong.append(f"{variant}: {count} replicas, placed on {places}")
    for service in problem.services:
        gpus, cost, fixed_gpus, fixed_cost = 0, 0.0, 0, 0.0
        for phase, entry in service.phases.items():
            prices = {option.variant: option.price_usd_per_hour for option in entry.options}
            own = {
                variant: n for variant, n in found.replicas.items() if variant.service == service.key and variant.phase is phase
            }
            fixed = entry.held or entry.needed_tokens_per_second is None
            if entry.held and own != dict(entry.current):
                wrong.append(f"{service.key} {phase}: held at {dict(entry.current)}, planned {own}")
            count, stays = sum(own.values()), sum(entry.current.values()) if fixed else 0
            if entry.maximum is not None and count > max(entry.maximum, stays):
                wrong.append(f"{service.key} {phase}: {count} of at most {entry.maximum}")
            gpus += sum(variant.shape.gpus_per_replica * n for variant, n in own.items())
            cost += sum(prices[variant] * n for variant, n in own.items())
            if fixed:
                fixed_gpus += sum(variant.shape.gpus_per_replica * n for variant, n in entry.current.items())
                fixed_cost += sum(prices[variant] * n for variant, n in entry.current.items())
        if service.max_gpus is not None and gpus > max(service.max_gpus, fixed_gpus):
            wrong.append(f"{service.key}: {gpus} GPUs of at most {service.max_gpus}")
        most = service.max_cost_usd_per_hour
        if most is not None and cost > max(most, fixed_cost) + 1e-6:
            wrong.append(f"{service.key}: {cost} USD of at most {most}")
    return wrong


def best_by_trying(problem: AllocationProblem) -> Score:
    """The best score of all plans that keep every limit and fit on nodes. Only for problems in which nothing runs yet."""
    layout = Layout(problem)
    best: Score | None = None
    for numbers in itertools.product(*(range(choice.most + 1) for choice in layout.choices)):
        counts = {choice.variant: n for choice, n in zip(layout.choices, numbers, strict=True) if n}
        found = score(layout, counts)
        if (best is None or best.worse_than(found, 1e-9)) and within_limits(layout, counts) and _fits(layout, counts):
            best = found
    if best is None:
        raise AssertionError("the empty plan always fits")
    return best


def _fits(layout: Layout, counts: Mapping[Variant, int]) -> bool:
    for pool, nodes in layout.pools.items():
        widths = sorted(
            (v.shape.gpus_per_replica for v, n in counts.items() if v.pool == pool for _ in range(n)),
            reverse=True,
        )
        if not _pack(widths, tuple(sorted(node.gpus for node in nodes))):
            return False
    return True


def _pack(widths: Sequence[int], room: tuple[int, ...]) -> bool:
    if not widths:
        return True
    return any(
        _pack(widths[1:], (*room[:place], left - widths[0], *room[place + 1 :]))
        for place, left in enumerate(room)
        if left >= widths[0]
    )
