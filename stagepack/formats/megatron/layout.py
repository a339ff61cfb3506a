"""Stages as Megatron-LM takes them: ``--pipeline-model-parallel-layout``.

Source: ``megatron/core/transformer/pipeline_parallel_layer_layout.py`` of megatron-core 0.16.1:
stages parted by ``|``, stage ``vpp_rank * pp + pp_rank``; ``(...)*n`` is expanded, then ``x*n``.
"""

from __future__ import annotations

import re
from itertools import groupby

from stagepack.errors import InputError
from stagepack.formats.roles import (
    SKIPS,
    ranks_of,
    require_adjacent,
    require_in_order,
    require_ranks,
    stage_letters,
    units_of,
)
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition


def layout(
    instance: PipelinePartition,
    solution: PipelineSolution,
    *,
    ranks: int | str | None = None,
    letters: str = "",
    skips: bool | str = False,
) -> str:
    """Return a line for ``--pipeline-model-parallel-layout``.

    The first stage holds the embedding and the last one the loss also where the instance has no
    such layers.  Stage s is on rank s % `ranks`, ``--pipeline-model-parallel-size``: as many as
    stages, if not said.  See :mod:`.roles` for `letters` and `skips`.
    """
    require_in_order(instance, solution)
    require_adjacent(instance, solution, skips, "Megatron-LM")
    stages = stage_letters(instance, solution, letters)
    if not stages[0].startswith("E"):
        stages[0] = f"E{stages[0]}"
    if not stages[-1].endswith("L"):
        stages[-1] += "L"
    pp = ranks_of(len(stages), ranks)
    _require_prediction_together(stages, pp)
    runs = [(_short(stage), len(list(run))) for stage, run in groupby(stages[:-1])]
    before = "".join(
        f"({stage}|)*{count}" if count > 2 else f"{stage}|" * count for stage, count in runs
    )
    return f"{before}{_short(stages[-1])}\n"


def require_layout(
    instance: PipelinePartition,
    *,
    ranks: int | str | None = None,
    letters: str = "",
    skips: bool | str = False,
) -> None:
    """Refuse what no cut could mend: letters that do not tell, ranks for other numbers of stages.

    `ranks`, `letters` and `skips` are those of :func:`layout`.
    """
    SKIPS.of(skips)
    units_of(instance, letters)
    require_ranks(instance, ranks)


def _short(stage: str) -> str:
    return re.sub(r"t{3,}", lambda found: f"t*{len(found[0])}", stage)


def _require_prediction_together(stages: list[str], pp: int) -> None:
    """Refuse layers of multi-token prediction where Megatron-LM takes none."""
    homes = [at for at, stage in enumerate(stages) if "m" in stage]
    if len(homes) > 1:
        raise InputError(
            f"layers of multi-token prediction are in stages {homes[0]} and {homes[1]}",
            field="boundaries",
            remedy="keep them in one stage (variables, or --forbid-cut)",
        )
    if homes and homes[0] < len(stages) - pp:
        raise InputError(
            f"layers of multi-token prediction are in stage {homes[0]}, not the last of its rank",
            field="ranks",
            remedy=f"cut so that they come among the last {pp} stages",
        )
