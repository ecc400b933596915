"""Whether pods that wait for a node can take one another's place, and which may therefore be created together.

The scheduler puts a pod on any node that has room, and prefers empty ones. A plan that fits can so become one that does not: two
pods of one GPU on two nodes of four leave no node to a pod of four. Created the widest first, and the next narrower ones when
those have their nodes, pods of widths that divide one another always fit: wherever the scheduler puts a pod, it takes a whole
number of places from every narrower width, the same on each node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def any_order_works(free: Sequence[int], pods: Mapping[int, int]) -> bool:
    """Whether these pods (number by GPUs) all find a node, in whatever order and wherever they are put. May err to the safe side.

    `free` are the free GPUs of every node. The worst for pods of w GPUs is that narrower ones come before them and
    spoil as many places of w GPUs as they can: the first on a node costs one GPU more than does not fit into such places, each
    further one w.
    """
    for width, count in pods.items():
        if count <= 0:
            continue
        wider = {other: number for other, number in pods.items() if other > width}
        exact = all(other % width == 0 for other in wider)
        places = sum(gpus // width for gpus in free) - sum(math.ceil(other / width) * n for other, n in wider.items())
        narrow = sum(other * number for other, number in pods.items() if other < width)
        for cost in sorted((gpus % width if exact else 0) + 1 for gpus in free if gpus >= width):
            if narrow < cost or places < count:
                break
            narrow, places = narrow - cost, places - 1
        if places - narrow // width < count:
            return False
    return True


def widths_that_may_start(free: Sequence[int], waiting: Mapping[int, int], new: Mapping[int, int]) -> frozenset[int]:
    """Of new pods (number by GPUs), the widths to create now; the others when those have their nodes.

    `waiting` are pods that exist and have no node yet. Where nothing waits the widest new ones always start.
    """
    together = dict(waiting)
    chosen: set[int] = set()
    for width in sorted(new, reverse=True):
        trial = {**together, width: together.get(width, 0) + new[width]}
        others = [other for other, count in trial.items() if count > 0 and other != width]
        if others and not any_order_works(free, trial):
            break
        together = trial
        chosen.add(width)
    return frozenset(chosen)
