"""Relatives for the benchmark of packing: always the same, changed as told, at their own load."""

from __future__ import annotations

import math

import numpy as np

import stagepack as sp
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
    assert max(decided(few, "exact", 5).values()) < math.inf
