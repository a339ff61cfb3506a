"""The least that operators take, against the definitions and against plans."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.heuristics.groups import dp
from stagepack.heuristics.groups.dp import Partition
from stagepack.heuristics.groups.least import least
from stagepack.heuristics.groups.network import machine, network
from stagepack.heuristics.groups.tuning import TUNING
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.operators import C, compute_cycles
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.progress import Stopped
from tests.instances.groups.networks import CHIP, networks


@given(networks(most=6))
@settings(max_examples=40, deadline=None)
def test_the_least_is_that_of_one_group_that_is_not_cut(whole: LayerGrouping) -> None:
    known = least(network(whole), machine(whole))
    regions = Regions(whole, range(whole.n), Cut())
    for at, operator in enumerate(whole.operators):
        part = regions.part(at)
        assert known.compute[at] == compute_cycles(operator, whole.sources(at), part, CHIP)
        moved = [w.nbytes(-(-w.channels * part[C] // operator.full[C])) for w in operator.weights]
        assert known.weights[at] == sum(map(CHIP.load_cycles, moved))
        tensor = whole.tensors[at]
        result = at in whole.kept or not tensor.readers
        assert known.kept[at] == result * CHIP.store_cycles(tensor.nbytes(tensor.shape))
    for at, tensor in enumerate(whole.tensors):
        if tensor.readers:
            groups = [Regions(whole, [reader], Cut()) for reader in tensor.readers]
            most = min(CHIP.load_cycles(tensor.nbytes(group.part(at))) for group in groups)
            assert known.loads[at] <= most


def until(looks: int) -> Callable[[], bool]:
    """Return a clock that says no after so many looks."""
    looked = count()
    return lambda: next(looked) < looks


@given(networks(most=6, max_slices=6), st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_a_path_that_is_not_known_to_its_end_has_a_bound(whole: LayerGrouping, looks: int) -> None:
    best = dp.solve(Partition(whole, lambda: True))
    assert best is not None
    bounds: list[int] = []
    often = TUNING.changed({"paths": {"boundaries_at_once": 1}})
    with contextlib.suppress(Stopped):
        dp.solve(Partition(whole, until(looks), tuning=often), bounds.append)
    assert all(0 < bound <= whole.evaluate(best) for bound in bounds)


@given(networks(most=6, max_slices=6), st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_what_a_rule_found_in_time_is_a_plan_with_the_others_beside_it(
    whole: LayerGrouping, looks: int
) -> None:
    for rule, eager, longest in ((dp.layerwise, False, 1), (dp.greedy_tail, True, None)):
        with contextlib.suppress(Stopped):
            plan = rule(Partition(whole, until(looks), eager, longest=longest))
            assert plan is not None
            assert whole.check(plan) == ()
