"""Pipeline schedules: known rules beside the optimum.

    python -m benchmarks.schedules [--quick] [--limit 20] [--csv FILE]
                                   [--only table,layouts,rules,torch,cases,cp-sat]

table   p in 2, 4, 8, 16 devices, m in p, 2p, 4p, 8p microbatches, uniform durations (f = b = w) and
        random ones in 10..120; F takes two units of memory of which B and W release one each, and
        the limit is what 1F1B needs (2p units) or twice that; objective longest span.  Layouts:
        `line` has one stage a device; `rounds` and `V` have the same work with every stage cut
        into two, dealt out in two rounds or folded into a V, with units of memory half as large
        and the same limit in bytes
layouts those of `benchmarks.layouts` after 2, 10 and 20 seconds of CPU, compilation not counted:
        the best rule, `auto`, its bound and the gap between them; --named "V*" takes some
rules   every rule against `auto` after 2 seconds of CPU within the same memory, on drawn settings,
        --settings 0:400: p in 2..32 devices, v in 1..4 stages each in a loop, a V, waves or two
        ways, m in p..8p microbatches, stages, F, B and W unlike, latencies, and memory from the
        least up to that of 1F1B, or what a rule takes; objective makespan
torch   the rules of `torch.distributed.pipelining` against `auto` within the memory of each: stages
        as those of GPTs, the first a little longer and the last more so, all a few percent apart,
        on p in 4, 8, 16, 32 devices with v in 1, 2, 4 stages each, m in p, 2p microbatches, latency
        of 0 and 4 percent of a device's F; objective makespan; the limit is CPU seconds
cases   the hard cases of the authors of zero-bubble schedules, against the best values known
        and what the authors found
cp-sat  `cp-sat` alone, with nothing to start from, on non-uniform instances

In the table, a cell is the excess of a method in percent over the bound that `auto` proved (over
the optimum if the gap of `auto` is 0); `-` if a rule does not apply or exceeds the memory.  The
column `auto` has its value and its seconds without compilation.  One thread; every schedule is
checked.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import itertools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import benchmarks.child_clock  # first: it says what the time is
import stagepack as sp
from benchmarks.layouts import gpt, layouts, line_of
from stagepack.catalog import BEST_KNOWN
from stagepack.heuristics.schedule.rules import RULES, apply
from stagepack.heuristics.schedule.timing import Timing
from stagepack.instances.schedule import PipelineSchedule, least_memory
from stagepack.result import Result, Status

AUTHORS = {
    "schedule/zero-bubble/measured-4x12": 178_898,
    "schedule/zero-bubble/measured-8x32": 2_517_463,
}
"""What the authors of zero-bubble schedules found themselves, where they say so."""
SEARCHES = ("greedy",)
LAYOUTS = ("line", "rounds", "V")
STAGES, TIMES = (2, 4, 8, 16), (1, 2, 4, 8)
SEARCHED = 2.0
"""Seconds that `greedy` has."""

MOMENTS = (2.0, 10.0, 20.0)
"""Seconds of CPU after which layouts are looked at."""

LAID = ("chain", "loop", "loop", "V", "V", "waves", "chimera", "bitpipe")
"""Layouts of drawn settings, as often as they come up."""

MOST_OPERATIONS = 40_000
"""Operations of a drawn setting."""

CASES = "schedule/zero-bubble/"
"""What the names of the hard cases begin with."""


def chain(
    p: int, m: int, times: tuple[Any, Any, Any], limit: int, latency: int = 0, name: str = ""
) -> PipelineSchedule:
    """Return a chain of p stages on p devices, with memory in units."""
    return PipelineSchedule.from_arrays(
        *(np.broadcast_to(time, p) for time in times),
        microbatches=m,
        latency=latency,
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=limit,
        objective="span",
        name=name or f"p={p} m={m}",
    )


def times_of(p: int, uniform: bool) -> tuple[Any, Any, Any]:
    """Return cycles of F, B, W of each stage; even, so that stages can be cut into two."""
    if uniform:
        return 2, 2, 2
    draw = np.random.default_rng(p)
    forward, backward, weight = 2 * draw.integers(5, 61, (3, p))
    return forward, backward, weight


def cut(instance: PipelineSchedule, devices: list[int]) -> PipelineSchedule:
    """Return the same work with every stage cut into two halves, on the devices given.

    Half `h` of what device d does is the stage of the h-th visit to d.
    """
    halves = {
        name: np.array([getattr(instance, name)[d] // 2 for d in devices])
        for name in ("forward", "backward", "weight")
    }
    assert instance.limit is not None
    return PipelineSchedule.from_arrays(
        **halves,
        devices=devices,
        microbatches=int(instance.microbatches[0]),
        memory_forward=2,
        memory_backward=-1,
        memory_weight=-1,
        limit=2 * instance.limit,  # half a stage holds half as much: units are half as large
        objective="span",
        name=f"{instance.name} in halves",
    )


def solved(instance: PipelineSchedule, method: str, limit: float) -> Result[Any]:
    """Solve on one thread."""
    return sp.solve(instance, method, time_limit=limit, threads=1)


def excess(result: Result[Any], bound: int) -> str:
    """Return by how much a result exceeds a bound, in percent."""
    if result.objective is None:
        return "-"
    return f"{100 * (result.objective / bound - 1):.2f}"


def laid_out(instance: PipelineSchedule, layout: str) -> PipelineSchedule:
    """Return the work of one stage a device in another layout."""
    line = list(range(instance.p))
    if layout == "line":
        return instance
    return cut(instance, [*line, *line] if layout == "rounds" else [*line, *reversed(line)])


def rows(quick: bool, limit: float) -> Iterator[dict[str, Any]]:
    """Yield one row of the table after the other."""
    for uniform, layout in itertools.product((True, False), LAYOUTS):
        for p in STAGES[: 2 if quick else None]:
            for factor in TIMES[: 2 if quick else None]:
                for units in (2 * p, 4 * p):
                    line = chain(p, factor * p, times_of(p, uniform), units)
                    entry = {"times": "uniform" if uniform else "random", "layout": layout}
                    yield {**entry, **row(laid_out(line, layout), units, limit)}


def row(instance: PipelineSchedule, units: int, limit: float) -> dict[str, Any]:
    """Run all methods that apply to an instance."""
    found: dict[str, Any] = {
        "p": instance.d,
        "m": int(instance.microbatches[0]),
        "limit": units,
    }
    best = solved(instance, "auto", limit)
    assert best.objective is not None
    assert best.bound is not None
    available = {info.name for info in sp.methods(instance) if info.available}
    for method in (*RULES, *SEARCHES):
        found[method] = "-"
        if method in available:
            found[method] = excess(solved(instance, method, SEARCHED), int(best.bound))
    found["auto"] = best.objective
    found["gap %"] = f"{100 * (best.gap or 0):.2f}"
    found["bound by"] = best.bound_source
    found["seconds"] = f"{best.runtime:.2f}"
    return found


def show(console: Console, title: str, found: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    table = Table(title=title, title_justify="left")
    for name in found[0]:
        table.add_column(
            name, justify="left" if name in ("times", "layout", "instance", "rule") else "right"
        )
    for entry in found:
        table.add_row(*(str(value) for value in entry.values()))
    console.print(table)


TORCH = {
    "gpipe": (1,),
    "1f1b": (1,),
    "interleaved-1f1b": (2, 4),
    "looped-bfs": (2, 4),
    "interleaved-zero-bubble": (2, 4),
    "zb-v": (2,),
    "dualpipe-v": (2,),
}
"""The rules of PyTorch, and stages of a device that they are tried with."""


def against_torch(quick: bool, limit: float) -> Iterator[dict[str, Any]]:
    """Yield what `auto` finds in the memory that each rule of PyTorch takes."""
    stages = (4, 8, 16, 32)[: 1 if quick else None]
    for (name, chunks), p, factor, latency in itertools.product(
        TORCH.items(), stages, (1, 2), (0, 4)
    ):
        for v in chunks:
            split = "zero" in name or name in ("zb-v", "dualpipe-v")
            line = list(range(p))
            devices = line + line[::-1] if name.endswith("-v") else line * v
            free = gpt(p, v, factor * p, split=split, devices=devices, latency=10 * latency)
            solution, _ = apply(RULES[name], free)
            if solution is None:
                continue
            timing = Timing(free)
            peaks = timing.peaks(timing.order_of(solution.start))
            result = solved(free.replace(limit=peaks), "auto", limit)
            rule = int(free.evaluate(solution))
            assert result.objective is not None
            assert result.objective <= rule
            yield {
                "rule": name,
                "p": p,
                "v": v,
                "m": factor * p,
                "latency %": latency,
                "makespan": rule,
                "auto": result.objective,
                "less %": f"{100 * (1 - result.objective / rule):.2f}",
                "bound": result.bound,
                "gap %": f"{100 * (result.gap or 0):.2f}",
                "seconds": f"{result.runtime:.1f}",
            }


def drawn_setting(seed: int) -> PipelineSchedule:
    """Return the setting of a seed: a layout of stages, and a limit on memory."""
    draw = np.random.default_rng([48, seed])
    while True:
        layout = LAID[int(draw.integers(len(LAID)))]
        d = int(draw.choice([2, 4, 6, 8, 12, 16, 24, 32]))
        v = {"chain": 1, "V": 2, "waves": 4, "chimera": 1, "bitpipe": 2}.get(layout, 0)
        v = v or int(draw.integers(2, 5))
        m = (
            int(draw.integers(d, 8 * d + 1))
            if draw.random() < 0.3
            else d * int(draw.integers(1, 9))
        )
        ways = 2 if layout in ("chimera", "bitpipe") else 1
        m = max(m // ways, 1)
        if d * v * ways * m * 3 <= MOST_OPERATIONS:
            break
    line = [*range(d)]
    zigzag = [line[::-1] if turn % 2 and layout != "loop" else line for turn in range(v)]
    devices = [at for part in zigzag for at in part]
    p = len(devices) * ways
    devices += [d - 1 - at for at in devices] if ways == 2 else []
    split = bool(draw.random() < 0.75)
    spread = float(draw.choice([0.0, 0.02, 0.3]))
    base = draw.uniform(200, 2000)
    columns = [
        (base * share * draw.uniform(1 - spread, 1 + spread, p)).astype(int) + 1
        for share in (1.0, draw.uniform(0.5, 1.5), draw.uniform(0.2, 1.2))
    ]
    columns[0][[0, -1]] += (base * draw.uniform(0, 0.4, 2)).astype(int)
    forward, backward, weight = columns
    free = PipelineSchedule.from_arrays(
        forward,
        backward if split else backward + weight,
        weight if split else None,
        microbatches=m,
        devices=devices,
        edges=[(s, s + 1) for s in range(p - 1) if ways == 1 or s != p // 2 - 1],
        latency=int(base * draw.choice([0.0, 0.02, 0.2])),
        memory_forward=2,
        memory_backward=-1 if split else -2,
        memory_weight=-1 if split else 0,
        name=f"{layout} p={d} v={v} m={m * ways} seed {seed}",
    )
    least, most = least_memory(free), 2 * v * d  # what d microbatches hold
    share = draw.random()
    if draw.random() < 0.5:
        return free.replace(limit=(least + share * (most - least).clip(0)).astype(int))
    taken = [peaks for name in RULES for peaks in [peaks_of(name, free)] if peaks is not None]
    return free.replace(limit=taken[int(share * len(taken))])


def peaks_of(name: str, free: PipelineSchedule) -> Any:
    """Return the memory that a rule's schedule takes on each device; None where it has none."""
    solution, _ = apply(RULES[name], free)
    if solution is None:
        return None
    timing = Timing(free)
    return timing.peaks(timing.order_of(solution.start))


def against_rules(first: int, end: int, limit: float) -> Iterator[dict[str, Any]]:
    """Yield the rules of drawn settings, and what `auto` makes of these in `limit` seconds."""
    for seed in range(first, end):
        instance = drawn_setting(seed)
        values = {}
        for name, rule in RULES.items():
            solution, _ = apply(rule, instance)
            if solution is not None:
                values[name] = int(instance.evaluate(solution))
        least = min(values.values(), default=None)
        line = {
            "setting": instance.name,
            "operations": len(instance.operations),
            "best rules": " ".join(name for name in values if values[name] == least) or "-",
            "value": "-" if least is None else least,
        }
        if limit:
            result = solved(instance, "auto", limit)
            found = result.objective
            above = None if least is None or found is None else 100 * (found / least - 1)
            line["auto"] = found or "-"
            line["above %"] = "-" if above is None else f"{above:.2f}"
            line["gap %"] = "-" if result.gap is None else f"{100 * result.gap:.2f}"
        yield line


def cases(limit: float) -> list[dict[str, Any]]:
    """Return what `auto` and `cp-sat` make of the authors' hard cases."""
    found = []
    for known in BEST_KNOWN:
        if not known.name.startswith(CASES):
            continue
        name, *settings = known.name.split()
        instance = sp.load(name, **dict(setting.split("=") for setting in settings))
        for method, start in (("auto", "auto"), ("cp-sat", None)):
            result = sp.solve(instance, method, time_limit=limit, warm_start=start)
            found.append(
                {
                    "instance": known.name,
                    "authors": AUTHORS.get(name, "-"),
                    "best known": known.value,
                    "method": method,
                    "objective": result.objective,
                    "bound": result.bound,
                    "by": result.bound_source,
                    "status": str(result.status),
                    "seconds": f"{result.runtime:.2f}",
                }
            )
    return found


def alone(quick: bool, limit: float) -> list[dict[str, Any]]:
    """Return how long `cp-sat` takes for non-uniform instances with nothing to start from."""
    found = []
    for seed in range(5 if quick else 30):
        draw = np.random.default_rng(seed)
        m = int(draw.integers(8, 13))
        forward, backward, weight = draw.integers(5, 61, (3, 4))
        units, latency = int(draw.integers(8, 17)), int(draw.integers(0, 10))
        instance = chain(4, m, (forward, backward, weight), units, latency)
        for objective in ("span", "makespan"):
            began = time.perf_counter()
            result = sp.solve(
                instance, "cp-sat", objective=objective, time_limit=limit, warm_start=None
            )
            found.append(
                {
                    "seed": seed,
                    "m": m,
                    "limit": units,
                    "latency": latency,
                    "of": objective,
                    "optimum": result.objective if result.status is Status.OPTIMAL else "?",
                    "seconds": f"{time.perf_counter() - began:.2f}",
                }
            )
    return found


def by_child(*arguments: str) -> list[dict[str, Any]]:
    """Return the lines that a process writes whose clock is the CPU seconds that it takes itself.

    Limits are CPU seconds then, and what else runs on the machine does not shorten them.
    """
    command = [sys.executable, "-m", "benchmarks.schedules", *arguments, "--child"]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for told in child.stdout:
            found.append(json.loads(told))
            print(*found[-1].values(), file=sys.stderr, flush=True)
        if child.wait():
            raise SystemExit(f"{' '.join(command)} failed")
    return found


def laid_out_as(pattern: str) -> list[dict[str, Any]]:
    """Return the lines of layouts whose names match."""
    found = by_child("--only", "layouts", "--named", pattern)
    if not found:
        raise SystemExit(f"no layout is named like {pattern!r}; names look like 'V p=8 m=16'")
    return found


def in_child(given: argparse.Namespace) -> None:
    """Write the lines of one part as they are found."""
    if given.only == "rules":
        first, end = map(int, given.settings.split(":"))
        for line in against_rules(first, end, given.limit):
            print(json.dumps(line), flush=True)
        return
    if given.only == "torch":
        for line in against_torch(given.quick, given.limit):
            print(json.dumps(line), flush=True)
        return
    for layout in layouts():
        if fnmatch.fnmatch(f"{layout.name} p={layout.p} m={layout.m}", given.named):
            print(json.dumps(line_of(layout, MOMENTS)), flush=True)


def main() -> None:
    """Print everything that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="p up to 4, m up to 2p, five seeds")
    parser.add_argument("--limit", type=float, default=20, help="seconds for auto and cp-sat")
    parser.add_argument(
        "--only", default="table,layouts,rules,torch,cases,cp-sat", help="parts, by name"
    )
    parser.add_argument("--named", default="*", help="layouts, such as 'V p=8 *'")
    parser.add_argument("--settings", default="0:400", help="drawn settings, from and to")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--csv", type=Path, help="write the table there, too")
    given = parser.parse_args()
    if benchmarks.child_clock.CHILD:
        in_child(given)
        return
    console = Console(width=max(170, Console().width))
    console.print("versions:", ", ".join(f"{k} {v}" for k, v in sp.versions().items()))
    load = f"{os.getloadavg()[0]:.1f}"
    console.print(f"{os.cpu_count()} cores, {platform.machine()}, load at the start {load}")
    parts = given.only.split(",")
    if "torch" in parts:
        title = "rules of torch.distributed.pipelining, auto in the memory of each, makespan"
        quick = ["--quick"] if given.quick else []
        show(console, title, by_child("--only", "torch", "--limit", str(given.limit), *quick))
    if "rules" in parts:
        limit = "0" if given.quick else str(MOMENTS[0])
        found = by_child("--only", "rules", "--limit", limit, "--settings", given.settings)
        show(console, "rules on drawn settings, auto in the same memory, makespan", found)
    if "cases" in parts:
        show(console, "zero-bubble's hard cases, longest span", cases(given.limit))
    if "cp-sat" in parts:
        show(console, "cp-sat alone, p = 4, no start", alone(given.quick, given.limit))
    if "layouts" in parts:
        show(console, "layouts, makespan", laid_out_as("* p=4 *" if given.quick else given.named))
    if "table" in parts:
        found = []
        for entry in rows(given.quick, given.limit):
            found.append(entry)
            print(*entry.values(), file=sys.stderr, flush=True)
        show(console, "longest span: percent above the bound", found)
        if given.csv is not None:
            with given.csv.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, fieldnames=list(found[0]))
                writer.writeheader()
                writer.writerows(found)


if __name__ == "__main__":
    main()
