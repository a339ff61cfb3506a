"""The orders of devices, written as rounds that repeat.

Cost: O(operations).  Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.schedule.effort import PART
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule

F, B, W = range(3)

Look = Callable[[int], object]
"""Called several times a second with the steps since; it may raise."""

ASKED = 1000
"""Runs of a program after which it looks: they take as long as a kernel call."""


class Program:
    """What devices run, one device after another: rounds of operations that repeat."""

    def __init__(self, instance: PipelineSchedule, look: Look) -> None:
        self._base = instance.operations.base.tolist()
        self._microbatches = instance.microbatches.tolist()
        self._kinds = len(instance.kinds)
        self._look = look
        self._next = [0] * (instance.p * self._kinds)
        self._rounds: list[int] = []
        self._first = [0]
        self._line: list[int] = []  # the operation of microbatch 0, and the first to be run
        self._begin: list[int] = []
        self._count: list[int] = []

    def run(self, rounds: int, *columns: tuple[int, int]) -> None:
        """Run `rounds` times the next operation of each (stage, kind), as far as there are any."""
        if rounds <= 0:
            return
        for stage, kind in columns:
            if kind < self._kinds:
                m, row = self._microbatches[stage], stage * self._kinds + kind
                self._line.append(self._base[stage] + kind * m)
                self._begin.append(self._next[row])
                self._count.append(m)
                self._next[row] += rounds
        self._rounds.append(rounds)
        self._first.append(len(self._line))
        if len(self._rounds) % ASKED == 0:
            self._look(PART)

    @property
    def order(self) -> Array:
        """All that was run, shape (n,); `ValueError` when that is not every operation."""
        lists = (self._rounds, self._first, self._line, self._begin, self._count)
        columns = tuple(np.array(row, dtype=np.int64) for row in lists)
        return _unrolled(columns, self._base[-1], self._look)


def stage_by_stage(
    instance: PipelineSchedule, look: Look, *runs: tuple[Array, tuple[int, ...]]
) -> Array:
    """Return the order in which stages, each alone on its device, do some `runs` one by one.

    A run is how many rounds each stage does, shape (p,), and the kinds of its next operations in
    every round, as far as there are any.
    """
    operations = instance.operations
    stages = np.argsort(instance.devices)
    m, base = operations.microbatches[stages], operations.base[stages]
    done = [np.zeros(instance.p, dtype=np.int64)] * operations.kinds
    line, begin, rounds, widths = [], [], [], []
    for each, wanted in runs:
        kinds = [kind for kind in wanted if kind < operations.kinds]
        rounds.append(each[stages])
        widths.append(len(kinds))
        for kind in kinds:
            line.append(base + kind * m)
            begin.append(done[kind])
            done[kind] = done[kind] + rounds[-1]
    look(instance.p)
    columns = (
        np.stack(rounds, axis=1).ravel(),
        np.cumsum([0, *np.tile(widths, instance.p)]),
        np.stack(line, axis=1).ravel(),
        np.stack(begin, axis=1).ravel(),
        np.repeat(m, len(line)),
    )
    return _unrolled(columns, len(operations), look)


def _unrolled(runs: tuple[Array, ...], n: int, look: Look) -> Array:
    """Return the n operations of runs, the first arguments of :func:`.rule_kernels.unroll`."""
    from stagepack.heuristics.schedule.rule_kernels import unroll  # loaded when used

    # No column runs an operation of another one: there are n places for n of them.
    found, state = np.empty(n, dtype=np.int64), np.zeros(3, dtype=np.int64)
    rounds, first, line, begin, count = runs
    while not unroll(rounds, first, line, begin, count, found, state, PART):
        look(PART)
    if state[2] != n:
        raise ValueError("a program must run every operation once")
    return found
