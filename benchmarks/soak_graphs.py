"""Soak: every method of graph partitioning on thousands of random graphs.

    python -m benchmarks.soak_graphs --instances 3000 --nodes 4-6
    python -m benchmarks.soak_graphs --instances 500 --nodes 8-14 --engines-every 4 --tries 5000
    python -m benchmarks.soak_graphs --instances 3000 --nodes 3-7 --wide

The graphs have random options (:mod:`tests.random_graphs`); some are structured.  Small graphs are
also solved by trying every assignment; on larger ones, methods are compared with the best answer
that any method proved.  Prints one line for each method with the number of its proofs, and all
disagreements; progress goes to stderr.  The exit code is 1 if there is any disagreement.
``--wide`` is that of :mod:`benchmarks.soak`.
"""

from __future__ import annotations

import argparse
import collections
import math
import sys
import time
from typing import Any

import numpy as np

from benchmarks.soak import runs
from stagepack.errors import InputError, StagepackError
from stagepack.result import Result, Status
from stagepack.solve import solve
from tests import structured
from tests.random_graphs import brute_force, random_instance

SLACK = 1e-9
"""Relative, of values that are no integers."""
TOLERANCE = 1e-6
"""Relative, of engines."""
LIMIT = 30
"""Seconds for a run."""
TOLD = 25
"""Graphs between two lines that tell how far the soak is."""


def complaint(result: Result[Any], exact: bool, best: float, wide: bool = False) -> str:
    """Return what is wrong with a result, '' if nothing is; the optimum is infinite for none.

    Parameters
    ----------
    result : Result
    exact : bool
        Whether its method should prove it: engines may do so up to their tolerance.
    best : float
    wide : bool
        Whether figures are such that engines may leave a little open.
    """
    slack = SLACK * max(1.0, best) if math.isfinite(best) else 0.0
    if result.status is Status.INFEASIBLE:
        return "" if math.isinf(best) else f"the optimum is {best}"
    if math.isinf(best):
        if result.objective is not None:
            return "there is no partition"
        finished = exact and not wide and result.termination != "TIME_LIMIT"
        return "does not see that there is no partition" if finished else ""
    if result.bound is not None and result.bound > best + slack:
        return f"bound above the optimum {best}"
    if result.objective is not None and result.objective < best - slack:
        return f"better than the optimum {best}"
    if result.status is Status.OPTIMAL and (result.objective or 0) > best + slack:
        return f"misses the optimum {best}"
    proved = result.gap is not None and result.gap <= TOLERANCE
    if exact and not wide and not proved and result.termination != "TIME_LIMIT":
        return "ends unproved by itself"
    return ""


def soak(
    instances: int,
    seed: int,
    nodes: tuple[int, int],
    engines_every: int,
    tries: int,
    wide: bool = False,
) -> int:
    """Run the soak; return the number of disagreements."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    seconds: dict[str, float] = collections.defaultdict(float)
    wrong = tried = unknown = 0
    for number in range(seed, seed + instances):
        done = number - seed
        if done and done % TOLD == 0:
            print(f"{done} of {instances} graphs, {tried} by trying everything, {unknown} proved "
                  f"by no method: {wrong} disagreements, {time.process_time():.0f} CPU s",
                  file=sys.stderr, flush=True)  # fmt: skip
        rng = np.random.default_rng([number, nodes[0]])
        instance = random_instance(rng, int(rng.integers(nodes[0], nodes[1] + 1)), wide=wide)
        if not wide and number % structured.EVERY == 0:
            instance = structured.small("graph", number)
        results: list[tuple[str, bool, Result[Any]]] = []
        for info, engine in runs(instance, wide):
            if info.engines and number % engines_every:
                continue
            name = info.name if engine is None else f"{info.name} on {engine}"
            began = time.process_time()
            try:
                result = solve(instance, info.name, engine=engine, time_limit=LIMIT)
            except StagepackError as error:
                if wide and isinstance(error, InputError):
                    counts[name, "REFUSED"] += 1
                    continue
                wrong += 1
                print(f"seed {number} {name}: {error}", flush=True)
                continue
            seconds[name] += time.process_time() - began
            counts[name, result.status.value] += 1
            if info.exact and result.status not in (Status.OPTIMAL, Status.INFEASIBLE):
                counts[name, "NOT PROVED"] += 1
            results.append((name, info.exact, result))
        if instance.devices**instance.n <= tries:
            found, tried = brute_force(instance), tried + 1
            best = math.inf if found is None else float(found[0])
        else:
            proved = [r for _, _, r in results if r.status in (Status.OPTIMAL, Status.INFEASIBLE)]
            if not proved:
                unknown += 1
                continue
            least = proved[0].objective
            best = math.inf if least is None else float(least)
        for name, exact, result in results:
            trouble = complaint(result, exact, best, wide and name != "auto")
            if trouble:
                wrong += 1
                print(f"seed {number} {name}: {trouble}: {result!r}", flush=True)
    statuses = [*map(str, Status), "NOT PROVED", "REFUSED"]
    print(f"{'method':<32}" + "".join(f"{s:>12}" for s in statuses) + f"{'CPU s':>10}")
    for name in sorted(seconds):
        row = "".join(f"{counts[name, s]:>12}" for s in statuses)
        print(f"{name:<32}{row}{seconds[name]:>10.1f}")
    print(
        f"{instances} graphs from seed {seed}, {tried} by trying everything, {unknown} proved by "
        f"no method: {wrong} disagreements"
    )
    return wrong


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", default="4-6", help="least and most")
    parser.add_argument(
        "--engines-every", type=int, default=1, help="run solvers on every so many graphs"
    )
    parser.add_argument(
        "--tries", type=int, default=2_000_000, help="try everything up to so many assignments"
    )
    parser.add_argument("--wide", action="store_true", help="figures that strain engines")
    given = parser.parse_args()
    low, high = map(int, given.nodes.split("-"))
    wrong = soak(
        given.instances, given.seed, (low, high), given.engines_every, given.tries, given.wide
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
