"""Small models, stated once as arrays and written as every engine takes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stagepack.linear import Array, Linear

INFINITY = float("inf")


@dataclass(kw_only=True)
class Milp:
    """min costs x + offset, row_lower <= matrix x <= row_upper, lower <= x <= upper."""

    costs: Array
    matrix: Array
    row_lower: Array
    row_upper: Array
    lower: Array
    upper: Array
    integral: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))
    offset: float = 0.0

    def __post_init__(self) -> None:
        if not len(self.integral):
            self.integral = np.ones(len(self.costs), dtype=bool)

    def feasible(self, values: Array, tolerance: float = 1e-5) -> bool:
        rows = self.matrix @ values
        return bool(
            (rows >= self.row_lower - tolerance).all()
            and (rows <= self.row_upper + tolerance).all()
            and (values >= self.lower - tolerance).all()
            and (values <= self.upper + tolerance).all()
            and (np.abs(values - np.rint(values))[self.integral] <= tolerance).all()
        )

    def objective(self, values: Array) -> float:
        return float(self.costs @ values + self.offset)

    def written_for(self, name: str) -> Any:
        return self.cp_sat() if name == "cp-sat" else self.arrays()

    def arrays(self) -> Linear:
        row, column = np.nonzero(self.matrix)
        return Linear.of(
            cost=self.costs.astype(float),
            lower=self.lower.astype(float),
            upper=self.upper.astype(float),
            integral=self.integral,
            row=row,
            column=column,
            value=self.matrix[row, column].astype(float),
            low=self.row_lower.astype(float),
            high=self.row_upper.astype(float),
            offset=self.offset,
        )

    def cp_sat(self) -> Any:
        from ortools.sat.python import cp_model

        assert self.integral.all()
        model = cp_model.CpModel()
        x = [
            model.new_int_var(int(low), int(high), "")
            for low, high in zip(self.lower, self.upper, strict=True)
        ]
        for row, low, high in zip(self.matrix, self.row_lower, self.row_upper, strict=True):
            used = np.flatnonzero(row)
            body = sum(int(row[j]) * x[j] for j in used)
            if np.isfinite(low):
                model.add(body >= int(low))
            if np.isfinite(high):
                model.add(body <= int(high))
        if self.costs.any():
            model.minimize(
                sum(int(c) * v for c, v in zip(self.costs, x, strict=True)) + int(self.offset)
            )
        return model


def covering() -> Milp:
    """Four integers; the one optimum is (7, 0, 6, 0), worth 46."""
    return Milp(
        costs=np.array([3, 2, 5, 7]),
        matrix=np.array([[1, 1, 1, 1], [1, 2, 0, 0]]),
        row_lower=np.array([13, -INFINITY]),
        row_upper=np.array([INFINITY, 7]),
        lower=np.zeros(4),
        upper=np.full(4, 10),
        offset=-5,
    )


def contradiction() -> Milp:
    """Two binaries that would have to add up to three."""
    return Milp(
        costs=np.array([1, 1]),
        matrix=np.array([[1, 1]]),
        row_lower=np.array([3]),
        row_upper=np.array([INFINITY]),
        lower=np.zeros(2),
        upper=np.ones(2),
    )


def market_split(rows: int = 6, columns: int = 50, seed: int = 1) -> Milp:
    """Split customers in halves, least total miss: quick incumbents, no proof for hours."""
    rng = np.random.default_rng(seed)
    demand = rng.integers(0, 100, (rows, columns))
    half = demand.sum(axis=1) // 2
    identity = np.eye(rows, dtype=int)
    return Milp(
        costs=np.r_[np.zeros(columns), np.ones(2 * rows)],
        matrix=np.hstack([demand, identity, -identity]),
        row_lower=half,
        row_upper=half,
        lower=np.zeros(columns + 2 * rows),
        upper=np.r_[np.ones(columns), np.full(2 * rows, 100 * columns)],
    )


def random_milp(seed: int) -> Milp:
    """A small integer program, feasible or not, with rows of all kinds."""
    rng = np.random.default_rng(seed)
    columns, rows = int(rng.integers(2, 7)), int(rng.integers(1, 6))
    matrix = rng.integers(-5, 8, (rows, columns)) * (rng.random((rows, columns)) < 0.8)
    target = matrix @ rng.integers(0, 4, columns) + rng.integers(-4, 3, rows)
    kind = rng.integers(0, 3, rows)
    return Milp(
        costs=rng.integers(-9, 10, columns),
        matrix=matrix,
        row_lower=np.where(kind <= 1, target, -INFINITY),
        row_upper=np.where(kind >= 1, target + (kind == 1) * rng.integers(0, 3, rows), INFINITY),
        lower=-rng.integers(0, 3, columns),
        upper=rng.integers(0, 6, columns),
        offset=float(rng.integers(-9, 10)),
    )


def single_machine(jobs: int = 60, horizon: int = 1000, seed: int = 0) -> Linear:
    """A time-indexed schedule whose root LP keeps HiGHS deaf for about 10 s."""
    rng = np.random.default_rng(seed)
    durations, weights = rng.integers(5, 30, jobs), rng.integers(1, 20, jobs)
    counts = horizon - durations + 1
    job = np.repeat(np.arange(jobs), counts)
    begin = np.concatenate([np.arange(count) for count in counts])
    columns = len(job)
    busy_column = np.repeat(np.arange(columns), durations[job])
    busy_slot = np.concatenate(
        [np.arange(t, t + durations[j]) for j, t in zip(job, begin, strict=True)]
    )
    rows = np.r_[job, jobs + busy_slot]
    return Linear.of(
        cost=(weights[job] * (begin + durations[job])).astype(float),
        lower=np.zeros(columns),
        upper=np.ones(columns),
        integral=np.ones(columns, dtype=bool),
        row=rows,
        column=np.r_[np.arange(columns), busy_column],
        value=np.ones(len(rows)),
        low=np.r_[np.ones(jobs), np.full(horizon, -np.inf)],
        high=np.ones(jobs + horizon),
    )
