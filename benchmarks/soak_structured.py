"""Soak: every method of every kind on structured instances, small ones and those at thresholds.

    python -m benchmarks.soak_structured --seconds 60
    NUMBA_BOUNDSCHECK=1 python -m benchmarks.soak_structured --instances 1000 --most 10000

Stars, complete multipartite graphs, chains, all or nothing alive, figures that are zero or alike
(:mod:`tests.structured`), of all kinds in turn.  Half of them are small: where it takes little, all
answers are tried.  The others have as many things as a threshold of the code, one more or fewer,
and `--most` at most.  No bound may exceed an answer that was found, and what is proved is the best
of them.  Limits are of work, so that runs repeat.  One line a kind, and every disagreement.  Exit
code 1 if there is any.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import soak_groups
from stagepack.result import Status
from stagepack.solve import methods, solve
from tests import (
    packing_cases,
    placed_pipelines,
    random_graphs,
    random_phases,
    random_pipelines,
    random_schedules,
)
from tests.structured import KINDS, large, small

LIMIT = 0.3
"""Seconds of work for a method, where nothing else is said."""
TRIES, PLANS, HEIGHT, STAGES = 3_000, 3_000, 40, 8
"""Assignments, plans, bytes and stages of several a device, up to which all are tried."""
ENGINES, ENGINES_EVERY = ("cp-sat", "milp"), 5
"""How their methods begin, and of so many small instances they get one."""
SLACK, TOLERANCE = 1e-9, 1e-6
"""Relative, of values that are no integers, and of engines."""


def _best_graph(instance: Any) -> float:
    if instance.devices**instance.n > TRIES:
        raise OverflowError
    found = random_graphs.brute_force(instance)
    return math.inf if found is None else float(found[0])


def _best_pipeline(instance: Any) -> float:
    if instance.placed:
        if len(instance.stage_devices) > STAGES:
            raise OverflowError
        best = placed_pipelines.optimum(instance)
        return math.inf if best is None else float(best)
    found = random_pipelines.optimum(instance)
    return math.inf if found is None else found[0]


def _best_schedule(instance: Any) -> float:
    if random_schedules.number_of_orders(instance, TRIES) > TRIES:
        raise OverflowError
    found = random_schedules.optimum(instance)
    return math.inf if found is None else found


def _best_phases(instance: Any) -> float:
    found, _ = random_phases.brute_force(instance, PLANS)
    return math.inf if found is None else found


def _best_packing(instance: Any) -> float:
    if instance.objective == "fit" or packing_cases.sufficient_ceiling(instance) > HEIGHT:
        raise OverflowError
    found = packing_cases.brute_force(instance)
    return math.inf if found is None else float(instance.evaluate(found))


BEST: dict[str, Callable[[Any], float]] = {
    "pipeline": _best_pipeline,
    "graph": _best_graph,
    "schedule": _best_schedule,
    "phases": _best_phases,
    "groups": soak_groups.optimum,
    "packing": _best_packing,
}
"""By trying everything, infinite where nothing is valid; OverflowError where that is too much."""


Claim = tuple[str, Status, float | None, float | None]
"""Who says what: method, status, objective and bound."""


class Soak:
    """What was run, and what was wrong."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.wrong = 0

    def run(self, kind: str, number: int, most: int) -> None:
        """Run all methods on the instance of a number."""
        tiny = number % 2 == 0 or not most
        instance = small(kind, number) if tiny else large(kind, number, most)
        where = f"{kind} {number} {instance.name}"
        print(where, end="\033[K\r", file=sys.stderr, flush=True)
        claims: list[Claim] = []
        began = time.process_time()
        for info in methods(instance):
            if info.available and not (info.engines and (not tiny or number % ENGINES_EVERY)):
                claims += self._claims(where, instance, info.name)
        if tiny:
            claims += self._tried(kind, instance)
        self.seconds[kind] += time.process_time() - began
        self.counts[kind, "instances"] += 1
        for trouble in disagreements(claims, instance.objective == "fit"):
            self._complain(where, trouble)

    def _claims(self, where: str, instance: Any, method: str) -> list[Claim]:
        try:
            result = solve(instance, method, time_limit=self.limit, options={"deterministic": True})
        except Exception as error:  # an index that is out of bounds, above all
            self._complain(where, f"{method} raises {type(error).__name__}: {error}")
            return []
        self.counts[where.split()[0], str(result.status)] += 1
        return [(method, result.status, result.objective, result.bound)]

    def _tried(self, kind: str, instance: Any) -> list[Claim]:
        try:
            best = BEST[kind](instance)
        except OverflowError:
            return []
        self.counts[kind, "tried"] += 1
        if math.isinf(best):
            return [("trying everything", Status.INFEASIBLE, None, None)]
        return [("trying everything", Status.OPTIMAL, best, best)]

    def _complain(self, where: str, trouble: str) -> None:
        self.wrong += 1
        print(f"{where}: {trouble}", flush=True)

    def tell(self) -> None:
        """Print a line a kind."""
        columns = ["instances", "tried", *map(str, Status)]
        print(f"\033[K{'kind':<10}" + "".join(f"{name:>12}" for name in columns) + f"{'CPU s':>9}")
        for kind, seconds in self.seconds.items():
            row = "".join(f"{self.counts[kind, name]:>12}" for name in columns)
            print(f"{kind:<10}{row}{seconds:>9.1f}")
        print(f"{self.wrong} disagreements")


def disagreements(claims: Sequence[Claim], fit: bool) -> Iterator[str]:
    """Yield what claims about one instance contradict; `fit`: any answer is as good as others."""
    found = {name: value for name, _, value, _ in claims if value is not None}
    if not found:
        return
    best = min(found.values())
    who = min(found, key=lambda name: found[name])
    for name, status, value, bound in claims:
        slack = max(SLACK, TOLERANCE if name.startswith(ENGINES) else 0.0) * max(1.0, abs(best))
        if status is Status.INFEASIBLE:
            yield f"{name} says that there is none, and {who} has {best}"
        elif bound is not None and bound > best + slack:
            yield f"{name} has the bound {bound}, and {who} has {best}"
        elif status is Status.OPTIMAL and not fit and value is not None and value > best + slack:
            yield f"{name} says that {value} is the optimum, and {who} has {best}"


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=1_000, help="of each kind")
    parser.add_argument("--seconds", type=float, default=math.inf, help="CPU time to end after")
    parser.add_argument("--kind", choices=list(KINDS), help="default: all, in turn")
    parser.add_argument("--seed", type=int, default=0, help="number of the first instance")
    parser.add_argument("--most", type=int, default=1_100, help="things at most; 0: small ones")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of work for a method")
    given = parser.parse_args()
    faulthandler.enable()
    soak = Soak(given.limit)
    kinds = list(KINDS) if given.kind is None else [given.kind]
    for number in range(given.seed, given.seed + given.instances):
        if time.process_time() > given.seconds:
            break
        for kind in kinds:
            soak.run(kind, number, given.most)
    soak.tell()
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
