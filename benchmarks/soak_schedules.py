"""Soak: every method of pipeline schedules on thousands of random tiny instances.

    python -m benchmarks.soak_schedules --instances 5000 --seed 0 --jobs 2
    python -m benchmarks.soak_schedules --bounds --instances 5000

Instances with every option (tests/random_schedules.py), and structured ones, some with all times
multiplied, so that units matter.  Exact methods must agree with trying every order of operations;
rules and searches must not be better than the optimum; bounds must hold, also below the optimum
with a start in hand; what is infeasible must be called so with a reason, and the limits that the
reason names must do.  One line a method with what it proved, every disagreement in full, as Python
that rebuilds the instance.  Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack import solvers
from stagepack.errors import StagepackError
from stagepack.formulations.schedule import CpSat
from stagepack.heuristics.schedule import trips
from stagepack.heuristics.schedule.lower_bounds import bounds, counting
from stagepack.heuristics.schedule.lower_bounds.ramps import ramp_bound
from stagepack.heuristics.schedule.timing import tighten
from stagepack.instances.schedule import (
    Objective,
    PipelineSchedule,
    ScheduleSolution,
    least_memory,
    measure,
)
from stagepack.methods import Settings
from stagepack.methods.schedule import windows
from stagepack.methods.schedule.explain import sufficient_memory
from stagepack.progress import Progress
from stagepack.result import Result, Status, Termination
from stagepack.solve import MethodInfo, methods, solve
from tests import structured
from tests.random_schedules import best, number_of_orders, random_schedule

CHUNK = 25
SEARCHES = ("greedy",)
"""Methods that go on for as long as they may, where the bound is not met."""
SEARCH_EVERY = 10
SEARCH_SECONDS = 0.05
LIMIT = 60.0
MOST = 1500
"""Orders of devices, of a structured instance."""
WINDOWED = 3.0
"""Seconds of work for windows of an instance whose bounds are attacked."""
PROVING = 0.3
"""Work of CP-SAT on an instance whose bounds are attacked."""
FACTORS = (1, 1, 1, 2, 3, 4, 12, 1000)
COLUMNS = ("forward", "backward", "weight", "latency", "optimizer")


@dataclass
class Tally:
    """What was proved, how long it took, and what was wrong."""

    counts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    seconds: dict[str, float] = field(default_factory=lambda: collections.defaultdict(float))
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what another process found."""
        self.counts.update(other.counts)
        for method, seconds in other.seconds.items():
            self.seconds[method] += seconds
        self.wrong += other.wrong


def case(number: int) -> PipelineSchedule:
    """Return the instance of a number, all its times multiplied: random, or structured."""
    instance = random_schedule(number)
    if number % structured.EVERY == 0:
        lined = structured.small("schedule", number)
        instance = lined if number_of_orders(lined, MOST) <= MOST else instance
    factor = FACTORS[number % len(FACTORS)]
    times = {name: getattr(instance, name) for name in COLUMNS}
    return instance.replace(**{k: v * factor for k, v in times.items() if v is not None})


def as_python(instance: PipelineSchedule) -> str:
    """Return a call that rebuilds an instance."""
    fields = []
    for name in instance.__dataclass_fields__:
        value = getattr(instance, name)
        if value is not None and name not in ("source", "stage_names", "device_names"):
            value = str(value) if name == "objective" else value
            fields.append(f"{name}={value.tolist() if isinstance(value, np.ndarray) else value!r}")
    return f"PipelineSchedule.from_arrays({', '.join(fields)})"


class Trial:
    """One case: all methods run, then judged against the optimum."""

    def __init__(self, number: int, tally: Tally) -> None:
        self.number = number
        self.tally = tally
        self.instance = case(number)

    def complain(self, who: str, what: str) -> None:
        """Keep a disagreement, with the instance."""
        self.tally.wrong.append(f"case {self.number} {who}: {what}\n    {as_python(self.instance)}")

    def run(self) -> None:
        """Run every method that applies and judge it."""
        found = best(self.instance)
        self.tally.counts["cases", "FEASIBLE" if found else "INFEASIBLE"] += 1
        for info in methods(self.instance):
            if info.available and (info.name not in SEARCHES or self._searched()):
                result = self.solve(info)
                if result is not None:
                    self._judge(info, result, None if found is None else found[0])
        if found is None:
            self._would_do()
        else:
            self._around(*found)

    def _searched(self) -> bool:
        return self.number % SEARCH_EVERY == 0

    def solve(self, info: MethodInfo, **options: Any) -> Result[Any] | None:
        """Solve and count; an exception is a disagreement."""
        options.setdefault("time_limit", SEARCH_SECONDS if info.name in SEARCHES else LIMIT)
        if info.engines and self.number % 2:  # half of them with nothing to start from
            options.setdefault("warm_start", None)
        began = time.perf_counter()
        try:
            result = solve(self.instance, info.name, seed=self.number, **options)
        except StagepackError as error:
            self.complain(info.name, f"{type(error).__name__}: {error} {options}")
            return None
        except Exception as error:
            self.complain(info.name, f"raises {type(error).__name__}: {error} {options}")
            return None
        self.tally.seconds[info.name] += time.perf_counter() - began
        self.tally.counts[info.name, str(result.status)] += 1
        return result

    def _judge(self, info: MethodInfo, result: Result[Any], optimum: int | None) -> None:
        told = f"{result.status} {result.objective} bound {result.bound} ({result.bound_source})"
        late = result.termination is Termination.TIME_LIMIT
        if optimum is None:
            missed = info.exact and result.status is not Status.INFEASIBLE
            if result.objective is not None or missed:
                self.complain(info.name, f"{told}, but no order is valid")
            elif not result.reason and not late:
                self.complain(info.name, f"{told}, without a reason")
            return
        if result.status is Status.INFEASIBLE:
            self.complain(info.name, f"{told}: {result.reason}, but {optimum} is feasible")
            return
        if result.bound is not None and result.bound > optimum:
            self.complain(info.name, f"{told}: the bound exceeds the optimum {optimum}")
        if result.objective is not None and result.objective < optimum:
            self.complain(info.name, f"{told}: better than the optimum {optimum}")
        if result.objective is None and not result.reason and not late:
            self.complain(info.name, f"{told}: nothing found, and no reason")
        if info.exact and (result.status is not Status.OPTIMAL or result.objective != optimum):
            self.complain(info.name, f"{told}: misses the optimum {optimum}")
        if result.solution is not None:
            self._tightened(info.name, result.solution, int(result.objective or 0), optimum)

    def _tightened(self, name: str, solution: ScheduleSolution, value: int, optimum: int) -> None:
        """See that the best times for the orders of a solution are no worse, and valid."""
        better = tighten(self.instance, solution)
        violations = self.instance.check(better)
        worth = self.instance.evaluate(better)
        if violations or not optimum <= worth <= value:
            self.complain(name, f"{value} is tightened to {worth}: {violations[:1]}")
        measure(self.instance, better)

    def _around(self, optimum: int, solution: ScheduleSolution) -> None:
        """The bounds hold, and the model has what is optimal and nothing below."""
        bound, source = bounds.bound(self.instance)
        met = "MET" if bound == optimum else "BELOW"
        self.tally.counts["bound", met] += 1
        if bound > optimum:
            self.complain(source, f"{bound} exceeds the optimum {optimum}")
        for info in methods(self.instance):
            if info.engines:
                result = self.solve(info, warm_start=solution)
                if result is not None:
                    self._judge(info, result, optimum)

    def _would_do(self) -> None:
        """With the limits that suffice there is a schedule."""
        assert self.instance.limit is not None
        enough = sufficient_memory(self.instance)
        assert enough is not None
        enough = np.maximum(self.instance.limit, enough)
        if best(self.instance.replace(limit=enough)) is None:
            self.complain("sufficient memory", f"{enough.tolist()} is not enough")


def trials(numbers: range) -> Tally:
    """Run the cases of some numbers."""
    tally = Tally()
    for number in numbers:
        Trial(number, tally).run()
    return tally


MAPS = ("chain", "rounds", "v", "both ways", "any", "tight")
"""Ways to lay out stages on devices."""


def laid_out(number: int) -> PipelineSchedule:
    """Return an instance of a number for attacks on bounds, of one of `MAPS`."""
    draw = np.random.default_rng([77, number])
    layout = MAPS[number % len(MAPS)]
    if layout == "any":
        return random_schedule(number, most_orders=20_000)
    d, m = int(draw.integers(1, 5)), int(draw.integers(1, 6))
    if layout == "tight":
        d, m = d % 2 + 3, m + 2
    line, chunks = list(range(d)), 1 if layout in ("chain", "tight") else 2
    devices = line * chunks if layout in ("chain", "rounds", "tight") else line + line[::-1]
    p = len(devices)
    edges = [(s, s + 1) for s in range(p - 1) if layout != "both ways" or s != d - 1]
    split = bool(draw.random() < 0.7) and layout != "tight"
    longest = int(draw.choice([1, 4, 12]))
    held = draw.integers(1, 4, p) if draw.random() < 0.3 else np.full(p, 2)
    given = -(held // 2) if split else -held
    instance = PipelineSchedule.from_arrays(
        draw.integers(1, longest + 1, p),
        draw.integers(1, longest + 1, p),
        draw.integers(1, longest + 1, p) if split else None,
        microbatches=m,
        devices=devices,
        edges=edges,
        latency=int(draw.integers(0, longest + 1)) if draw.random() < 0.5 else 0,
        memory_forward=held,
        memory_backward=given,
        memory_weight=-held - given if split else 0,
        objective=list(Objective)[int(draw.integers(2))],
        name=f"{layout}-{number}",
    )
    slack = draw.integers(0, 2 * d + 1, instance.d)
    return instance.replace(limit=least_memory(instance) + slack)


def windowed(instance: PipelineSchedule, engine: solvers.Engine, proved: int) -> int:
    """Return the bound of idle windows that may add up to what is proved."""
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    progress.raise_bound(proved, "proved")
    if not windows.unsupported(instance):
        windows.Windows(instance, progress, engine, Settings()).raise_bound(WINDOWED)
    return int(progress.bound or 0)


def labelled(instance: PipelineSchedule) -> tuple[int, int]:
    """Return the bound of labels of a chain, and the makespan of the best schedule they made."""
    progress: Progress[ScheduleSolution] = Progress(instance.evaluate, instance.check)
    if not trips.unsupported(instance):
        trips.Trips(instance, progress).find(WINDOWED)
    return int(progress.bound or 0), int(progress.objective or sys.maxsize)


def attack(numbers: range) -> Tally:
    """Compare all bounds with optima of CP-SAT, on instances of some numbers."""
    engine, tally = solvers.engine("cp-sat"), Tally()
    engine.load()
    limits = solvers.Limits(time_limit=None, work_limit=PROVING, threads=1, seed=0)
    for number in numbers:
        instance = laid_out(number)
        layout = instance.name.split("-")[0]
        model = CpSat(instance)
        if model.infeasible:
            tally.counts[layout, str(Status.INFEASIBLE)] += 1
            continue
        outcome = engine.solve(model.model, limits=limits)
        if outcome.status is not Status.OPTIMAL or outcome.objective is None:
            tally.counts[layout, str(outcome.status)] += 1
            continue
        optimum = round(outcome.objective) * model.frame.unit
        found = {
            "window": bounds.window_bound(instance),
            "ramps": ramp_bound(instance),
            "counting": counting.counting_bound(instance),
        }
        met = max(found.values()) == optimum
        found["idle windows"] = windowed(instance, engine, optimum)
        found["labels"], value = labelled(instance)
        tally.counts["labels", "met" if found["labels"] == optimum == value else "-"] += 1
        if value < optimum:
            tally.wrong.append(f"case {number} labels: {value} is below {optimum}")
        tally.counts[layout, "MET" if met else "BELOW"] += 1
        for name, value in found.items():
            if value > optimum:
                tally.wrong.append(
                    f"case {number} {name}: {value} exceeds {optimum}\n    {as_python(instance)}"
                )
    return tally


def soak(instances: int, seed: int, jobs: int, run: Callable[[range], Tally] = trials) -> int:
    """Run the soak; return the number of disagreements."""
    began = time.perf_counter()
    total = Tally()
    for done, tally in enumerate(_chunks(range(seed, seed + instances), jobs, run), 1):
        for wrong in tally.wrong:
            print(wrong, flush=True)
        total.add(tally)
        if done % 20 == 0:
            print(
                f"{done * CHUNK} instances, {len(total.wrong)} disagreements, "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
    report(total) if run is trials else print(*sorted(total.counts.items()), sep="\n")
    print(f"{instances} instances from seed {seed}: {len(total.wrong)} disagreements")
    return len(total.wrong)


def _chunks(numbers: range, jobs: int, run: Callable[[range], Tally]) -> Iterator[Tally]:
    parts = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
    if jobs == 1:
        yield from map(run, parts)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running = [pool.submit(run, part) for part in parts]
        for future in concurrent.futures.as_completed(running):
            yield future.result()


def report(tally: Tally) -> None:
    """Print one line a method, and how good the bounds were."""
    statuses = [str(status) for status in Status]
    print(f"\n{'method':<26}" + "".join(f"{s:>12}" for s in statuses) + f"{'seconds':>10}")
    for name in sorted(tally.seconds):
        row = "".join(f"{tally.counts[name, status]:>12}" for status in statuses)
        print(f"{name:<26}{row}{tally.seconds[name]:>10.1f}")
    counts = tally.counts
    print(
        f"feasible {counts['cases', 'FEASIBLE']}, infeasible {counts['cases', 'INFEASIBLE']}; "
        f"bounds that meet the optimum {counts['bound', 'MET']}, "
        f"others {counts['bound', 'BELOW']}"
    )


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first instance")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--bounds", action="store_true", help="attack the bounds only")
    given = parser.parse_args()
    run = attack if given.bounds else trials
    return 1 if soak(given.instances, given.seed, given.jobs, run) else 0


if __name__ == "__main__":
    sys.exit(main())
