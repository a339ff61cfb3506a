"""Soak: every method of layer grouping on random networks and on relatives of the catalog's.

    python -m benchmarks.soak_groups --instances 500
    python -m benchmarks.soak_groups --instances 0 --relatives 100

Random networks of a few operators of all kinds, and structured ones, are solved by trying every
group in every cut, too; where timesteps are free each by the model of a group alone.  Relatives are
networks of the catalog with a larger batch, less local memory, or other rules: there what some
method proves is what the others are held against, and rules are never better.  Limits are of work,
so that runs repeat.  One line a method with what it proved, and every disagreement.  Exit code 1 if
there is any.
"""

from __future__ import annotations

import argparse
import collections
import math
import sys
import time
from collections.abc import Callable

import hypothesis
import numpy as np

import stagepack as sp
from benchmarks.groups import loaded
from benchmarks.soak_graphs import complaint
from stagepack.catalog.groups import NETWORKS
from stagepack.heuristics.groups.oracle import NONE
from stagepack.instances.groups import GroupingSolution, LayerGrouping
from stagepack.instances.groups.problem import CHIP_NAMES, Order, Timesteps
from stagepack.result import Result, Status
from tests import structured
from tests.formulations.groups.definitions import least, modelled
from tests.heuristics.groups.definitions import placed
from tests.instances.groups.networks import CHIP, networks

LIMIT = 20
"""Seconds for a run."""
SMALL = {Timesteps.NEAREST: 5, Timesteps.FREE: 2}
"""Operators of a random network at most."""
REPEATED = {"deterministic": True}
FREE = hypothesis.strategies.sampled_from


def drawn(instances: int, seed: int) -> list[LayerGrouping]:
    """Return random networks."""
    found: list[LayerGrouping] = []
    quiet = list(hypothesis.HealthCheck)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=instances, database=None, deadline=None, suppress_health_check=quiet,
        phases=[hypothesis.Phase.generate],
    )  # fmt: skip
    @hypothesis.given(hypothesis.strategies.data())
    def collect(data: hypothesis.strategies.DataObject) -> None:
        timesteps = data.draw(FREE(Timesteps))
        memory = data.draw(FREE([512, 1024, 2048, 4096]))
        found.append(
            data.draw(
                networks(
                    most=SMALL[timesteps],
                    chip=sp.LaneChip(**{**_fields(), "memory": memory}),
                    timesteps=timesteps,
                    order=data.draw(FREE(Order)),
                    slicing=data.draw(FREE(["free", "n-then-h"])),
                    standalone=data.draw(FREE(["any", "needed"])),
                    max_slices=data.draw(FREE([1, 4, 8])),
                )
            )
        )

    collect()
    return found


def _fields() -> dict[str, object]:
    return {name: getattr(CHIP, name) for name in CHIP.__struct_fields__}


def by_rule(whole: LayerGrouping, plan: GroupingSolution) -> int | None:
    """Return the cycles of a plan of one group by the rule; None where it has no place."""
    table = plan.timetable(whole, 0)
    return table.cycles if placed(table) else None


def optimum(whole: LayerGrouping) -> float:
    """Return the least cycles of all plans, infinite where there is none."""
    best = least(whole, modelled if whole.timesteps == Timesteps.FREE else by_rule)
    return best if best < NONE else math.inf


def relatives(count: int, seed: int) -> list[LayerGrouping]:
    """Return networks of the catalog with other batches, memories and rules."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        name, chip = str(rng.choice([*NETWORKS])), str(rng.choice(CHIP_NAMES))
        memory = loaded(name, chip=chip).chip.memory
        found.append(
            loaded(
                name,
                chip=chip,
                batch=int(rng.choice([1, 2, 4])),
                capacity=memory // int(rng.choice([1, 2, 4])),
                order=str(rng.choice([*Order])),
                timesteps=str(rng.choice([*Timesteps], p=[0.75, 0.25])),
                standalone=str(rng.choice(["any", "needed"], p=[0.75, 0.25])),
                overlap_limit=str(rng.choice(["half", "none"])),
            )
        )
    return found


class Soak:
    """What was run, and what was wrong."""

    def __init__(self) -> None:
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.wrong = self.unknown = 0

    def run(
        self, whole: LayerGrouping, number: int, best: Callable[[LayerGrouping], float] | None
    ) -> None:
        """Run all methods on a network; without `best` hold them against what one proves."""
        results: list[tuple[str, bool, Result[GroupingSolution]]] = []
        for info in sp.methods(whole):
            if not info.available:
                continue
            began = time.process_time()
            result = sp.solve(whole, info.name, time_limit=LIMIT, options=REPEATED)
            self.seconds[info.name] += time.process_time() - began
            self.counts[info.name, result.status.value] += 1
            results.append((info.name, info.exact and proves(info.name, whole), result))
        if best is not None:
            value = best(whole)
        else:
            known = [r for _, _, r in results if r.status in (Status.OPTIMAL, Status.INFEASIBLE)]
            if not known:
                self.unknown += 1
                return
            value = min(math.inf if r.objective is None else float(r.objective) for r in known)
        for name, exact, result in results:
            trouble = complaint(result, exact, value)
            if trouble:
                self.wrong += 1
                print(f"{number} {whole.digest} {name}: {trouble}: {result.to_dict()}", flush=True)

    def tell(self) -> None:
        """Print a line a method."""
        print(f"{'method':<14}" + "".join(f"{s!s:>12}" for s in Status) + f"{'CPU s':>10}")
        for name in sorted(self.seconds):
            row = "".join(f"{self.counts[name, s.value]:>12}" for s in Status)
            print(f"{name:<14}{row}{self.seconds[name]:>10.1f}")


def proves(name: str, whole: LayerGrouping) -> bool:
    """Whether a method looks at all that an instance leaves open."""
    if name in ("auto", "cp-sat"):
        return True
    ordered = whole.order == Order.GIVEN or whole.linear or name == "dag"
    return ordered and whole.timesteps == Timesteps.NEAREST


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=500, help="random networks")
    parser.add_argument("--relatives", type=int, default=0, help="relatives of the catalog")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    soak = Soak()
    small = drawn(given.instances, given.seed) if given.instances else []
    numbers = range(given.seed, given.seed + given.instances, structured.EVERY)
    small += [structured.small("groups", number) for number in numbers]
    for number, whole in enumerate(small):
        soak.run(whole, number, optimum)
    for number, whole in enumerate(relatives(given.relatives, given.seed)):
        soak.run(whole, number, None)
    soak.tell()
    print(
        f"{len(small)} networks by trying everything, {given.relatives} relatives, {soak.unknown} "
        f"proved by no method: {soak.wrong} disagreements"
    )
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
