"""Sums of columns, and the arrays that a program comes out as."""

from __future__ import annotations

import numpy as np
import pytest

from stagepack.formulations.program import Program, Sum, total
from stagepack.linear import Linear


def knapsack() -> tuple[Program[int], list[Sum[int]]]:
    program = Program[int]()
    x = [program.variable(), program.variable(upper=4), program.variable(integral=False)]
    program.at_most(3 * x[0] + 2 * x[1] - x[1], 5 - x[2])
    program.at_most(1, x[0] + x[1])
    program.at_most(x[1] - x[1] + x[2], 0)
    program.minimise(2 - x[0] + 7 * (x[1] + 1))
    return program, x


def test_sums_add_like_numbers() -> None:
    _, (a, b, c) = knapsack()
    point = np.array([2.0, 3.0, 5.0])
    cases: list[tuple[Sum[int], int]] = [
        (a + b, 5),
        (1 + a - 2 * b, -3),
        (4 - a * 3, -2),
        (b - b, 0),
        (total((a, b, c, 1, a)), 13),
        (total(()), 0),
    ]
    for found, worth in cases:
        assert found.at(point) == worth
    assert [a.index, b.index, c.index] == [0, 1, 2]
    assert (b + 0 * a).terms == {0: 0, 1: 1}
    assert a.terms == {0: 1}  # nothing is changed in place


def test_what_comes_out() -> None:
    program, _ = knapsack()
    linear = program.arrays()
    assert (linear.rows, linear.columns) == (3, 3)
    dense = np.zeros((3, 3))
    row = np.repeat(np.arange(3), np.diff(linear.start))
    dense[row, linear.column] = linear.value
    assert dense.tolist() == [[3, 1, 1], [1, 1, 0], [0, 0, 1]]
    assert linear.low.tolist() == [-np.inf, 1, -np.inf]
    assert linear.high.tolist() == [5, np.inf, 0]
    assert linear.upper.tolist() == [1, 4, 1]
    assert linear.integral.tolist() == [True, True, False]
    assert linear.objective(np.array([1.0, 2.0, 0.0])) == 2 - 1 + 7 * 3
    assert linear.violation(np.array([1.0, 2.0, 0.0])) == 0


@pytest.mark.parametrize(("low", "high", "holds"), [(0, 1, True), (2, 1, False), (1, 1, True)])
def test_rows_without_columns_hold_or_contradict(low: int, high: int, holds: bool) -> None:
    program, (a, *_) = knapsack()
    program.at_most(low + a - a, high)
    assert program.contradiction is not holds
    assert program.rows == 3


def test_entries_come_in_any_order_and_zeros_not_at_all() -> None:
    none = np.zeros(2)
    linear = Linear.of(
        cost=none,
        lower=none,
        upper=none,
        integral=none > 0,
        row=np.array([1, 0, 1, 0]),
        column=np.array([0, 1, 1, 0]),
        value=np.array([3.0, 2.0, 4.0, 0.0]),
        low=none,
        high=none,
    )
    assert linear.start.tolist() == [0, 1, 3]
    assert linear.column.tolist() == [1, 0, 1]
    assert linear.value.tolist() == [2, 3, 4]
