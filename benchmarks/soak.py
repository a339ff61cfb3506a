"""Soak: every exact method for chains on thousands of random instances, against brute force.

    python -m benchmarks.soak --instances 5000 --seed 0
    python -m benchmarks.soak --instances 3000 --wide --layers 7

Instances of up to 9 layers and 4 devices with every feature at random (objectives, shared keys,
variables, memory, unlike devices and links, training, free order, tables), and structured ones
among them; one line a method with what it proved, and every disagreement in full.  Exit code 1 if
there is any.  With ``--wide`` figures are large, have nine decimals, or tiny ones stand beside huge
ones (:mod:`tests.wide_figures`), and methods run on every engine that they name: these may refuse
what they cannot count exactly, and leave a little unproved.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from collections.abc import Iterator
from typing import Any

from stagepack.errors import InputError, StagepackError
from stagepack.result import Status
from stagepack.solve import methods, solve
from tests import structured
from tests.random_pipelines import optimum, random_instance


def runs(instance: Any, every_engine: bool) -> Iterator[tuple[Any, str | None]]:
    """Yield the methods that apply, with engines: None is a method's own.

    Parameters
    ----------
    instance : Instance
    every_engine : bool
        Whether methods run on all that they name, too.
    """
    for info in methods(instance):
        if info.available:
            yield info, None
            others = info.engines[1:] if every_engine else ()
            yield from ((info, other) for other in others if other != "pyomo:NAME")


def soak(
    instances: int, seed: int, layers: int, devices: int, engines_every: int, wide: bool
) -> int:
    """Run the soak; return the number of disagreements."""
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    seconds: collections.Counter[str] = collections.Counter()
    wrong = 0
    for number in range(seed, seed + instances):
        instance = random_instance(number, largest_n=layers, largest_k=devices, wide=wide)
        if not wide and number % structured.EVERY == 0:
            instance = structured.small("pipeline", number)
        best = optimum(instance)
        slack = instance.tolerance * max(1.0, abs(best[0])) if best else 0.0
        for info, engine in runs(instance, wide):
            if info.engines and number % engines_every:
                continue
            name = info.name if engine is None else f"{info.name} on {engine}"
            began = time.perf_counter()
            try:
                result = solve(instance, info.name, engine=engine, time_limit=60)
            except StagepackError as error:
                if wide and isinstance(error, InputError):
                    counts[name, "REFUSED"] += 1
                    continue
                wrong += 1
                print(f"seed {number} {name}: {error}", flush=True)
                continue
            seconds[name] += time.perf_counter() - began
            counts[name, result.status.value] += 1
            complaint = ""
            if best is None:
                proved = result.status is Status.INFEASIBLE
                if not proved and (
                    (info.exact and not wide) or result.status is not Status.UNKNOWN
                ):
                    complaint = "there is no solution"
            elif result.status is Status.INFEASIBLE:
                complaint = f"the optimum is {best[0]}"
            else:
                if result.objective is not None and result.objective < best[0] - slack:
                    complaint = f"better than the optimum {best[0]}"
                if result.bound is not None and result.bound > best[0] + slack:
                    complaint = f"bound above the optimum {best[0]}"
                claims = result.status is Status.OPTIMAL
                if info.exact and not claims:
                    counts[name, "NOT PROVED"] += 1
                if (claims or (info.exact and not wide)) and (
                    result.objective is None or abs(result.objective - best[0]) > slack
                ):
                    complaint = f"misses the optimum {best[0]}"
            if complaint:
                wrong += 1
                print(f"seed {number} {name}: {complaint}: {result!r}", flush=True)
    statuses = [*Status, "NOT PROVED", "REFUSED"]
    print(f"{'method':<32}" + "".join(f"{s:>12}" for s in statuses) + f"{'seconds':>10}")
    for name in sorted(seconds):
        row = "".join(f"{counts[name, str(s)]:>12}" for s in statuses)
        print(f"{name:<32}{row}{seconds[name]:>10.1f}")
    print(f"{instances} instances from seed {seed}: {wrong} disagreements")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument(
        "--engines-every", type=int, default=1, help="run solvers on every so many instances"
    )
    parser.add_argument("--wide", action="store_true", help="figures that strain engines")
    given = parser.parse_args()
    disagreements = soak(
        given.instances,
        given.seed,
        given.layers,
        given.devices,
        given.engines_every,
        given.wide,
    )
    sys.exit(1 if disagreements else 0)
