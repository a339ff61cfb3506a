"""A comparison made by hand, so that reports need no solver."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.compare import Cell, Comparison, Failure
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, Device, Link
from stagepack.result import Event, Result, Status, Termination, Trace

METHODS = ("equal-layers", "greedy", "dp", "milp-assignment", "cp-sat")


def network(n: int, k: int, *, name: str, seed: int = 0, **options: Any) -> PipelinePartition:
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 9, n) * 2**20
    cluster = Cluster(
        devices=tuple(
            Device(
                memory=int(weights.sum() / k * 2.2) + 12 * 2**20,
                recv=Link(GBps=7, idle=3000),
                send=Link(GBps=7),
            )
            for _ in range(k)
        ),
        host_recv=Link(GBps=7, idle=50000),
        host_send=Link(GBps=7, idle=50000),
    )
    return PipelinePartition.from_arrays(
        rng.integers(100_000, 900_000, n),
        cluster=cluster,
        exclusive={"weights": weights, "vertex state": weights // 3},
        shared={"attention": (2**20, range(0, n, 2)), "feed-forward": (2**19, range(1, n, 2))},
        temporary=rng.integers(1, 5, n) * 2**20,
        carry=rng.integers(0, 2, n) * 2**20,
        in_bytes=rng.integers(1, 9, n + 1) * 2**18,
        out_bytes=rng.integers(1, 9, n + 1) * 2**18,
        objective="transfer-bounded",
        host_transfer=True,
        name=name,
        **options,
    )


def cut(instance: PipelinePartition, shift: int) -> PipelineSolution:
    """Cut evenly, `shift` layers aside."""
    n, k = instance.n, instance.k
    even = [min(n - k + j, max(j, n * j // k + shift)) for j in range(1, k)]
    return PipelineSolution.in_order([0, *even, n])


def result(
    instance: PipelinePartition, method: str, shift: int, bound: float, runtime: float
) -> Result[PipelineSolution]:
    solution = cut(instance, shift)
    value = instance.evaluate(solution)
    proved = bound >= value
    events = [
        Event(0.0005, "bound", int(bound * 0.8), "load bound"),
        Event(0.001, "incumbent", int(value * 1.2), "greedy"),
        Event(runtime / 3, "bound", int(bound * 0.9), method),
        Event(runtime / 2, "incumbent", value, method),
    ]
    return Result(
        status=Status.OPTIMAL if proved else Status.FEASIBLE,
        termination=Termination.PROVED if proved else Termination.TIME_LIMIT,
        objective=value,
        bound=int(bound),
        bound_source="exhausted search" if proved else "load bound",
        solution=solution,
        method=method,
        runtime=runtime,
        instance=instance.name,
        kind=instance.kind,
        objective_name=str(instance.objective),
        digest=instance.digest,
        versions={"stagepack": "0.1.0", "python": "3.11", "numpy": "2.4"},
        trace=Trace(events),
    )


def comparison(sizes: tuple[tuple[int, int], ...] = ((12, 4), (200, 8))) -> Comparison:
    """Return a comparison of five methods: solved, proved, failed and infeasible cells."""
    instances: dict[str, Any] = {}
    results: dict[tuple[str, str, int], Any] = {}
    failures: dict[tuple[str, str, int], Failure] = {}
    cells: list[Cell] = []
    for n, k in sizes:
        instance = network(n, k, name=f"pipeline/network-{n}-layers")
        instances[instance.name] = instance
        ranked = sorted(range(-2, 4), key=lambda s: instance.evaluate(cut(instance, s)))
        for place, method in enumerate(METHODS):
            cell = Cell(instance.name, method, 0)
            cells.append(cell)
            if method == "cp-sat":
                failures[cell] = Failure("n/a", "ortools is not installed: pip install ortools")
                continue
            shift = ranked[0] if method.startswith(("dp", "milp")) else ranked[2 - place]
            best = float(instance.evaluate(cut(instance, ranked[0])))
            bound = best if method == "dp" else 0.86 * best
            results[cell] = result(instance, method, shift, bound, 0.012 * 7.3**place)
    tight = network(24, 4, name="pipeline/too-tight <b>").replace(
        cluster=Cluster.uniform(4, memory=9 * 2**20)
    )
    instances["too-tight <b>"] = tight
    for method in METHODS:
        cell = Cell("too-tight <b>", method, 0)
        cells.append(cell)
        if method == "greedy":
            failures[cell] = Failure("error", "ZeroDivisionError: division by zero")
        elif method == "equal-layers":
            results[cell] = Result(
                status=Status.UNKNOWN,
                termination=Termination.FINISHED,
                method=method,
                runtime=0.0001,
            )
        else:
            results[cell] = Result(
                status=Status.INFEASIBLE,
                termination=Termination.PROVED,
                method=method,
                runtime=0.0004,
                reason="layer 7 needs 14,680,064 bytes and the largest device holds 9,437,184: "
                "5,242,880 too many; capacity 14,680,064 would do",
            )
    return Comparison(
        instances=instances,
        cells=cells,
        results=results,
        failures=failures,
        settings={"methods": list(METHODS), "time_limit": 10, "seeds": [0], "threads": 1},
        runtime=12.3,
        started="2025-01-01 12:00:00 +0000",
    )
