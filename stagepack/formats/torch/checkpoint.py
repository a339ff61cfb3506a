"""Layers that are recomputed, for PyTorch: a function that wraps them in checkpoints."""

from __future__ import annotations

from stagepack.errors import InputError
from stagepack.formats.torch.modules import module_names
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition

TEXT = '''\
"""Recomputes layers in the backward pass, as was chosen with the cut."""

from functools import partial

from torch.utils.checkpoint import checkpoint

LAYERS = {layers}


def recompute(model):
    """Wrap the layers that a model, or a stage of it, has; names are those of the whole model."""
    for name, module in model.named_modules():
        if name in LAYERS:
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)
    return model
'''


def recompute(instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return Python that defines ``LAYERS`` and ``recompute(model)``.

    Refuses other alternatives than ``full``: what a checkpoint keeps is not said by their names.
    """
    names = module_names(instance)
    taken = list(zip(names, instance.taken(solution), strict=True))
    for name, choice in taken:
        if choice not in ("full", instance.own_alternative):
            raise InputError(
                f"{name!r} takes {choice!r}: a checkpoint recomputes a layer in full",
                field="choices",
                remedy="call it full if it does, or leave it out of the alternatives",
            )
    chosen = sorted({name for name, choice in taken if choice == "full"})
    halved = sorted({name for name, choice in taken if choice != "full"}.intersection(chosen))
    if halved:
        raise InputError(
            f"module {halved[0]!r} runs several times, recomputed and not",
            field="choices",
            remedy="give its runs the same alternative",
        )
    rows = "".join(f'    "{name}",\n' for name in chosen)
    return TEXT.format(layers=f"{{\n{rows}}}" if chosen else "set()")
