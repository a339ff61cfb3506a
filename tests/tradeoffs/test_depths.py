"""Depths of buffering: against all choices, each placed by trying everything."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.instances.packing import LmemPacking
from tests.packing_cases import brute_force, random_packing


def rings(instance: LmemPacking, depths: dict[str, int]) -> LmemPacking:
    """Return the packing in which some buffers are so many copies long."""
    size = instance.size.copy()
    for name, depth in depths.items():
        at = int(name)
        step = int(instance.alignment[at])
        size[at] += (depth - 1) * -(-size[at] // step) * step
    return instance.replace(size=size)


def best(instance: LmemPacking, options: dict[str, list[float]]) -> float | None:
    """Return the most that any choice gains that fits."""
    gains = []
    for depths in product(*(range(1, len(gains) + 1) for gains in options.values())):
        chosen = dict(zip(options, depths, strict=True))
        whole = rings(instance, chosen)
        found = brute_force(whole, instance.capacity)
        if found is not None and not whole.check(found):
            gains.append(sum(options[name][depth - 1] for name, depth in chosen.items()))
    return max(gains, default=None)


@pytest.mark.parametrize("seed", range(20))
def test_no_choice_gains_more(seed: int) -> None:
    rng = np.random.default_rng([46, seed])
    features = [name for name in ("alignment", "gaps", "reserved", "fixed", "conflicts", "exempt")
                if rng.random() < 0.25]  # fmt: skip
    instance = random_packing(rng, features=[f for f in features if f != "exempt"], n=4)
    instance = instance.replace(gaps=[(gap.buffer, gap.start, gap.end) for gap in instance.gaps])
    load = int(instance.size.sum())
    instance = instance.replace(capacity=int(rng.integers(load // 2, 2 * load)), objective="fit")
    options = {
        str(at): [float(x) / 2 for x in np.cumsum(rng.integers(0, 6, int(rng.integers(1, 4))))]
        for at in rng.permutation(4)[: int(rng.integers(1, 4))]
    }
    wanted = best(instance, options)
    found = sp.choose_depths(instance, options, time_limit=20)
    if wanted is None:
        assert (found.status, found.gain, found.depths) == (sp.Status.INFEASIBLE, None, {})
        return
    assert found.status is sp.Status.OPTIMAL
    assert found.gain == found.bound == wanted
    assert found.solution is not None
    assert found.instance.check(found.solution) == ()
    assert found.instance.size.tolist() == rings(instance, found.depths).size.tolist()
    assert sum(options[name][depth - 1] for name, depth in found.depths.items()) == wanted


def stages(n: int) -> tuple[LmemPacking, dict[str, list[float]]]:
    """Return a chain of buffers of which two are alive at a time, and gains of copies."""
    rng = np.random.default_rng(3)
    size = rng.integers(4, 20, n) * 16
    instance = LmemPacking.from_arrays(size, np.arange(n), np.arange(n) + 2, capacity=900)
    return instance, {str(at): [0, 5 + at % 3, 7 + at % 3] for at in range(n)}


def test_without_time_the_bound_is_above_what_is_found() -> None:
    instance, options = stages(12)
    done = sp.choose_depths(instance, options, time_limit=20)
    cut = sp.choose_depths(instance, options, time_limit=1e-6)
    assert done.status is sp.Status.OPTIMAL
    assert done.gain is not None
    assert cut.bound >= done.gain
    assert cut.gain is None or cut.gain <= done.gain
    again = sp.choose_depths(instance, options, time_limit=20)
    assert (again.depths, again.solves) == (done.depths, done.solves)


def test_rings_keep_the_alignment_of_copies() -> None:
    instance = LmemPacking.from_arrays([10, 6], [0, 0], [1, 1], alignment=[8, 1], capacity=48)
    found = sp.choose_depths(instance, {"0": [0, 1, 1.5, 1.5]})
    assert found.depths == {"0": 3}  # a fourth gains nothing
    assert found.instance.size.tolist() == [16 + 16 + 10, 6]


@pytest.mark.parametrize(
    ("fields", "options", "words"),
    [
        ({}, {"9": [1]}, "options.9: is no buffer"),
        ({}, {"0": []}, "options.0: is no list of gains"),
        ({}, {"0": "12"}, "options.0: is no list of gains"),
        ({}, {"0": [1, None]}, "options.0: None is no gain"),
        ({"colocated": [(0, 1)]}, {"0": [0, 1]}, "leave it out here or in colocated"),
        ({"in_place": [(0, 1)]}, {"1": [0, 1]}, "leave it out here or in in_place"),
        ({"gaps": [(0, 0, 1, 2, 3)]}, {"0": [0, 1]}, "leave it out here or in gaps"),
        ({"capacity": None, "objective": "peak"}, {"0": [0, 1]}, "capacity: is missing"),
    ],
)
def test_what_has_no_copies_is_refused(
    fields: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [2, 2], capacity=20)
    with pytest.raises(InputError, match=words):
        sp.choose_depths(instance.replace(**fields), options)
