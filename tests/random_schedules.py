"""Tiny random schedules with every option, and their optimum by enumeration.

The enumeration goes through every order of operations of every device.  Orders settle memory (a
device runs one operation after the other) and, but for the time, all else: the least makespan of
some orders is that of longest paths, the least longest span a cycle mean, see :func:`least`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from stagepack.instances.schedule import Objective, PipelineSchedule, ScheduleSolution, least_memory

Op = tuple[int, int, int]
"""Stage, kind (0 = F, 1 = B, 2 = W), microbatch."""
Orders = tuple[tuple[Op, ...], ...]


def random_schedule(seed: int, *, most_orders: int = 1500, **fixed: Any) -> PipelineSchedule:
    """Return an instance whose devices together have at most `most_orders` orders.

    `fixed` are fields that are not drawn.  The instance of a seed never changes.
    """
    draw = np.random.default_rng(seed)
    while True:
        instance = _draw(draw, seed, fixed)
        if number_of_orders(instance, most_orders) <= most_orders:
            return instance


def lone_microbatches(instance: PipelineSchedule) -> ScheduleSolution:
    """Return the schedule that runs one operation at a time, microbatch after microbatch.

    All F of a microbatch, then all its B, then all its W.  O(operations).
    """
    operations = instance.operations
    turn = np.empty(instance.p, dtype=np.int64)
    turn[list(instance.order)] = np.arange(instance.p)
    # Within a microbatch, B and W of stages that come last are first.
    place = np.where(operations.kind == 0, turn[operations.stage], -turn[operations.stage])
    order = np.lexsort((place, operations.kind, operations.microbatch))
    start = np.zeros(len(order), dtype=np.int64)
    wait = int(instance.lag.max(initial=0))
    start[order[1:]] = np.cumsum(operations.duration[order[:-1]] + wait)
    return ScheduleSolution.of(instance, start)


def _draw(draw: np.random.Generator, seed: int, fixed: dict[str, Any]) -> PipelineSchedule:
    p = int(draw.choice([1, 2, 2, 3, 3, 4, 4]))
    kinds = int(draw.choice([1, 2, 2, 3, 3, 3]))
    m: Any = int(draw.integers(1, 5))
    edges: list[tuple[int, int]] | None = None
    shape = draw.choice(["chain", "chain", "chain", "dag", "two chains"])
    if shape == "dag":
        edges = [(a, b) for a in range(p) for b in range(a + 1, p) if draw.random() < 0.5]
        if draw.random() < 0.5:  # numbers against the flow
            edges = [(p - 1 - a, p - 1 - b) for a, b in edges]
    elif shape == "two chains" and p > 1:
        half = p // 2
        edges = [(s, s + 1) for s in range(p - 1) if s != half - 1]
        m = [int(draw.integers(1, 4))] * half + [int(draw.integers(1, 4))] * (p - half)
    longest = int(draw.choice([1, 3, 9]))
    forward = draw.integers(1, longest + 1, p)
    f = draw.integers(0, 4, p)
    b = draw.integers(-f, 2) if draw.random() < 0.7 else -f
    w = draw.integers(-(f + b), 2) if draw.random() < 0.7 else -(f + b)
    memory = {"memory_forward": f, "memory_backward": b, "memory_weight": w}
    count = len(edges) if edges is not None else p - 1
    fields: dict[str, Any] = {
        "forward": forward,
        "backward": draw.integers(1, longest + 1, p) if kinds > 1 else None,
        "weight": draw.integers(1, longest + 1, p) if kinds > 2 else None,
        "microbatches": m,
        "devices": _devices(draw, p),
        "edges": edges,
        "latency": draw.integers(0, longest + 1, count) if draw.random() < 0.5 else 0,
        **dict(itertools.islice(memory.items(), kinds)),
        "optimizer": int(draw.integers(0, 5)) if draw.random() < 0.3 else 0,
        "post_validation": bool(draw.random() < 0.4),
        "steps": int(draw.integers(1, 4)),
        "objective": list(Objective)[seed % 2],
        "name": f"random-{seed}",
    }
    if draw.random() < 0.2:
        fields["optimizer"] = draw.integers(0, 5, int(max(fields["devices"])) + 1)
    instance = PipelineSchedule.from_arrays(**fields)
    if draw.random() < 0.75:
        slack = draw.integers(0, 4, instance.d) if draw.random() < 0.8 else -1
        instance = instance.replace(limit=np.maximum(least_memory(instance) + slack, 0))
    return instance.replace(**fixed)


def _devices(draw: np.random.Generator, p: int) -> list[int]:
    """One to one, dealt round after round, V-shaped, all on one device, or any map."""
    d = int(draw.integers(1, p + 1))
    match draw.choice(["one to one", "one to one", "rounds", "v", "any"]):
        case "rounds":
            return [s % d for s in range(p)]
        case "v":
            return [min(s, p - 1 - s) for s in range(p)]
        case "any":
            drawn = draw.integers(0, d, p)
            return [int(at) for at in np.unique(drawn, return_inverse=True)[1]]
    return list(range(p))


def by_list(instance: PipelineSchedule) -> ScheduleSolution:
    """A schedule of an instance without limits: what can start first does, B before F before W."""
    free = [0] * instance.d
    start: dict[Op, int] = {}
    needs = _needs(instance)
    while needs:
        ready = {
            op: max((start[n] + _duration(instance, n) + lag for n, lag in needed), default=0)
            for op, needed in needs.items()
            if all(n in start for n, _ in needed)
        }
        op = min(
            ready,
            key=lambda op: (
                max(ready[op], free[instance.devices[op[0]]]),
                (1, 0, 2)[op[1]],
                -op[0],
            ),
        )
        device = instance.devices[op[0]]
        start[op] = max(ready[op], free[device])
        del needs[op]
        free[device] = start[op] + _duration(instance, op)
    return _solution(instance, start)


def _needs(instance: PipelineSchedule) -> dict[Op, list[tuple[Op, int]]]:
    """For each operation what must end before it, and how long before."""
    needs: dict[Op, list[tuple[Op, int]]] = {}
    for s, m in enumerate(instance.microbatches.tolist()):
        for kind in range(len(instance.kinds)):
            for i in range(m):
                needs[s, kind, i] = [((s, kind, i - 1), 0)] if i else []
                if kind:
                    needs[s, kind, i].append(((s, kind - 1, i), 0))
    for (a, b), latency in zip(instance.edges, instance.latency.tolist(), strict=True):
        lag = 0 if instance.devices[a] == instance.devices[b] else latency
        for i in range(int(instance.microbatches[a])):
            needs[b, 0, i].append(((a, 0, i), lag))
            if instance.training:
                needs[a, 1, i].append(((b, 1, i), lag))
    return needs


def _solution(instance: PipelineSchedule, start: dict[Op, int]) -> ScheduleSolution:
    return ScheduleSolution.of(
        instance,
        [
            start[s, kind, i]
            for s, m in enumerate(instance.microbatches.tolist())
            for kind in range(len(instance.kinds))
            for i in range(m)
        ],
    )


# ---------------------------------------------------------------------- every order


def orders_of(instance: PipelineSchedule, device: int) -> Iterator[tuple[Op, ...]]:
    """Every order in which a device can run its operations within its memory.

    In order of microbatches, F before B before W; what other devices do is not looked at.
    """
    kinds = len(instance.kinds)
    changes = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    limit = math.inf if instance.limit is None else int(instance.limit[device])
    stages = [s for s in range(instance.p) if instance.devices[s] == device]
    total = sum(int(instance.microbatches[s]) * kinds for s in stages)
    done = {(s, kind): 0 for s in stages for kind in range(kinds)}
    order: list[Op] = []

    def extend(held: int) -> Iterator[tuple[Op, ...]]:
        if len(order) == total:
            yield tuple(order)
        for s, kind in done:
            i = done[s, kind]
            change = int(changes[kind][s])
            if i == instance.microbatches[s] or (kind and done[s, kind - 1] <= i):
                continue
            if held + max(change, 0) > limit:
                continue
            done[s, kind] += 1
            order.append((s, kind, i))
            yield from extend(held + change)
            order.pop()
            done[s, kind] -= 1

    return extend(0)


def number_of_orders(instance: PipelineSchedule, most: int) -> int:
    """Return how many orders devices have together; where that is above `most`, more than that."""
    number = 1
    free = instance.replace(limit=None)
    for device in range(instance.d):
        number *= sum(1 for _ in itertools.islice(orders_of(free, device), most + 1))
    return number


def least(instance: PipelineSchedule, orders: Orders) -> tuple[int, dict[Op, int]] | None:
    """The least objective value with these orders and starts that have it, None for a deadlock.

    The span of device d is at most D where start(first of d) >= end(last of d) + optimizer - D.
    With these arcs beside those of the orders, starts exist unless a cycle is longer than 0: D
    must be the largest mean, per arc added, over cycles from firsts to lasts.
    """
    arcs = _arcs(instance, orders)
    sorted_ops = _topological(instance, arcs)
    if sorted_ops is None:
        return None
    optimizer = instance.optimizer.tolist()
    if instance.objective is Objective.MAKESPAN:
        start = _longest(instance, arcs, sorted_ops, {})
        ends = [start[order[-1]] + _duration(instance, order[-1]) for order in orders]
        if instance.post_validation:
            return max(end + more for end, more in zip(ends, optimizer, strict=True)), start
        return max(ends) + max(optimizer), start
    devices = range(len(orders))
    weight: dict[tuple[int, int], int] = {}
    for a in devices:
        reached = _longest(instance, arcs, sorted_ops, {orders[a][0]: 0}, only=True)
        for b in devices:
            last = orders[b][-1]
            if last in reached:
                weight[a, b] = reached[last] + _duration(instance, last) + optimizer[b]
    cycles = [
        list(itertools.pairwise((*nodes, nodes[0])))
        for length in range(1, len(orders) + 1)
        for nodes in itertools.permutations(devices, length)
    ]
    value = max(
        -(-sum(weight[step] for step in cycle) // len(cycle))
        for cycle in cycles
        if all(step in weight for step in cycle)
    )
    earliest: dict[Op, int] = {}
    while True:  # Bellman-Ford: the firsts move until every span is short enough
        start = _longest(instance, arcs, sorted_ops, earliest)
        late = False
        for d, order in enumerate(orders):
            end = start[order[-1]] + _duration(instance, order[-1]) + optimizer[d]
            if start[order[0]] < end - value:
                earliest[order[0]] = end - value
                late = True
        if not late:
            return value, start


def optimum(instance: PipelineSchedule) -> int | None:
    """The least objective value, None for an infeasible instance."""
    found = best(instance)
    return None if found is None else found[0]


def best(instance: PipelineSchedule) -> tuple[int, ScheduleSolution] | None:
    """The least objective value and a schedule that has it, None for an infeasible instance."""
    found: tuple[int, dict[Op, int]] | None = None
    every = [list(orders_of(instance, device)) for device in range(instance.d)]
    for orders in itertools.product(*every):
        candidate = least(instance, orders)
        if candidate is not None and (found is None or candidate[0] < found[0]):
            found = candidate
    if found is None:
        return None
    return found[0], _solution(instance, found[1])


def _duration(instance: PipelineSchedule, op: Op) -> int:
    column = (instance.forward, instance.backward, instance.weight)[op[1]]
    assert column is not None
    return int(column[op[0]])


def _arcs(instance: PipelineSchedule, orders: Orders) -> dict[Op, list[tuple[Op, int]]]:
    """For each operation what follows it, and the cycles between its end and that start."""
    arcs: dict[Op, list[tuple[Op, int]]] = {op: [] for order in orders for op in order}
    for order in orders:
        for one, then in itertools.pairwise(order):
            arcs[one].append((then, 0))
    for (a, b), latency in zip(instance.edges, instance.latency.tolist(), strict=True):
        lag = 0 if instance.devices[a] == instance.devices[b] else latency
        for i in range(int(instance.microbatches[a])):
            arcs[a, 0, i].append(((b, 0, i), lag))
            if instance.training:
                arcs[b, 1, i].append(((a, 1, i), lag))
    return arcs  # F before B before W is in the orders


def _topological(
    instance: PipelineSchedule, arcs: dict[Op, list[tuple[Op, int]]]
) -> list[Op] | None:
    waits = dict.fromkeys(arcs, 0)
    for op in arcs:
        for then, _ in arcs[op]:
            waits[then] += 1
    ready = [op for op in arcs if not waits[op]]
    for op in ready:
        for then, _ in arcs[op]:
            waits[then] -= 1
            if not waits[then]:
                ready.append(then)
    return ready if len(ready) == len(arcs) else None


def _longest(
    instance: PipelineSchedule,
    arcs: dict[Op, list[tuple[Op, int]]],
    sorted_ops: list[Op],
    earliest: dict[Op, int],
    only: bool = False,
) -> dict[Op, int]:
    """Earliest starts, not before `earliest`; `only` what lies behind those."""
    start = dict(earliest) if only else {op: earliest.get(op, 0) for op in sorted_ops}
    for op in sorted_ops:
        if op in start:
            end = start[op] + _duration(instance, op)
            for then, lag in arcs[op]:
                start[then] = max(start.get(then, 0), end + lag)
    return start
