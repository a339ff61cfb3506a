"""The cost of a comparison besides solving: the overhead of each cell, for tiny instances.

::

    python -m benchmarks.cells [CELLS] [--dask ADDRESS] [--only PLACE]

Each place (this process, child processes, Dask) runs the same small chains by ``greedy``: without a
store, with an empty store, and with a store that has all results.  A line has the wall seconds of
the comparison, and the overhead of a cell in milliseconds: wall seconds times workers, minus the
seconds of all solves, divided by the number of cells.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from typing import Any

import stagepack as sp
from stagepack.compare import clusters

WORKERS = 2


def chains(count: int) -> dict[str, Any]:
    name = "pipeline/random/heterogeneous"
    return {f"chain {seed}": sp.load(name, layers=8, devices=3, seed=seed) for seed in range(count)}


def measured(instances: dict[str, Any], workers: int, **place: Any) -> str:
    """Return a line; `workers` is 0 where nothing is solved."""
    began, cpu = time.perf_counter(), time.process_time()
    found = sp.compare(instances, "greedy", time_limit=5, **place)
    seconds = time.perf_counter() - began
    failed = sum(row["status"] == "error" for row in found.rows)
    assert not failed, f"{failed} cells failed"
    assert not found.contradictions
    each = 1e3 / len(found.cells)
    client = f"{(time.process_time() - cpu) * each:7.3f} ms a cell of this process"
    beside = seconds * workers - sum(row["runtime"] for row in found.rows)
    if not workers:
        return f"{seconds:8.2f} s   {client}"
    return f"{seconds:8.2f} s   {client}, {beside * each:7.3f} ms of a worker beside solving"


def places(address: str | None, stack: contextlib.ExitStack) -> dict[str, tuple[int, Any]]:
    found: dict[str, tuple[int, Any]] = {
        "this process": (1, {"jobs": 0}),
        "children": (WORKERS, {"jobs": WORKERS}),
        "children, nothing watched": (WORKERS, {"jobs": WORKERS, "isolate": "none"}),
    }
    if address is not None:
        executor = stack.enter_context(clusters.dask(address))
        for isolate in ("worker", "none"):
            given = {"executor": executor, "isolate": isolate}
            found[f"Dask, isolate {isolate}"] = (WORKERS, given)
        found["Dask, none, chunks of 50"] = (
            WORKERS,
            {**found["Dask, isolate none"][1], "chunk": 50},
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=int, nargs="?", default=10_000)
    parser.add_argument("--dask", metavar="ADDRESS")
    parser.add_argument("--only", default="", metavar="NAME", help="places that begin so")
    given = parser.parse_args()
    instances = chains(given.cells)
    with contextlib.ExitStack() as stack:
        found = places(given.dask, stack)
        for name in [name for name in found if name.startswith(given.only)]:
            workers, place = found[name]
            print(f"{name:28} {measured(instances, workers, **place)}", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                kept = {**place, "store": folder}
                print(f"{'  with a store':28} {measured(instances, workers, **kept)}", flush=True)
                print(f"{'  all in the store':28} {measured(instances, 0, **kept)}", flush=True)


if __name__ == "__main__":
    main()
