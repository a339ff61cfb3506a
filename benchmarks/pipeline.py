"""Pipeline partitioning: the fast exact method beside the textbook recurrence and the models.

    python -m benchmarks.pipeline [--quick] [--no-models]

Each figure is a median of runs in this process, in which the methods take turns, after kernels were
loaded.  Each run builds its own tables; if a method runs alone, it builds the instance, too.
Compare ratios, not seconds, between machines.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import stagepack as sp
from stagepack.result import Status

ROUNDS = 5
SIZES = (
    (100_000, 64),
    (100_000, 256),
    (100_000, 1024),
    (1_000_000, 1000),
    (1_000_000, 40_000),
    (10_000_000, 1024),
)


def chain(kind: str, layers: int, devices: int) -> Any:
    """Return a chain of the catalog."""
    return sp.load(f"pipeline/random/{kind}", layers=layers, devices=devices)


def unlimited(instance: Any) -> Any:
    """Return the instance without memory limits."""
    import msgspec

    devices = tuple(msgspec.structs.replace(d, memory=None) for d in instance.cluster.devices)
    return instance.replace(cluster=msgspec.structs.replace(instance.cluster, devices=devices))


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long `run` took, and what it returned."""
    began = time.perf_counter()
    answer = run()
    return time.perf_counter() - began, answer


def solved(instance: Any, method: str, limit: float = 600) -> Any:
    """Solve and insist on the certificate."""
    result = sp.solve(instance, method, time_limit=limit, warm_start=None)
    assert result.status is Status.OPTIMAL, (instance.name, method, result.status)
    return result


def against_reference(instance: Any, label: str, runs: int) -> None:
    """Print interleaved medians of `dp` and `dp-reference` on one chain."""
    solved(instance, "dp")
    fast, slow, values = [], [], set()
    for _ in range(runs):
        for method, times in (("dp", fast), ("dp-reference", slow)):
            took, result = seconds(lambda method=method: solved(instance, method))
            times.append(took)
            values.add(result.objective)
    assert len(values) == 1, values
    a, b = statistics.median(fast), statistics.median(slow)
    print(f"{label:<42} dp {a * 1e3:9.2f} ms   dp-reference {b * 1e3:11.2f} ms   {b / a:8.0f} x")


def alone(make: Callable[[], Any], method: str, label: str, runs: int) -> None:
    """Print the median of one method on one chain."""
    solved(make(), method)
    times = [seconds(lambda: solved(make(), method))[0] for _ in range(runs)]
    print(f"{label:<42} {method} {statistics.median(times):9.4f} s")


def costly(instance: Any, method: str, limit: float = 60) -> tuple[float, int, Any]:
    """Return CPU seconds and peak bytes, both of a process of its own, and the result."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_measured, args=(send, instance, method, limit))
    child.start()
    answer: tuple[float, int, Any] = receive.recv()
    child.join()
    return answer


def _measured(send: Any, instance: Any, method: str, limit: float) -> None:
    import resource

    solved(chain("bert-like", 20, 4), "dp")  # loads what is compiled
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    result = sp.solve(instance, method, time_limit=limit)
    took = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    send.send((took, (peak - before) * 1024, (result.status, result.objective, result.bound)))


def scaling(sizes: tuple[tuple[int, int], ...]) -> None:
    """Print how costs grow with layers and devices: CPU seconds, memory beyond the instance's."""
    print(f"\n{'scaling':<30}{'method':<8}{'n':>12}{'k':>8}{'CPU s':>9}{'MB':>8}  status")
    for layers, devices in sizes:
        cycles = np.random.default_rng(0).integers(1, 10**6, layers)
        plain = sp.PipelinePartition.from_arrays(cycles, devices=devices)
        cases = [(plain, "greedy"), (plain, "auto"), (plain, "dp")]
        if layers <= 10**6 and devices <= 1024:
            cases.append((chain("heterogeneous", layers, devices), "dp"))
        for instance, method in cases:
            took, peak, (status, *_) = costly(instance, method)
            print(
                f"{instance.name:<30}{method:<8}{layers:>12,}{devices:>8,}{took:>9.2f}"
                f"{peak / 1e6:>8.0f}  {status}",
                flush=True,
            )


def interleaved(limit: float) -> None:
    """Print what several stages a device take: equal layers and measured ones, CPU seconds."""
    print(f"\n{'several stages a device':<34}{'spread':>8}{'CPU s':>9}{'gap':>9}  status")
    for layers, each in ((48, 2), (96, 3), (128, 4)):
        for placement in ("v", "loop"):
            for spread in (0.0, 0.05):
                given = {"layers": layers, "stages_per_device": each, "placement": placement}
                instance = sp.load("pipeline/interleaved", spread=spread, **given)
                began = time.process_time()
                result = sp.solve(instance, time_limit=limit)
                took = time.process_time() - began
                gap = "-" if result.gap is None else f"{result.gap:.2%}"
                print(
                    f"{instance.name + ' ' + placement:<34}{spread:>8}{took:>9.2f}{gap:>9}"
                    f"  {result.status}",
                    flush=True,
                )


def models(sizes: tuple[int, ...], limit: float) -> None:
    """Print solve times and bounds of the models, with a greedy start and without one."""
    print(f"\n{'models':<30}{'method':<17}{'start':<8}{'status':<10}{'seconds':>8}{'gap':>9}"
          f"{'bound / optimum':>17}")  # fmt: skip
    for kind in ("bert-like", "heterogeneous"):
        for layers in sizes:
            instance = chain(kind, layers, 8 if layers >= 50 else 4)
            optimum = solved(instance, "dp").objective
            for method in ("milp-interval", "milp-assignment", "cp-sat"):
                for start in ("auto", None):
                    result = sp.solve(instance, method, warm_start=start, time_limit=limit)
                    gap = "-" if result.gap is None else f"{result.gap:.2%}"
                    print(
                        f"{instance.name:<30}{method:<17}{start or 'none':<8}{result.status:<10}"
                        f"{result.runtime:>8.2f}{gap:>9}{result.bound / optimum:>17.4f}",
                        flush=True,
                    )


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs, smaller models")
    parser.add_argument("--limit", type=float, default=30, help="seconds for each model")
    parser.add_argument("--no-models", action="store_true", help="leave out MILP and CP-SAT")
    given = parser.parse_args()
    runs = 1 if given.quick else ROUNDS
    print("versions:", ", ".join(f"{k} {v}" for k, v in sp.versions().items()))
    against_reference(chain("bert-like", 100, 8), "bert-like, n = 100, k = 8", runs)
    against_reference(
        unlimited(chain("heterogeneous", 100, 8)),
        "heterogeneous, n = 100, k = 8, no memory limit",
        runs,
    )
    against_reference(chain("heterogeneous", 100, 8), "heterogeneous, n = 100, k = 8", runs)
    for layers in (400, 2000, 20_000, 100_000):
        for kind in ("bert-like", "heterogeneous"):
            label = f"{kind}, n = {layers:,}, k = 16"
            alone(lambda kind=kind, layers=layers: chain(kind, layers, 16), "dp", label, runs)
    cycles = np.random.default_rng(0).integers(1, 10**6, 10**6)
    alone(
        lambda: sp.PipelinePartition.from_arrays(cycles, devices=64),
        "bisect",
        "plain bottleneck, n = 1,000,000, k = 64",
        runs,
    )
    scaling(SIZES[:4] if given.quick else SIZES)
    interleaved(min(10, given.limit))
    if given.no_models:
        return
    models((26, 50) if given.quick else (26, 50, 100, 200), given.limit)


if __name__ == "__main__":
    main()
