"""CP-SAT: how long a device must be idle before a moment, or after one.

Sets
    V                operations that can start before the moment; V_d those of device d
    A                pairs (u, v) of operations, u before v
    D                devices that do one thing at a time within their memory, x among them
Parameters
    r                the moment
    head_v           lower bound on the start of operation v
    dur_v, lag_uv    duration, latency
    take_v, give_v   bytes that v takes when it starts, and gives back when it ends
    limit_d          bytes of device d
Variables
    y_v              operation v starts before r
    t_v              when it does, head_v .. r - 1
    o                cycles that device x works after r in what it began before
    z                cycles that it is idle before r, at least what is proved
Objective
    minimise z
Constraints
    order            y_u and t_v >= t_u + dur_u + lag_uv where y_v        (u, v) in A
    apart            operations of V_d with y_v do not overlap            d in D
    memory           what those of V_d took and did not give back <= limit_d
    over             o >= t_v + dur_v - r where y_v                       v in V_x
    idle             z = r + o - sum of dur_v over V_x with y_v
Size
    |V| literals, starts and intervals, three rows for each pair of A
Source
    ours

What any schedule does before r is a solution, so that no schedule has device x idle for less.  Read
backward, a schedule takes what it gave back, and ends are starts: the same model says how long a
device must be idle in the last r cycles.  Devices that are not in D only delay.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from stagepack.formulations.base import TOLERANCE
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule


class Idle:
    """Idle cycles of a device before a moment, as a `cp_model.CpModel`.

    `head`, int64 (n,), are lower bounds on starts; for the end of schedules, read `back`, on what
    follows each operation.  `moment` is in cycles from the beginning, or from the end back.  The
    idle cycles of `device` are counted, of which `least` are proved; those `apart` do one thing at
    a time within their memory, too.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        head: Array,
        device: int,
        moment: int,
        *,
        least: int = 0,
        apart: Collection[int] = (),
        back: bool = False,
    ) -> None:
        from ortools.sat.python import cp_model

        self.instance, self.device, self.moment = instance, device, moment
        self.least, self.back, self._head = least, back, head
        self.parameters = {"linearization_level": 0}
        self.model = cp_model.CpModel()
        self._own = np.flatnonzero(head < moment)
        self._starts()
        self._order()
        for d in sorted({device, *apart}):
            own = self._own[instance.operations.device[self._own] == d].tolist()
            self._apart(own)
            self._memory(own, d)
        self._idle()

    def _starts(self) -> None:
        """y_v, and t_v from head_v on."""
        model, last = self.model, self.moment - 1
        self.y = {v: model.new_bool_var(f"y{v}") for v in self._own.tolist()}
        self.t = {v: model.new_int_var(int(self._head[v]), last, f"t{v}") for v in self.y}
        self._duration = self.instance.operations.duration.tolist()

    def _order(self) -> None:
        """y_u and t_v >= t_u + dur_u + lag_uv where y_v."""
        pairs = np.stack(self.instance.operations.precedences(), axis=1)
        if self.back:
            pairs = pairs[:, [1, 0, 2]]
        for u, v, lag in pairs[np.isin(pairs[:, 1], self._own)].tolist():
            self.model.add_implication(self.y[v], self.y[u])
            after = self.t[u] + self._duration[u] + lag
            self.model.add(self.t[v] >= after).only_enforce_if(self.y[v])

    def _apart(self, own: list[int]) -> None:
        """Those of a device do not overlap."""
        self.model.add_no_overlap(
            self.model.new_optional_fixed_size_interval_var(
                self.t[v], self._duration[v], self.y[v], f"i{v}"
            )
            for v in own
        )

    def _memory(self, own: list[int], d: int) -> None:
        """What a device took and did not give back <= limit_d."""
        instance, operations = self.instance, self.instance.operations
        if instance.limit is None:
            return
        delta, limit = operations.delta, int(instance.limit[d])
        if self.back:
            limit -= int(delta[operations.device == d].sum())
            delta = -delta
        change = {v: int(delta[v]) for v in own if delta[v]}
        if sum(max(nbytes, 0) for nbytes in change.values()) > limit:
            self.model.add_reservoir_constraint_with_active(
                [
                    self.t[v] + (self._duration[v] if nbytes < 0 else 0)
                    for v, nbytes in change.items()
                ],
                list(change.values()),
                [self.y[v] for v in change],
                -int(np.abs(delta).sum()),
                limit,
            )

    def _idle(self) -> None:
        """Minimise z = r + o - sum of dur_v over what device x starts before r."""
        model, device = self.model, self.instance.operations.device
        own = [v for v in self.y if device[v] == self.device]
        longest = max((self._duration[v] for v in own), default=0)
        self.o = model.new_int_var(0, longest, "o")
        self.z = model.new_int_var(self.least, self.moment, "z")
        for v in own:
            over = self.t[v] + self._duration[v] - self.moment
            model.add(self.o >= over).only_enforce_if(self.y[v])
        work = sum(self._duration[v] * self.y[v] for v in own)
        model.add(self.z == self.moment + self.o - work)
        model.minimize(self.z)

    def cycles(self, raw: float) -> int:
        """Return the idle cycles that a bound of the engine, which is exact, proves."""
        return math.ceil(raw - TOLERANCE)
