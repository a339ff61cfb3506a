"""Graph partitioning: all methods on public graphs, and on generated graphs of growing size.

    STAGEPACK_DATA=DIR python -m benchmarks.graphs [--quick] [--only table|growth] [--limit 10]
        [--work] [--graph PREFIX]

First table: public graphs.

- Graphs of Tarnawski et al. (NeurIPS 2020) run on the devices that their files name and one CPU, or
  without the CPU if memory is short.
- Profiles of PipeDream are for training, with links of 10^9 bytes a second; every device is used.
  nasnetamobile has the objective `sum` and links of 10^10 bytes a second, and devices may be empty;
  with eight devices, `auto` and `frontier` also run with limits of 30 and 120 seconds.
- The table has the value, the bound and the CPU seconds of each method.  *proved* is the optimum if
  it was proved before; a method that contradicts it ends the benchmark.
- The last lines compare METIS (with repairs) and PipeDream's own recurrence with `auto`.

Second table: generated graphs of up to 20,000 nodes.  If a run needs more memory than `MOST_MIB`,
the benchmark ends.  With `--work`, limits are amounts of counted work, which do not depend on the
load of the machine.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import stagepack as sp
from stagepack.instances.graph import GraphPartition
from stagepack.result import Result

DATA = Path(os.environ.get("STAGEPACK_DATA", "../shared/data"))
METHODS = (
    "auto", "dp", "frontier", "beam", "linear-dp", "local-search", "cp-sat", "milp", "equal-work",
    "metis", "pipedream",
)  # fmt: skip
PEERS = ("metis", "pipedream")
GROWING = ("auto", "linear-dp", "local-search", "metis")
SIZES = (100, 500, 1_000, 5_000, 20_000)
KINDS = ("blocks", "branchy", "layered")
LONG_RUNS = (30.0, 120.0)
"""Seconds of further runs of `LONG_METHODS`, on cases that say so."""
LONG_METHODS = ("auto", "frontier")
MOST_MIB = 2_048
"""Of memory that all runs on generated graphs may take."""
AGREES = 3e-5
"""Relative, of values that were proved before: some are written with five digits."""


class Case(NamedTuple):
    """A public graph.

    Attributes
    ----------
    path : str
        Below the folder of public data.
    given : dict
        What the file does not say.
    proved : float, optional
        The optimum.
    long : bool
        Whether some methods run longer, too.
    """

    path: str
    given: dict[str, Any]
    proved: float | None = None
    long: bool = False

    @property
    def label(self) -> str:
        """Name in the table."""
        devices = self.given.get("devices")
        parts = [self.path.split("/")[-1].rsplit(".", 1)[0].replace("_graph", "")]
        if devices:
            parts.append(f"k={devices}")
        if self.given.get("contiguous") is False:
            parts.append("free")
        return " ".join([*parts, self.given.get("objective", "sum")[:4]])


def _published(path: str, proved: float, **given: Any) -> Case:
    return Case(f"dnn-partitioning/{path}.json", {"cpus": 1, **given}, proved)


def _profile(
    name: str, devices: int, proved: float | None, objective: str = "overlap", gbytes: float = 1.0
) -> Case:
    given = {
        "devices": devices,
        "bandwidth": gbytes * 1e9 / 2**30,
        "training": True,
        "objective": objective,
        "empty_devices": objective != "overlap",
    }
    return Case(f"pipedream/{name}_graph.txt", given, proved)


CASES = (
    _published("throughput/bert24_inference", 17.789906),
    _published("throughput/bert24_training", 41.745812),
    _published("throughput/gnmt_inference", 32.910658),
    _published("throughput/resnet50_inference", 33.774666),
    _published("operators/bert_l-3_inference", 27.918568),
    _published("operators/bert_l-3_training", 65.303149),
    _published("operators/bert_l-12_inference", 147.477984),
    _published("memory-tight/gnmt_inference", 44.896516, cpus=0),
    _published("operators/bert_l-3_inference", 21.9084, contiguous=False),
    _published("operators/bert_l-3_training", 54.2075, contiguous=False),
    _published("throughput/bert24_training", 39.7895, contiguous=False),
    _published("throughput/gnmt_inference", 31.6873, contiguous=False),
    _profile("alexnet", 4, 66_453.504),
    *(_profile("vgg16", k, 411_041.792) for k in (4, 8, 16)),
    _profile("resnet50", 4, 256_901.12),
    _profile("gnmt", 16, 19_285.0),
    *(
        _profile("vgg16", k, proved, "replicated")
        for k, proved in ((4, 205_520.896), (8, 103_833.17), (16, 56_529.767))
    ),
    _profile("squeezenet1_0", 4, 95_551.488),
    _profile("nasnetamobile", 4, 163037.928, "sum", gbytes=10.0),
    _profile("nasnetamobile", 8, 100691.3264, "sum", gbytes=10.0)._replace(long=True),
)


def read(case: Case) -> GraphPartition:
    """Return the instance of a case."""
    instance = sp.read(DATA / case.path, kind="graph-partition", **case.given)
    assert isinstance(instance, GraphPartition)
    return instance


def timed(
    instance: GraphPartition, method: str, limit: float, work: bool
) -> tuple[Result[Any] | None, float]:
    """Return what a method finds, None where it does not apply, and its seconds of CPU.

    `work`: the limit is of work, not of the clock.
    """
    info = {one.name: one for one in sp.methods(instance)}[method]
    if not info.available:
        return None, 0.0
    began = time.process_time()
    result = sp.solve(instance, method, time_limit=limit, options={"deterministic": work})
    return result, time.process_time() - began


def line(result: Result[Any], took: float) -> str:
    """Return figures of a result as columns."""
    figures = [result.objective, result.bound, result.gap]
    told = [f"{'-' if one is None else f'{one:,.6g}':>12}" for one in figures[:2]]
    gap = "-" if result.gap is None else f"{result.gap:.2%}"
    return f"{''.join(told)}{gap:>9}{took:>8.2f}  {result.status}"


def contradiction(case: Case, result: Result[Any]) -> bool:
    """Whether a result and what was proved before cannot both be true."""
    if case.proved is None:
        return False
    slack = AGREES * case.proved
    low = -math.inf if result.bound is None else result.bound
    high = math.inf if result.objective is None else result.objective
    return low > case.proved + slack or high < case.proved - slack


def table(cases: Sequence[Case], methods: Sequence[str], limit: float, work: bool) -> None:
    """Print what methods find on public graphs."""
    print(f"\n{'graph':<28}{'n':>5}{'proved':>13}  {'method':<13}{'value':>12}{'bound':>12}"
          f"{'gap':>9}{'CPU s':>8}")  # fmt: skip
    more: dict[str, list[float]] = {peer: [] for peer in PEERS}
    none: dict[str, int] = dict.fromkeys(PEERS, 0)
    for case in cases:
        instance, values = read(case), dict[str, float]()
        proved = "-" if case.proved is None else f"{case.proved:,.9g}"
        runs = [(method, limit) for method in methods]
        if case.long:
            runs += [(m, seconds) for m in LONG_METHODS if m in methods for seconds in LONG_RUNS]
        for method, seconds in runs:
            result, took = timed(instance, method, seconds, work)
            if result is None:
                continue
            shown = method if seconds == limit else f"{method} {seconds:.0f} s"
            print(f"{case.label:<28}{instance.n:>5}{proved:>13}  {shown:<13}"
                  f"{line(result, took)}", flush=True)  # fmt: skip
            assert not contradiction(case, result), (case, result)
            if result.objective is not None and seconds == limit:
                values[method] = float(result.objective)
            elif result.objective is None and method in none:
                none[method] += 1
        for peer in PEERS:
            if peer in values and "auto" in values:
                more[peer].append(values[peer] / values["auto"] - 1)
    for peer, excess in more.items():
        if excess:
            mean = math.exp(float(np.mean(np.log1p(excess)))) - 1
            print(f"{peer}: geometric mean {mean:+.1%} of auto over {len(excess)} graphs, most "
                  f"{max(excess):+.1%}; no partition of {none[peer]}")  # fmt: skip


def growth(kinds: Sequence[str], sizes: Sequence[int], limit: float, work: bool) -> None:
    """Print what methods find on generated graphs, and the memory that all took until then."""
    print(
        f"\n{'graph':<16}{'n':>7}  {'method':<13}{'value':>12}{'bound':>12}{'gap':>9}{'CPU s':>8}"
    )
    for kind in kinds:
        for n in sizes:
            instance = sp.load(f"graph/random/{kind}", operators=n, devices=8)
            assert isinstance(instance, GraphPartition)
            for method in GROWING:
                result, took = timed(instance, method, limit, work)
                if result is None:
                    continue
                most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
                print(f"{kind:<16}{n:>7,}  {method:<13}{line(result, took)}, {most:,.0f} MiB",
                      flush=True)  # fmt: skip
                assert result.solution is not None or method in PEERS, (kind, n, method)
                assert result.bound is not None, (kind, n, method)
                assert most <= MOST_MIB, (kind, n, method, most)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer graphs, methods and sizes")
    parser.add_argument("--limit", type=float, default=10, help="seconds for each run")
    parser.add_argument("--work", action="store_true", help="limit work, not seconds of the clock")
    parser.add_argument("--only", choices=("table", "growth"))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--graph", default="", help="only graphs whose names begin so")
    given = parser.parse_args()
    print("versions:", ", ".join(f"{k} {v}" for k, v in sp.versions().items()))
    methods = given.methods.split(",")
    small = sp.load("graph/random/branchy", operators=12)
    for method in {*methods, *GROWING}:
        timed(small, method, 5, given.work)  # loads what is compiled
    if given.only in (None, "table"):
        cases = [case for case in CASES if case.label.startswith(given.graph)]
        if not DATA.is_dir():
            print(f"no public graphs at {DATA}: set STAGEPACK_DATA")
        else:
            table(cases[:3] if given.quick else cases, methods, given.limit, given.work)
    if given.only in (None, "growth"):
        kinds = [kind for kind in KINDS if kind.startswith(given.graph)]
        growth(kinds, SIZES[:2] if given.quick else SIZES, given.limit, given.work)


if __name__ == "__main__":
    main()
