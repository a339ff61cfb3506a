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

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stagepack.instances.answer import Answered
from stagepack.instances.profile import Array
from stagepack.instances.schedule import validate
from stagepack.instances.schedule.operations import Operations
from stagepack.instances.schedule.solution import ScheduleSolution
from stagepack.instances.schedule.validate import integer, integers
from stagepack.result import InputError, Result

if TYPE_CHECKING:
    from stagepack.instances.pipeline import PipelinePartition, PipelineSolution

KIND = "pipeline-schedule"


class Objective(StrEnum):
    """What a schedule should minimise, in cycles."""

    MAKESPAN = "makespan"
    """The end of the step: of the last operation and the optimizer after it."""
    SPAN = "span"
    """The longest time any device is taken, from its first start to its last end: the period of
    steps whose optimizer needs no barrier."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PipelineSchedule(Answered[ScheduleSolution]):
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

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_arrays(
        cls,
        forward: Any,
        backward: Any = None,
        weight: Any = None,
        *,
        microbatches: Any,
        devices: Any = None,
        edges: Iterable[tuple[int, int]] | None = None,
        latency: Any = 0,
        memory_forward: Any = 0,
        memory_backward: Any = 0,
        memory_weight: Any = 0,
        limit: Any = None,
        optimizer: Any = 0,
        post_validation: bool = False,
        steps: int = 1,
        objective: Objective | str | None = None,
        stage_names: Iterable[str] | None = None,
        device_names: Iterable[str] | None = None,
        name: str = "schedule",
        source: str = "",
    ) -> PipelineSchedule:
        """Build an instance from arrays; see the class for shapes and units.

        Parameters
        ----------
        forward, backward, weight : array_like of int, shape (p,)
            Only `forward` for inference, no `weight` where the backward pass is not split.
        microbatches : int or array_like
            One number for all stages or one each.
        devices : array_like of int, shape (p,), optional
            A device a stage when absent.
        edges : iterable of (int, int), optional
            The chain 0 -> 1 -> ... when absent.
        latency, memory_forward, memory_backward, memory_weight, limit, optimizer
            One number for all or one each.
        limit : int or array_like, optional
            No limit when absent.
        objective : Objective or str, optional
            "span" with `post_validation`, otherwise "makespan" when absent.

        Raises
        ------
        InputError
            Naming the field: wrong shapes, numbers that are not whole, a cycle, no microbatch, no
            step, a device without a stage, memory released that was not taken, sums of 2**62 and
            more.
        """
        f = integers(forward, "forward", "stage", least=1)
        p = len(f)
        if p == 0:
            raise InputError("no stages", field="forward", remedy="give at least one stage")
        if p > validate.MOST_STAGES:
            raise InputError(
                f"{p:,} stages",
                field="forward",
                remedy=f"give at most {validate.MOST_STAGES:,}",
            )
        if weight is not None and backward is None:
            raise InputError(
                "is missing though weight is given",
                field="backward",
                remedy="give backward too, or neither",
            )
        count = np.arange(p) if devices is None else devices
        device = integers(count, "devices", "stage", n=p, least=0)
        validate.devices(device)
        d = int(device.max()) + 1
        pairs = validate.edges(edges, p)

        def per_stage(values: Any, column: str, least: int | None = None) -> Array:
            return integers(values, column, "stage", n=p, least=least)

        built = cls(
            name=name,
            forward=f,
            backward=None if backward is None else per_stage(backward, "backward", 1),
            weight=None if weight is None else per_stage(weight, "weight", 1),
            devices=device,
            edges=pairs,
            latency=integers(latency, "latency", "edge", n=len(pairs), least=0),
            microbatches=per_stage(microbatches, "microbatches", 1),
            memory_forward=per_stage(memory_forward, "memory_forward"),
            memory_backward=per_stage(memory_backward, "memory_backward"),
            memory_weight=per_stage(memory_weight, "memory_weight"),
            limit=None if limit is None else integers(limit, "limit", "device", n=d, least=0),
            optimizer=integers(optimizer, "optimizer", "device", n=d, least=0),
            post_validation=bool(post_validation),
            steps=integer(steps, "steps", 1),
            objective=_objective(objective, bool(post_validation)),
            stage_names=validate.names(stage_names, "stage_names", p, "stage"),
            device_names=validate.names(device_names, "device_names", d, "device"),
            source=source,
        )
        validate.instance(built)
        return built

    @classmethod
    def from_partition(
        cls,
        partition: PipelinePartition,
        solution: PipelineSolution | Result[PipelineSolution],
        *,
        microbatches: Any = None,
        split: bool = True,
        **options: Any,
    ) -> PipelineSchedule:
        """Build an instance from the stages of a partition; see :func:`.partition.arguments`.

        Parameters
        ----------
        partition : PipelinePartition
        solution : PipelineSolution or Result
        microbatches : int or array_like, optional
            Those of the partition when absent.
        split : bool
            Split the backward cycles into B and W, half each.
        **options
            Arguments of :meth:`from_arrays` that replace what is derived.

        Raises
        ------
        InputError
            When the partition is invalid or does not say what a schedule needs.
        """
        from stagepack.instances.schedule.partition import arguments

        return cls.from_arrays(**arguments(partition, solution, microbatches, split, options))

    def replace(self, **changes: Any) -> PipelineSchedule:
        """Return a copy with some fields changed, all validated anew as by :meth:`from_arrays`.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        known = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in changes:
            if name not in known:
                raise InputError(
                    "is no field of a pipeline schedule",
                    field=name,
                    remedy="known are " + ", ".join(known),
                )
        return type(self).from_arrays(**{**known, **changes})

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
    def operations(self) -> Operations:
        """The operations as flat arrays, and what must come before what."""
        return Operations.of(self)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The stages so that producers come before their consumers."""
        return tuple(validate.topological(self.p, self.edges)[0])

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
        whole = hashlib.sha256()
        for key in sorted(self.__dataclass_fields__):
            if key in ("name", "source", "stage_names", "device_names"):
                continue
            value = getattr(self, key)
            whole.update(key.encode())
            if isinstance(value, np.ndarray):
                whole.update(repr(value.shape).encode())
                whole.update(np.ascontiguousarray(value).tobytes())
            else:
                whole.update(repr(value).encode())
        return whole.hexdigest()[:16]

    # ------------------------------------------------------------------ what an answer is worth

    def _line(self) -> str:
        return f"{self.name!r}, {self.p} stages, {self.d} devices, {self.objective}"

    def _answer(self) -> tuple[type[ScheduleSolution], Callable[..., Iterable[Any]]]:
        from stagepack.instances.schedule.check import shape

        return ScheduleSolution, shape

    def evaluate(self, solution: ScheduleSolution | Result[ScheduleSolution]) -> int:
        """Return the objective value of `solution`; see :mod:`.check`."""
        from stagepack.instances.schedule.check import evaluate

        return evaluate(self, self.solution_in(solution))

    def check(self, solution: ScheduleSolution | Result[ScheduleSolution]) -> tuple[Any, ...]:
        """Return the violations of `solution`, () if it is valid; see :mod:`.check`."""
        from stagepack.instances.schedule.check import check

        return check(self, self.solution_in(solution, shaped=False))


def _objective(given: Any, post_validation: bool) -> Objective:
    if given is None:
        return Objective.SPAN if post_validation else Objective.MAKESPAN
    try:
        return Objective(given)
    except ValueError:
        raise InputError(
            f"unknown objective {str(given)!r}",
            field="objective",
            remedy="choose one of " + ", ".join(Objective),
        ) from None
