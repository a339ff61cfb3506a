"""What kind of proof each answer has, and whether it is verified: the catalog and public data.

::

    python -m benchmarks.proofs [--only KIND] [--limit SECONDS] [--seeds N] [--public] [--list]
    python -m benchmarks.proofs --plans N [--limit SECONDS] [--list]

Each instance is solved by ``auto`` with the option ``{"proof": True}``, within a limit of work, so
that a table repeats.  Each proved result is verified by :mod:`stagepack.verify`.  A line of the
table is a kind of problem: how many results were proved, how many by which kind of proof, and of
how many the verifier shows the claim.  With ``--public``, instances of PipeDream, dnn-partitioning,
MiniMalloc, idealloc, ExecuTorch and TPU-MLIR in ``STAGEPACK_DATA`` come after the
catalog, in lines of their own (there are none of schedules and phases); with ``--seeds`` the
catalog's generators are drawn more than once; ``--list`` names what is not verified.

With ``--plans``, so many plans of small random models are made instead, each question of which has
the limit: of chains, of graphs, with phases and with layer groups.  Their documents are checked;
the table tells of what they claim of all stages and all schedules.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stagepack as sp
from benchmarks import soak_plans
from stagepack.claims import Verdict
from stagepack.evidence import VERIFIABLE, Proof
from stagepack.planning.claims import check_plan
from stagepack.verify import verify
from tests.planning import test_inside
from tests.relations import plans as random_models

DATA = Path(os.environ.get("STAGEPACK_DATA", "../shared/data"))
STAGES: dict[str, Any] = {"devices": 4, "bandwidth": "10GB/s"}
PUBLIC: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "pipedream",
        "*_graph.txt",
        {"kind": "pipeline-partition", "training": True, "objective": "bottleneck", **STAGES},
    ),
    ("pipedream", "*_graph.txt", {"kind": "graph-partition", **STAGES}),
    ("pipedream", "*_graph.txt", {"kind": "graph-partition", "objective": "replicated", **STAGES}),
    ("dnn-partitioning/*", "*.json", {}),
    ("minimalloc", "*.csv", {}),
    ("idealloc", "*.csv", {}),
    ("executorch", "*.json", {}),
    ("tpu-mlir", "*.json", {}),
)
"""Folders, files, and what these do not say."""


def catalog(kind: str, seeds: int) -> Iterator[tuple[str, Any]]:
    """Yield the instances of the catalog, those drawn at random for several seeds."""
    for entry in sp.entries():
        if kind in ("", entry.kind):
            drawn = range(seeds) if "seed" in entry.parameters else [None]
            for seed in drawn:
                given = {} if seed is None else {"seed": seed}
                name = entry.name if seed is None else f"{entry.name} #{seed}"
                yield name, sp.load(entry.name, **given)


def public(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the instances of public files that can be read without more words."""
    if not DATA.is_dir():
        sys.exit(f"STAGEPACK_DATA: {DATA} is no folder")
    for folder, pattern, given in PUBLIC:
        for path in sorted(DATA.glob(f"{folder}/{pattern}")):
            try:
                instances: Any = sp.read_all(path, **given)
            except sp.InputError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            for instance in instances:
                if kind in ("", instance.kind):
                    yield f"{path.parent.name}/{path.name} {instance.name}", instance


def drawn(number: int) -> tuple[str, Any, dict[str, Any]]:
    """Return what a plan is made of: its kind, a model, and how it is planned."""
    draw = np.random.default_rng(number)
    kind = ("chains", "graphs", "phases", "groups")[number % 4]
    training = bool(draw.integers(2))
    split = training and bool(draw.integers(2))
    if kind == "phases":
        model: Any = test_inside.tight(number, n=int(draw.integers(3, 8)), training=training)
        return kind, model, {"remote": test_inside.REMOTE}
    if kind == "groups":
        memory = int(draw.choice([2**14, 2**15, 2**17, 2**30]))
        cluster = sp.Cluster.uniform(int(draw.integers(1, 3)), memory=memory)
        graph, many = bool(draw.integers(2)), int(draw.integers(1, 6))
        said = {"graph": graph, "training": training, "split": split, "microbatches": many}
        return kind, soak_plans.network(draw), {"cluster": cluster, **said}
    model = random_models.instance(number - number % 8 // 4 * 2 * (kind == "graphs"))
    if kind == "graphs":
        return kind, model, {"microbatches": 3}
    return kind, model, {"split": split and model.training}


def plan(number: int, limit: float, named: bool) -> tuple[str, Counter[str]]:
    """Make a plan, and check its document; return its kind, and what to count."""
    kind, model, given = drawn(number)
    try:
        found = sp.plan_model(model, time_limit=limit, **given)
    except sp.InputError:  # stages without work have no schedule
        return kind, Counter()
    count = Counter({"solved": 1})
    if found.status not in (sp.Status.OPTIMAL, sp.Status.INFEASIBLE):
        return kind, count
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "plan.json")
        found.to_json(path)
        checked = check_plan(sp.read_plan(path), path)
    assert checked.valid, f"{number}: {checked.violations}"
    (claim,) = (one for one in checked.claims if one.name == "status")
    shown = claim.verdict is Verdict.CONFIRMED
    if named and not shown:
        print(f"{kind} {number}: {found.status}, {found.proof}, {found.bound_source}")
    unaided = shown and found.proof not in VERIFIABLE
    more = {"proved": 1, str(found.proof): 1, "verified": shown, "of these unaided": unaided}
    more["INFEASIBLE, verified"] = shown and found.status == sp.Status.INFEASIBLE
    more["INFEASIBLE"] = found.status == sp.Status.INFEASIBLE
    return kind, count + Counter(more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="KIND")
    parser.add_argument("--limit", type=float, default=10.0, metavar="SECONDS", help="of work")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--plans", type=int, default=0, metavar="N")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    for number in range(given.plans):
        kind, count = plan(number, given.limit, given.list)
        counts[kind] = counts.get(kind, Counter()) + count
    of_catalog = () if given.plans else catalog(given.only, given.seeds)
    instances = [("", *one) for one in of_catalog]
    if given.public:
        instances += [("public ", *one) for one in public(given.only)]
    options = {"proof": True, "deterministic": True}
    for row, name, instance in instances:
        result = sp.solve(instance, time_limit=given.limit, options=options)
        count = counts.setdefault(row + instance.kind, Counter())
        count["solved"] += 1
        if result.status not in (sp.Status.OPTIMAL, sp.Status.INFEASIBLE):
            continue
        count["proved"] += 1
        count[str(result.proof)] += 1
        found = verify(instance, result.bound, result.proof, result.evidence, time_limit=600)
        count["verified"] += found.shown
        count["of these unaided"] += found.shown and result.proof not in VERIFIABLE
        assert not found.false, f"{name}: {found.detail}"
        if given.list and not found.shown:
            why = result.bound_source or result.reason
            print(f"{name}: {result.proof}, {why}; {found.detail}", flush=True)
    columns = ("solved", "proved", *Proof, "verified", "of these unaided")
    columns += ("INFEASIBLE", "INFEASIBLE, verified") if given.plans else ()
    print(f"{'':>26}" + "".join(f"{word:>18}" for word in columns))
    for kind, count in counts.items():
        print(f"{kind:>26}" + "".join(f"{count[str(word)]:18,}" for word in columns))
    total = sum(counts.values(), Counter[str]())
    if total["proved"]:
        print(
            f"{total['verified'] / total['proved']:.1%} of {total['proved']:,} proved are verified"
        )


if __name__ == "__main__":
    main()
