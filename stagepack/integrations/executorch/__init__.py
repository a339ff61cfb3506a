"""ExecuTorch: memory planning for the tensors of a program; needs the extra `executorch`.

:func:`plan` is an algorithm for its ``MemoryPlanningAlgorithmSuite``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stagepack.errors import InputError
from stagepack.integrations.executorch.placing import Spec, placed

if TYPE_CHECKING:
    from executorch.exir.memory_planning import MemoryAlgoResult
    from torch.export.exported_program import ExportGraphSignature
    from torch.fx import GraphModule


def plan(
    alignment: int,
    specs: Iterable[Spec],
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature,
    extra_padding: int = 0,
    *,
    time_limit: float = 1.0,
    record: str | Path | None = None,
) -> MemoryAlgoResult:
    """Place the tensors of a graph: ``MemoryPlanningAlgorithmSuite(algo_list=[plan])``.

    Parameters
    ----------
    alignment : int
        Bytes; offsets and sizes are multiples.
    specs : iterable of TensorSpec
        Those of one ``mem_id`` share a memory, the first where there is none; those with a
        ``storage_base`` lie in that.
    graph_module : GraphModule
        What its submodules have taken of each memory already lies below everything else.
    graph_signature : ExportGraphSignature
        Not looked at.
    extra_padding : int
        Bytes behind each memory.
    time_limit : float
        Seconds to look for the least peak of each memory, where it is not proved before.  With
        ``functools.partial(plan, time_limit=10)`` it is another.
    record : path, optional
        Native file for the buffers of each memory, ``net.json`` for ``net.1.json``: those of the
        last graph that is planned, which is the whole program.

    Returns
    -------
    MemoryAlgoResult

    Raises
    ------
    InputError
        Without ExecuTorch; for a tensor that never lives, or that lies in one which is not there.
    """
    if importlib.util.find_spec("executorch") is None:
        raise InputError(
            "this needs ExecuTorch",
            field="executorch",
            remedy="pip install 'stagepack[executorch]'",
        )
    from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult

    taken = list(getattr(graph_module, "input_mem_buffer_sizes", None) or ())
    found, sizes = placed(
        specs, alignment, taken, time_limit, None if record is None else Path(record)
    )
    return MemoryAlgoResult(
        {spec: SpecAllocResult(place.memory, 0, place.offset) for spec, place in found.items()},
        [size + extra_padding if used else size for size, used in sizes],
    )
