"""Soak: every method of LMEM packing on thousands of random small instances.

    python -m benchmarks.soak_packing --instances 10000 --seed 0 --jobs 2

Planted packings, tight ones, ones whose optimum exceeds the load, and tiny ones with every option
(tests/random_packings.py), and structured ones.  Exact methods must agree with one another, with
what was planted and, where the instance is tiny, with trying everything; heuristics must not be
better than the optimum; every bound must hold; at the optimum all must fit and a unit below
nothing; proofs must replay, and none must prove more than the optimum.  One line a method with what
it proved, every disagreement in full, as Python that rebuilds the instance.  Exit code 1 if there
is any.
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

from stagepack.claims import check_proof, prove
from stagepack.errors import StagepackError
from stagepack.heuristics.packing import window_bounds
from stagepack.heuristics.packing.exact_search import exact
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.methods.packing import iis
from stagepack.progress import Progress
from stagepack.result import Result, Status
from stagepack.solve import MethodInfo, methods, solve
from tests import structured
from tests.packing_cases import brute_force, sufficient_ceiling
from tests.random_packings import FAMILIES, Case, as_python, case

CHUNK = 25
MILP_EVERY = 4
LARGEST_MILP = 8
LOCAL_EVERY = 15
LOCAL = ("anneal", "dive")
"""Methods that go on for as long as they may, where the load is not reached."""
LOCAL_SECONDS = 0.05
CONFLICTS_EVERY = 5
LIMIT = 60.0
CEILING = 40
"""Up to which all offsets of a structured instance are tried."""


@dataclass
class Tally:
    """What was proved, how long it took, and what was wrong."""

    counts: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    seconds: dict[str, float] = field(default_factory=lambda: collections.defaultdict(float))
    families: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what another process found."""
        self.counts.update(other.counts)
        for method, seconds in other.seconds.items():
            self.seconds[method] += seconds
        self.families.update(other.families)
        self.wrong += other.wrong


class Trial:
    """One case: all methods run, then judged against the best that is known."""

    def __init__(self, number: int, given: Case, tally: Tally, *, engines: bool = True) -> None:
        self.number = number
        self.case = given
        self.tally = tally
        self.engines = engines
        self.answers: dict[str, Result[Any]] = {}
        self.exact: dict[str, Result[Any]] = {}
        self.shaped = not Blocks.of(given.instance).rigid

    def complain(self, who: str, what: str, instance: LmemPacking | None = None) -> None:
        """Keep a disagreement, with the instance."""
        instance = self.case.instance if instance is None else instance
        self.tally.wrong.append(
            f"case {self.number} ({self.case.family}) {who}: {what}\n    {as_python(instance)}"
        )

    def run(self) -> None:
        """Run every method that applies and judge it."""
        instance = self.case.instance
        self.tally.families[self.case.family] += 1
        self.tally.counts["shapes", "MET"] += self.shaped
        for info in methods(instance):
            if self._wanted(info):
                self._try(info, instance)
        self._judge()

    def _wanted(self, info: MethodInfo) -> bool:
        if not info.available or (info.engines and not self.engines):
            return False
        if info.name == "milp":
            often = self.shaped or self.number % MILP_EVERY == 0
            return self.case.instance.n <= LARGEST_MILP and often
        return info.name not in LOCAL or self.number % LOCAL_EVERY == 0

    def _try(self, info: MethodInfo, instance: LmemPacking) -> None:
        options: dict[str, Any] = {"time_limit": LIMIT if info.exact else LOCAL_SECONDS}
        if info.engines:  # half of them with nothing to start from
            options["warm_start"] = None if self.number % 2 else "auto"
        if info.name == "exact" and self.number % 3 == 0:
            options["warm_start"] = None
        result = self.solve(info.name, instance, **options)
        if result is not None:
            self.answers[info.name] = result
            if info.exact:
                self.exact[info.name] = result

    def solve(self, method: str, instance: LmemPacking, **options: Any) -> Result[Any] | None:
        """Solve and count; an exception is a disagreement."""
        began = time.perf_counter()
        try:
            result = solve(instance, method, **options)
        except StagepackError as error:
            self.complain(method, f"{type(error).__name__}: {error} {options}", instance)
            return None
        except Exception as error:
            self.complain(method, f"raises {type(error).__name__}: {error} {options}", instance)
            return None
        self.tally.seconds[method] += time.perf_counter() - began
        self.tally.counts[method, str(result.status)] += 1
        return result

    def _judge(self) -> None:
        instance = self.case.instance
        optimum, feasible = self._optimum()
        fit = instance.objective is Objective.FIT
        for name, result in self.answers.items():
            told = f"{result.status} {result.objective} bound {result.bound}"
            is_exact = name in self.exact
            if result.status is Status.INFEASIBLE:
                if feasible:
                    self.complain(name, f"{told}, but {optimum} is feasible")
                continue
            if feasible is False and result.objective is not None:
                self.complain(name, f"{told}, but another method proves that nothing is feasible")
            if result.bound is not None and optimum is not None and result.bound > optimum:
                self.complain(name, f"{told}: the bound exceeds the optimum {optimum}")
            if result.objective is not None and optimum is not None and result.objective < optimum:
                self.complain(name, f"{told}: better than the optimum {optimum}")
            if not is_exact:
                continue
            if result.objective is None:
                self.tally.counts[name, "NOT PROVED"] += 1
            elif fit:
                pass  # all that fits will do
            elif result.status is not Status.OPTIMAL:
                self.tally.counts[name, "NOT PROVED"] += 1
            elif optimum is not None and result.objective != optimum:
                self.complain(name, f"{told}: misses the optimum {optimum}")
        if feasible and optimum is not None and instance.objective is Objective.PEAK:
            self._around(int(optimum))

    def _optimum(self) -> tuple[int | None, bool | None]:
        """Return the least value, or None where unknown, and whether anything is feasible."""
        given = self.case
        if given.tiny:
            best = brute_force(given.instance)
            if best is None:
                for name, result in self.exact.items():
                    if result.status is not Status.INFEASIBLE:
                        self.complain(name, f"{result.status}, but no placement is valid")
                return None, False
            return int(given.instance.evaluate(best)), True
        proved = [r.objective for r in self.exact.values() if r.status is Status.OPTIMAL]
        if given.instance.objective is Objective.FIT:
            proved = [r.bound for r in self.exact.values() if r.status is Status.OPTIMAL]
        known = [int(value) for value in proved if value is not None]
        if given.optimum is not None:
            known.append(given.optimum)
        if given.instance.objective is Objective.FIT:
            values = [r.objective for r in self.answers.values() if r.objective is not None]
            values += [] if given.reachable is None else [given.reachable]
            return (int(min(values)) if values else None), bool(values) or self._claimed()
        if given.reachable is not None:
            if known and min(known) > given.reachable:
                self.complain("exact methods", f"{known}, but {given.reachable} was planted")
            return min([*known, given.reachable]) if known else None, True
        # The least claim is one that some method has a placement for.
        return (min(known), True) if known else (None, self._claimed())

    def _claimed(self) -> bool | None:
        """Whether methods say that something is feasible; None without a word from any."""
        if any(result.objective is not None for result in self.answers.values()):
            return True
        if any(result.status is Status.INFEASIBLE for result in self.exact.values()):
            return False
        return None

    # ------------------------------------------------------------------ fit, and explanations

    def _around(self, optimum: int) -> None:
        """At the optimum all fits, a unit below nothing does; windows and conflicts are right."""
        instance = self.case.instance
        blocks = Blocks.of(instance)
        unit = blocks.unit if self.number % 2 else 1
        names = [name for name in ("exact", "cp-sat", "milp") if name in self.answers]
        below = optimum - unit
        at = instance.replace(objective="fit", capacity=optimum)
        for name in names:
            result = self.solve(name, at, time_limit=LIMIT)
            if result is not None and result.objective is None:
                self.complain(name, f"{result.status} at the optimum: {result.reason}", at)
            if below < int(instance.size.max()):
                continue
            lower = instance.replace(objective="fit", capacity=below)
            result = self.solve(name, lower, time_limit=LIMIT)
            if result is not None and result.status is not Status.INFEASIBLE:
                self.complain(name, f"{result.status} below the optimum {optimum}", lower)
        load = int(blocks.load.max())
        if blocks.rigid and not exact.unsupported(blocks):
            self._proved(optimum)
        if not window_bounds.unsupported(blocks):
            for window in window_bounds.windows(blocks, load, keep_going=_for(0.2)):
                self.tally.counts["windows", "BOUNDS"] += 1
                if window.bound > optimum:
                    self.complain("windows", f"{window} exceeds the optimum {optimum}")
        plain = instance.conflicts is None and instance.period is None and not instance.gaps
        if optimum > load and plain and blocks.plain and self.number % CONFLICTS_EVERY == 0:
            self._explained(blocks, optimum - blocks.unit)

    def _proved(self, optimum: int) -> None:
        """See that the optimum is proved, where it can be, by a proof that replays, and no more."""
        instance = self.case.instance
        for bound in (optimum, optimum + 1):
            proof = prove(instance, bound, time_limit=1.0)
            self.tally.counts["proofs", "NONE" if proof is None else "WRITTEN"] += 1
            if proof is not None and (bound > optimum or not check_proof(instance, proof).valid):
                self.complain("proof", f"of {bound}, and the optimum is {optimum}: {proof}")

    def _explained(self, blocks: Blocks, capacity: int) -> None:
        """See that the buffers named as a conflict do conflict, and no fewer of them."""
        if exact.unsupported(blocks):
            return
        instance = self.case.instance
        progress = Progress(instance.evaluate, instance.check, time_limit=1.0)
        found = iis.find(instance, capacity, iis.Questions(progress))
        if found is None:
            self.tally.counts["conflict", "UNKNOWN"] += 1
            return
        self.tally.counts["conflict", "IRREDUCIBLE" if found.irreducible else "FOUND"] += 1
        members = np.array(found.buffers)
        self._fits(members, capacity, expected=False)
        for left_out in members if found.irreducible and self.engines else ():
            self._fits(members[members != left_out], capacity, expected=True)

    def _fits(self, members: Any, capacity: int, *, expected: bool) -> None:
        instance = self.case.instance
        if len(members) == 0 or int(instance.size[members].max()) > capacity:
            return
        part = LmemPacking.from_arrays(
            instance.size[members],
            instance.start[members],
            instance.end[members],
            alignment=instance.alignment[members],
            capacity=capacity,
        )
        result = self.solve("cp-sat" if self.engines else "exact", part, time_limit=LIMIT)
        if result is not None and (result.objective is not None) != expected:
            says = "irreducible, but still conflicts" if expected else "no conflict"
            self.complain("conflict", f"{says}: {members.tolist()} at {capacity}", part)


def _for(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end


def _lined(number: int) -> Case:
    """Return a structured case."""
    instance = structured.small("packing", number)
    return Case("structured", instance, tiny=sufficient_ceiling(instance) <= CEILING)


def trials(numbers: range, *, engines: bool = True) -> Tally:
    """Run the cases of some numbers."""
    tally = Tally()
    for number in numbers:
        given = _lined(number) if number % structured.EVERY == 0 else case(number)
        Trial(number, given, tally, engines=engines).run()
    return tally


def soak(instances: int, seed: int, jobs: int) -> int:
    """Run the soak; return the number of disagreements."""
    began = time.perf_counter()
    total = Tally()
    for done, tally in enumerate(_chunks(range(seed, seed + instances), jobs), 1):
        for wrong in tally.wrong:
            print(wrong, flush=True)
        total.add(tally)
        if done % 20 == 0:
            counted = sum(total.families.values())
            print(
                f"{counted} instances, {len(total.wrong)} disagreements, "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )
    report(total)
    print(f"{instances} instances from seed {seed}: {len(total.wrong)} disagreements")
    return len(total.wrong)


def _chunks(numbers: range, jobs: int) -> Iterator[Tally]:
    parts = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
    if jobs == 1:
        yield from map(trials, parts)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running = [pool.submit(trials, part) for part in parts]
        for future in concurrent.futures.as_completed(running):
            yield future.result()


def report(tally: Tally) -> None:
    """Print one line a method, and what the families were."""
    statuses = [*(str(status) for status in Status), "NOT PROVED"]
    print(f"\n{'method':<26}" + "".join(f"{s:>12}" for s in statuses) + f"{'seconds':>10}")
    for name in sorted(tally.seconds):
        row = "".join(f"{tally.counts[name, status]:>12}" for status in statuses)
        print(f"{name:<26}{row}{tally.seconds[name]:>10.1f}")
    print(
        f"with windows, unlike colocated buffers or pairs in place: {tally.counts['shapes', 'MET']}"
    )
    print(
        "families:",
        ", ".join(f"{name} {tally.families[name]}" for name in (*FAMILIES, "structured")),
    )
    print(
        f"windows above the load: {tally.counts['windows', 'BOUNDS']}; irreducible conflicts: "
        f"{tally.counts['conflict', 'IRREDUCIBLE']}, others {tally.counts['conflict', 'FOUND']}, "
        f"none found {tally.counts['conflict', 'UNKNOWN']}; proofs replayed: "
        f"{tally.counts['proofs', 'WRITTEN']}"
    )


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first instance")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    given = parser.parse_args()
    return 1 if soak(given.instances, given.seed, given.jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
