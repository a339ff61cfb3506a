"""Orders of devices from patterns: what the first microbatches do, and when the next do the same.

A rule gives every operation a moment, and each device runs what is its own in the order of these.
The moments of most rules are a pattern that repeats, group after group of microbatches.

Cost: O(n log n) for n operations.  Source: building blocks of Qi et al. 2024, Pipeline parallelism
with controllable memory (arXiv 2405.15362).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule

F, B, W = range(3)
"""Kinds of operations, as indices."""

Look = Callable[[int], object]
"""Called several times a second with the steps since; it may raise."""

Moments = Iterator[Array]
"""One or more times the moment of each operation, int64 (n,)."""


def columns(*of_kinds: Array) -> Array:
    """Return first moments, int64 (p, 3), of columns for F, B and W, shape (p,) each."""
    return np.stack(np.broadcast_arrays(*of_kinds), axis=1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Moments that repeat; every kind of every stage has its own first one."""

    begin: Array  # (p, kinds): of microbatch 0
    step: int  # from a microbatch to the next of its group
    group: int = 0  # microbatches of a group; 0: there is one group
    period: int = 0  # from a group to the next

    def moments(self, instance: PipelineSchedule, look: Look) -> Array:
        """Return the moment of every operation, shape (n,)."""
        operations = instance.operations
        i = operations.microbatch
        look(len(i))
        moment = self.begin[:, : operations.kinds].ravel()[operations.row]
        look(len(i))
        moment += self.step * i
        if self.group:
            look(2 * len(i))
            moment += (self.period - self.step * self.group) * (i // self.group)
        look(len(i))
        return np.asarray(moment, dtype=np.int64)


def by_moment(instance: PipelineSchedule, moment: Array, look: Look) -> Array:
    """Return what each device runs, one device after another, shape (n,): by rising moments."""
    operations = instance.operations
    rows = np.argsort(operations.device, kind="stable")
    look(5 * len(rows))
    ends = np.zeros(instance.d, dtype=np.int64)
    np.add.at(ends, operations.row_device, operations.count)
    begin = 0
    for end in np.cumsum(ends).tolist():
        own = rows[begin:end]
        own[:] = own[np.argsort(moment[own], kind="stable")]
        look(5 * len(own))
        begin = end
    return rows


Runs = Sequence[tuple[int, Sequence[tuple[int, int]]]]
"""What a device runs: so many rounds of the next operation of each (stage, kind), and so on."""


def written(instance: PipelineSchedule, look: Look, devices: Sequence[Runs]) -> Array:
    """Return moments for what each device runs; what there is no more of is left out."""
    operations = instance.operations
    m, base = operations.microbatches.tolist(), operations.base.tolist()
    moment = np.zeros(len(operations), dtype=np.int64)
    for runs in devices:
        now, done = 0, dict.fromkeys((column for _, row in runs for column in row), 0)
        for rounds, columns in runs:
            for place, (stage, kind) in enumerate(columns):
                first, count = done[stage, kind], max(0, rounds)
                last = min(first + count, m[stage])
                if first < last and kind < operations.kinds:
                    v = base[stage] + kind * m[stage]
                    turns = np.arange(last - first) * len(columns)
                    moment[v + first : v + last] = now + place + turns
                done[stage, kind] += count
            now += max(0, rounds) * len(columns)
        look(50 * len(runs) + now)
    return moment
