"""Soak: every method of phase scheduling on thousands of random instances, against brute force.

    python -m benchmarks.soak_phases --instances 2000 --seed 0

Tiny instances, some of them structured, the others with every feature at random (training,
policies, skips, modes, I/O tiles, free microbatches, sharding, prefetching, budgets, several
recomputations); one line a method with what it proved, and every disagreement in full.  Exit code 1
if there is any.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from typing import Any

from stagepack.errors import StagepackError
from stagepack.result import Status
from stagepack.solve import methods, solve
from tests import structured
from tests.random_phases import brute_force, random_phases


def complaint(info: Any, result: Any, best: int | None, promised: bool) -> str:
    """Return what is wrong with a result, '' if nothing is.

    `promised`: an exact method must prove its answer here.
    """
    if best is None:
        if result.objective is not None:
            return "there is no plan"
        wrong = info.exact and promised and result.status is not Status.INFEASIBLE
        return "does not see that there is no plan" if wrong else ""
    if result.status is Status.INFEASIBLE:
        return f"the optimum is {best}"
    if result.objective is not None and result.objective < best:
        return f"better than the optimum {best}"
    if result.bound is not None and result.bound > best:
        return f"bound above the optimum {best}"
    if result.status is Status.OPTIMAL and result.objective != best:
        return f"misses the optimum {best}"
    if info.exact and promised and result.status is not Status.OPTIMAL:
        return f"does not prove the optimum {best}"
    return ""


def soak(instances: int, seed: int, layers: int, most: int, engines_every: int) -> int:
    """Run the soak; return the number of disagreements."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()
    wrong = skipped = 0
    for number in range(seed, seed + instances):
        instance = random_phases(number, layers=(1, layers))
        if number % structured.EVERY == 0:
            instance = structured.small("phases", number)
        try:
            best, _ = brute_force(instance, most)
        except OverflowError:
            skipped += 1
            continue
        budgets = (instance.remote_memory, instance.graphs) != (None, None)
        again = instance.training and "recompute" in instance.policies and instance.recomputations
        free = again and not (instance.chain and instance.recomputations == 1)
        for info in methods(instance):
            if not info.available or (info.engines and number % engines_every):
                continue
            promised = not free and not (budgets and info.name in ("dp", "enumerate"))
            promised &= not (budgets and info.name == "auto" and not instance.chain)
            began = time.perf_counter()
            try:
                result = solve(instance, info.name, time_limit=60)
            except StagepackError as error:
                wrong += 1
                print(f"seed {number} {info.name}: {error}", flush=True)
                continue
            seconds[info.name] += time.perf_counter() - began
            counts[info.name, result.status.value] += 1
            if info.exact and best is not None and result.status is not Status.OPTIMAL:
                counts[info.name, "NOT PROVED"] += 1
                counts[info.name, "MISSED"] += result.objective != best
            trouble = complaint(info, result, best, bool(promised))
            if trouble:
                wrong += 1
                print(f"seed {number} {info.name}: {trouble}: {result}", flush=True)
    columns = [*map(str, Status), "NOT PROVED", "MISSED"]
    print(f"{'method':<18}" + "".join(f"{s:>12}" for s in columns) + f"{'seconds':>10}")
    for name in sorted(seconds):
        row = "".join(f"{counts[name, s]:>12}" for s in columns)
        print(f"{name:<18}{row}{seconds[name]:>10.1f}")
    print(
        f"{instances} instances from seed {seed}, {skipped} of them too large to try all plans: "
        f"{wrong} disagreements"
    )
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--most", type=int, default=20_000, help="plans to try at most")
    parser.add_argument(
        "--engines-every", type=int, default=1, help="run solvers on every so many instances"
    )
    given = parser.parse_args()
    disagreements = soak(given.instances, given.seed, given.layers, given.most, given.engines_every)
    sys.exit(1 if disagreements else 0)
