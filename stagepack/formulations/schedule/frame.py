"""What a model of a schedule needs to know beforehand: units, distances, memory as intervals.

Everything here follows from the precedences and the memory alone and holds in every schedule.

Sets
    (s, k)        kinds k of operations of stage s: F, B, W
    steps         precedences within a microbatch between operations of one device
    retentions    what a stage takes with one operation and gives back with another
Quantities
    dur_sk, lag_ab, after_d    durations, latencies and what the objective adds, in units
    gap               least time from start to start within one microbatch (`distances`)
    shortages         bytes that must have been given back before the j-th F
    U                 what the objective may be at most, where nothing waits without need
Cost
    O(p^2 edges) for the gaps, O(p m) for the rest
Source
    ours
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import assert_never

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule import Objective, PipelineSchedule

NONE = -(2**61)
"""Distance between operations of which neither must wait for the other."""


@dataclass(frozen=True)
class Step:
    """Operations (stage, kind) `one` and `then` of a microbatch on one device.

    In every schedule `then` starts `distance` units after `one`, or later.
    """

    one: tuple[int, int]
    then: tuple[int, int]
    distance: int


@dataclass(frozen=True)
class Retention:
    """Bytes that a stage holds from the start of kind `taken` to the end of kind `given`.

    Forever, where `given` is None.
    """

    stage: int
    taken: int
    given: int | None
    nbytes: int


class Frame:
    """An instance in the coarsest units that lose nothing, and what follows from it.

    - `unit`: cycles of a unit: every time of the instance is a multiple.
    - `duration`, int64, shape (p, kinds): units of F, B, W of each stage.
    - `lag`, int64, shape (edges,): latencies, in units.
    - `after`, `work`, int64, shape (d,): units that the objective adds to the last end of each
      device, and of its operations.
    - `upper`: units within which all devices must end: what the given `upper`, in cycles, allows,
      else enough for any schedule that never waits without need.
    - `lower`: a bound on the objective, in units; `lower` is given in cycles.
    """

    def __init__(
        self, instance: PipelineSchedule, *, upper: int | None = None, lower: int | None = None
    ) -> None:
        self.instance = instance
        columns = (instance.forward, instance.backward, instance.weight)
        duration = np.stack([column for column in columns if column is not None], axis=1)
        after = instance.after
        self.unit = _unit(instance, np.concatenate([duration.ravel(), instance.lag, after]))
        self.duration = duration // self.unit
        self.lag = instance.lag // self.unit
        self.after = after // self.unit
        m = instance.microbatches
        self.work = instance.work // self.unit
        # When no operation runs and no message is on its way, the next one can start.
        ways = 2 if instance.training else 1
        carried = sum(
            ways * int(m[a]) * int(lag)
            for (a, _), lag in zip(instance.edges, self.lag, strict=True)
        )
        self.horizon = int(self.work.sum()) + carried + int(self.after.max())
        self.upper = self.horizon if upper is None else min(self.horizon, upper // self.unit)
        least = int((self.work + self.after).max())
        self.lower = least if lower is None else max(least, -(-lower // self.unit))

    @property
    def kinds(self) -> int:
        """Kinds of operations of a stage."""
        return len(self.instance.kinds)

    # ------------------------------------------------------------------ distances

    @cached_property
    def distances(self) -> Array:
        """Least time from start to start within one microbatch, shape (p * kinds, p * kinds).

        Row and column of kind k of stage s are s * kinds + k; `NONE` where there is no path.
        O(p**2 * edges).
        """
        instance, kinds = self.instance, self.kinds
        n = instance.p * kinds
        arcs: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for (a, b), lag in zip(instance.edges, self.lag.tolist(), strict=True):
            arcs[a * kinds].append((b * kinds, int(self.duration[a, 0]) + lag))
            if kinds > 1:
                arcs[b * kinds + 1].append((a * kinds + 1, int(self.duration[b, 1]) + lag))
        for s in range(instance.p):
            for k in range(kinds - 1):
                arcs[s * kinds + k].append((s * kinds + k + 1, int(self.duration[s, k])))
        forward = [s * kinds for s in instance.order]
        backward = [s * kinds + 1 for s in reversed(instance.order)] if kinds > 1 else []
        last = [s * kinds + 2 for s in range(instance.p)] if kinds > 2 else []
        distance = np.full((n, n), NONE, dtype=np.int64)
        np.fill_diagonal(distance, 0)
        for v in reversed([*forward, *backward, *last]):
            for then, length in arcs[v]:
                reached = distance[then] > NONE
                longer = distance[then][reached] + length
                distance[v][reached] = np.maximum(distance[v][reached], longer)
        return distance

    def steps(self) -> list[Step]:
        """Return the precedences within a microbatch between operations of one device.

        Those that follow from others are left out.
        """
        found = []
        kinds, devices = self.kinds, self.instance.devices
        for device in range(self.instance.d):
            stages = np.flatnonzero(devices == device)
            nodes = np.concatenate([s * kinds + np.arange(kinds) for s in stages])
            between = self.distances[np.ix_(nodes, nodes)]
            for i, j in zip(*np.nonzero(between > NONE), strict=True):
                if i == j:
                    continue
                middle = (between[i] > NONE) & (between[:, j] > NONE)
                middle[[i, j]] = False
                around = (between[i] + between[:, j])[middle]
                if not (around >= between[i, j]).any():
                    one, then = int(nodes[i]), int(nodes[j])
                    found.append(Step(divmod(one, kinds), divmod(then, kinds), int(between[i, j])))
        return found

    def first_stage(self, device: int) -> int | None:
        """Return the stage whose first F is the first operation of a device in every schedule."""
        stages = self.instance.stages_of(device)
        for s in stages:
            row = self.distances[s * self.kinds]
            if all(row[t * self.kinds] > NONE for t in stages):
                return s
        return None

    # ------------------------------------------------------------------ memory

    def _held(self, stage: int) -> list[int]:
        """Return the bytes that a microbatch holds on a stage after F, B and W."""
        instance = self.instance
        columns = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
        return list(itertools.accumulate(int(column[stage]) for column in columns[: self.kinds]))

    def binds(self, device: int) -> bool:
        """Whether the limit of a device could be exceeded at all."""
        limit = self.instance.limit
        if limit is None:
            return False
        most = 0
        for s in self.instance.stages_of(device):
            held = self._held(s)
            steps = [held[0], *np.diff(held).tolist()]
            peaks = [step + before for step, before in zip(steps, [0, *held], strict=False)]
            most += int(self.instance.microbatches[s]) * max(*held, *peaks)
        return most > int(limit[device])

    def retentions(self, device: int) -> list[Retention]:
        """Return what the stages of a device hold, and from when to when, for each microbatch.

        At any time the bytes of the running ones add up to the memory of the device: what an
        operation gives back is matched with the latest that was taken before it.
        """
        found: list[Retention] = []
        for s in self.instance.stages_of(device):
            held = self._held(s)
            taken: list[list[int]] = []
            for k, change in enumerate([held[0], *np.diff(held).tolist()]):
                if change > 0:
                    taken.append([k, change])
                while change < 0:
                    kind, nbytes = taken[-1]
                    part = min(nbytes, -change)
                    found.append(Retention(s, kind, k, part))
                    change += part
                    taken[-1][1] -= part
                    if not taken[-1][1]:
                        taken.pop()
            found += [Retention(s, kind, None, nbytes) for kind, nbytes in taken]
        return found

    def lone_stage(self, device: int) -> int | None:
        """Return the stage of a device that has one, whose B and W take nothing; else None.

        Its memory depends on how many F, B and W were run alone, and only F can exceed the limit.
        """
        stages = self.instance.stages_of(device)
        held = self._held(stages[0])
        return stages[0] if len(stages) == 1 and held == sorted(held, reverse=True) else None

    def shortages(self, stage: int) -> list[tuple[int, int]]:
        """Return (j, bytes) for each F of a lone stage that has to wait for bytes given back."""
        limit = self.instance.limit
        assert limit is not None
        room = int(limit[self.instance.devices[stage]])
        taken = int(self.instance.memory_forward[stage])
        needs = [(j, (j + 1) * taken - room) for j in range(int(self.instance.microbatches[stage]))]
        return [(j, need) for j, need in needs if need > 0]


def _unit(instance: PipelineSchedule, times: Array) -> int:
    """Return a unit in which some best schedule is whole.

    For given orders the least makespan is a longest path, a multiple of the greatest common
    divisor of all times.  The longest span is at least the mean weight of a cycle of paths over k
    devices, a multiple of a k-th of the divisor, rounded up to whole cycles.
    """
    divisor = int(np.gcd.reduce(times))
    match instance.objective:
        case Objective.MAKESPAN:
            return divisor
        case Objective.SPAN:
            parts = math.lcm(*range(1, instance.d + 1))
            return divisor // parts if divisor % parts == 0 else 1
        case unknown:
            assert_never(unknown)
