"""Packers for the benchmarks: Stagepack, MiniMalloc, OmniMalloc 1.0.0, Vela and onnxsim."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stagepack as sp
from stagepack.result import Status

CORES = os.cpu_count() or 1


def processor_seconds() -> float:
    """Return those of this process and of the processes that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@dataclass
class Answer:
    """What one run gave: offsets (None: nothing), and whether it says that none are better."""

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
            ended = result.status in (Status.OPTIMAL, Status.INFEASIBLE)
            return Answer(offsets, ended or (fits and offsets is not None))

        return run

    return Runner(name, prepare)


def plain_model() -> Runner:
    """Return the CP-SAT model with nothing to start from, on all cores."""
    return ours("plain CP-SAT model", "cp-sat", threads=CORES, warm_start=None)


def google_minimalloc(executable: Path) -> Runner:
    """Return MiniMalloc: the program that google/minimalloc's sources build, told the capacity.

    Reading, writing and the start of its process count; they take some milliseconds.
    """

    def prepare(instance: Any, limit: float) -> Callable[[], Answer]:
        columns = (np.arange(instance.n), instance.start, instance.end, instance.size)
        head = ",".join(("id", "lower", "upper", "size"))

        def run() -> Answer:
            with tempfile.TemporaryDirectory() as folder:
                given, found = Path(folder, "given.csv"), Path(folder, "found.csv")
                np.savetxt(given, np.column_stack(columns), "%d", ",", header=head, comments="")
                command = [str(executable), f"--capacity={instance.capacity}"]
                command += [f"--timeout={limit}s", f"--input={given}", f"--output={found}"]
                began = time.perf_counter()
                done = subprocess.run(command, check=False, capture_output=True)
                if done.returncode:
                    return Answer(None, proved=time.perf_counter() - began < limit)
                table = np.loadtxt(found, np.int64, delimiter=",", skiprows=1, ndmin=2)
            return Answer(table[np.argsort(table[:, 0]), -1], proved=True)

        return run

    return Runner("MiniMalloc", prepare)


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


def vela_hillclimb() -> Runner:
    """Return the allocator of Arm's Vela, with as many iterations as it takes by default."""

    def prepare(instance: Any, limit: float) -> Callable[[], Answer]:
        from ethosu.vela.hillclimb_allocation import allocate_live_ranges

        columns = (instance.size, instance.start, instance.end, instance.alignment)
        ranges = [LiveRange(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
        most = 2**62 if instance.capacity is None else instance.capacity
        return lambda: Answer(np.array(allocate_live_ranges(ranges, None, most), dtype=np.int64))

    return Runner("Vela hill-climb", prepare, limited=False)


@dataclass(frozen=True)
class LiveRange:
    """A buffer as Vela's allocator asks for it."""

    size: int
    start_time: int
    end: int
    alignment: int

    @property
    def end_time(self) -> int:
        """The last time, inclusive."""
        return self.end - 1

    def get_alignment(self) -> int:
        """Bytes."""
        return self.alignment


def onnxsim_plan() -> Runner:
    """Return onnxsim's planner, on a model whose values live as the buffers do."""

    def prepare(instance: Any, limit: float) -> Callable[[], Answer]:
        from onnxsim import plan_activation_memory

        model = _as_onnx(instance)

        def run() -> Answer:
            placed = plan_activation_memory(model, run_shape_inference=False).tensor_offsets
            return Answer(np.array([placed[f"b{at}"][0] for at in range(instance.n)]))

        return run

    return Runner("onnxsim plan", prepare, limited=False)


def _as_onnx(instance: Any) -> Any:
    """Return a model with a node a time, which writes what begins there and reads what ends."""
    from onnx import TensorProto, helper

    times = np.unique(np.concatenate([instance.start, instance.end - 1]))
    born, last = np.searchsorted(times, (instance.start, instance.end - 1))
    writes: list[list[str]] = [[] for _ in times]
    reads: list[list[str]] = [[] for _ in times]
    for at, (first, end) in enumerate(zip(born.tolist(), last.tolist(), strict=True)):
        writes[first].append(f"b{at}")
        if end > first:
            reads[end].append(f"b{at}")
    nodes = [
        helper.make_node("Step", read, write, domain="stagepack")
        for read, write in zip(reads, writes, strict=True)
    ]
    values = [
        helper.make_tensor_value_info(f"b{at}", TensorProto.UINT8, [size])
        for at, size in enumerate(instance.size.tolist())
    ]
    return helper.make_model(helper.make_graph(nodes, "buffers", [], [], value_info=values))


def compilers() -> list[Runner]:
    """Return the planners of compilers that are installed."""
    known = {"ethosu": vela_hillclimb, "onnxsim": onnxsim_plan}
    return [make() for module, make in known.items() if importlib.util.find_spec(module)]
