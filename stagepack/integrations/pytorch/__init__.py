"""PyTorch: modules in, profiles and stages out; needs the extra `torch`."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack import files
from stagepack.errors import InputError
from stagepack.instances.graph import GraphSolution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.validate import require_tied
from stagepack.instances.profile import Cluster, ModelProfile
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.result import Result, Status

if TYPE_CHECKING:
    from torch import nn

    from stagepack.integrations.pytorch.pipelining import Running
    from stagepack.integrations.pytorch.stages import Stages

log = logging.getLogger("stagepack")
Plan = (
    PipelineSolution | GraphSolution | Result[PipelineSolution] | Result[GraphSolution]
    | Sequence[int]
)  # fmt: skip
"""Stages of the layers of a profile: a solution, or where they begin, and their number."""


def require_torch() -> None:
    """Refuse to go on without PyTorch."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "this needs PyTorch", field="torch", remedy="pip install 'stagepack[torch]'"
        )


def profile_model(
    module: nn.Module,
    sample_inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    depth: int | None = None,
    basic_blocks: Sequence[type] = (),
    measure: bool = False,
    training: bool = False,
    machine: str = "generic-1",
    state_bytes: int = 8,
    repeats: int = 5,
    cache: str | Path | None = None,
    progress: bool = False,
    tied: str = "copied",
) -> ModelProfile:
    """Return the cost of each layer of a PyTorch module: counted without running it, or measured.

    A layer is a module without children, or a larger module if `depth` or `basic_blocks` say so, or
    else a model of Transformers itself (`_no_split_modules`, such as its decoder layers).  A model
    that cannot be traced with its cache of keys and values is taken with ``use_cache=False``, and a
    warning says so.
    Operations of a module between its children belong to the layer before them.  Layers are listed
    in the order in which they run; a layer that runs twice is listed twice.  If nothing is
    measured, a warning names the operators whose number of operations is unknown; their cost is
    estimated from the values that they read and write.

    Parameters
    ----------
    module : torch.nn.Module
        In training or evaluation mode, as it is to run.
    sample_inputs : sequence
        Positional inputs of a microbatch: tensors, or lists, tuples and dictionaries of them.
    kwargs : mapping, optional
        Inputs by keyword.
    depth : int, optional
        How deep the layers are in the hierarchy of modules: 1 for the children of `module`.
    basic_blocks : sequence of type
        Classes of modules that are layers as a whole.
    measure : bool
        Whether to run each layer by itself, forward and backward.  Cycles are then nanoseconds, and
        the memory of both passes is measured.  Otherwise, cycles are those that `machine` needs for
        the counted operations.
    training : bool
        Whether the bytes include gradients and optimiser state; instances made of the profile are
        then of training, and otherwise of inference, as all are where nothing else is said.
    machine : str
        A cluster of the catalog; the speed of its devices converts operations to cycles.
    state_bytes : int
        Bytes of optimiser state per parameter.
    repeats : int
        Number of measurements of each layer; the shortest time is used.
    cache : path, optional
        Folder in which measurements are stored and found again.
    progress : bool
        Show a bar while measuring.
    tied : str
        What becomes of parameters that several layers use: "copied" to each stage of a chain that
        uses them, which then synchronises their gradients, or "together", on one stage.  On devices
        of a graph they are together.

    Returns
    -------
    ModelProfile
        For :meth:`.PipelinePartition.from_profile` and :meth:`.GraphPartition.from_profile`.

    Raises
    ------
    InputError
        If PyTorch is not installed, or the module cannot be traced (naming the layer and the
        reason).
    """
    require_torch()
    require_tied(tied)
    from stagepack.integrations.pytorch.counting import counted
    from stagepack.integrations.pytorch.measuring import Bench, measured
    from stagepack.integrations.pytorch.tracing import trace

    traced = trace(module, sample_inputs, kwargs or {}, depth, basic_blocks)
    profile = counted(traced, machine, training=training, state_bytes=state_bytes, told=not measure)
    if measure:
        bench = Bench(repeats, None if cache is None else Path(cache), progress)
        profile = measured(traced, profile, bench)
    log.info(
        "%s: %d layers, %s parameters, %s", profile.name, len(profile.layers),
        f"{sum(one.numel() for one in module.parameters()):,}",
        "training" if training else "inference",
    )  # fmt: skip
    return profile.together() if tied == "together" else profile


def build_stages(
    module: nn.Module,
    plan: Plan,
    sample_inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    depth: int | None = None,
    basic_blocks: Sequence[type] = (),
) -> Stages:
    """Return the stages of a module as modules; run in turn they compute the same as the module.

    Parameters
    ----------
    plan : PipelineSolution, GraphSolution, Result or sequence of int
        A partition of the layers that :func:`profile_model` finds with the same arguments, as a
        chain or a graph.  Devices of a graph become stages in the order of their dependencies.
    sample_inputs, kwargs, depth, basic_blocks
        As there.

    Returns
    -------
    Stages
        A sequence of modules that hold the parameters and buffers of `module` under their own
        names.  Calling it runs all of them.  In one process, stages that use a parameter share it;
        in several, each has its own, and :func:`run_pipeline` or :func:`tied_gradients` add up the
        gradients.

    Raises
    ------
    InputError
        As :func:`profile_model`.  Also if the plan has other layers; if devices of a graph depend
        on each other in a cycle; if several stages use a buffer that one of them writes; if the
        module defines its own backward passes (hooks, functions) and gradients are on; or if it
        computes with values that change from run to run.
    """
    require_torch()
    from stagepack.integrations.pytorch.rearranging import rearranged
    from stagepack.integrations.pytorch.stages import staged
    from stagepack.integrations.pytorch.tracing import trace

    solution = plan.solution if isinstance(plan, Result) else plan
    if solution is None:
        infeasible = isinstance(plan, Result) and plan.status is Status.INFEASIBLE
        why = f" ({plan.status}: {plan.reason})" if isinstance(plan, Result) else ""
        remedy = "change what makes it infeasible" if infeasible else "solve it for longer"
        raise InputError(f"holds no solution{why}", field="plan", remedy=remedy)
    if isinstance(solution, PipelineSolution) and solution.choices:
        raise InputError(
            "layers take alternatives, and stages run them as they are",
            field="plan",
            remedy="wrap the module's layers by what write_solution(format='torch-recompute') "
            "writes, and cut it by torch.distributed.pipelining",
        )
    traced = trace(module, sample_inputs, kwargs or {}, depth, basic_blocks)
    if isinstance(solution, GraphSolution):
        return staged(*rearranged(traced, solution.assignment.tolist(), solution.order))
    boundaries = solution.boundaries if isinstance(solution, PipelineSolution) else solution
    return staged(traced, boundaries)


def pipe_model(
    module: nn.Module,
    sample_inputs: Sequence[Any],
    n_stages: int,
    kwargs: Mapping[str, Any] | None = None,
    *,
    cluster: Cluster | None = None,
    output_file: str | Path | None = None,
    time_limit: float = 10,
    depth: int | None = None,
    basic_blocks: Sequence[type] = (),
    **profile: Any,
) -> tuple[Stages, Result[PipelineSolution]]:
    """Profile a module, cut it into balanced stages, and return the stages with the result.

    Parameters
    ----------
    sample_inputs, kwargs, depth, basic_blocks, **profile
        As for :func:`profile_model`.
    n_stages : int
        How many.
    cluster : Cluster, optional
        The devices; by default equal ones without memory limits, with free transfers.
    output_file : path, optional
        A file for the stages as Python code, see :func:`compile_partitioned_model`.
    time_limit : float
        Seconds of the search for stages.

    Raises
    ------
    InputError
        As :func:`profile_model` and :func:`build_stages`, and if no stages fit.
    """
    require_torch()
    from stagepack.solve import solve

    if not isinstance(n_stages, int) or n_stages < 1:
        raise InputError(f"{n_stages!r} stages", field="n_stages", remedy="give at least 1")
    cut: dict[str, Any] = {"depth": depth, "basic_blocks": basic_blocks}
    found = profile_model(module, sample_inputs, kwargs, **cut, **profile)
    chain = PipelinePartition.from_profile(found, cluster or Cluster.uniform(n_stages))
    result = solve(chain, time_limit=time_limit)
    if result.solution is None:
        raise InputError(
            f"{n_stages} stages: {result.reason or 'none found'}",
            field="n_stages",
            remedy="give fewer stages, larger devices or more time",
        )
    stages = build_stages(module, result, sample_inputs, kwargs, **cut)
    if output_file is not None:
        compile_partitioned_model(stages, output_file, type(module).__name__)
    return stages, result


def compile_partitioned_model(
    stages: Stages, output_file: str | Path, name: str = "a model"
) -> None:
    """Write the stages as one Python file that needs only PyTorch.

    Its function ``create_pipeline_configuration(model)`` returns the stages with the parameters of
    `model`.

    Parameters
    ----------
    output_file : path
        The file to write.
    name : str
        Of the model, for people.

    Raises
    ------
    InputError
        For a constant of too many values, or a file that cannot be written.
    """
    from stagepack.integrations.pytorch.writing import written

    files.write(output_file, written(stages, name).encode())


def run_pipeline(
    stages: Stages,
    schedule: PipelineSchedule,
    plan: ScheduleSolution | Result[ScheduleSolution],
    rank: int,
    loss: Callable[[Any, Any], Any] | None,
) -> Running:
    """Return an object that runs the stages of this process in the order of a schedule.

    The stages are run by ``torch.distributed.pipelining``.  Call its ``step(inputs)`` on the rank
    of the first stage, ``step(target=...)`` on the rank of the last stage, and ``step()`` on all
    others.  The processes and their group must exist already.  Gradients of all microbatches are
    added up, and at the end of a step those of each tied parameter over the ranks that hold it.
    These begin with the same values where all processes build the same module.

    The result is that of the module, run on one microbatch after the other.  Batch norms use the
    means of one microbatch, and update their running means once for each microbatch.  Dropout draws
    from the random generator of its process, in the order of the schedule, and so draws other
    numbers than the module alone.  Give each process its own seed; with equal seeds, all of them
    drop the same positions.

    Parameters
    ----------
    stages : Stages
        Stages that were built for inputs of one microbatch.  Any tensors may cross the cuts.
    schedule : PipelineSchedule
        A schedule with the same number of stages.
    plan : ScheduleSolution or Result
        When each operation begins.
    rank : int
        Rank of this process, which is a device of the schedule.
    loss : callable or None
        Loss function of the module's output for a microbatch and of a target; None for inference.

    Raises
    ------
    InputError
        If the schedule has another number of stages or no such rank, or is not valid; if a loss is
        missing or not needed; if something that is no tensor crosses a cut; or if the runtime of
        this version of PyTorch is not supported.
    """
    require_torch()
    from stagepack.integrations.pytorch.pipelining import Running

    return Running(stages, schedule, schedule.solution_in(plan), rank, loss)


def tied_gradients(
    stages: Stages, devices: Sequence[int], rank: int
) -> AbstractContextManager[None]:
    """Return a context in which a step computes gradients, to add up those of tied parameters.

    For stages that are run by other means than :func:`run_pipeline`.  At its end each parameter
    that stages of several processes hold has, on all of them, the sum of their gradients, beside
    what it had before.  It may be entered once a step.  All processes make it, as they make groups.

    Parameters
    ----------
    stages : Stages
        As built on each of the processes.
    devices : sequence of int
        The rank of each stage.
    rank : int
        That of this process.

    Raises
    ------
    InputError
        For another number of stages.
    """
    require_torch()
    from stagepack.integrations.pytorch.tying import TiedGradients

    return TiedGradients(stages, devices, rank)
