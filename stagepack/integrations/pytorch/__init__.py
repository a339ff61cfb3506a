"""PyTorch: modules in, profiles and stages out; needs the extra `torch`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack.errors import InputError
from stagepack.instances.graph import GraphSolution
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.profile import Cluster, ModelProfile
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.result import Result

if TYPE_CHECKING:
    from torch import nn

    from stagepack.integrations.pytorch.pipelining import Running
    from stagepack.integrations.pytorch.stages import Stages

Plan = (
    PipelineSolution | GraphSolution | Result[PipelineSolution] | Result[GraphSolution]
    | Sequence[int]
)  # fmt: skip
"""Stages of the layers of a profile: a solution, or where they begin, and their number."""


def require_torch() -> None:
    """Refuse to go on without PyTorch.

    Raises
    ------
    InputError
    """
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
    training: bool = True,
    machine: str = "generic-1",
    state_bytes: int = 8,
    repeats: int = 5,
    cache: str | Path | None = None,
    progress: bool = False,
) -> ModelProfile:
    """Return what the layers of a module cost, counted without running it or measured.

    A layer is a module that calls no others, or a larger one where `depth` or `basic_blocks` say
    so; what a module does between its children belongs to the layer before it.  Layers come in the
    order in which they run, one that runs several times as often.  Where nothing is measured, a
    warning names the operators whose operations are not known: these are counted by the values
    that they read and write.

    Parameters
    ----------
    module : torch.nn.Module
        In training or evaluation mode, as it is to run.
    sample_inputs : sequence
        Positional inputs of a microbatch: tensors, or lists, tuples and dictionaries of them.
    kwargs : mapping, optional
        Inputs by keyword.
    depth : int, optional
        How far down the hierarchy of modules layers are looked for, 1 for the children of `module`.
    basic_blocks : sequence of type
        Classes of modules that are layers as a whole.
    measure : bool
        Run every layer by itself, forward and backward: cycles are nanoseconds, and the memory of
        both passes is told.  Otherwise cycles are those of `machine` for the operations that are
        counted.
    training : bool
        Whether gradients and optimiser state are counted among the bytes.
    machine : str
        A cluster of the catalog whose devices' arithmetic turns operations into cycles.
    state_bytes : int
        Bytes of optimiser state per parameter.
    repeats : int
        How often a layer is measured; the least time counts.
    cache : path, optional
        Folder in which measurements are kept by what was measured.
    progress : bool
        Show a bar while measuring.

    Returns
    -------
    ModelProfile
        For :meth:`.PipelinePartition.from_profile` and :meth:`.GraphPartition.from_profile`.
        Parameters that several layers use are variables.

    Raises
    ------
    InputError
        Without PyTorch; for a module that cannot be traced, naming layer and reason.
    """
    require_torch()
    from stagepack.integrations.pytorch.counting import counted
    from stagepack.integrations.pytorch.measuring import Bench, measured
    from stagepack.integrations.pytorch.tracing import trace

    traced = trace(module, sample_inputs, kwargs or {}, depth, basic_blocks)
    profile = counted(traced, machine, training=training, state_bytes=state_bytes, told=not measure)
    if not measure:
        return profile
    bench = Bench(repeats, None if cache is None else Path(cache), progress)
    return measured(traced, profile, bench)


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
    module : torch.nn.Module
    plan : PipelineSolution, GraphSolution, Result or sequence of int
        A partition of the layers that :func:`profile_model` finds with the same arguments, as a
        chain or a graph.  Devices of a graph become stages in the order of their dependencies.
    sample_inputs, kwargs, depth, basic_blocks
        As there.

    Returns
    -------
    Stages
        A sequence of modules that hold the parameters and buffers of `module` under their own
        names.  Calling it runs all of them.

    Raises
    ------
    InputError
        As :func:`profile_model`.  Also if the plan has other layers; if devices of a graph depend
        on each other in a cycle; if several stages use a parameter, or a buffer that one of them
        writes; if the module defines its own backward passes (hooks, functions) and gradients are
        on; or if it computes with values that change from run to run.
    """
    require_torch()
    from stagepack.integrations.pytorch.rearranging import rearranged
    from stagepack.integrations.pytorch.stages import staged
    from stagepack.integrations.pytorch.tracing import trace

    solution = plan.solution if isinstance(plan, Result) else plan
    if solution is None:
        raise InputError("holds no solution", field="plan", remedy="solve it for longer")
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
    module : torch.nn.Module
    sample_inputs, kwargs, depth, basic_blocks, **profile
        As for :func:`profile_model`.
    n_stages : int
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
    """Write stages as one file of Python, which needs PyTorch alone.

    Its ``create_pipeline_configuration(model)`` returns them with the parameters of a model.

    Parameters
    ----------
    stages : Stages
    output_file : path
    name : str
        Of the model, for people.

    Raises
    ------
    InputError
        For a constant of too many values, or a file that cannot be written.
    """
    from stagepack.integrations.pytorch.writing import write

    write(stages, name, Path(output_file))


def run_pipeline(
    stages: Stages,
    schedule: PipelineSchedule,
    plan: ScheduleSolution | Result[ScheduleSolution],
    rank: int,
    loss: Callable[[Any, Any], Any] | None,
) -> Running:
    """Return what runs the stages of one process in the order of a schedule.

    ``torch.distributed.pipelining`` runs them; its ``step(inputs)`` is called on the rank of the
    first stage, ``step(target=...)`` on that of the last one, ``step()`` on the others.  The
    processes and their group are there already; gradients of all microbatches are added up.

    It does what the module does that is run on one microbatch after the other.  Norms take the
    means of a microbatch and move theirs as often as there are microbatches.  Dropout draws from
    the generator of its process in the order of the schedule: other numbers than the module alone
    draws; give the processes unlike seeds, or equal ones drop the same places in all of them.

    Parameters
    ----------
    stages : Stages
        Made for inputs of one microbatch; whatever tensors cross the cuts.
    schedule : PipelineSchedule
        Of as many stages.
    plan : ScheduleSolution or Result
    rank : int
        Of this process: a device of the schedule.
    loss : callable or None
        Of what the module returns for a microbatch, and of a target; None for inference.

    Raises
    ------
    InputError
        For a schedule of another number of stages or without such a rank, or one that is not valid;
        for a loss that is missing or not needed; for a cut that is crossed by what is no tensor;
        for a version of PyTorch whose runtime is not known.
    """
    require_torch()
    from stagepack.integrations.pytorch.pipelining import scheduled

    return scheduled(stages, schedule, schedule.solution_in(plan), rank, loss)
