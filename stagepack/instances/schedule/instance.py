"""Instances of pipeline scheduling: how they are made, what a schedule is worth, if it is right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.files import in_bytes
from stagepack.instances import clusters
from stagepack.instances.arrays import Given, integer, integers, names
from stagepack.instances.base import Answered, Rules, require_instance
from stagepack.instances.graph import GraphPartition, GraphSolution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Array, Cluster, ModelProfile
from stagepack.instances.schedule import graph, validate
from stagepack.instances.schedule.check import Measure, check, evaluate, shape
from stagepack.instances.schedule.check import measure as measured
from stagepack.instances.schedule.data import ScheduleData, ScheduleSolution
from stagepack.instances.schedule.operations import Operations
from stagepack.instances.schedule.partition import arguments, balanced
from stagepack.instances.schedule.problem import KIND, Objective
from stagepack.instances.words import member
from stagepack.result import Result


class PipelineSchedule(ScheduleData, Answered[ScheduleSolution, int]):
    """An instance of pipeline scheduling; use :meth:`from_arrays`."""

    solution_type = ScheduleSolution
    rules = Rules(shape, check, evaluate)

    @classmethod
    def from_arrays(
        cls,
        forward: Given,
        backward: Given = None,
        weight: Given = None,
        *,
        microbatches: Given,
        devices: Given = None,
        edges: Iterable[tuple[int, int]] | None = None,
        latency: Given = 0,
        memory_forward: Given = 0,
        memory_backward: Given = 0,
        memory_weight: Given = 0,
        limit: Given = None,
        optimizer: Given = 0,
        post_validation: bool = False,
        steps: int = 1,
        whole_first: bool = False,
        objective: Objective | str | None = None,
        stage_names: Iterable[str] | None = None,
        device_names: Iterable[str] | None = None,
        name: str = "schedule",
        source: str = "",
    ) -> PipelineSchedule:
        """Build an instance from arrays.

        Parameters
        ----------
        forward, backward, weight : array_like of int, shape (p,)
            Cycles of F, B and W of each stage for one microbatch, at least 1.  For inference only
            `forward`; without `weight`, B is the whole backward pass.
        microbatches : int or array_like
            One number for all stages or one each, equal at both ends of an edge.
        devices : array_like of int, shape (p,), optional
            Device of each stage; by default each stage has its own.
        edges : iterable of (int, int), optional
            Stages (producer, consumer), without cycles: the consumer reads what the producer's F
            makes, and the producer's B what the consumer's B makes.  The chain 0 -> 1 -> ... when
            absent.
        latency : int or array_like
            Cycles from the end of an operation until its result is at the other end of the edge,
            one number for all edges or one each.
        memory_forward, memory_backward, memory_weight : int or array_like
            Bytes that F, B and W of a microbatch allocate (negative: free), one number for all
            stages or one each.
        limit : int or array_like, optional
            Bytes of memory, one number for all devices or one each; no limit when absent.
        optimizer : int or array_like
            Cycles of the optimizer step, one number for all devices or one each.
        post_validation : bool
            Whether each device runs its optimizer step as soon as its own operations are done;
            otherwise all devices wait for the last operation.
        steps : int
            Optimizer steps of a run.
        whole_first : bool
            Whether stages without predecessors do their whole backward pass in W, so that B takes
            one cycle.  No stage needs the gradient of their inputs, and PyTorch computes both there
            at once.
        objective : Objective or str, optional
            "span" with `post_validation`, otherwise "makespan" when absent.
        stage_names, device_names : iterable of str, optional
            Numbers when absent.
        name, source : str
            For tables and reports.

        Raises
        ------
        InputError
            Naming the field: wrong shapes, numbers that are not whole, a cycle, no microbatch, no
            step, a device without a stage, more memory freed than was allocated, or sums of 2**62
            and more.
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
        device = integers(count, "devices", "stage", p, least=0, spread=True)
        validate.devices(device)
        d = int(device.max()) + 1
        pairs = validate.edges(edges, p)

        def per_stage(values: Given, column: str, least: int | None = None) -> Array:
            return integers(values, column, "stage", p, least=least, spread=True)

        def per_device(values: Given, column: str) -> Array:
            return integers(values, column, "device", d, least=0, spread=True)

        built = cls(
            name=name,
            forward=f,
            backward=None if backward is None else per_stage(backward, "backward", 1),
            weight=None if weight is None else per_stage(weight, "weight", 1),
            devices=device,
            edges=pairs,
            latency=integers(latency, "latency", "edge", len(pairs), least=0, spread=True),
            microbatches=per_stage(microbatches, "microbatches", 1),
            memory_forward=per_stage(memory_forward, "memory_forward"),
            memory_backward=per_stage(memory_backward, "memory_backward"),
            memory_weight=per_stage(memory_weight, "memory_weight"),
            limit=None
            if limit is None
            else integers(in_bytes(limit, "limit"), "limit", "device", d, least=0, spread=True),
            optimizer=integers(optimizer, "optimizer", "device", d, least=0, spread=True),
            post_validation=bool(post_validation),
            steps=integer(steps, "steps", 1),
            objective=_objective(objective, bool(post_validation)),
            stage_names=names(stage_names, "stage_names", p, "stage"),
            device_names=names(device_names, "device_names", d, "device"),
            source=source,
        )
        if whole_first:
            built = with_whole_first(built)
        validate.instance(built)
        return built

    @classmethod
    def from_partition(
        cls,
        partition: PipelinePartition,
        solution: PipelineSolution | Result[PipelineSolution],
        *,
        microbatches: Given = None,
        split: bool = True,
        **options: Any,
    ) -> PipelineSchedule:
        """Build an instance from the stages of a partition; see :func:`.partition.arguments`.

        Parameters
        ----------
        partition : PipelinePartition
            The chain that was cut.
        solution : PipelineSolution or Result
            Where it was cut.
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
        return cls.from_arrays(**arguments(partition, solution, microbatches, split, options))

    @classmethod
    def from_profile(
        cls,
        profile: ModelProfile,
        cluster: Cluster | str,
        *,
        training: bool | None = None,
        microbatches: int | None = None,
        split: bool = True,
        **options: Any,
    ) -> PipelineSchedule:
        """Build an instance from a model profile and a cluster: a stage a device, balanced.

        The stages are those of the least bottleneck, see :func:`.partition.balanced`.

        Parameters
        ----------
        profile : ModelProfile
            The layers.
        cluster : Cluster or str
            By itself, or by its name in the catalog; the layers count cycles of its clock.
        training : bool, optional
            Count backward passes and stashes; by default what the profile says of its bytes.
        microbatches : int, optional
            As many as devices when absent.
        split : bool
            Split the backward cycles into B and W, half each.
        **options
            Arguments of :meth:`from_arrays` that replace what is derived.

        Raises
        ------
        InputError
            When the layers do not fit the devices, and for what :meth:`from_partition` refuses.
        """
        cluster, training = clusters.cluster(cluster), profile.trains(training)
        count = len(cluster) if microbatches is None else microbatches
        chain = PipelinePartition.from_profile(
            profile, cluster, training=training, microbatches=count, objective="bottleneck"
        )
        return cls.from_partition(
            chain, balanced(chain), microbatches=count, split=split and training, **options
        )

    @classmethod
    def from_graph(
        cls,
        partition: GraphPartition,
        solution: GraphSolution | Result[GraphSolution],
        *,
        cycles: Number = 1,
        microbatches: Given = None,
        split: bool = True,
        **options: Any,
    ) -> PipelineSchedule:
        """Build an instance from a partition of a graph; see :func:`.graph.arguments`.

        Where stages need not be contiguous, a device has as many as it takes.

        Parameters
        ----------
        partition : GraphPartition
            The graph that was divided.
        solution : GraphSolution or Result
            Which device each operator is on.
        cycles : int or float
            Cycles per unit of time of the graph.  Times are rounded up to whole cycles, so for
            times with fractions choose a large number, such as 1,000.
        microbatches : int or array_like, optional
            Those of the partition when absent.
        split : bool
            Split the backward time into B and W, half each.
        **options
            Arguments of :meth:`from_arrays` that replace what is derived.

        Raises
        ------
        InputError
            When the partition is invalid, replicates stages, or has a backward pass that does not
            run through the stages in reverse.
        """
        given = graph.arguments(partition, solution, cycles, microbatches, split, options)
        return cls.from_arrays(**given)

    @cached_property
    def operations(self) -> Operations:
        """The operations as flat arrays, and what must come before what."""
        return Operations.of(self)


def measure(
    instance: PipelineSchedule, solution: ScheduleSolution | Result[ScheduleSolution]
) -> Measure:
    """Return times, bubbles, memory and microbatches in flight of a valid `solution`."""
    require_instance(instance, KIND)
    return measured(instance, instance.solution_in(solution))


def with_whole_first(instance: PipelineSchedule) -> PipelineSchedule:
    """Return an instance whose first stages do all of B but a cycle in W; doing so again is idle.

    Refuses a backward pass that is not split.
    """
    if instance.backward is None or instance.weight is None:
        raise InputError(
            "the backward pass is not split", field="whole_first", remedy="give weight, or leave it"
        )
    first = np.ones(instance.p, dtype=bool)
    first[instance.ends[:, 1]] = False
    moved = np.where(first, instance.backward - 1, 0)
    freed = np.where(first, instance.memory_backward, 0)
    return replace(
        instance,
        backward=instance.backward - moved,
        weight=instance.weight + moved,
        memory_backward=instance.memory_backward - freed,
        memory_weight=instance.memory_weight + freed,
    )


def _objective(given: Objective | str | None, post_validation: bool) -> Objective:
    """Return the objective of its name; the usual one where none is given."""
    if given is None:
        return Objective.SPAN if post_validation else Objective.MAKESPAN
    return member(given, Objective, "objective")
