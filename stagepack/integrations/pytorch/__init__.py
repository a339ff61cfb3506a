"""PyTorch: modules in, profiles and stages out; needs the extra `torch`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stagepack.errors import InputError
from stagepack.instances.profile import ModelProfile

if TYPE_CHECKING:
    from torch import nn


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
    order in which they run, one that runs several times as often.

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
        Run every layer by itself, forward and backward; cycles are nanoseconds.  Otherwise cycles
        are those of `machine` for the operations that are counted.
    training : bool
        Whether gradients and optimiser state are counted among the bytes.
    machine : str
        A cluster of the catalog whose devices' arithmetic turns operations into cycles.
    state_bytes : int
        Bytes of optimiser state per parameter.
    repeats : int
        How often a layer is measured; the median counts.
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
    profile = counted(traced, machine, training=training, state_bytes=state_bytes)
    if not measure:
        return profile
    bench = Bench(repeats, None if cache is None else Path(cache), progress)
    return measured(traced, profile, bench)
