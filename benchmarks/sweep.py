"""A sweep on two Dask workers; one worker and then the client are killed, and the client restarts.

::

    python -m benchmarks.sweep [--share 1] [--limit 1]

Solves 2,000 generated instances of all kinds by ``auto``, into a store.  One worker is killed after
a third of the cells, the client after half of them.  At the end, the program checks that each cell
has a valid answer that no other answer contradicts, and that no file from before the restart was
written again.  Every twentieth instance is solved again in this process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import stagepack as sp
from stagepack.compare import clusters

FAMILIES: dict[str, tuple[int, dict[str, int]]] = {
    "pipeline/random/bert-like": (140, {"layers": 8, "devices": 3}),
    "pipeline/random/heterogeneous": (140, {"layers": 10, "devices": 4}),
    "pipeline/random/adversarial": (140, {"layers": 9, "devices": 3}),
    "pipeline/random/shared-variables": (140, {"layers": 8, "devices": 3}),
    "pipeline/random/tight-memory": (140, {"layers": 8, "devices": 3}),
    "pipeline/random/infeasible": (140, {"layers": 8, "devices": 3}),
    "packing/random/powerlaw": (130, {"buffers": 15}),
    "packing/random/constant-load": (130, {"buffers": 15}),
    "packing/random/planted": (130, {"buffers": 12}),
    "packing/random/pipelined": (130, {"buffers": 12}),
    "graph/random/branchy": (100, {"operators": 8, "devices": 2}),
    "graph/random/layered": (100, {"operators": 8, "devices": 2}),
    "schedule/unlike": (200, {"devices": 3, "microbatches": 4}),
    "phases/random/heterogeneous": (140, {"layers": 4}),
    "groups/random/blocks": (100, {"operators": 5}),
}
EVERY = 20


def instances(share: float) -> dict[str, Any]:
    """Return the instances by label."""
    return {
        f"{name} {seed}": sp.load(name, seed=seed, **given)
        for name, (count, given) in FAMILIES.items()
        for seed in range(max(1, round(count * share)))
    }


def client(address: str, store: Path, share: float, limit: float) -> None:
    """Run what is not in the store, and print what became of all."""
    with clusters.dask(address) as executor:
        found = sp.compare(
            instances(share), "auto", executor=executor, store=store, time_limit=limit
        )
    failed = {str(failure.reason) for failure in found.failures.values()}
    print(
        json.dumps(
            {
                "status": Counter(row["status"] for row in found.rows),
                "contradictions": found.contradictions,
                "failures": sorted(failed),
            }
        ),
        flush=True,
    )


def kept(store: Path) -> dict[str, int]:
    """Return the whole files of a store, and when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in store.glob("*/*.json")}


def dask(what: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard", *arguments]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def await_cells(store: Path, count: float, process: subprocess.Popen[str]) -> None:
    """Wait until a store holds so many cells, or a process has ended."""
    while len(kept(store)) < count and process.poll() is None:
        time.sleep(0.5)


def run(folder: Path, share: float, limit: float) -> None:
    """Run the sweep, and print what came of it."""
    store, file = folder / "store", folder / "scheduler.json"
    wanted = len(instances(share))
    started = [
        dask("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
    ]
    try:
        while not file.exists() or not file.read_text().endswith("}"):
            if started[0].poll() is not None:
                raise SystemExit("the scheduler did not start: pip install 'stagepack[dask]'")
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        own = ("--share", str(share), "--limit", str(limit))
        command = [sys.executable, "-m", "benchmarks.sweep", "--client", address, str(store), *own]
        started += [dask("worker", address, "--nthreads", "1", "--no-nanny") for _ in range(2)]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        await_cells(store, wanted / 3, first)
        started[1].kill()
        print(f"{len(kept(store)):,} of {wanted:,} cells kept: a worker is killed", flush=True)
        await_cells(store, wanted / 2, first)
        first.kill()
        first.wait()
        before = kept(store)
        print(f"{len(before):,} of {wanted:,} cells kept: the client is killed", flush=True)
        started.append(dask("worker", address, "--nthreads", "1", "--no-nanny"))
        told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    finally:
        for process in started:
            process.kill()
            process.wait()
    after = kept(store)
    again = [name for name, written in before.items() if after.get(name) != written]
    print(f"{len(after):,} cells kept in the end; written again: {len(again)}")
    print(told.strip())
    solved_again(store, share, limit)


def solved_again(store: Path, share: float, limit: float) -> None:
    """Solve each twentieth instance once more, and print how many answers are the same."""
    known = {row["instance"]: row for row in sp.read_store(store).rows}
    counted: Counter[str] = Counter()
    for label, instance in list(instances(share).items())[::EVERY]:
        result, row = sp.solve(instance, time_limit=limit), known[label]
        proved = {str(result.status), row["status"]} <= {"OPTIMAL", "INFEASIBLE"}
        same = (str(result.status), result.objective) == (row["status"], row["objective"])
        counted["same" if same else "wrong" if proved else "different, not both proved"] += 1
    print("solved again:", dict(counted))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the 2,000 instances")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds of each")
    parser.add_argument("--client", nargs=2, metavar=("ADDRESS", "STORE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        client(given.client[0], Path(given.client[1]), given.share, given.limit)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), given.share, given.limit)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
