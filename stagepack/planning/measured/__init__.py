"""Plans beside what their stages take when PyTorch runs them; needs the extra `torch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagepack.errors import InputError
from stagepack.instances.pipeline import PipelineSolution
from stagepack.integrations.pytorch import build_stages, require_torch
from stagepack.planning.model_plan import ModelPlan

if TYPE_CHECKING:
    from torch import nn

    from stagepack.planning.measured.figures import PlanMeasure


def measure_plan(
    module: nn.Module,
    plan: ModelPlan,
    sample_inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    orders: Sequence[str] = (),
    repeats: int = 3,
    depth: int | None = None,
    basic_blocks: Sequence[type] = (),
) -> PlanMeasure:
    """Run each stage of a plan in its own process, and compare predicted with measured times.

    The processes are spawned, so call this below ``if __name__ == "__main__":``.  They have as many
    threads as this process; measure the profile with the same number of threads.

    Parameters
    ----------
    module : torch.nn.Module
        A module whose class the processes can import.
    plan : ModelPlan
        A plan of the profile that :func:`profile_model` makes with the same arguments.
    sample_inputs, kwargs, depth, basic_blocks
        As for :func:`profile_model`; the inputs of one microbatch.
    orders : sequence of str
        Methods of schedules, such as "gpipe", whose orders are run and timed, too.
    repeats : int
        Number of timed steps of each order, after one that is not timed.

    Returns
    -------
    PlanMeasure

    Raises
    ------
    InputError
        As :func:`build_stages` and :func:`run_pipeline`; for a plan without stages or
        of a graph, a module that cannot be handed to processes, a method that finds nothing, or
        where a process fails: the first one that did is named, and the others are ended.
    """
    require_torch()
    import torch

    from stagepack.planning.measured.running import Job, measured_plan
    from stagepack.solve import solve

    if not plan.levels:
        raise InputError("has no stages", field="plan", remedy="make a plan that fits")
    if repeats < 1:
        raise InputError(f"{repeats} steps", field="repeats", remedy="give at least 1")
    cut: dict[str, Any] = {"depth": depth, "basic_blocks": basic_blocks}
    partition = plan.level("partition").result.solution
    if not isinstance(partition, PipelineSolution):
        raise InputError(
            "is not a plan of a chain", field="plan", remedy="plan the chain of the profile"
        )
    cuts = partition.boundaries
    build_stages(module, cuts, sample_inputs, kwargs, **cut)
    answers = {"plan": plan.level("schedule").result.solution}
    for name in orders:
        found = solve(plan.schedule, name)
        if found.solution is None:
            raise InputError(f"{name} found none", field="orders", remedy="leave it out")
        answers[name] = found.solution
    job = Job(
        module=module,
        cuts=tuple(cuts),
        inputs=tuple(sample_inputs),
        kwargs=kwargs or {},
        options=cut,
        schedule=plan.schedule,
        orders=answers,
        repeats=repeats,
        threads=torch.get_num_threads(),
    )
    return measured_plan(plan, job)
