"""Packings and solutions made by hand, so that their face needs no method."""

from __future__ import annotations

from typing import Any

import numpy as np

from stagepack.instances.packing import Banks, Gap, LmemPacking, PackingSolution
from stagepack.result import Event, Result, Status, Termination, Trace


def stacked(instance: LmemPacking) -> PackingSolution:
    """Put every buffer above all those before it."""
    return PackingSolution.of(instance, np.cumsum(instance.size) - instance.size)


def plain(n: int = 20, **options: Any) -> LmemPacking:
    rng = np.random.default_rng(n)
    start = rng.integers(0, 3 * n, n)
    options = {"ids": [f"t{i}" for i in range(n)], "name": f"plain-{n}", **options}
    return LmemPacking.from_arrays(
        rng.integers(1, 60, n) * 512, start, start + rng.integers(1, n, n), **options
    )


def banked() -> LmemPacking:
    return LmemPacking.from_arrays(
        [1024, 512, 2048, 256],
        [0, 1, 2, 3],
        [2, 3, 5, 6],
        ids=["a", "b", "c", "d"],
        period=4,
        capacity=8192,
        banks=Banks(4, 2048, np.array([[0, 1], [1, 2], [0, 3]])),
        objective="bank-conflicts",
        name="banked",
    )


def gapped() -> LmemPacking:
    return LmemPacking.from_arrays(
        [100, 60],
        [0, 2],
        [10, 8],
        gaps=[Gap(0, 2, 4), Gap(0, 6, 8, 20, 50)],
        fixed=[-1, 40],
        reserved=[(200, 220)],
        name="gapped",
    )


def spilling() -> LmemPacking:
    return LmemPacking.from_arrays(
        [4096, 8192, 2048],
        [0, 2, 1],
        [5, 6, 4],
        memories=[("sram", 12288, 1), ("dram", None, 10)],
        name="spilling",
    )


def result(
    instance: LmemPacking, solution: PackingSolution, method: str = "auto"
) -> Result[PackingSolution]:
    value = instance.evaluate(solution)
    return Result(
        status=Status.FEASIBLE,
        termination=Termination.TIME_LIMIT,
        objective=value,
        bound=1,
        bound_source="load bound",
        solution=solution,
        method=method,
        runtime=0.5,
        instance=instance.name,
        kind=instance.kind,
        objective_name=str(instance.objective),
        digest=instance.digest,
        trace=Trace([Event(0.001, "bound", 1, "load bound"), Event(0.2, "incumbent", value, "x")]),
    )
