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
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from stagepack.contracts import cached
from stagepack.instances.fields import array_parts, digest_of
from stagepack.instances.profile import Array
from stagepack.instances.schedule.edges_state import Edges
from stagepack.instances.schedule.problem import KIND, Objective


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ScheduleData:
    """An instance of pipeline scheduling; use :meth:`from_arrays`, the fields are what it makes.

    Attributes
    ----------
    name : str
        Name for tables and reports.
    forward, backward, weight : ndarray of int64, shape (p,)
        Cycles of F, B and W of each stage for one microbatch, at least 1.  Without `weight` B is
        the whole backward pass; without `backward` there are only forward operations.
    devices : ndarray of int64, shape (p,)
        The device of each stage.
    edges : tuple of (int, int)
        Stages (producer, consumer): the consumer reads what the producer's F makes, and the
        producer's B reads what the consumer's B makes.  Without cycles.
    latency : ndarray of int64, shape (edges,)
        Cycles from the end of an operation until its result is at the other end of the edge.
    microbatches : ndarray of int64, shape (p,)
        Microbatches of each stage; equal at both ends of an edge.
    memory_forward, memory_backward, memory_weight : ndarray of int64, shape (p,)
        Bytes by which F, B and W change the memory of their device.
    limit : ndarray of int64, shape (d,), optional
        Bytes of each device for this; None: no limit.
    optimizer : ndarray of int64, shape (d,)
        Cycles of the optimizer of each device at the end of a step.
    post_validation : bool
        Each device runs its optimizer at once; otherwise all wait for the last operation of all.
    steps : int
        Optimizer steps of a run, for :func:`.check.measure`.
    objective : Objective
        What to minimise.
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

    # ------------------------------------------------------------------ derived figures

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
