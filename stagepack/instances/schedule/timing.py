"""The earliest schedule for a given order of operations on every device."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from stagepack.instances.schedule.data import ScheduleSolution
from stagepack.instances.schedule.instance import PipelineSchedule

Orders = Sequence[Sequence[int]]
"""For each device the flat indices of its operations, in the order in which it runs them."""


def earliest(instance: PipelineSchedule, orders: Orders) -> ScheduleSolution | None:
    """Return the schedule in which every operation starts as early as the orders allow, if they do.

    Orders are a list a device, which together hold every operation once; None if they wait for one
    another.  The memory of a device depends on the order of its operations alone: it is not looked
    at here.  Longest path over the precedence arcs and the order of each device, O(operations +
    arcs).
    """
    start, waits = longest_path(instance, orders)
    return None if any(waits) else ScheduleSolution.of(instance, start)


def longest_path(instance: PipelineSchedule, orders: Orders) -> tuple[list[int], list[int]]:
    """Return the earliest starts, and for each operation how many others it waits for in vain."""
    operations = instance.operations
    count = len(operations)
    arcs: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    waits = [0] * count
    for before, then, lag in zip(*(c.tolist() for c in operations.precedences()), strict=True):
        arcs[before].append((then, lag))
        waits[then] += 1
    duration = operations.duration.tolist()
    follower = [-1] * count
    for order in orders:
        for one, then in itertools.pairwise(order):
            follower[one] = then
            waits[then] += 1
    start = [0] * count
    ready = [v for v in range(count) if not waits[v]]
    while ready:
        v = ready.pop()
        end = start[v] + duration[v]
        for then, lag in arcs[v]:
            start[then] = max(start[then], end + lag)
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
        then = follower[v]
        if then >= 0:
            start[then] = max(start[then], end)
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
    return start, waits
