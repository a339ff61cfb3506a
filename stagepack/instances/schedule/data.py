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
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from stagepack.instances.fields import array_parts, digest_of
from stagepack.instances.profile import Array
from stagepack.instances.schedule.words import KIND, Objective


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
    def lag(self) -> Array:
        """Latency that counts, shape (edges,): none between stages of one device."""
        ends = np.array(self.edges, dtype=np.int64).reshape(-1, 2)
        apart = self.devices[ends[:, 0]] != self.devices[ends[:, 1]]
        return np.where(apart, self.latency, 0)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The stages so that producers come before their consumers."""
        return tuple(topological(self.p, self.edges)[0])

    @cached_property
    def consumers(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each stage its consumers, each with the latency that counts."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.p)]
        for (producer, consumer), lag in zip(self.edges, self.lag.tolist(), strict=True):
            found[producer].append((consumer, lag))
        return tuple(map(tuple, found))

    @cached_property
    def _above(self) -> tuple[int, ...]:
        """For each stage the set of stages on paths that lead to it; bit a is stage a."""
        found = [0] * self.p
        for stage in self.order:
            reached = found[stage] | 1 << stage
            for consumer, _ in self.consumers[stage]:
                found[consumer] |= reached
        return tuple(found)

    def above(self, stage: int, among: Array) -> Array:
        """Return which of the stages `among` are on paths that lead to `stage`, as booleans."""
        size = self.p + 7 >> 3
        packed = np.frombuffer(self._above[stage].to_bytes(size, "little"), dtype=np.uint8)
        return np.unpackbits(packed, bitorder="little")[among].astype(bool)

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

    @cached_property
    def digest(self) -> str:
        """Fingerprint of everything that matters to an answer: equal digests, equal instances."""
        return digest_of(self, array_parts)

    def _line(self) -> str:
        return f"{self.name!r}, {self.p} stages, {self.d} devices, {self.objective}"


def topological(p: int, edges: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the stages so that producers come first (least numbers first), or else a cycle.

    O((p + edges) log(p)).
    """
    waits = [0] * p
    consumers: list[list[int]] = [[] for _ in range(p)]
    for producer, consumer in edges:
        waits[consumer] += 1
        consumers[producer].append(consumer)
    ready = [stage for stage in range(p) if not waits[stage]]
    order = []
    while ready:  # a heap
        stage = heapq.heappop(ready)
        order.append(stage)
        for consumer in consumers[stage]:
            waits[consumer] -= 1
            if not waits[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) == p:
        return order, []
    before: dict[int, int] = {}  # every stage left waits for another one left
    for producer, consumer in edges:
        if waits[producer]:
            before.setdefault(consumer, producer)
    walk, seen = [next(stage for stage in range(p) if waits[stage])], set()
    while walk[-1] not in seen:
        seen.add(walk[-1])
        walk.append(before[walk[-1]])
    cycle = walk[walk.index(walk[-1]) :]
    return [], cycle[::-1]
