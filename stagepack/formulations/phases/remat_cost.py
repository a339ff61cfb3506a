"""The cost of a plan of recomputation, as columns and rows of a linear program.

Variables
    A        cycles computed again in a step, and Q bytes paged out and in again
    c, P     ceil(T (cycles + A) / (T - t)) and ceil(Q / rate): whole cycles of a step
    m_1..3   max(L, c), max(L + S, c), max(S, c) with L = P + host, S = P
Objective
    minimise A                                           where no layer can be paged
             G (c + 2 P)                                 modes naive, compute, io
             2 P + m_1 + (G - 2) m_2 + m_3               io_overlapped, G >= 2
Constraints
    compute  (T - t) c >= T (cycles + A),  c the cycles of a step on all but t of T tiles
    paging   rate P >= Q <= the bytes that I/O buffers and remote memory leave
    slots    m_s >= c, m_s >= (1 or 2) P + (host or 0)
    cutoff   objective <= upper
Size
    up to five columns, and eight rows of which four are as long as there are choices
Source
    ours: phase times as in :mod:`stagepack.instances.phases.modes`
"""

from __future__ import annotations

import numpy as np

from stagepack.formulations.phases.remat import UNLIMITED, Step
from stagepack.formulations.whole import WholeProgram
from stagepack.instances.phases.data import Policy
from stagepack.instances.phases.modes import Mode, compute_cycles, transfer_cycles
from stagepack.instances.profile import Array


class Cost:
    """Collects what choices cost; `column` for each choice, then `close`."""

    def __init__(self, step: Step, program: WholeProgram) -> None:
        self.step, self.program = step, program
        self.paging = step.allowed[Policy.STASH]
        self.again: dict[int, int] = {}
        self.paged: dict[int, int] = {}
        self.overlapped = step.mode is Mode.IO_OVERLAPPED and step.steps >= 2

    def column(self, again: int, paged: int, *, integral: bool = True) -> int:
        """Add a choice and return its column.

        It computes `again` so many cycles, and pages so many bytes, `paged`.  `integral`: the
        engine must see to it that it is whole.
        """
        column = self.program.column(0 if self.paging else again, integral=integral)
        if again:
            self.again[column] = again
        if paged:
            self.paged[column] = paged
        return column

    def close(self, upper: int | None) -> None:
        """Add the columns and rows of the objective, and the cutoff."""
        step, program = self.step, self.program
        if not self.paging:
            if upper is not None:
                most = step.most_again(upper)
                if most < 0:
                    program.contradiction = True
                program.row(self.again, high=max(0, most))
            return
        if self.paged and step.paging < UNLIMITED:
            program.row(self.paged, high=step.paging)
        most_again = step.instance.recomputations * sum(step.forward)
        least_c = compute_cycles(step.computed, step.tiles, step.io_tiles)
        most_c = compute_cycles(step.computed + most_again, step.tiles, step.io_tiles)
        most_p = transfer_cycles(sum(step.products), step.remote)
        slots = step.steps
        self.c = program.column(0 if self.overlapped else slots, lower=least_c, upper=most_c)
        self.p = program.column(2 if self.overlapped else 2 * slots, lower=0, upper=most_p)
        working = step.tiles - step.io_tiles
        program.row(
            {self.c: working} | {k: -step.tiles * v for k, v in self.again.items()},
            low=step.tiles * step.computed,
        )
        if step.remote is not None:
            rate = step.remote
            program.row(
                {self.p: rate.numerator}
                | {k: -rate.denominator * v for k, v in self.paged.items()},
                low=0,
            )
        self.slots: list[tuple[int, int, int]] = []
        if self.overlapped:
            for weight, loads, host in ((1, 1, 1), (slots - 2, 2, 1), (1, 1, 0)):
                floor = step.host * host
                column = program.column(
                    weight,
                    lower=max(least_c, floor),
                    upper=max(most_c, loads * most_p + floor),
                )
                program.row({column: 1, self.c: -1}, low=0)
                program.row({column: 1, self.p: -loads}, low=floor)
                self.slots.append((column, loads, floor))
        if upper is not None:
            terms = {column: cost for column, cost in enumerate(program.cost) if cost}
            program.row(terms, high=upper - self.offset)

    @property
    def offset(self) -> int:
        """What the plan's time has beyond the objective."""
        step = self.step
        if not self.paging:
            return 0
        if self.overlapped:
            return step.fixed + step.v + step.host
        v = step.v * (step.steps if step.mode is Mode.NAIVE else 1)
        return step.fixed + v + step.steps * step.host

    def time(self, objective: int) -> int:
        """Return the time of a plan (or a bound on it) from the program's objective."""
        return objective + self.offset if self.paging else self.step.time(objective)

    def hint(self, values: Array) -> Array:
        """Fill in the columns of the objective, the others given."""
        if not self.paging:
            return values
        step = self.step
        found = np.array(values, dtype=np.float64)
        again = sum(v for k, v in self.again.items() if values[k] > 0.5)
        paged = sum(v for k, v in self.paged.items() if values[k] > 0.5)
        c = compute_cycles(step.computed + again, step.tiles, step.io_tiles)
        p = transfer_cycles(paged, step.remote)
        found[self.c], found[self.p] = c, p
        for column, loads, floor in self.slots:
            found[column] = max(c, loads * p + floor)
        return found
