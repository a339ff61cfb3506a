"""LMEM packing beside other tools: times, quality and proofs.

    python -m benchmarks.packing [--only a,b,c,d,e,p] [--limit 60] [--repeats 5] [--no-peak]
    python -m benchmarks.packing --only r --relatives 200 [--limit 10]
    python -m benchmarks.packing --only s [--folder DIR] [--limit 2]

a  MiniMalloc's instances: does it fit into 1 MiB, and the minimum peak
b  the same from the command line, each time a new process
c  idealloc's instances: peak and time
d  a million buffers, read from a CSV
e  the layer groups of TPU-MLIR's blazeface: minimum peak, then minimum bank conflicts
p  what was published about MiniMalloc's instances, beside least peaks with proofs
r  relatives of MiniMalloc's instances, slightly changed, at their own load bound: how many are
   decided, by seconds of processor time; the limit of ours is one of work
s  all documents of dsa-solver in a folder, each as it asks: value, second criterion, bound,
   processor seconds; what is refused is told; then the sums of each objective

Everything is measured in one run on one machine.  Methods take turns on an instance.  The first
turn is a warm-up and not counted, unless it took more than two seconds; then it is the only one.
Each run gets a new instance object without cached data.  The wall time of Stagepack is that of the
whole `solve` with its checks; that of other tools is the call alone, after their data structures
were built.  Stagepack uses one thread, other tools as many as they like.  Stagepack's checker
checks every answer.  A run that did not end within the limit is a time-out, and its time a lower
bound.

Other tools need the extra `bench` (OmniMalloc 1.0.0); MiniMalloc needs its program, which the
sources of google/minimalloc build: `--minimalloc PATH`.  Data: STAGEPACK_DATA, or ../shared/data.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stagepack as sp
from benchmarks.packing_peers import (
    CORES,
    Answer,
    Runner,
    compilers,
    google_minimalloc,
    omnimalloc_rules,
    ours,
    plain_model,
    processor_seconds,
    supermalloc,
    supermalloc_bounded,
    with_omnimalloc,
)
from benchmarks.packing_relatives import WITHIN, decided, relatives, shares
from stagepack.catalog.packing.relatives import highest_load

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("STAGEPACK_DATA", ROOT / ".." / "shared" / "data"))
MINIMALLOC = tuple("ACEGIK")
CAPACITY = 1_048_576
IDEALLOC = ("G_1", "resnet50", "S_1")
MODELLED = 2_000  # buffers: the plain model is left out of larger ones
SLOW = 2.0  # seconds: what takes longer runs once


@dataclass
class Times:
    """Wall and processor seconds of some runs, and the last answer."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    answer: Answer | None = None
    peak: int | None = None
    once: bool = False

    @property
    def seconds(self) -> float:
        """Median of wall time."""
        return statistics.median(self.wall)

    @property
    def cpu_seconds(self) -> float:
        """Median of processor time, all threads."""
        return statistics.median(self.cpu)


# ---------------------------------------------------------------------- measuring


def fresh(instance: Any) -> Any:
    """Return the same instance without anything cached in it."""
    return instance.replace(name=instance.name)


def peak_of(instance: Any, answer: Answer) -> int | None:
    """Return the peak of an answer that our checker accepts."""
    if answer.offsets is None:
        return None
    solution = sp.PackingSolution.of(instance, answer.offsets)
    violations = instance.replace(objective="peak").check(solution)
    assert violations == (), violations[:3]
    return int((answer.offsets + instance.size).max())


def measured(
    instance: Any, runners: Sequence[Runner], limit: float, repeats: int
) -> dict[str, Times]:
    """Run all methods in turns; the first turn only warms up what is quick."""
    times = {runner.name: Times() for runner in runners}
    for turn in range(repeats + 1):
        for runner in runners:
            kept = times[runner.name]
            if kept.once:
                continue
            run = runner.prepare(fresh(instance), limit)
            gc.collect()
            cpu, wall = processor_seconds(), time.perf_counter()
            answer = run()
            wall, cpu = time.perf_counter() - wall, processor_seconds() - cpu
            kept.answer, kept.peak = answer, peak_of(instance, answer)
            kept.once = turn == 0 and wall > SLOW
            if turn > 0 or kept.once:
                kept.wall.append(wall)
                kept.cpu.append(cpu)
    return times


def warm_up(runners: Sequence[Runner]) -> None:
    """Import engines and load kernels."""
    tiny = sp.LmemPacking.from_arrays([2, 3, 2], [0, 1, 2], [2, 3, 4], capacity=9)
    for runner in runners:
        runner.prepare(tiny, 5.0)()


def duration(seconds: float) -> str:
    """Return seconds with three digits or so."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def ratio(seconds: float, reference: float) -> str:
    """Return how many times longer."""
    factor = seconds / reference
    return (
        f"{factor:.3f} x"
        if factor < 0.1
        else f"{factor:.1f} x"
        if factor < 10
        else f"{factor:.0f} x"
    )


def title(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


# ---------------------------------------------------------------------- a: MiniMalloc's instances


def minimalloc(name: str, objective: str) -> Any:
    """Read one of MiniMalloc's instances."""
    return sp.read(DATA / "minimalloc" / f"{name}.{CAPACITY}.csv", objective=objective)


def fits(limit: float, repeats: int, others: Sequence[Runner]) -> None:
    """Print how long it takes to fit MiniMalloc's instances into their capacity."""
    title(f"a1. MiniMalloc's instances fit into {CAPACITY:,} bytes: wall (processor) seconds")
    runners = [ours("exact", "exact"), ours("auto", "auto"), *others, plain_model()]
    if with_omnimalloc():
        runners.append(supermalloc_bounded())
    warm_up(runners)
    table = {
        name: measured(minimalloc(name, "fit"), runners, limit, repeats) for name in MINIMALLOC
    }
    print(f"{'method':<33}" + "".join(f"{name:>19}" for name in (*MINIMALLOC, "all")))
    ended: dict[str, list[str]] = {}
    for runner in runners:
        cells, wall, cpu = [], 0.0, 0.0
        ended[runner.name] = []
        for name in MINIMALLOC:
            times = table[name][runner.name]
            wall, cpu = wall + times.seconds, cpu + times.cpu_seconds
            if times.peak is None or times.peak > CAPACITY:
                what = "time-out" if times.seconds >= 0.98 * limit else "gave up"
                cells.append(f"{what} {times.seconds:.0f} s")
            else:
                ended[runner.name].append(name)
                cells.append(f"{times.seconds:.4f} ({times.cpu_seconds:.4f})")
        least = "" if len(ended[runner.name]) == len(MINIMALLOC) else "> "
        cells.append(f"{least}{wall:.3f} ({cpu:.3f})")
        print(f"{runner.name:<33}" + "".join(f"{cell:>19}" for cell in cells), flush=True)
    for runner in runners[1:]:
        told = []
        for names, what in ((ended[runner.name], "those it solved"), (MINIMALLOC, "all")):
            sums = [sum(table[n][r].seconds for n in names) for r in (runner.name, "exact")]
            least = "" if set(names) <= set(ended[runner.name]) else "at least "
            if names:
                told.append(f"{least}{ratio(*sums)} on {what} ({len(names)})")
        print(f"{runner.name}, wall time against exact: {', '.join(told)}")


def peaks(limit: float) -> None:
    """Print how low MiniMalloc's instances can be packed, and by whom."""
    title(f"a2. MiniMalloc's instances, minimum peak, {limit:g} s each")
    instances = [minimalloc(name, "peak") for name in MINIMALLOC]
    compare_peaks(
        list(zip(MINIMALLOC, instances, strict=True)),
        [ours("exact", "exact"), ours("auto", "auto"), plain_model()],
        limit,
        repeats=1,
    )


def compare_peaks(
    instances: Sequence[tuple[str, Any]], own: Sequence[Runner], limit: float, repeats: int
) -> None:
    """Print peak over load, time and proof of each method on each instance."""
    runners = list(own)
    if with_omnimalloc():
        runners += [supermalloc(), *omnimalloc_rules()]
    runners += compilers()
    warm_up(runners)
    print(f"{'instance':<10}{'method':<28}{'peak':>14}{'/ load':>9}{'/ best':>9}{'time':>12}"
          f"{'/ first':>10}  proved")  # fmt: skip
    for name, instance in instances:
        taking = [r for r in runners if r.name != "plain CP-SAT model" or instance.n <= MODELLED]
        found = measured(instance, taking, limit, repeats)
        load = highest_load(instance)
        best = min(times.peak for times in found.values() if times.peak is not None)
        first = found[taking[0].name].seconds
        for runner in taking:
            times = found[runner.name]
            assert times.answer is not None
            late = runner.limited and times.seconds >= 0.98 * limit
            if times.peak is None:
                what = "time-out" if late else "gave up"
                print(f"{name:<10}{runner.name:<28}{what:>14}{'':>18}"
                      f"{duration(times.seconds):>12}")  # fmt: skip
                continue
            proof = "optimal" if times.answer.proved else "time-out" if late else ""
            if times.peak == load and not proof:
                proof = "(at the load)"
            print(
                f"{name:<10}{runner.name:<28}{times.peak:>14,}{times.peak / load:>9.4f}"
                f"{times.peak / best:>9.4f}{duration(times.seconds):>12}"
                f"{ratio(times.seconds, first):>10}  {proof}",
                flush=True,
            )


# ---------------------------------------------------------------------- p: what was published

PUBLISHED = {
    **dict.fromkeys(MINIMALLOC, "fits 1,048,576 (google/minimalloc, name of the file)"),
    "G": "1,048,576, no waste (a picture of 308 buffers, README of OmniMalloc 1.0.0)",
}
"""All that is published by instance: neither repository tells peaks or times of single ones."""


def published(limit: float) -> None:
    """Print least peaks beside what was published, and how long their proofs are."""
    title(f"p. MiniMalloc's instances: least peaks and proofs, exact, {limit:g} s")
    warm_up([ours("exact", "exact")])
    print(f"{'':<3}{'buffers':>8}{'load':>11}{'least peak':>12}{'processor':>12}{'proof':>9}"
          f"{'replayed in':>13}  published")  # fmt: skip
    for name in MINIMALLOC:
        instance = minimalloc(name, "peak")
        began = time.process_time()
        result = sp.solve(instance, "exact", time_limit=limit)
        solved = time.process_time()
        proof = sp.prove(instance, result, time_limit=limit)
        written = time.process_time()
        known = proof is not None and sp.check_proof(instance, proof).valid
        replayed = time.process_time() - written
        log = proof["evidence"].get("steps", []) if known and proof is not None else None
        steps = "none" if log is None else f"{len(log)} steps"
        best = f"{result.objective:,}" if result.status == "OPTIMAL" else str(result.status)
        print(f"{name:<3}{instance.n:>8}{highest_load(instance):>11,}{best:>12}"
              f"{duration(solved - began):>12}{steps:>9}{duration(replayed):>13}"
              f"  {PUBLISHED[name]}", flush=True)  # fmt: skip


# ---------------------------------------------------------------------- b: the command line


def cold(repeats: int) -> None:
    """Print how long the command takes from nothing, its kernels once compiled."""
    title("b. A new process for each: stagepack solve FILE, median wall seconds")
    told = []
    for name in MINIMALLOC:
        path = DATA / "minimalloc" / f"{name}.{CAPACITY}.csv"
        command = [sys.executable, "-m", "stagepack", "solve", str(path)]
        walls = []
        for turn in range(repeats + 1):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
            if turn:  # the first may have to compile
                walls.append(time.perf_counter() - began)
        told.append(f"{name} {statistics.median(walls):.2f} (worst {max(walls):.2f})")
        print(told[-1], flush=True)


# ---------------------------------------------------------------------- c: idealloc's instances


def idealloc(limit: float, repeats: int) -> None:
    """Print peaks and times on idealloc's instances."""
    title(f"c. idealloc's instances, minimum peak, {limit:g} s each")
    instances = [
        (name, sp.read(DATA / "idealloc" / f"{name}.csv", objective="peak")) for name in IDEALLOC
    ]
    compare_peaks(
        instances,
        [ours("auto", "auto"), ours("portfolio", "portfolio"), plain_model()],
        limit,
        repeats,
    )
    title("c2. auto: seconds until the peak is that near to the load")
    ratios = (1.05, 1.01, 1.0025, 1.0)
    print(
        f"{'instance':<10}{'buffers':>8}" + "".join(f"{r:>10}" for r in ratios) + f"{'final':>12}"
    )
    for name, instance in instances:
        result = sp.solve(fresh(instance), time_limit=limit)
        reached = [first_at(result, r * highest_load(instance)) for r in ratios]
        cells = ["-" if at is None else f"{at:.3f}" for at in reached]
        last = (result.objective or 0) / highest_load(instance)
        print(f"{name:<10}{instance.n:>8}" + "".join(f"{c:>10}" for c in cells) + f"{last:>12.5f}")


def first_at(result: Any, value: float) -> float | None:
    """Return when a result first had a solution as good as `value`."""
    return next((e.time for e in result.trace.incumbents if e.value <= value), None)


# ---------------------------------------------------------------------- d: a million buffers

MILLION = 1_000_000


def million(limit: float) -> None:
    """Print how a million buffers are read and packed, each method in a process of its own."""
    title(f"d. powerlaw, {MILLION:,} buffers, from a CSV")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "powerlaw.csv"
        instance = sp.load("packing/random/powerlaw", buffers=MILLION, seed=0)
        began = time.perf_counter()
        sp.write(instance, path)
        print(f"written in {time.perf_counter() - began:.2f} s, {path.stat().st_size:,} bytes")
        del instance
        gc.collect()
        told = child("solve_million", path, limit)
        for key, value in told.items():
            print(f"  auto: {key} {value}", flush=True)
        if with_omnimalloc():
            for rule in ("OmniMalloc omni", "OmniMalloc best-fit", "OmniMalloc SuperMalloc"):
                told = child("peer_million", path, limit, rule)
                print(f"  {rule}: " + ", ".join(f"{k} {v}" for k, v in told.items()), flush=True)


def child(function: str, *given: Any) -> dict[str, Any]:
    """Run a function of this module in a process of its own; it prints JSON last."""
    values = ", ".join(repr(str(value)) for value in given)
    code = f"from benchmarks.packing import {function}; {function}({values})"
    patience = 4 * float(given[1]) + 120
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return {"time-out after": f"{patience:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def solve_million(path: str, limit: str) -> None:
    """Read and solve; print what happened as JSON."""
    import resource

    sp.solve(sp.load("packing/random/powerlaw", buffers=30_000, seed=1), time_limit=2)  # warm-up
    began = time.perf_counter()
    instance = sp.read(path, objective="peak")
    read = time.perf_counter() - began
    load = highest_load(instance)
    began = time.perf_counter()
    result = sp.solve(instance, time_limit=float(limit))
    took = time.perf_counter() - began
    told: dict[str, Any] = {"read in": f"{read:.2f} s"}
    for near in (1.05, 1.02):
        at = first_at(result, near * load)
        told[f"within {near} of the load after"] = "never" if at is None else f"{at:.2f} s"
    told["first solution"] = f"{result.trace.incumbents[0].value / load:.5f} of the load"
    told["final"] = f"{(result.objective or 0) / load:.5f} of the load, {result.status}"
    told["solved in"] = f"{took:.2f} s"
    told["together"] = f"{read + took:.2f} s"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 1 if platform.system() == "Darwin" else 1024
    told["memory at most"] = f"{peak * unit / 2**30:.2f} GiB"
    print(json.dumps(told))


def peer_million(path: str, limit: str, rule: str) -> None:
    """Pack by a rule of OmniMalloc; print what happened as JSON."""
    runner = next(r for r in (supermalloc(), *omnimalloc_rules()) if r.name == rule)
    instance = sp.read(path, objective="peak")
    run = runner.prepare(instance, float(limit))
    began = time.perf_counter()
    answer = run()
    took = time.perf_counter() - began
    peak = peak_of(instance, answer)
    assert peak is not None
    near = f"{peak / highest_load(instance):.5f} of the load"
    print(json.dumps({"final": near, "packed in": f"{took:.2f} s"}))


# ---------------------------------------------------------------------- e: blazeface


def blazeface(limit: float) -> None:
    """Print minimum peaks and minimum bank conflicts of the layer groups, with one thread."""
    title("e. blazeface on BM1688, layer groups: auto, one thread")
    path = DATA / "tpu-mlir" / "blazeface_bm1688.json"
    lowest = sp.read_all(path, objective="peak")
    apart = sp.read_all(path, objective="bank-conflicts")
    print(f"{'group':<15}{'buffers':>8}{'load':>8}{'peak':>8}{'proved':>9}{'seconds':>9}"
          f"{'conflicts':>11}{'peak':>8}{'proved':>9}{'seconds':>9}")  # fmt: skip
    sp.solve(fresh(lowest[0]), time_limit=limit)
    sp.solve(fresh(apart[0]), time_limit=limit)
    sums = [0.0, 0.0]
    for low, wide in zip(lowest, apart, strict=True):
        row = [f"{low.name:<15}{low.n:>8}"]
        for number, instance in enumerate((low, wide)):
            began = time.perf_counter()
            result = sp.solve(fresh(instance), time_limit=limit, threads=1)
            took = time.perf_counter() - began
            sums[number] += took
            if result.solution is None:
                row.append("time-out")
                continue
            measure = sp.measure(instance, result.solution)
            start = (
                f"{result.trace.bounds[0].value:>8}"
                if number == 0
                else (f"{measure.bank_conflicts:>11}")
            )
            row.append(f"{start}{measure.peak:>8}{result.status:>9}{took:>9.3f}")
        print("".join(row), flush=True)
    print(f"all: minimum peaks {sums[0]:.3f} s, minimum conflicts {sums[1]:.3f} s")


# ---------------------------------------------------------------------- r: relatives


def own_load(number: int, limit: float, others: Sequence[Runner]) -> None:
    """Print which part of the relatives is decided, by method and time, and which are not."""
    title(f"r. {number} relatives of MiniMalloc's instances at their own load, {limit:g} s each")
    instances = [(name, minimalloc(name, "fit")) for name in MINIMALLOC]
    by_work = {"deterministic": True}
    runners = [ours(method, method, options=by_work) for method in ("exact", "auto")]
    for runner in (*runners, *others):
        warm_up([runner])
        seconds = decided(relatives(instances, number), runner, limit)
        cells = zip(shares(seconds.values()), WITHIN, strict=True)
        told = ", ".join(f"{100 * part:.1f} % within {within:g} s" for part, within in cells)
        left = [name for name, took in seconds.items() if took == float("inf")]
        print(f"{runner.name}: {told}; undecided: {' '.join(left) or 'none'}", flush=True)


# ---------------------------------------------------------------------- s: documents of dsa-solver


def documents(folder: Path, limit: float) -> None:
    """Print what becomes of each document of a folder, and the sums of each objective."""
    title(f"s. Documents of dsa-solver in {folder.name}, auto, {limit:g} s each")
    warm_up([ours("auto", "auto")])
    print(f"{'document':<60}{'objective':>10}{'pools':>6}{'buffers':>8}{'status':>11}{'value':>13}"
          f"{'second':>11}{'bound':>13}{'cpu s':>8}")  # fmt: skip
    sums: dict[str, list[float]] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name.endswith(".schema.json"):
            continue
        name = path.stem if len(path.stem) < 60 else f"..{path.stem[-57:]}"
        cpu, objective, told, value = processor_seconds(), "unread", "", 0
        ended = False
        try:
            instance = sp.read(path, kind="packing")
            objective = str(instance.objective)
            told = f"{objective:>10}{len(instance.memories) or 1:>6}{instance.n:>8}"
            result = sp.solve(instance, time_limit=limit)
            status, value = str(result.status), result.objective or 0
            ended = status in ("OPTIMAL", "INFEASIBLE") or result.termination == "TARGET"
            second = "" if result.solution is None else _second(instance, result.solution)
            cells = ("" if one is None else f"{one:,}" for one in (result.objective, result.bound))
            found, bound = cells
            told += f"{status:>11}{found:>13}{second:>11}{bound:>13}"
            if not instance.memories and value > (instance.capacity or value):
                told += " > capacity"  # which the objective peak does not enforce
        except sp.StagepackError as error:
            status = "refused" if isinstance(error, sp.InputError) else "wrong"
            told += f"{status:>11} {str(error)[:60]}"
        cpu = processor_seconds() - cpu
        print(f"{name:<60}{told}{cpu:>8.2f}", flush=True)
        kept = sums.setdefault(objective, [0] * 5)
        done = (1, ended, status in ("refused", "wrong"), value, cpu)
        sums[objective] = [a + b for a, b in zip(kept, done, strict=True)]
    for objective, (count, ended, failed, value, cpu) in sorted(sums.items()):
        print(f"{objective}: {count} documents, {ended} decided, {failed} not solved, "
              f"values together {value:,}, {cpu:.2f} processor seconds")  # fmt: skip


def _second(instance: Any, solution: Any) -> str:
    """Return the peak where penalties count, the penalties or the largest peak where it does."""
    found = sp.measure(instance, solution)
    if instance.objective == "penalties":
        return f"{found.total:,}"
    return f"{found.peak if found.penalties is None else found.penalties:,}"


def main() -> None:
    """Print everything that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="a,b,c,d,e,p", help="parts, by their letters")
    parser.add_argument("--limit", type=float, default=60, help="seconds for what does not end")
    parser.add_argument("--repeats", type=int, default=5, help="measured runs of what is quick")
    parser.add_argument("--peak", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--relatives", type=int, default=0, help="how many, for part r")
    parser.add_argument("--folder", type=Path, default=DATA / "dsa-solver", help="for part s")
    parser.add_argument("--minimalloc", type=Path, help="google/minimalloc's program, to compare")
    given = parser.parse_args()
    others = [] if given.minimalloc is None else [google_minimalloc(given.minimalloc.resolve())]
    parts = given.only.split(",")
    print("versions:", ", ".join(f"{k} {v}" for k, v in sp.versions().items()))
    if with_omnimalloc():
        print("omnimalloc", importlib.metadata.version("omnimalloc"))
    else:
        print("OmniMalloc is left out: install the extra `bench`")
    load = f"{os.getloadavg()[0]:.1f}"
    print(f"{CORES} cores, {platform.machine()}, load of the machine at the start {load}")
    if "a" in parts:
        fits(given.limit, given.repeats, others)
        if given.peak:
            peaks(given.limit)
    if "p" in parts:
        published(given.limit)
    if "b" in parts:
        cold(given.repeats)
    if "c" in parts:
        idealloc(min(given.limit, 30), given.repeats)
    if "d" in parts:
        million(min(given.limit, 30))
    if "e" in parts:
        blazeface(given.limit)
    if "s" in parts:
        documents(given.folder, min(given.limit, 2))
    if given.relatives:
        own_load(given.relatives, min(given.limit, max(WITHIN)), others)


if __name__ == "__main__":
    main()
