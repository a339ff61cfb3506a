"""What is to be known of LMEM packings: see :class:`stagepack.instances.problem.Problem`."""

from __future__ import annotations

from pathlib import Path

from stagepack.instances.packing.data import KIND, Objective
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.solution import PackingSolution
from stagepack.instances.problem import Change, Export, Problem
from stagepack.instances.words import Parameter


def _previous(path: Path, instance: LmemPacking) -> list[int]:
    from stagepack.instances.formats.minimalloc import read_previous

    return read_previous(path, instance)


PROBLEM = Problem(
    kind=KIND,
    instance=LmemPacking,
    solution=PackingSolution,
    objectives=tuple(Objective),
    solution_fields=("offsets",),
    needs_instance=True,
    words=(
        Parameter("alignment", int, "alignment of buffers that have none of their own", 1, 2**40),
        Parameter("period", int, "lifetimes are circular modulo this", 1),
        Parameter("fixed", bool, "the offsets of the file are given"),
        Parameter("previous", bool, "the offsets of the file are the old placement"),
        # the generators
        Parameter("buffers", int, "number of buffers", 1, 2**24),
        Parameter("peak", int, "the optimum: height of the rectangle, in bytes", 1, 2**40),
        Parameter("banks", int, "number of banks", 1, 2**10),
        Parameter("copies", int, "how many gadgets, one after the other", 1, 2**20),
        Parameter("levels", int, "how often sizes double", 1, 12),
        Parameter("kept", int, "buffers that a layer holds for long", 0, 2**20),
        Parameter("spread", float, "deviation of the logarithm of lifetimes", 0, 10),
    ),
    changes=(
        Change(
            "previous",
            "--previous",
            "file",
            "old placement (result or CSV): buffers of equal names should stay in place",
            _previous,
        ),
    ),
    export=Export(".csv"),
    public=dict.fromkeys(
        ("Allowed", "Banks", "Gap", "LmemPacking", "Memory", "PackingSolution", "measure"), ""
    ),
)
