"""What kind of proof each answer has, and whether it is verified: the catalog and public data.

::

    python -m benchmarks.proofs [--only KIND] [--limit SECONDS] [--seeds N] [--public] [--list]

Each instance is solved by ``auto`` with the option ``{"proof": True}``, within a limit of work, so
that a table repeats.  Each proved result is verified by :mod:`stagepack.verify`.  A line of the
table is a kind of problem: how many results were proved, how many by which kind of proof, and of
how many the verifier shows the claim.  With ``--public``, instances of PipeDream, dnn-partitioning,
MiniMalloc, idealloc, ExecuTorch and TPU-MLIR in ``STAGEPACK_DATA`` come after the
catalog, in lines of their own (there are none of schedules and phases); with ``--seeds`` the
catalog's generators are drawn more than once; ``--list`` names what is not verified.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stagepack as sp
from stagepack.evidence import VERIFIABLE, Proof
from stagepack.verify import verify

DATA = Path(os.environ.get("STAGEPACK_DATA", "../shared/data"))
STAGES: dict[str, Any] = {"devices": 4, "bandwidth": "10GB/s"}
PUBLIC: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("pipedream", "*_graph.txt", {"kind": "pipeline-partition", "training": True, **STAGES}),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="KIND")
    parser.add_argument("--limit", type=float, default=10.0, metavar="SECONDS", help="of work")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    parser.add_argument("--public", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    instances = [("", *one) for one in catalog(given.only, given.seeds)]
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
