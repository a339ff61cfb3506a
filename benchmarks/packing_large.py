"""LMEM packing of 10^5 to 10^6 buffers: peak over load, by distribution and time limit.

    python -m benchmarks.packing_large [--sizes 100000,1000000] [--limits 1,3,10]
        [--kinds powerlaw,fifo] [--method auto] [--cpu]

Each cell is a run in its own process, after the kernels were loaded.  It has the peak over the load
(the largest sum of bytes that are in use at the same time, a lower bound), the CPU seconds of the
whole call with its checks, and the peak memory of the process with interpreter and instance.  The
limit is in wall seconds, in which less work is done on a busy machine; with --cpu, it is in CPU
seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stagepack as sp

ROOT = Path(__file__).parent.parent
Columns = tuple[Any, Any, Any]
"""Size, start, end."""


def _lognormal(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    start = rng.integers(0, n, n)
    return start, start + np.clip(rng.lognormal(2.5, 2, n).astype(np.int64), 1, max(1, n // 5))


def heavy(n: int, rng: np.random.Generator) -> Columns:
    """Lognormal lifetimes with a heavy tail: few blocks are alive for nearly all of the time."""
    start, length = rng.integers(0, n, n), rng.lognormal(3, 2.5, n)
    return rng.integers(1, 100_000, n), start, start + np.maximum(1, length.astype(np.int64))


def uniform(n: int, rng: np.random.Generator) -> Columns:
    """Up to n / 50 of time: thousands alive."""
    start = rng.integers(0, n, n)
    return rng.integers(1, 100_000, n), start, start + rng.integers(1, max(2, n // 50), n)


def chords(n: int, rng: np.random.Generator) -> Columns:
    """Any two moments: half of all alive in the middle."""
    moments = np.sort(rng.integers(0, 2 * n, (2, n)), axis=0)
    return rng.integers(1, 100_000, n), moments[0], moments[1] + 1


def together(n: int, rng: np.random.Generator) -> Columns:
    """All alive together: a stack is optimal."""
    return rng.integers(1, 100_000, n), rng.integers(0, n, n), rng.integers(n, 2 * n, n)


def training(n: int, rng: np.random.Generator) -> Columns:
    """Nested activations of a forward and a backward pass, and brief temporaries."""
    half = n // 2
    layer, brief = np.arange(half), rng.integers(0, 2 * half, n - half)
    size = np.concatenate([rng.integers(1, 1000, half), rng.integers(1, 100_000, n - half)]) * 64
    end = np.concatenate([2 * half - layer, brief + rng.integers(1, 20, n - half)])
    return size, np.concatenate([layer, brief]), end


def fifo(n: int, rng: np.random.Generator) -> Columns:
    """A pipeline: all lifetimes equal."""
    start = np.arange(n)
    return rng.integers(1, 100_000, n), start, start + 1000


def jitter(n: int, rng: np.random.Generator) -> Columns:
    """A pipeline that is not quite regular."""
    start = np.arange(n)
    return rng.integers(1, 100_000, n), start, start + 200 + rng.integers(0, 20, n)


def equal(n: int, rng: np.random.Generator) -> Columns:
    """One size."""
    return (np.full(n, 4096), *_lognormal(n, rng))


def magnitudes(n: int, rng: np.random.Generator) -> Columns:
    """Sizes over six orders of magnitude."""
    return ((10 ** rng.uniform(0, 6, n)).astype(np.int64), *_lognormal(n, rng))


def giants(n: int, rng: np.random.Generator) -> Columns:
    """A thousandth is huge and long, the others tiny."""
    start, length = rng.integers(0, n, n), rng.integers(1, 100, n)
    size, few = rng.integers(1, 100, n), n // 1000
    size[:few], length[:few] = rng.integers(10**6, 10**7, few), rng.integers(1, n // 100, few)
    return size, start, start + length


def thin(n: int, rng: np.random.Generator) -> Columns:
    """A hundredth is long and thin, the others short and thick."""
    start, length = rng.integers(0, n, n), rng.integers(1, 50, n)
    size, few = rng.integers(10_000, 100_000, n), n // 100
    start[:few] = rng.integers(0, n // 4, few)
    size[:few], length[:few] = rng.integers(1, 64, few), rng.integers(n // 4, n // 2, few)
    return size, start, start + length


def memoryless(n: int, rng: np.random.Generator) -> Columns:
    """Exponential lifetimes."""
    start = rng.integers(0, n, n)
    return rng.integers(1, 100_000, n), start, start + 1 + rng.exponential(300, n).astype(np.int64)


def lifo(n: int, rng: np.random.Generator) -> Columns:
    """A stack: what starts last ends first; a random walk of calls and returns."""
    start, end, waiting = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), []
    calls, begun = rng.random(2 * n), 0
    for moment in range(2 * n):
        if begun < n and (not waiting or calls[moment] < 0.5):
            waiting.append(begun)
            start[begun] = moment
            begun += 1
        else:
            end[waiting.pop()] = moment
    return rng.integers(1, 100_000, n), start, end


def bursty(n: int, rng: np.random.Generator) -> Columns:
    """Most start in a few hundred bursts, and what a burst starts lives about as long."""
    burst = rng.integers(0, 300, n)
    start = rng.integers(0, n, 300)[burst] + rng.exponential(n / 5000, n).astype(np.int64)
    lasting = rng.lognormal(np.log(n / 300), 1, 300)[burst] * rng.uniform(0.5, 1.5, n)
    return rng.integers(1, 100_000, n), start, start + 1 + lasting.astype(np.int64)


def mixture(n: int, rng: np.random.Generator) -> Columns:
    """A quarter each of uniform, pipelined, nested and brief lifetimes, over the same time."""
    parts = [kind(n // 4, rng) for kind in (uniform, jitter, nested, memoryless)]
    size, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    return size, start, end


def nested(n: int, rng: np.random.Generator) -> Columns:
    """Lifetimes over six orders of magnitude."""
    start = rng.integers(0, n, n)
    length = (n * 10 ** rng.uniform(-6, -0.5, n)).astype(np.int64) + 1
    return 64 * rng.integers(1, 1000, n), start, start + length


KINDS: dict[str, Callable[[int, np.random.Generator], Columns]] = {
    kind.__name__: kind
    for kind in (
        heavy,
        uniform,
        chords,
        together,
        training,
        fifo,
        jitter,
        equal,
        magnitudes,
        giants,
        thin,
        memoryless,
        nested,
        lifo,
        bursty,
        mixture,
    )
}


def make(kind: str, n: int) -> Any:
    """Return an instance; `powerlaw` is the catalog's."""
    if kind == "powerlaw":
        return sp.load("packing/random/powerlaw", buffers=n, seed=0)
    return sp.LmemPacking.from_arrays(*KINDS[kind](n, np.random.default_rng(0)))


def cell(kind: str, n: int, limit: float, method: str, by_cpu: bool) -> dict[str, Any]:
    """Solve one instance in this process."""
    warm = sp.load("packing/random/powerlaw", buffers=30_000, seed=1)
    sp.solve(warm, method, time_limit=1)
    if by_cpu:
        time.perf_counter = time.process_time
    instance = make(kind, n)
    cpu, wall = time.process_time(), time.monotonic()
    result = sp.solve(instance, method, time_limit=limit)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    unit = 1 if sys.platform == "darwin" else 1024
    load = result.trace.bounds[0].value
    first = result.trace.incumbents[0]
    return {
        "first": first.value / load,
        "final": (result.objective or 0) / load,
        "cpu": cpu,
        "wall": wall,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6,
        "source": result.trace.incumbents[-1].source,
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100000,1000000")
    parser.add_argument("--limits", default="1,3,10", help="seconds")
    parser.add_argument("--kinds", default=",".join(["powerlaw", *KINDS]))
    parser.add_argument("--method", default="auto")
    parser.add_argument("--cpu", action="store_true", help="limits in processor seconds")
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell:
        kind, n, limit = given.cell
        print(json.dumps(cell(kind, int(n), float(limit), given.method, given.cpu)))
        return
    print(f"method {given.method}, load of the machine at the start {os.getloadavg()[0]:.1f}")
    print(f"{'kind':<12}{'buffers':>9}{'limit':>7}{'first':>9}{'final':>9}{'CPU s':>8}"
          f"{'wall s':>8}{'MB':>6}  by")  # fmt: skip
    for n in given.sizes.split(","):
        for kind in given.kinds.split(","):
            for limit in given.limits.split(","):
                command = [sys.executable, "-m", "benchmarks.packing_large"]
                command += ["--method", given.method, "--cell", kind, n, limit]
                command += ["--cpu"] if given.cpu else []
                done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
                row = json.loads(done.stdout.splitlines()[-1])
                print(f"{kind:<12}{n:>9}{limit:>7}{row['first']:>9.4f}{row['final']:>9.4f}"
                      f"{row['cpu']:>8.1f}{row['wall']:>8.1f}{row['memory']:>6.0f}  "
                      f"{row['source']}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
