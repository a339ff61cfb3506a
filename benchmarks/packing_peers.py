"""Who packs, for the benchmarks: methods of this package, and those of OmniMalloc 1.0.0."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

import stagepack as sp
from stagepack.result import Status

CORES = os.cpu_count() or 1


@dataclass
class Answer:
    """What one run gave: offsets (None: nothing) and whether it calls them optimal."""

    offsets: Any | None
    proved: bool = False
    note: str = ""


@dataclass
class Runner:
    """One way to pack: `prepare` is not measured, what it returns is.

    Greedy rules are not `limited`: they end when they end.
    """

    name: str
    prepare: Callable[[Any, float], Callable[[], Answer]]
    limited: bool = True


def ours(name: str, method: str, *, threads: int = 1, **options: Any) -> Runner:
    """Return a method of this package."""

    def prepare(instance: Any, limit: float) -> Callable[[], Answer]:
        def run() -> Answer:
            result = sp.solve(instance, method, time_limit=limit, threads=threads, **options)
            offsets = None if result.solution is None else result.solution.offsets
            fits = instance.capacity is not None and str(instance.objective) == "fit"
            return Answer(
                offsets, result.status is Status.OPTIMAL or (fits and offsets is not None)
            )

        return run

    return Runner(name, prepare)


def plain_model() -> Runner:
    """Return the CP-SAT model with nothing to start from, on all cores."""
    return ours("plain CP-SAT model", "cp-sat", threads=CORES, warm_start=None)


def allocations(instance: Any) -> tuple[Any, ...]:
    """Return the buffers as OmniMalloc takes them."""
    import omnimalloc

    columns = (instance.size.tolist(), instance.start.tolist(), instance.end.tolist())
    return tuple(
        omnimalloc.Allocation(i, size, start, end)
        for i, (size, start, end) in enumerate(zip(*columns, strict=True))
    )


def offsets_of(placed: Iterable[Any], n: int) -> Any:
    """Return OmniMalloc's placement as offsets in our order."""
    offsets = np.full(n, -1, dtype=np.int64)
    for allocation in placed:
        offsets[allocation.id] = allocation.offset
    return offsets


def omnimalloc_rule(
    name: str, make: Callable[[Any, float], Any], *, limited: bool = False
) -> Runner:
    """Return an allocator of OmniMalloc; `make` gets its module and the limit."""

    def prepare(instance: Any, limit: float) -> Callable[[], Answer]:
        from omnimalloc import allocators

        buffers, allocator = allocations(instance), make(allocators, limit)
        return lambda: Answer(offsets_of(allocator.allocate(buffers), instance.n))

    return Runner(name, prepare, limited)


def supermalloc() -> Runner:
    """Return OmniMalloc's branch and bound, as it minimises."""

    def prepare(instance: Any, limit: float) -> Callable[[], Answer]:
        from omnimalloc.allocators import SupermallocAllocator

        buffers, allocator = allocations(instance), SupermallocAllocator(timeout=limit)

        def run() -> Answer:
            found = allocator.solve(buffers)
            return Answer(offsets_of(found.allocations, instance.n), found.proved_optimal)

        return run

    return Runner("OmniMalloc SuperMalloc", prepare)


def supermalloc_bounded() -> Runner:
    """Return OmniMalloc's branch and bound, told the capacity: its own orders, all inferences."""

    def prepare(instance: Any, limit: float) -> Callable[[], Answer]:
        from omnimalloc._cpp import Partition, try_solve_many
        from omnimalloc.allocators.supermalloc import DEFAULT_HEURISTICS

        buffers, bound = allocations(instance), instance.capacity + 1  # its bounds are exclusive

        def run() -> Answer:
            whole = Partition.from_allocations(buffers)
            orders = ["".join(heuristic) for heuristic in DEFAULT_HEURISTICS]
            found = try_solve_many(
                [whole.reorder(order).with_bound(bound) for order in orders],
                bound,
                None,
                canonical=True,
                dominance=True,
                floor_inference=True,
                monotonic_floor=True,
                decompose=True,
                timeout=limit,
                num_threads=CORES,
            )
            if found is None:
                return Answer(None)
            return Answer(offsets_of(found.allocations, instance.n), proved=True)

        return run

    return Runner("OmniMalloc SuperMalloc, bounded", prepare)


def omnimalloc_rules(*, searches: bool = True) -> list[Runner]:
    """Return OmniMalloc's greedy rules, and its searches with all the time there is."""
    found = [
        omnimalloc_rule("OmniMalloc best-fit", lambda m, _: m.BestFitAllocator()),
        omnimalloc_rule("OmniMalloc greedy-by-size", lambda m, _: m.GreedyBySizeAllocator()),
        omnimalloc_rule("OmniMalloc greedy-by-all", lambda m, _: m.GreedyByAllAllocator()),
        omnimalloc_rule("OmniMalloc omni", lambda m, _: m.OmniAllocator()),
    ]
    if searches:
        endless = 10**9
        found += [
            omnimalloc_rule(
                "OmniMalloc hill-climb",
                lambda m, limit: m.HillClimbAllocator(max_iterations=endless, timeout=limit),
                limited=True,
            ),
            omnimalloc_rule(
                "OmniMalloc tabu-search",
                lambda m, limit: m.TabuSearchAllocator(max_iterations=endless, timeout=limit),
                limited=True,
            ),
        ]
    return found


def with_omnimalloc() -> bool:
    """Return whether OmniMalloc is installed."""
    try:
        importlib.metadata.version("omnimalloc")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
