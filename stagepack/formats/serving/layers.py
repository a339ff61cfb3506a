"""Stages as vLLM and SGLang take them: how many transformer layers each rank has.

Source: ``get_pp_indices`` of ``vllm/distributed/utils.py`` and of
``sglang/srt/distributed/utils.py`` (vLLM 0.33, SGLang 0.5.23): as many numbers as ranks, their sum
that of hidden layers.
"""

from __future__ import annotations

from functools import partial

from stagepack.errors import InputError
from stagepack.formats.roles import (
    SKIPS,
    device_list,
    require_adjacent,
    require_own_figures,
    require_placed,
    stage_letters,
    tell_choices,
    units_of,
)
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition


def environment(
    tool: str,
    instance: PipelinePartition,
    solution: PipelineSolution,
    *,
    letters: str = "",
    skips: bool | str = False,
) -> str:
    """Return lines for the environment: the number of transformer layers of each stage, devices.

    Devices are listed where ranks are not on the first ones in their order.  Variables of the
    `tool`, "vLLM" or "SGLang", are called alike.  See :mod:`.roles` for `letters` and `skips`.
    """
    require_layers(instance, letters=letters, skips=skips)
    require_adjacent(instance, solution, skips, tool)
    if tool == "vLLM":
        tell_choices(instance, solution, "vllm-offload", "cpu")
    else:
        require_own_figures(solution, tool)
    stages = stage_letters(instance, solution, letters)
    for at, stage in enumerate(stages):
        if "t" not in stage:
            raise InputError(
                f"stage {at} has no transformer layer",
                field="boundaries",
                remedy="cut elsewhere (--forbid-cut)",
            )
    counts = ",".join(str(stage.count("t")) for stage in stages)
    visible = device_list(instance, solution)
    lines = [f"{tool.upper()}_PP_LAYER_PARTITION={counts}", *filter(None, [visible])]
    return "".join(f"{line}\n" for line in lines)


def require_layers(
    instance: PipelinePartition, *, letters: str = "", skips: bool | str = False
) -> None:
    """Refuse what no cut could mend: layers that are not counted, more devices than layers.

    `letters` and `skips` are those of :func:`environment`.
    """
    SKIPS.of(skips)
    require_placed(instance)
    units = units_of(instance, letters)
    if any(unit.letter == "m" for unit in units):
        raise InputError(
            "holds layers of multi-token prediction, which the tool does not count",
            field="layers",
            remedy="leave them out: a draft model runs by itself",
        )
    layers = sum(unit.letter == "t" for unit in units)
    if layers < instance.k and not instance.fewer_stages:
        raise InputError(
            f"{layers} transformer layers for {instance.k} ranks, each of which is to have one",
            field="devices",
            remedy=f"give at most {layers} devices, or --fewer-stages",
        )


vllm = partial(environment, "vLLM")
sglang = partial(environment, "SGLang")
