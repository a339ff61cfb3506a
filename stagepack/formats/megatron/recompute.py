"""Recomputation as Megatron-LM takes it: ``--recompute-granularity`` and what goes with it.

Source: ``megatron/core/transformer/transformer_block.py`` of megatron-core 0.16.1.  ``selective``
holds for all layers.  ``full`` with ``block`` recomputes the first layers of every stage, with
``uniform`` and one layer at a time all of them; one number holds for all stages.
"""

from __future__ import annotations

from stagepack.errors import InputError
from stagepack.formats.roles import transformer_choices
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition

KNOWN = ("full", "selective")


def recompute(instance: PipelinePartition, solution: PipelineSolution, *, letters: str = "") -> str:
    """Return a line of options: none where nothing is recomputed.

    Alternatives must be called ``full`` and ``selective``; see :mod:`.roles` for `letters`.
    """
    stages = transformer_choices(instance, solution, letters, "Megatron-LM", KNOWN)
    every = [name for names in stages for name in names]
    if not any(every):
        return "\n"
    if set(every) == {"selective"}:
        return "--recompute-granularity selective\n"
    if "selective" in every:
        raise InputError(
            "some layers are recomputed selectively and others not so",
            field="choices",
            remedy="Megatron-LM does so with all or none: give layers one of the two alternatives",
        )
    counts = [names.count("full") for names in stages]
    most = max(counts)
    firsts = all(name == "full" for names in stages for name in names[: names.count("full")])
    fewer = [at for at, names in enumerate(stages) if counts[at] < min(most, len(names))]
    if not firsts or fewer:
        what = (
            f"stage {fewer[0]} recomputes {counts[fewer[0]]} layers and another one {most}"
            if fewer
            else "layers are recomputed that are not the first ones of their stage"
        )
        raise InputError(
            f"{what}: Megatron-LM recomputes as many first layers of every stage",
            field="choices",
            remedy=f"say --recompute-num-layers {most} and check what that takes, or write "
            "torch-recompute",
        )
    if counts == [len(names) for names in stages]:
        return "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1\n"
    return f"--recompute-granularity full --recompute-method block --recompute-num-layers {most}\n"
