"""Layer grouping: the exact search beside known rules, and its time on growing networks.

    python -m benchmarks.groups [--quick] [--only table|growth|peers]
    python -m benchmarks.groups --peers [--vela PATH]

First table: the networks of the catalog on every chip.  It has the cycles of `dp` and whether they
are proved, how much more a rule needs, and how much `dag` and `cp-sat` save if the order of the
operators or the timesteps are free (with a star if this is proved; `dag` only if there is another
order).  These two take up to `--free` seconds for each cell (10 by default), the rest of the table
about a minute.

Second table: CPU seconds of `dp` on chains of repeated blocks, and the fitted exponent.  A *call*
computes the cost of one group over all its cuts.

With `--peers`, Arm's Vela runs on the same networks, see :mod:`benchmarks.groups_vela`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence

import numpy as np

import stagepack as sp
from stagepack.catalog.groups import NETWORKS
from stagepack.heuristics.groups.oracle import Oracle
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.problem import CHIP_NAMES
from stagepack.result import Status

RULES = ("layerwise", "greedy-tail", "dp-first-fit", "seed-order")
FREED = {"dag": {"order": "free"}, "cp-sat": {"timesteps": "free"}}
"""What an instance has to leave open to each of these methods."""
SIZES = (25, 50, 100, 200, 400)
ROUNDS = 5
LONG = 5  # CPU seconds after which there are no more rounds


def loaded(name: str, **given: object) -> LayerGrouping:
    """Return an instance of the catalog."""
    instance = sp.load(f"groups/{name}", **given)
    assert isinstance(instance, LayerGrouping)
    return instance


def table(networks: Sequence[str], chips: Sequence[str], limit: float, free: float) -> None:
    """Print the cycles of `dp`, and what other methods take beyond them, or less."""
    beyond: dict[str, list[float]] = {name: [] for name in (*RULES, *FREED)}
    print(f"\n{'network':<14}{'n':>4}  {'chip':<9}{'cycles':>13}  {'status':<10}{'groups':>7}"
          f"{'alone':>6}{'CPU s':>8}" + "".join(f"{name:>14}" for name in beyond))  # fmt: skip
    worst, proved, count = 0.0, 0, 0
    for name in networks:
        for chip in chips:
            instance = loaded(name, chip=chip)
            began = time.process_time()
            result = sp.solve(instance, "dp", time_limit=limit)
            took = time.process_time() - began
            worst, count = max(worst, took), count + 1
            proved += result.status is Status.OPTIMAL
            if result.solution is None or result.objective is None:
                print(f"{name:<14}{instance.n:>4}  {chip:<9}{'-':>13}  {result.status!s:<10}")
                continue
            slices = result.solution.slices
            line = (f"{name:<14}{instance.n:>4}  {chip:<9}{result.objective:>13,}  "
                    f"{result.status!s:<10}{len(slices):>7}{slices.count(()):>6}"
                    f"{took:>8.2f}")  # fmt: skip
            for method in beyond:
                other = compared(method, name, chip, free if method in FREED else limit)
                if other is None or other.objective is None:
                    line += f"{'-' if other is None else 'no plan':>14}"
                    continue
                if method in RULES and result.status is Status.OPTIMAL:
                    assert other.objective >= result.objective
                more = other.objective / result.objective - 1
                beyond[method].append(more)
                star = "*" if method in FREED and other.status is Status.OPTIMAL else ""
                line += f"{f'{more:+.1%}{star}':>14}"
            print(line, flush=True)
    print(f"proved {proved} of {count}, the slowest in {worst:.2f} s of CPU")
    for method, values in beyond.items():
        if values:
            mean = math.exp(float(np.mean(np.log1p(values)))) - 1
            far = min(values) if method in FREED else max(values)
            unlike = sum(value != 0 for value in values)
            print(f"{method:<14} geometric mean {mean:+.1%}, farthest {far:+.1%}, "
                  f"unlike dp in {unlike} of {len(values)}")  # fmt: skip


def compared(method: str, name: str, chip: str, limit: float) -> sp.Result | None:
    """Return what a method finds where it applies; None where there is nothing for it to decide."""
    instance = loaded(name, chip=chip, **FREED.get(method, {}))
    if method == "dag" and instance.linear:
        return None
    return sp.solve(instance, method, time_limit=limit)


def seconds(instance: LayerGrouping) -> float:
    """Return the least CPU seconds of `dp` without a start, of a few rounds, of one if long."""
    found: list[float] = []
    while len(found) < ROUNDS and sum(found) < LONG:
        began = time.process_time()
        result = sp.solve(instance, "dp", warm_start=None, time_limit=None)
        found.append(time.process_time() - began)
        assert result.status is Status.OPTIMAL, result.status
    return min(found)


def priced(instance: LayerGrouping) -> tuple[int, float]:
    """Return how many groups the oracle prices, and CPU seconds of all of it."""
    oracle = Oracle(instance)
    began = time.process_time()
    groups = sum(len(oracle.ends(end).cycles) for end in range(1, instance.n + 1))
    return groups, time.process_time() - began


def growth(sizes: Sequence[int], chips: Sequence[str]) -> None:
    """Print CPU seconds of `dp` over chains of blocks, and the exponents."""
    print(f"\n{'blocks':<10}{'chip':<9}{'longest group':>14}{'dp CPU s':>10}{'groups priced':>15}"
          f"{'us a call':>11}")  # fmt: skip
    for chip in chips:
        for bounded in (True, False) if chip == chips[0] else (True,):
            times = []
            for n in sizes:
                longest = 64 if bounded else n
                instance = loaded("random/blocks", operators=n, chip=chip, max_group=longest)
                times.append(seconds(instance))
                groups, took = priced(instance)
                print(f"{n:<10}{chip:<9}{min(longest, n):>14}{times[-1]:>10.3f}{groups:>15,}"
                      f"{took / groups * 1e6:>11.1f}", flush=True)  # fmt: skip
            if len(sizes) > 1:
                exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
                print(f"{'':<10}fits n ** {exponent:.2f}")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer networks, chips and sizes")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each run")
    parser.add_argument("--free", type=float, default=10, help="seconds for dag and cp-sat")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--chips", default=",".join(CHIP_NAMES))
    parser.add_argument("--only", choices=("table", "growth", "peers"))
    parser.add_argument("--peers", action="store_true", help="Arm's Vela, too, where it is there")
    parser.add_argument("--vela", default="vela", help="its command")
    parser.add_argument("--models", default="", help="a folder with .tflite files")
    given = parser.parse_args()
    print("versions:", ", ".join(f"{k} {v}" for k, v in sp.versions().items()))
    networks, chips = given.networks.split(","), given.chips.split(",")
    sp.solve(loaded("squeezenet", chip="cv184x"), "dp")  # loads what is compiled
    if given.only in (None, "table"):
        few = ["squeezenet", "vgg19"] if given.quick else networks
        table(few, chips[:3] if given.quick else chips, given.limit, given.free)
    if given.only in (None, "growth"):
        growth(SIZES[:3] if given.quick else SIZES, ("bm1684x", "cv184x"))
    if given.peers or given.only == "peers":
        from benchmarks.groups_vela import peers

        peers(given.vela, given.models)


if __name__ == "__main__":
    main()
