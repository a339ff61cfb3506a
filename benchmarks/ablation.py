"""What each step of ``auto`` is worth: switched off by itself, over fixed sets.

::

    python -m benchmarks.ablation KIND [--set NAME] [--limit SECONDS] [--list]
    python -m benchmarks.ablation KIND --freeze FILE    # rows of auto as it is, a line of JSON each
    python -m benchmarks.ablation KIND --against FILE   # and what is otherwise than those rows

KIND is a family (``packing``) or ``all``.  The switches are the fields of its ``tuning`` that are
true or false.  Runs are limited by work, so that they repeat; processor seconds are those of the
run, with everything compiled before.  A line of the table is a switch: on how many instances less
is proved or the value is worse without it, on how many it is better, the sum of the differences of
the gaps, and processor seconds.  A switch whose line says nothing is worth nothing.  With
``--freeze``, named methods run on the catalog as well.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stagepack as sp
from benchmarks.hostile import FAMILIES
from benchmarks.layouts import layouts
from benchmarks.packing_large import make
from benchmarks.packing_relatives import relatives
from benchmarks.proofs import catalog, public
from stagepack import kinds

Row = dict[str, Any]
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "groups": {
        "order": {"order": "free"},
        "timesteps": {"timesteps": "free"},
        "both": {"order": "free", "timesteps": "free"},
    },
    "phases": {
        "prefetch": {"prefetch": True},
        "graphs": {"graphs": 6},
        "remote": {"remote_memory": 2**28},
        "again": {"recomputations": 2},
        "memory": {"memory": 700_000_000},
    },
}
"""What instances of the catalog leave out: options that take other steps."""
LARGE = ("heavy", "thin", "memoryless", "bursty")
"""Distributions of the largest packings."""


def sets(family: str) -> dict[str, Any]:
    """Return the sets of a family, each a function that yields names and instances."""
    kind = kinds.kind_of(family)
    found = {"catalog": lambda: catalog(kind, 1), "hostile": lambda: _hostile(kind)}
    if Path(os.environ.get("STAGEPACK_DATA", "../shared/data")).is_dir():
        found["public"] = lambda: public(kind)
        if family == "packing":
            found |= {"relatives": _relatives, "options": _options}
    if family == "packing":
        found["large"] = lambda: ((name, make(name, 20_000)) for name in LARGE)
    if family == "schedule":
        found["layouts"] = _layouts
    if family == "graph":
        found["open"] = _open_graphs
    if family in CHANGES:
        found["changed"] = lambda: _changed(kind, CHANGES[family])
    return found


def _hostile(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the structured families of a kind, small and less so."""
    for name, make_one in FAMILIES[kind].items():
        for share in (0.01, 0.05):
            yield f"{name} {share}", make_one(share)


def _relatives() -> Iterator[tuple[str, Any]]:
    """Yield relatives of MiniMalloc's instances at their load."""
    given = [(n, i) for n, i in public("lmem-packing") if n.startswith("minimalloc/")]
    yield from relatives(given, 24, seed=7)


def _options() -> Iterator[tuple[str, Any]]:
    """Yield MiniMalloc's instances with alignment, gaps, and a tenth of the buffers in place."""
    for name, instance in public("lmem-packing"):
        if not name.startswith("minimalloc/"):
            continue
        yield f"{name} aligned", instance.replace(alignment=32)
        yield f"{name} peak", instance.replace(capacity=None, objective="peak")
        found = sp.solve(instance, time_limit=5).solution
        if found is not None:
            kept = np.random.default_rng(7).random(len(found.offsets)) < 0.1
            yield f"{name} fixed", instance.replace(fixed=np.where(kept, found.offsets, -1))


def _changed(kind: str, changes: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the instances of the catalog with some of their options changed."""
    for (name, instance), (word, change) in itertools.product(catalog(kind, 1), changes.items()):
        with contextlib.suppress(sp.InputError):
            yield f"{name} {word}", instance.replace(**change)


def _open_graphs() -> Iterator[tuple[str, Any]]:
    """Yield generated graphs that stay open for some seconds, some with little memory."""
    shapes = ((60, 8), (100, 8), (200, 4), (300, 8), (100, 16), (1_000, 16))
    for kind, (n, k) in itertools.product(("branchy", "layered"), shapes):
        yield f"{kind} {n} {k}", sp.load(f"graph/random/{kind}", operators=n, devices=k)
    for kind, seed in itertools.product(("branchy", "layered"), (1, 2)):
        one = f"graph/random/{kind}"
        yield f"{kind} 150 8 s{seed}", sp.load(one, operators=150, devices=8, seed=seed)
        few = sp.load(one, operators=80, devices=6, seed=seed)
        memory = np.random.default_rng(0).integers(5, 50, few.n)
        capacity = int(memory.sum() * 1.15 / few.devices)
        yield f"{kind} tight s{seed}", few.replace(memory=memory, capacity=capacity)
        yield f"{kind} free s{seed}", few.replace(contiguous=False)


def _layouts() -> Iterator[tuple[str, Any]]:
    """Yield every third line of the table of layouts."""
    for at, one in enumerate(itertools.islice(layouts(), 0, None, 3)):
        yield f"{at} {one.name} p{one.p} m{one.m}", one.instance


def switches(tuning: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the fields of a tuning that are true or false, each as the names on the way to it."""
    for field in dataclasses.fields(tuning):
        value = getattr(tuning, field.name)
        if dataclasses.is_dataclass(value):
            yield from switches(value, (*path, field.name))
        elif isinstance(value, bool):
            yield (*path, field.name)


def turned(tuning: Any, path: tuple[str, ...]) -> dict[str, Any]:
    """Return the option that turns a switch over."""
    if len(path) == 1:
        return {path[0]: not getattr(tuning, path[0])}
    return {path[0]: turned(getattr(tuning, path[0]), path[1:])}


def run(name: str, instance: Any, method: str, limit: float, tuning: Any = None) -> Row:
    """Return the row of one run."""
    options = {"deterministic": True} | ({"tuning": tuning} if tuning else {})
    began = time.process_time()
    try:
        found = sp.solve(instance, method, time_limit=limit, options=options)
    except sp.InputError as error:
        return {"instance": name, "method": method, "status": f"refused: {error}", "seconds": 0.0}
    row: Row = {"instance": name, "method": method, "status": str(found.status)}
    row |= {"objective": found.objective, "bound": found.bound, "proof": str(found.proof)}
    return row | {"seconds": time.process_time() - began}


def gap(row: Row) -> float:
    """Return the gap of a row: 0 where all is proved, 1 where nothing is known."""
    if row["status"] in ("OPTIMAL", "INFEASIBLE") or row["status"].startswith("refused"):
        return 0.0
    value, bound = row["objective"], row["bound"]
    return 1.0 if value is None or bound is None else min(1.0, abs(value - bound) / max(value, 1))


def compared(old: Row, new: Row) -> str:
    """Return how a row is against another of the same run: better, worse or '' for equal."""
    if old["status"] == new["status"] and old.get("objective") == new.get("objective"):
        if old.get("bound") == new.get("bound"):
            return ""
        return "better" if gap(new) < gap(old) else "worse"
    if {old["status"], new["status"]} == {"OPTIMAL", "INFEASIBLE"}:
        return "CONTRADICTION"
    worth = [(gap(row), row.get("objective") or math.inf) for row in (old, new)]
    return "better" if worth[1] < worth[0] else "worse" if worth[1] > worth[0] else ""


def frozen(family: str, only: str, limit: float) -> Iterator[Row]:
    """Yield the rows of ``auto`` on all sets, and of other methods that repeat on the catalog."""
    for title, made in sets(family).items():
        if only and title != only:
            continue
        for name, instance in made():
            yield run(f"{title}: {name}", instance, "auto", limit)
            others = sp.methods(instance) if title == "catalog" else ()
            for one in others:
                if one.available and one.default and one.name != "auto":
                    yield run(f"{title}: {name}", instance, one.name, limit / 4)


def told(old: dict[Any, Row], new: Iterable[Row], every: bool) -> tuple[Counter[str], float]:
    """Count how rows differ from those of the same runs, and sum the processor seconds of both."""
    count, seconds = Counter[str](), [0.0, 0.0]
    for row in new:
        before = old.get((row["instance"], row["method"]))
        if before is None:
            continue
        word = compared(before, row)
        count[word or "equal"] += 1
        seconds[0] += before["seconds"]
        seconds[1] += row["seconds"]
        count["gap"] += round(1e6 * (gap(row) - gap(before)))
        if word and every:
            print(f"  {word}: {row['method']} {row['instance']}: {_short(before)} -> {_short(row)}")
    return count, seconds[1] / max(seconds[0], 1e-9)


def _short(row: Row) -> str:
    return f"{row['status']} {row.get('objective')} >= {row.get('bound')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", help="a family, or all")
    parser.add_argument("--set", default="")
    parser.add_argument("--limit", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--freeze", metavar="FILE")
    parser.add_argument("--against", metavar="FILE")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    all_of = [one.family for one in kinds.KINDS.values()]
    for family in all_of if given.kind == "all" else [given.kind]:
        if given.freeze:
            with Path(given.freeze).open("a") as file:
                for row in frozen(family, given.set, given.limit):
                    file.write(json.dumps(row, default=float) + "\n")
                    file.flush()
        elif given.against:
            lines = map(json.loads, Path(given.against).read_text().splitlines())
            old = {(row["instance"], row["method"]): row for row in lines}
            count, ratio = told(old, frozen(family, given.set, given.limit), every=True)
            print(f"{family}: {dict(count)}, processor seconds {ratio:.2f} of those before")
        else:
            ablated(family, given.set, given.limit, given.list)


def ablated(family: str, only: str, limit: float, every: bool) -> None:
    """Print what each switch of a family is worth, on each set."""
    usual = kinds.part(kinds.kind_of(family), "heuristics", "tuning").TUNING
    for title, made in sets(family).items():
        if only and title != only:
            continue
        instances = list(made())
        for _ in range(2):  # the first compiles
            rows = [run(name, instance, "auto", limit) for name, instance in instances]
        old = {(row["instance"], row["method"]): row for row in rows}
        print(f"{title}: {len(rows)} instances, {sum(row['seconds'] for row in rows):.1f} s")
        for path in switches(usual):
            tuning = turned(usual, path)
            new = (run(name, instance, "auto", limit, tuning) for name, instance in instances)
            count, ratio = told(old, new, every)
            print(
                f"  {'.'.join(path):40} worse {count['worse']:3}  better {count['better']:3}  "
                f"gaps {count['gap'] / 1e4:+8.2f} %  time {ratio:5.2f}",
                flush=True,
            )
            assert not count["CONTRADICTION"], path


if __name__ == "__main__":
    main()
