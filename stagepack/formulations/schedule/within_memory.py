"""CP-SAT: is there any order within the memory, whatever its times?

Sets
    V                operations; V_d those of device d
    A                pairs (u, v) of operations, u before v
Parameters
    take_v, give_v   bytes that v takes when it starts, and gives back when it ends
    limit_d          bytes of device d
Variables
    t_v              turn of operation v, 0 .. |V| - 1
Objective
    none
Constraints
    order            t_v >= t_u + 1                      (u, v) in A
    apart            operations of V_d have turns of their own
    memory           what V_d took and did not give back <= limit_d after every turn
Size
    |V| turns and intervals, a row for each of A, one reservoir a device
Source
    ours

Memory is a matter of orders, and one operation after the other is a schedule of any orders, so that
durations, latencies and horizons do not enter.  It is for memory so tight that no list schedule
fits: the model of :mod:`.cp_sat`, which asks for short schedules, takes long to see that none is.
"""

from __future__ import annotations

import numpy as np

from stagepack.formulations.base import LARGEST_VALUE, Formulation
from stagepack.heuristics.schedule.tuning import TUNING, ModelTuning
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.instances.schedule.reasons import reasons


class WithinMemory(Formulation[PipelineSchedule, ScheduleSolution]):
    """The orders within the memory of an instance that is not :meth:`unsupported`, for CP-SAT."""

    def __init__(self, instance: PipelineSchedule) -> None:
        self.instance = instance
        self.infeasible = bool(reasons(instance))
        if not self.infeasible:
            self._build_model()

    @staticmethod
    def unsupported(instance: PipelineSchedule, tuning: ModelTuning = TUNING.model) -> str:
        """Return why the model is not for an instance, '' if it is."""
        if instance.limit is None:
            return "is for limited memory"
        n, most = len(instance.operations), tuning.order_operations
        if n > most:
            return f"is for up to {most:,} operations, not {n:,}"
        if int(instance.limit.max()) >= LARGEST_VALUE:
            return f"counts bytes up to {LARGEST_VALUE:,}"
        return ""

    def _build_model(self) -> None:
        """Build turns, precedences and memory."""
        from ortools.sat.python import cp_model

        self.model = cp_model.CpModel()
        n = len(self.instance.operations)
        self.t = [self.model.new_int_var(0, n - 1, f"t{v}") for v in range(n)]
        self._order()
        self._apart()
        self._memory()

    def _order(self) -> None:
        """t_v >= t_u + 1 where u comes before v."""
        before, after, _ = self.instance.operations.precedences()
        for u, v in zip(before.tolist(), after.tolist(), strict=True):
            self.model.add(self.t[v] >= self.t[u] + 1)

    def _apart(self) -> None:
        """Operations of a device have turns of their own."""
        for own in self._devices():
            self.model.add_all_different([self.t[v] for v in own])

    def _memory(self) -> None:
        """What a device took and did not give back <= limit_d."""
        assert self.instance.limit is not None
        delta = self.instance.operations.delta.tolist()
        for own, limit in zip(self._devices(), self.instance.limit.tolist(), strict=True):
            changing = [v for v in own if delta[v]]
            if sum(max(delta[v], 0) for v in changing) > limit:
                self.model.add_reservoir_constraint(
                    [self.t[v] + (delta[v] < 0) for v in changing],
                    [delta[v] for v in changing],
                    0,
                    limit,
                )

    def _devices(self) -> list[list[int]]:
        """Return the operations of each device."""
        device = self.instance.operations.device
        return [np.flatnonzero(device == d).tolist() for d in range(self.instance.d)]

    def decode(self, values: Array) -> ScheduleSolution:
        """Return the best schedule with the orders of values by variable index."""
        from stagepack.heuristics.schedule.timing import Timing  # which loads the compiler

        timing = Timing(self.instance)
        turns = np.rint(np.asarray(values)).astype(np.int64)[[t.index for t in self.t]]
        start = timing.best(timing.order_of(turns))
        assert start is not None  # turns are times
        return ScheduleSolution.of(self.instance, start)

    def hint(self, solution: ScheduleSolution) -> Array:
        """Return the turns of a solution, shape (n,): one operation after the other."""
        rank, turns = np.empty((2, len(solution.start)), dtype=np.int64)
        rank[self.instance.operations.topological()] = np.arange(len(rank))
        turns[np.lexsort((rank, solution.start))] = np.arange(len(turns))
        return turns

    def worth(self, steps: int) -> int:
        """Return 0: orders are worth the same."""
        return 0
