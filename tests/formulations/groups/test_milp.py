"""The interval model: its relaxation is the dynamic program."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from stagepack.formulations.groups import Milp
from stagepack.heuristics.groups.dp import FAR, Partition
from stagepack.instances.groups import LayerGrouping
from tests.formulations.engines import lowered, solve, solve_lp
from tests.instances.groups.networks import block, networks


def yes() -> bool:
    return True


@given(networks(most=7, max_slices=6))
@settings(max_examples=25, deadline=None)
def test_the_relaxation_is_worth_the_shortest_path(whole: LayerGrouping) -> None:
    partition = Partition(whole, yes)
    cycles, boundaries = partition.shortest()
    assert cycles < FAR
    model = Milp(partition)
    relaxed = solve_lp(lowered(model), relaxed=True)
    assert relaxed.objective is not None
    assert relaxed.objective * model.program.gain == pytest.approx(cycles)
    assert relaxed.values is not None
    assert np.abs(relaxed.values - np.rint(relaxed.values)).max() < 1e-9
    assert partition.cycles(model.decode(relaxed.values)) == cycles
    assert model.decode(model.hint(boundaries)) == boundaries


@given(networks(most=5, max_slices=4))
@settings(max_examples=10, deadline=None)
def test_both_kinds_of_engine_agree(whole: LayerGrouping) -> None:
    partition = Partition(whole, yes)
    cycles, _ = partition.shortest()
    for model in (Milp(partition), Milp(partition, upper=cycles, cp_sat=True)):
        answer = solve(model)
        assert answer.values is not None
        found = model.decode(answer.values)
        assert sum(partition.cycles(pair) for pair in pairwise(found)) == cycles
        assert model.lower_bound(answer.bound, 1e-9) == cycles


def test_nothing_below_the_optimum() -> None:
    partition = Partition(block(), yes)
    cycles, _ = partition.shortest()
    model = Milp(partition, upper=cycles - 1, cp_sat=True)
    assert model.infeasible or solve(model).values is None
    assert max(Milp(partition, upper=cycles - 1).program.cost) < cycles
