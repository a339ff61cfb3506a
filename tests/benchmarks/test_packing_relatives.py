"""Relatives for the benchmark of packing: always the same, changed as told, at their own load."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

import stagepack as sp
from benchmarks.packing_peers import google_minimalloc, ours
from benchmarks.packing_relatives import decided, relatives, shares


def test_relatives_repeat_and_have_no_room_to_spare() -> None:
    instance = sp.load("packing/random/planted", buffers=60, seed=1)
    one, other = (list(relatives([("P", instance)], 8, seed=2)) for _ in range(2))
    assert [name for name, _ in one] == [name for name, _ in other]
    for (name, changed), (_, again) in zip(one, other, strict=True):
        assert changed.digest == again.digest
        differs = (changed.size != instance.size) | (changed.end != instance.end)
        assert 1 <= differs.sum() <= 2 * int(name[1])
        moments = np.unique(np.concatenate([changed.start, changed.end]))
        loads = [int(changed.size[(changed.start <= t) & (t < changed.end)].sum()) for t in moments]
        assert changed.capacity == max(loads)


def test_shares_count_what_is_decided() -> None:
    assert shares([0.5, 1.0, 3.0, math.inf], (1, 2, 10)) == [0.5, 0.5, 0.75]
    few = relatives([("P", sp.load("packing/random/planted", buffers=20, seed=1))], 2)
    assert max(decided(few, ours("exact", "exact"), 5).values()) < math.inf


STACK = """#!{python}
import sys

told = dict(flag.split("=") for flag in sys.argv[1:])
head, *rows = open(told["--input"]).read().split()
assert head == "id,lower,upper,size", head
height, placed = 0, []
for row in rows:
    placed.insert(0, f"{{row}},{{height}}")  # in any order
    height += int(row.rpartition(",")[2])
if height > int(told["--capacity"]):
    sys.exit(1)
open(told["--output"], "w").write("\\n".join([head + ",offset", *placed]))
"""


def test_a_program_is_asked_as_minimalloc_is(tmp_path: Path) -> None:
    program = tmp_path / "stack"
    program.write_text(STACK.format(python=sys.executable))
    program.chmod(0o755)
    runner = google_minimalloc(program)
    for capacity, fits in ((9, True), (8, False)):
        instance = sp.LmemPacking.from_arrays([2, 3, 4], [0, 1, 2], [2, 3, 4], capacity=capacity)
        answer = runner.prepare(instance, 60.0)()
        assert answer.proved
        assert (None if answer.offsets is None else answer.offsets.tolist()) == (
            [0, 2, 5] if fits else None
        )
