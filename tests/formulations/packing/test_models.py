"""What is particular to the models of packing: units, symmetry, starts, limits of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.formulations.packing import CpSat, Milp
from stagepack.formulations.packing import milp as milp_module
from stagepack.formulations.packing.frame import Frame
from stagepack.instances.packing import Banks, Gap, LmemPacking, Memory, PackingSolution
from tests.formulations.engines import lowered, solve_lp
from tests.formulations.packing.engines import Formulation, confirm, optimum

BOTH = pytest.mark.parametrize("model", [CpSat, Milp], ids=["cp-sat", "milp"])


@BOTH
def test_sizes_are_divided_by_their_unit(model: type[Formulation]) -> None:
    instance = LmemPacking.from_arrays([3 * 2**40, 2**40, 5 * 2**40], [0, 0, 1], [2, 2, 3])
    formulation = model(instance)
    assert formulation.frame.unit == 2**40
    found = optimum(formulation)
    assert found is not None
    assert instance.evaluate(found) == 9 * 2**40


def test_building_counts_as_long_as_it_takes() -> None:
    """Twice that was counted: runs limited by work ended after a third of their limit."""
    n, counted = 300, list[float]()
    pairs = [(i, i + 1) for i in range(n - 1)]
    instance = LmemPacking.from_arrays([2] * n, range(n), range(2, n + 2), in_place=pairs)
    Milp(instance, upper=10, lower=2, spend=counted.append)
    assert 4e-5 < sum(counted) / len(pairs) < 9e-5  # measured: 6e-5 to 7e-5 s of a pair


@BOTH
def test_a_start_off_the_grid_is_moved_onto_it(model: type[Formulation]) -> None:
    instance = LmemPacking.from_arrays([8, 8, 4], [0, 0, 1], [2, 2, 3])
    formulation = model(instance, upper=23)
    loose = PackingSolution.of(instance, [1, 9, 19])
    assert instance.check(loose) == ()
    offsets, _ = formulation.frame.settled(loose)
    assert offsets.tolist() == [0, 2, 4]
    confirm(formulation, PackingSolution.of(instance, [0, 8, 16]))


@BOTH
def test_exchangeable_buffers_are_put_in_order(model: type[Formulation]) -> None:
    instance = LmemPacking.from_arrays([4, 4, 4, 7], [0, 0, 0, 0], [2, 2, 2, 1])
    formulation = model(instance)
    assert formulation.frame.alike == [[0, 1, 2]]
    confirm(formulation, PackingSolution.of(instance, [15, 11, 7, 0]))


@pytest.mark.parametrize(
    "changes",
    [
        {"in_place": [(0, 1)]},
        {"capacity": 20, "objective": "moves", "previous": [4, -1]},
        {"banks": Banks(4, 8, np.array([[0, 1]]), None), "objective": "bank-conflicts"},
        {"allowed": [(0, 4, 20)]},
        {"memories": [("a", 9, 1), ("b", None, 2)], "accesses": [1, 2]},
    ],
    ids=["in-place", "moves", "banks", "ranges", "accesses"],
)
def test_buffers_that_differ_in_anything_are_not_exchanged(changes: dict[str, Any]) -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [2, 2], **changes)
    assert Frame(instance).alike == []


def test_distances_of_buffers_with_windows() -> None:
    # Buffer 0 shrinks to its bytes [4, 6) while buffer 1 lives.
    instance = LmemPacking.from_arrays(
        [8, 4], [0, 1], [3, 2], gaps=[Gap(0, 1, 2, 4, 6)], capacity=32, objective="fit"
    )
    frame = Frame(instance)
    runs = [(first * frame.unit, last * frame.unit) for first, last in frame.distances(0, 1)]
    assert runs == [(-24, 0), (6, 28)]


def test_a_pair_in_place_may_meet_only_at_equal_offsets() -> None:
    instance = LmemPacking.from_arrays([3, 2], [0, 0], [1, 1], in_place=[(0, 1)], capacity=9)
    assert Frame(instance).distances(0, 1) == [(-6, -2), (0, 0), (3, 7)]


def test_colocated_buffers_share_only_what_all_may_share() -> None:
    # 0 and 1 have one offset, 2 may overlap 0, but 1 lives at the same time and may not.
    def shares(end: int) -> list[tuple[int, int]]:
        instance = LmemPacking.from_arrays(
            [4, 4, 4], [0, 1, 0], [1, end, 2], colocated=[(0, 1)], in_place=[(0, 2)]
        )
        return Frame(instance).shares

    assert shares(2) == []
    late = LmemPacking.from_arrays(
        [4, 4, 4], [0, 2, 0], [1, 3, 2], colocated=[(0, 1)], in_place=[(0, 2)]
    )
    assert Frame(late).shares == [(0, 1)]


def test_reserved_ranges_raise_the_least_peak() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1], reserved=[(2, 5), (20, 30)])
    assert Frame(instance).least == 11


@BOTH
def test_a_solution_outside_the_model_is_refused(model: type[Formulation]) -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1])
    with pytest.raises(InputError, match="outside the model"):
        model(instance, upper=8).hint(PackingSolution.of(instance, [0, 400]))
    confirm(model(instance, upper=404), PackingSolution.of(instance, [0, 400]))


@BOTH
def test_what_cannot_fit_needs_no_engine(model: type[Formulation]) -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 0], [1, 1], capacity=7)
    assert model(instance).infeasible
    assert model(instance.replace(capacity=None, objective="peak"), upper=7).infeasible


@BOTH
def test_numbers_beyond_the_exact_range_are_refused(model: type[Formulation]) -> None:
    instance = LmemPacking.from_arrays([2**50 + 1, 2**50 - 1], [0, 0], [1, 1])
    with pytest.raises(InputError, match="coarser unit"):
        model(instance)


def test_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milp_module, "LARGEST_PAIRS", 5)
    instance = LmemPacking.from_arrays(np.ones(4), np.zeros(4), np.ones(4))
    with pytest.raises(InputError, match="5 pairs"):
        Milp(instance)


@BOTH
def test_large_numbers_stay_exact(model: type[Formulation]) -> None:
    # Just below what the MILP takes; the sizes have no common divisor.
    size = np.array([9999991, 4999999, 7000003, 1])
    instance = LmemPacking.from_arrays(size, [0, 0, 1, 0], [2, 1, 3, 3])
    found = optimum(model(instance))
    assert found is not None
    assert instance.evaluate(found) == 9999991 + 7000003 + 1


def test_cp_sat_is_exact_up_to_its_limit() -> None:
    size = np.array([2**42 - 1, 2**41 + 3, 2**42 - 5, 1])
    instance = LmemPacking.from_arrays(size, [0, 0, 1, 0], [2, 1, 3, 3])
    found = optimum(CpSat(instance))
    assert found is not None
    assert instance.evaluate(found) == 2**43 - 5


@BOTH
def test_memories_of_equal_cost_hold_what_one_cannot(model: type[Formulation]) -> None:
    instance = LmemPacking.from_arrays(
        [4, 4, 4],
        [0, 0, 0],
        [1, 1, 1],
        memories=[Memory("a", 8, 1), Memory("b", 4, 1)],
        objective="spill",
    )
    found = optimum(model(instance))
    assert found is not None
    assert found.memory is not None
    assert np.bincount(found.memory).tolist() == [2, 1]


def test_clique_loads_bound_the_peak_without_conflicts() -> None:
    """Four buffers of one byte, all pairs in different banks: three banks and a byte."""
    pairs = np.array([(i, j) for i in range(4) for j in range(i)])
    instance = LmemPacking.from_arrays(
        np.ones(4),
        np.arange(4),
        np.arange(4) + 1,
        capacity=128,
        banks=Banks(8, 16, pairs, None),
        objective="bank-conflicts",
    )
    formulation = Milp(instance)
    answer = solve_lp(lowered(formulation), relaxed=True)
    assert formulation.lower_bound(answer.bound) >= 49
    found = optimum(CpSat(instance))
    assert found is not None
    assert instance.evaluate(found) == 49


def test_a_start_above_a_shared_offset_is_not_lost() -> None:
    # With o_2 - o_0 in one domain with holes, CP-SAT's presolve made 12 of this.
    instance = LmemPacking.from_arrays(
        [6, 4, 6], [1, 1, 1], [2, 3, 2], fixed=[-1, 0, -1], in_place=[(0, 2), (1, 2)]
    )
    found = optimum(CpSat(instance))
    assert found is not None
    assert instance.evaluate(found) == 10
