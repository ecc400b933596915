"""Pools and nodes in the program: what fits on a pool as a whole, and node by node where wide replicas make that matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from equipoise.decide.allocation.exact.layout import Choice, Group, Layout, Node
from equipoise.decide.allocation.exact.solver import Program, Solution


@dataclass(slots=True)
class Packing:
    """Where the program put replicas: chunks that stay per group and node, new chunks per pool, node and width."""

    stay_columns: dict[tuple[int, int], int] = field(default_factory=dict)
    new_columns: dict[tuple[str, int, int], int] = field(default_factory=dict)
    stays: dict[tuple[int, int], int] = field(default_factory=dict)
    new: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def read(self, found: Solution) -> None:
        """Take over a solution."""
        self.stays = {key: round(found.values[column]) for key, column in self.stay_columns.items()}
        self.new = {key: round(found.values[column]) for key, column in self.new_columns.items()}


def divisible(widths: list[int]) -> bool:
    """Whether every width divides the next: then replicas fit exactly if they fit width by width (see `units_of`)."""
    return all(wide % narrow == 0 for narrow, wide in pairwise(widths))


def units_of(nodes: list[Node], width: int) -> int:
    """How many chunks of this width open nodes can hold.

    For widths that divide one another a set of chunks can be placed if and only if, for every width w, the chunks at least that
    wide, counted in units of w, are no more than this number: a wider chunk always takes away whole units of w, wherever it is
    put. Widths of tensor parallelism are powers of two, so this is the usual case.
    """
    return sum(node.gpus // width for node in nodes if node.open)


def pool_rows(layout: Layout) -> list[tuple[str, int, int]]:
    """(pool, width, chunks of that width that its nodes hold): necessary for any plan, wherever replicas run now.

    A chunk of width W takes W // width of them. Where all widths divide one another and nothing runs yet, they are sufficient
    too; otherwise a row for single GPUs is added, and what is missing shows when a plan is placed.
    """
    rows = []
    for pool, nodes in layout.pools.items():
        widths = pool_widths(layout, pool)
        if widths and not divisible(widths) and widths[0] != 1:
            widths.insert(0, 1)
        rows += [(pool, width, sum(node.gpus // width for node in nodes)) for width in widths]
    return rows


def pool_widths(layout: Layout, pool: str) -> list[int]:
    """Widths of what may run on a pool."""
    return sorted(layout.widths.get(pool, ()))


def add_pools(program: Program, layout: Layout, replicas: Mapping[int, int]) -> Packing:
    """Rows that keep replicas inside pools and nodes; `replicas` are the columns of the choices."""
    packing = Packing()
    groups: dict[str, list[tuple[int, Group]]] = {}
    for index, group in enumerate(layout.groups):
        groups.setdefault(group.pool, []).append((index, group))
    for pool, members in sorted(groups.items()):
        widths = pool_widths(layout, pool)
        if widths == [1]:
            _add_narrow(program, layout.pools[pool], members, replicas)
        else:
            _add_wide(program, layout.pools[pool], pool, members, widths, replicas, packing)
    return packing


def _chunks(choices: list[Choice], replicas: Mapping[int, int], sign: float) -> list[tuple[int, float]]:
    return [(replicas[choice.index], sign * choice.chunks) for choice in choices]


def _add_narrow(program: Program, nodes: list[Node], members: list[tuple[int, Group]], replicas: Mapping[int, int]) -> None:
    """Every GPU is as good as any other; on closed nodes only what runs there may stay."""
    row: list[tuple[int, float]] = []
    for _, group in members:
        row += _chunks(group.choices, replicas, 1.0)
        closed = min(sum(count for place, count in group.slots.items() if not nodes[place].open), group.current * group.chunks)
        if closed:
            stay = program.integer(0.0, float(closed))
            row.append((stay, -1.0))
            program.row([(stay, 1.0), *_chunks(group.choices, replicas, -1.0)], upper=0.0)
    program.row(row, upper=float(units_of(nodes, 1)))


def _add_wide(
    program: Program,
    nodes: list[Node],
    pool: str,
    members: list[tuple[int, Group]],
    widths: list[int],
    replicas: Mapping[int, int],
    packing: Packing,
) -> None:
    """Replicas that stay keep their node; new ones find what that leaves."""
    at_node: dict[int, list[tuple[int, float]]] = {}
    arrivals: dict[int, list[tuple[int, float]]] = {width: [] for width in widths}
    for index, group in members:
        stays: list[int] = []
        for place, count in sorted(group.slots.items()):
            stay = program.integer(0.0, float(count))
            packing.stay_columns[index, place] = stay
            stays.append(stay)
            at_node.setdefault(place, []).append((stay, float(group.width)))
        kept = [(stay, 1.0) for stay in stays]
        new = _chunks(group.choices, replicas, 1.0)
        arrivals[group.width] += [*new, *((stay, -1.0) for stay in stays)]
        if not stays:
            continue
        held = min(sum(group.slots.values()), group.current * group.chunks)
        program.row(kept, upper=float(held))
        program.row([*new, *((stay, -1.0) for stay in stays)], lower=0.0)
        # Nothing new of a kind while something of that kind is given up: a count that stays moves no pod.
        most = float(sum(choice.most * choice.chunks for choice in group.choices))
        grows = program.integer(0.0, 1.0)
        program.row([*kept, (grows, -float(held))], lower=0.0)
        program.row([*new, *((stay, -1.0) for stay in stays), (grows, -most)], upper=0.0)
    classes: dict[tuple[int, int], list[int]] = {}
    exact = divisible(widths)
    for place, node in enumerate(nodes):
        if not node.open:
            program.row(at_node.get(place, []), upper=float(node.gpus))
        elif place in at_node or not exact:
            classes[node.gpus, place] = [place]
        else:
            classes.setdefault((node.gpus, -1), []).append(place)
    taken: dict[int, list[tuple[int, float]]] = {width: [] for width in widths}
    for (gpus, single), places in sorted(classes.items()):
        columns = {width: program.integer(0.0, float(len(places) * (gpus // width))) for width in widths}
        for width, column in columns.items():
            taken[width].append((column, 1.0))
            if single >= 0:
                packing.new_columns[pool, single, width] = column
        if single >= 0:
            program.row([*at_node.get(single, []), *((columns[w], float(w)) for w in widths)], upper=float(gpus))
            continue
        for width in widths:
            row = [(columns[wide], float(wide // width)) for wide in widths if wide >= width]
            program.row(row, upper=float(len(places) * (gpus // width)))
    for width in widths:
        program.row([*arrivals[width], *((column, -1.0) for column, _ in taken[width])], lower=0.0, upper=0.0)
