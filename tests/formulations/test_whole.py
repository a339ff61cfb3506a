"""What HiGHS does not tell apart is refused by name; what is claimed of odd figures holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.claims.every import tried
from stagepack.errors import InputError
from stagepack.formulations.whole import LARGEST_COST, LARGEST_SCALED, WholeProgram
from tests import random_phases
from tests.packing_cases import random_packing

BEYOND = "the MILP would count beyond what HiGHS computes exactly"


def program(factor: int, cost: int) -> WholeProgram:
    made = WholeProgram()
    x, y = made.column(cost), made.column(1)
    made.row({x: factor, y: 1}, low=1, high=abs(factor))
    return made


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_and_costs_that_are_too_large_are_refused(sign: int) -> None:
    assert program(sign * LARGEST_SCALED, LARGEST_COST - 1).arrays().rows == 1
    for factor, cost in ((LARGEST_SCALED + 1, 1), (1, LARGEST_COST)):
        with pytest.raises(InputError, match=BEYOND):
            program(sign * factor, cost).arrays()


def test_packings_and_phases_beyond_are_refused() -> None:
    base: Any = sp.load("phases/six-layers")
    wide = base.replace(forward=base.forward.astype(np.int64) * 10**12 + 1)
    result: sp.Result[Any] = sp.solve(wide, "milp", time_limit=5)
    assert BEYOND in result.reason
    best: Any = sp.solve(wide, time_limit=5).objective
    assert result.bound is None or result.bound <= best
    memories = [sp.Memory("near", 4, 0), sp.Memory("far", None, 1)]
    spill = sp.LmemPacking.from_arrays(
        [4, 4], [0, 0], [1, 1], memories=memories, accesses=[2**44, 2**44 + 1], objective="spill"
    )
    result = sp.solve(spill, "milp", time_limit=5)
    assert BEYOND in result.reason


def odd(seed: int) -> Any:
    """Return an instance with large figures that have no common unit."""
    draw = np.random.default_rng(seed)
    factor = 10 ** int(draw.integers(6, 12))

    def figures(values: Any) -> Any:
        return values * factor + (values > 0) * draw.integers(0, factor // 3, len(values))

    if seed % 2:
        small = random_packing(draw, objective="spill", n=5)
        accesses = figures(small.accesses)
        return small.replace(accesses=accesses)
    phases = random_phases.random_phases(seed, layers=(1, 3), budgets=False)
    columns = ("forward", "backward", "variables", "tape", "temporary", "activations", "state")
    memory = None if phases.chip.memory is None else phases.chip.memory * factor
    return phases.replace(
        **{name: figures(getattr(phases, name)) for name in columns}, memory=memory
    )


@pytest.mark.parametrize("seed", range(24))
def test_what_is_claimed_of_odd_figures_holds(seed: int) -> None:
    instance = odd(seed)
    result: sp.Result[Any] = sp.solve(instance, "milp", time_limit=5)
    claimed = result.bound if result.status != "INFEASIBLE" else None
    if claimed is not None or result.status == "INFEASIBLE":
        found = tried(instance, claimed, 10)
        assert found is None or found.best is None
