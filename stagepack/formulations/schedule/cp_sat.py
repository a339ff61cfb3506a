"""CP-SAT: one interval for each operation; those of a device do not overlap.

Sets
    V                operations v = (s, k, i): kind k of microbatch i on stage s
    D                devices; V_d the operations of device d
    A                pairs (d, e) of devices with an arc between them
    P                pairs (u, v) of operations of one device, v at least gap_uv after u starts:
                     precedences, and ways from device d over others and back to d
    L                pairs (u, v) such that the memory does not allow v before u has ended
    R_d              bytes of device d held from the start of one operation to the end of another
Parameters
    dur_v, lag_uv    duration, latency
    after_d          what the objective adds to the last end of device d (optimizer)
    limit_d          bytes of device d
    U                what the objective may be at most
Variables
    t_v              start of operation v after the origin of its device, between the longest paths
                     to it and from it to U - after_d
    o_d              origin of device d: its first start (all 0 for the makespan)
    x_de             o_e - o_d for (d, e) in A
    y_uv             B or W u of a stage has ended when F v of the same stage starts (where the
                     stage has its device to itself)
    l_r              length of retention r (on other devices)
    z                the objective
Objective
    minimise z
Constraints
    order            t_v >= t_u + gap_uv                 (u, v) in P, operations of one kind in turn
    arcs             t_v + x_de >= t_u + dur_u + lag_uv  for arcs from device d to device e
    origins          x_de = o_e - o_d                    where A has a cycle
    apart            operations of V_d do not overlap
    releases         t_v >= t_u + dur_u                  (u, v) in L
    counts           t_v >= t_u + dur_u where y_uv, t_u >= t_v + dur_v where not; what those u
                     with y_uv give back makes room for v and all F before
    memory           sum of the bytes of R_d held at a time <= limit_d
    objective        z >= t_v + dur_v + after_d          for the last operations of each stage
Size
    |V| = kinds * stages * microbatches starts and intervals; a row for each edge, direction and
    microbatch, for each two operations of a kind in turn, and for each pair in P and L; one
    constraint `apart` a device, and up to m^2 literals a stage that counts
Source
    ours

Times are relative to the origin because the span of a device is all that counts there: a bound on
z then limits what a device may be idle, which neither the time of day nor other devices weaken.
With times of day CP-SAT 9.15 left open after 20 s what it proves in 4 s so (p = 4, m = 12).  Ways
over other devices in P, and L beside the memory, are redundant; they speed it up.  So do counts,
where memory is tight, against retentions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stagepack.errors import InputError
from stagepack.formulations.base import (
    LARGEST_FACTOR,
    LARGEST_VALUE,
    UNPRESOLVED,
    Formulation,
)
from stagepack.formulations.schedule.frame import Frame
from stagepack.heuristics.schedule.tuning import TUNING, ModelTuning
from stagepack.instances.profile import Array
from stagepack.instances.schedule import (
    Objective,
    PipelineSchedule,
    ScheduleSolution,
    memory_arcs,
)
from stagepack.instances.schedule.reasons import reasons

if TYPE_CHECKING:
    from ortools.sat.python.cp_model import IntVar, LinearExpr


class CpSat(Formulation[PipelineSchedule, ScheduleSolution]):
    """The interval model as a `cp_model.CpModel`; expresses every instance.

    What is worth more than `upper`, the objective value of a known solution, may be cut off,
    nothing else is; `lower` is a known lower bound.  `InputError` is raised when times or bytes
    exceed what the engine computes exactly.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        *,
        upper: int | None = None,
        lower: int | None = None,
        tuning: ModelTuning = TUNING.model,
    ) -> None:
        self.instance, self.upper, self._counted = instance, upper, tuning.counted
        self.parameters: dict[str, object] = {
            "linearization_level": 0,
            "use_objective_lb_search": True,
        }
        self.frame = Frame(instance, upper=upper, lower=lower)
        self.loading = tuning.loading * len(instance.operations)
        self._origins_free = instance.objective is Objective.SPAN
        self.infeasible = bool(reasons(instance)) or self.frame.lower > self.frame.upper
        if not self.infeasible:
            self._require_exact()
            self._build_model()

    def _require_exact(self) -> None:
        """Refuse times and bytes that the engine would round."""
        limit = self.instance.limit
        most = self.frame.horizon if limit is None else max(self.frame.horizon, int(limit.max()))
        self._most = most
        if most >= LARGEST_VALUE:
            raise InputError(
                f"the CP-SAT model would count to {most:,}, beyond what it computes exactly",
                field="size",
                remedy="use coarser units of time and memory",
            )

    # ------------------------------------------------------------------ the model

    def _build_model(self) -> None:
        """Build variables, then a family of constraints after the other."""
        from ortools.sat.python import cp_model

        self._cp = cp_model
        self.model = cp_model.CpModel()
        befores, afters = memory_arcs(self.instance)
        self._releases = list(zip(befores.tolist(), afters.tolist(), strict=True))
        self._starts()
        self._order()
        self._arcs()
        self._origins()
        self._apart()
        self._release()
        self._memory()
        self._objective()
        if (self.y or self.lengths) and self._most >= LARGEST_FACTOR:
            self.parameters |= UNPRESOLVED

    def _starts(self) -> None:
        """t_v from its longest path in to its longest one out; where known, first ones at 0.

        Presolve would find these windows a step at a time: quadratic, and counted as no work.
        """
        frame, instance = self.frame, self.instance
        operations = instance.operations
        self._duration = frame.duration[operations.stage, operations.kind].tolist()
        earliest = [0] * len(operations)
        latest = (frame.upper - frame.after[operations.device] - self._duration).tolist()
        if self._origins_free:
            for first in (frame.first_stage(device) for device in range(instance.d)):
                if first is not None:
                    latest[operations.op(first, 0, 0)] = 0
        rank = np.empty(len(operations), dtype=np.int64)
        rank[operations.topological()] = np.arange(len(operations))
        waits = sorted(self._waits(), key=lambda wait: int(rank[wait[0]]))
        for u, v, gap in waits:
            earliest[v] = max(earliest[v], earliest[u] + gap)
        for u, v, gap in reversed(waits):
            latest[u] = min(latest[u], latest[v] - gap)
        self.t = [
            self.model.new_int_var(low, max(low, high), f"t{v}")
            for v, (low, high) in enumerate(zip(earliest, latest, strict=True))
        ]

    def _waits(self) -> Iterator[tuple[int, int, int]]:
        """Yield (u, v, gap) such that v is at least `gap` after u, in times of their devices."""
        yield from self._turns()
        for u, v in self._releases:
            yield u, v, self._duration[u]
        if not self._origins_free:
            for _, u, v, gap in self._crossings():
                yield u, v, gap

    def _op(self, node: tuple[int, int], i: int) -> int:
        """Return the operation of microbatch i of a (stage, kind)."""
        return self.instance.operations.op(*node, i)

    def _turns(self) -> Iterator[tuple[int, int, int]]:
        """Yield (u, v, gap) of steps within a microbatch, and of operations of a kind in turn."""
        m = self.instance.microbatches
        for step in self.frame.steps():
            for i in range(m[step.one[0]]):
                yield self._op(step.one, i), self._op(step.then, i), step.distance
        for s in range(self.instance.p):
            for k in range(self.frame.kinds):
                for i in range(m[s] - 1):
                    u = self._op((s, k), i)
                    yield u, self._op((s, k), i + 1), self._duration[u]

    def _order(self) -> None:
        """t_v >= t_u + gap_uv within a microbatch; operations of a kind in turn."""
        for u, v, gap in self._turns():
            self.model.add(self.t[v] >= self.t[u] + gap)

    def _crossings(self) -> Iterator[tuple[tuple[int, int], int, int, int]]:
        """Yield ((d, e), u, v, gap) of arcs from u on device d to v on device e, both ways."""
        instance, frame = self.instance, self.frame
        for (a, b), lag in zip(instance.edges, frame.lag.tolist(), strict=True):
            d, e = int(instance.devices[a]), int(instance.devices[b])
            if d == e:
                continue  # among the steps
            for i in range(int(instance.microbatches[a])):
                u = self._op((a, 0), i)
                yield (d, e), u, self._op((b, 0), i), self._duration[u] + lag
                if frame.kinds > 1:
                    u = self._op((b, 1), i)
                    yield (e, d), u, self._op((a, 1), i), self._duration[u] + lag

    def _arcs(self) -> None:
        """t_v + x_de >= t_u + dur_u + lag_uv along edges between devices, both ways."""
        self.x: dict[tuple[int, int], IntVar] = {}
        for (d, e), u, v, gap in self._crossings():
            self.model.add(self.t[v] + self._shift(d, e) >= self.t[u] + gap)

    def _shift(self, d: int, e: int) -> LinearExpr | int:
        """Return o_e - o_d."""
        if not self._origins_free:
            return 0
        if (e, d) in self.x:
            return -self.x[e, d]
        if (d, e) not in self.x:
            far = 2 * self.frame.horizon
            self.x[d, e] = self.model.new_int_var(-far, far, f"x{d},{e}")
        return self.x[d, e]

    def _origins(self) -> None:
        """x_de = o_e - o_d, where the pairs of devices have a cycle."""
        self.o: list[IntVar] = []
        tree = _forest(self.instance.d, list(self.x))
        if len(tree) == len(self.x):
            return
        far = self.frame.horizon
        self.o = [self.model.new_int_var(0, far, f"o{d}") for d in range(self.instance.d)]
        for (d, e), x in self.x.items():
            self.model.add(x == self.o[e] - self.o[d])

    def _apart(self) -> None:
        """Operations of a device do not overlap."""
        operations = self.instance.operations
        for device in range(self.instance.d):
            self.model.add_no_overlap(
                [
                    self.model.new_fixed_size_interval_var(self.t[v], self._duration[v], f"i{v}")
                    for v in np.flatnonzero(operations.device == device).tolist()
                ]
            )

    def _release(self) -> None:
        """t_v >= t_u + dur_u where the memory does not allow v before."""
        for u, v in self._releases:
            self.model.add(self.t[v] >= self.t[u] + self._duration[u])

    def _memory(self) -> None:
        """Bytes held on a device at a time <= limit_d."""
        instance, frame, model = self.instance, self.frame, self.model
        self.lengths: list[tuple[IntVar, int, int]] = []
        self.y: dict[tuple[int, int], IntVar] = {}
        for device in range(instance.d):
            if not frame.binds(device):
                continue
            lone = frame.lone_stage(device)
            if lone is not None and frame.kinds == 2:
                continue  # the releases say it all
            if lone is not None and int(instance.microbatches[lone]) <= self._counted:
                self._count(lone)
                continue
            assert instance.limit is not None
            held, demands = [], []
            latest = frame.upper
            for r in frame.retentions(device):
                for i in range(int(instance.microbatches[r.stage])):
                    u = self._op((r.stage, r.taken), i)
                    v = -1 if r.given is None else self._op((r.stage, r.given), i)
                    end = latest if v < 0 else self.t[v] + self._duration[v]
                    length = model.new_int_var(0, latest, f"l{u},{v}")
                    held.append(model.new_interval_var(self.t[u], length, end, f"r{u},{v}"))
                    demands.append(r.nbytes)
                    self.lengths.append((length, u, v))
            divisor = math.gcd(*demands)
            model.add_cumulative(
                held,
                [nbytes // divisor for nbytes in demands],
                int(instance.limit[device]) // divisor,
            )

    def _count(self, s: int) -> None:
        """Let enough of B and W of stage s have ended where its F starts."""
        instance, model = self.instance, self.model
        given = -int(instance.memory_backward[s]), -int(instance.memory_weight[s])
        certain: dict[tuple[int, int], int] = {}
        operations = instance.operations
        for u, v in self._releases:
            if operations.stage[u] == operations.stage[v] == s:
                j = int(operations.microbatch[v])
                certain[int(operations.kind[u]), j] = int(operations.microbatch[u]) + 1
        first = [0, 0, 0]
        for j, need in self.frame.shortages(s):
            v = self._op((s, 0), j)
            for kind in (1, 2):
                first[kind] = max(first[kind], certain.get((kind, j), 0))
                for i in range(first[kind], j):
                    u = self._op((s, kind), i)
                    y = self.y[u, v] = model.new_bool_var(f"y{u},{v}")
                    model.add(self.t[v] >= self.t[u] + self._duration[u]).only_enforce_if(y)
                    model.add(self.t[u] >= self.t[v] + self._duration[v]).only_enforce_if(~y)
                    if i > first[kind]:
                        model.add_implication(y, self.y[u - 1, v])
                    before = self._op((s, 1), i)
                    if kind == 2 and (before, v) in self.y:
                        model.add_implication(y, self.y[before, v])
            sure = given[0] * first[1] + given[1] * first[2]
            if sure < need:
                terms = [
                    nbytes * self.y[self._op((s, kind), i), v]
                    for kind, nbytes in zip((1, 2), given, strict=True)
                    for i in range(first[kind], j)
                ]
                model.add(sum(terms) >= need - sure)

    def _objective(self) -> None:
        """Let z >= t_v + dur_v + after_d for the last operation of each stage."""
        instance, frame = self.instance, self.frame
        self.z = self.model.new_int_var(frame.lower, frame.upper, "z")
        for s in range(instance.p):
            v = self._op((s, frame.kinds - 1), int(instance.microbatches[s]) - 1)
            after = int(frame.after[instance.devices[s]])
            self.model.add(self.z >= self.t[v] + self._duration[v] + after)
        self.model.minimize(self.z)

    # ------------------------------------------------------------------ back and forth

    def decode(self, values: Array) -> ScheduleSolution:
        """Return the solution of values by variable index; its first start is 0."""
        found = np.rint(np.asarray(values, dtype=np.float64)).astype(np.int64)
        start = found[[t.index for t in self.t]]
        origin = np.zeros(self.instance.d, dtype=np.int64)
        for d, e in _forest(self.instance.d, list(self.x)):
            if (d, e) in self.x:
                origin[e] = origin[d] + found[self.x[d, e].index]
            else:
                origin[e] = origin[d] - found[self.x[e, d].index]
        start = start + origin[self.instance.operations.device]
        return ScheduleSolution.of(self.instance, (start - start.min()) * self.frame.unit)

    def hint(self, solution: ScheduleSolution) -> Array:
        """Return the value of every variable, shape (variables,), for a solution.

        Raises `InputError` when it is not in the model: it is worth more than `upper` allows.
        """
        frame, instance = self.frame, self.instance
        # Rounding down keeps every precedence, for all durations and lags are whole units.
        start = (solution.start - solution.start.min()) // frame.unit
        device = instance.operations.device
        origin = np.zeros(instance.d, dtype=np.int64)
        if self._origins_free:
            origin = np.full(instance.d, np.iinfo(np.int64).max)
            np.minimum.at(origin, device, start)
        t = start - origin[device]
        values = np.zeros(len(self.model.proto.variables), dtype=np.int64)
        values[[variable.index for variable in self.t]] = t
        for (d, e), x in self.x.items():
            values[x.index] = origin[e] - origin[d]
        for o, at in zip(self.o, origin.tolist(), strict=False):
            values[o.index] = at
        duration = np.array(self._duration)
        for length, u, v in self.lengths:
            end = frame.upper if v < 0 else t[v] + duration[v]
            values[length.index] = end - t[u]
        for (u, v), y in self.y.items():
            values[y.index] = t[u] + duration[u] <= t[v]
        z = max(frame.lower, int((t + duration + frame.after[device]).max()))
        if z > frame.upper:
            raise InputError(
                f"is worth {z * frame.unit}, more than {frame.upper * frame.unit}",
                field="solution",
                remedy="build the model without an upper bound",
            )
        values[self.z.index] = z
        return values

    def worth(self, steps: int) -> int:
        """Return the cycles of so many units; the lower bound in any case."""
        return max(self.frame.lower, steps) * self.frame.unit


def _forest(nodes: int, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs (known, new) that reach every node from the first of its part, in order.

    A pair may be given the other way around.  As many as `pairs` when these have no cycle.
    """
    near: list[list[int]] = [[] for _ in range(nodes)]
    for d, e in pairs:
        near[d].append(e)
        near[e].append(d)
    seen, found = [False] * nodes, []
    for root in range(nodes):
        stack = [] if seen[root] else [root]
        seen[root] = True
        while stack:
            d = stack.pop()
            for e in near[d]:
                if not seen[e]:
                    seen[e] = True
                    found.append((d, e))
                    stack.append(e)
    return found
