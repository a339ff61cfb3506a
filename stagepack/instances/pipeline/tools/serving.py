"""Stages as vLLM and SGLang take them: how many transformer layers each rank has.

Source: ``get_pp_indices`` of ``vllm/distributed/utils.py`` and of
``sglang/srt/distributed/utils.py`` (vLLM 0.33, SGLang 0.5.23): as many numbers as ranks, their sum
that of hidden layers.
"""

from __future__ import annotations

from functools import partial

from stagepack.errors import InputError
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.solution import PipelineSolution
from stagepack.instances.pipeline.tools.roles import (
    require_adjacent,
    require_in_order,
    stage_letters,
)


def environment(
    tool: str,
    instance: PipelinePartition,
    solution: PipelineSolution,
    *,
    letters: str = "",
    skips: bool | str = False,
) -> str:
    """Return a line for the environment: the number of transformer layers of each stage.

    Parameters
    ----------
    tool : str
        "vLLM" or "SGLang", whose variables are called alike.
    instance : PipelinePartition
    solution : PipelineSolution
        A valid one.
    letters : str
        See :func:`.roles.stage_letters`.
    skips : bool
        See :func:`.roles.require_adjacent`.

    Raises
    ------
    InputError
        For a stage that has none, or that holds what only the first or the last rank can; for
        values that skip a stage.
    """
    require_adjacent(instance, solution, skips, tool)
    require_in_order(instance, solution)
    stages = stage_letters(instance, solution, letters)
    for at, stage in enumerate(stages):
        if "m" in stage:
            told = "holds layers of multi-token prediction, which are not counted"
        elif "t" not in stage:
            told = "has no transformer layer"
        else:
            continue
        raise InputError(
            f"stage {at} {told}", field="boundaries", remedy="cut elsewhere (--forbid-cut)"
        )
    counts = ",".join(str(stage.count("t")) for stage in stages)
    return f"{tool.upper()}_PP_LAYER_PARTITION={counts}\n"


vllm = partial(environment, "vLLM")
sglang = partial(environment, "SGLang")
