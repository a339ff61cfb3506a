"""Pipeline schedules: when each stage works on each microbatch.

p stages, each on a device, work on m microbatches; every stage and microbatch has a forward
operation F and, in training, a backward operation B, which may be split into the gradient of the
input (B) and that of the weights (W).  An instance is plain arrays (one entry a stage, edge or
device); it knows no solver.

The rules, with s a stage, i a microbatch, (a, b) an edge of lag c:

- F(b, i) starts at or after the end of F(a, i) + c, B(a, i) at or after that of B(b, i) + c;
- B(s, i) starts at or after the end of F(s, i), W(s, i) at or after that of B(s, i);
- a device runs one operation at a time, without interruption, each kind of a stage in the order
  of the microbatches;
- the memory of a device never exceeds its limit: an operation that takes memory takes it at its
  start, one that gives memory back does so at its end.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from stagepack.contracts import JsonObject, cached
from stagepack.errors import InputError
from stagepack.instances.base import array_parts, digest_of
from stagepack.instances.documents import strict
from stagepack.instances.profile import Array
from stagepack.instances.schedule.edges_state import Edges
from stagepack.instances.schedule.problem import KIND, Objective
from stagepack.instances.words import LARGEST
from stagepack.shown import ShownSolution, some


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ScheduleData:
    """An instance of pipeline scheduling; :meth:`.PipelineSchedule.from_arrays` says what its
    fields mean.

    Columns are int64, an entry for each of p stages, of the edges (`latency`) or of d devices
    (`limit`, `optimizer`).
    """

    name: str
    forward: Array
    backward: Array | None = None
    weight: Array | None = None
    devices: Array
    edges: tuple[tuple[int, int], ...]
    latency: Array
    microbatches: Array
    memory_forward: Array
    memory_backward: Array
    memory_weight: Array
    limit: Array | None = None
    optimizer: Array
    post_validation: bool = False
    steps: int = 1
    objective: Objective = Objective.MAKESPAN
    stage_names: tuple[str, ...] | None = None
    device_names: tuple[str, ...] | None = None
    source: str = field(default="", compare=False)

    kind = KIND
    tolerance = 0.0

    @property
    def p(self) -> int:
        """Number of stages."""
        return len(self.forward)

    @cached_property
    def d(self) -> int:
        """Number of devices."""
        return int(self.devices.max()) + 1

    @property
    def training(self) -> bool:
        """Whether there are backward operations."""
        return self.backward is not None

    @property
    def split(self) -> bool:
        """Whether the backward pass is split into B and W."""
        return self.weight is not None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of operations there are, of F, B, W."""
        return ("F", "B", "W")[: 1 + self.training + self.split]

    @cached_property
    def ends(self) -> Array:
        """The edges as an array, shape (edges, 2)."""
        return np.array(self.edges, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def lag(self) -> Array:
        """Latency that counts, shape (edges,): none between stages of one device."""
        devices = self.devices[self.ends]
        return np.where(devices[:, 0] != devices[:, 1], self.latency, 0)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The stages so that producers come before their consumers; of a cycle none is here.

        Where several can be next, the least number comes first.  O(edges + p * log(p)).
        """
        waits = np.diff(self.producers.first)
        first, consumers = self.consumers.first.tolist(), self.consumers.stage
        ready = np.flatnonzero(waits == 0).tolist()
        order = []
        while ready:  # a heap
            stage = heapq.heappop(ready)
            order.append(stage)
            then = consumers[first[stage] : first[stage + 1]]
            waits[then] -= 1
            for consumer in then[waits[then] == 0].tolist():
                heapq.heappush(ready, consumer)
        return tuple(order)

    @cached_property
    def consumers(self) -> Edges:
        """The edges by their producers."""
        return self._edges(0)

    @cached_property
    def producers(self) -> Edges:
        """The edges by their consumers."""
        return self._edges(1)

    def _edges(self, end: int) -> Edges:
        """Return the edges by their stage at `end`: 0, the producer, or 1, the consumer."""
        here, there = self.ends[:, end], self.ends[:, 1 - end]
        by = np.argsort(here, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(here, minlength=self.p))])
        return Edges(first, there[by], self.lag[by])

    @cached_property
    def work(self) -> Array:
        """Cycles of all operations of each device, without optimizers, shape (d,)."""
        columns = (self.forward, self.backward, self.weight)
        cycles = sum(column for column in columns if column is not None) * self.microbatches
        total = np.zeros(self.d, dtype=np.int64)
        np.add.at(total, self.devices, cycles)
        return total

    @cached_property
    def after(self) -> Array:
        """What the objective adds to the last end of each device, shape (d,).

        Its optimizer; or the longest of all, where they wait for one another.
        """
        if self.objective is Objective.SPAN or self.post_validation:
            return self.optimizer
        return np.full(self.d, self.optimizer.max())

    def changes(self, stage: int) -> tuple[int, int, int]:
        """Return by how much F, B and W of a stage change memory; 0 for kinds that are missing."""
        b = int(self.memory_backward[stage]) if self.training else 0
        w = int(self.memory_weight[stage]) if self.split else 0
        return int(self.memory_forward[stage]), b, w

    def stages_of(self, device: int) -> tuple[int, ...]:
        """Return the stages that run on a device."""
        return self._stages_of[device]

    @cached_property
    def _stages_of(self) -> tuple[tuple[int, ...], ...]:
        by = np.argsort(self.devices, kind="stable")
        ends = np.cumsum(np.bincount(self.devices, minlength=self.d))
        return tuple(tuple(part.tolist()) for part in np.split(by, ends[:-1]))

    def stage_name(self, stage: int) -> str:
        """Name of a stage for messages and plots."""
        return f"stage {stage}" if self.stage_names is None else self.stage_names[stage]

    def device_name(self, device: int) -> str:
        """Name of a device for messages and plots."""
        return f"device {device}" if self.device_names is None else self.device_names[device]

    @cached
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        return digest_of(self, array_parts)

    def _line(self) -> str:
        return f"{self.name!r}, {self.p} stages, {self.d} devices, {self.objective}"


SHAPE = 'write {"start": [[[F starts], [B starts], [W starts]], ...]}, one entry a stage'


@dataclass(frozen=True, eq=False, repr=False)
class ScheduleSolution(ShownSolution):
    """The start of each operation, in cycles.

    Attributes
    ----------
    start : ndarray of int64, shape (operations,)
        Start of each operation, ordered by stage, kind (F, B, W) and microbatch: see
        :class:`.operations.Operations`.
    kinds : int
        Number of kinds of operations of a stage: 1, 2 or 3.
    microbatches : tuple of int
        Microbatches of each stage.
    """

    start: Array
    kinds: int
    microbatches: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScheduleSolution):
            return NotImplemented
        return (
            self.kinds == other.kinds
            and self.microbatches == other.microbatches
            and np.array_equal(self.start, other.start)
        )

    def __hash__(self) -> int:
        return hash((self.kinds, self.microbatches, self.start.tobytes()))

    @classmethod
    def of(cls, instance: ScheduleData, start: Any) -> ScheduleSolution:
        """Return the solution of `instance` with these starts, one for each operation.

        An array of int64 becomes part of it, not a copy.
        """
        return cls(
            np.asarray(start, dtype=np.int64),
            len(instance.kinds),
            tuple(map(int, instance.microbatches)),
        )

    @classmethod
    def from_dict(cls, data: object, instance: ScheduleData) -> ScheduleSolution:
        """Read ``{"start": [[[F starts], [B starts], [W starts]], ...]}``, one entry a stage.

        Raises
        ------
        InputError
            When a stage, a kind or a microbatch is missing or too many, or a start is no integer.
        """
        given = None
        if isinstance(data, Mapping):
            strict.require_fields(data, ("start",))
            given = data.get("start")
        if not isinstance(given, list | tuple):
            raise InputError("is missing or no list", field="start", remedy=SHAPE)
        _require(given, instance.p, "stages", "start")
        kinds = instance.kinds
        flat: list[int] = []
        for stage, rows in enumerate(given):
            _require(
                rows, len(kinds), f"kinds of operations ({', '.join(kinds)})", f"start[{stage}]"
            )
            for kind, row in enumerate(rows):
                where = f"start[{stage}][{kind}]"
                _require(row, int(instance.microbatches[stage]), "microbatches", where)
                for at, value in enumerate(row):
                    odd = isinstance(value, bool) or not isinstance(value, int)
                    if odd or abs(value) >= LARGEST:
                        raise InputError(
                            f"{value!r} is no integer below 2**62",
                            field=f"{where}[{at}]",
                            remedy="give the cycle of the start",
                        )
                    flat.append(value)
        return cls.of(instance, flat)

    def to_dict(self) -> JsonObject:
        """Return the solution as JSON data, as :meth:`from_dict` reads it."""
        return {"start": [rows.tolist() for rows in self.stages]}

    def _line(self) -> str:
        stages = len(self.microbatches)
        return f"{len(self.start):,} operations of {stages:,} stages, starts {some(self.start)}"

    def malformed(self) -> str:
        """Return the name of an invalid field, or ''."""
        if not isinstance(self.start, np.ndarray):
            return "start"
        return "" if isinstance(self.microbatches, tuple) else "microbatches"

    @property
    def stages(self) -> list[Array]:
        """The starts of each stage, shape (kinds, microbatches)."""
        ends = np.cumsum([self.kinds * m for m in self.microbatches])[:-1]
        return [part.reshape(self.kinds, -1) for part in np.split(self.start, ends)]


def _require(rows: Any, count: int, what: str, where: str) -> None:
    if not isinstance(rows, list | tuple):
        raise InputError("is no list", field=where, remedy=SHAPE)
    if len(rows) != count:
        raise InputError(
            f"has {len(rows):,} entries for {count:,} {what}",
            field=where,
            remedy="give a solution of this instance",
        )
