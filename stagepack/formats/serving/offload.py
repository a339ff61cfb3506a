"""Layers whose weights are on the CPU, as vLLM and llama.cpp take them.

Sources: ``maybe_offload_to_cpu`` of vLLM 0.14 (each rank keeps the parameters of its first layers
on the CPU until these are so many bytes); ``load_tensors`` of llama.cpp (layers, the output among
them, are dealt to devices by ``--tensor-split``; ``--override-tensor`` names tensors by regular
expressions, and the buffers that take them).
"""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np

from stagepack.errors import InputError
from stagepack.formats.roles import device_list, require_placed, transformer_choices, units_of
from stagepack.instances.pipeline.choices import settled
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.words import Parameter

CPU = ("cpu",)
TENSORS = Parameter("tensors", str, "which tensors of a layer are on the CPU")
EXPERTS = "ffn_.*_exps"


def require_alone(
    instance: PipelinePartition, *, letters: str = "", tensors: str = EXPERTS
) -> None:
    """Refuse several stages a device, which no cut could mend, before any is looked for.

    `letters` and `tensors` are those of :func:`llama`.
    """
    TENSORS.of(tensors)
    units_of(instance, letters)
    require_placed(instance)


def vllm(instance: PipelinePartition, solution: PipelineSolution, *, letters: str = "") -> str:
    """Return ``--cpu-offload-gb`` of vLLM: the bytes that every rank has on the CPU, in GiB.

    Layers so chosen, by the alternative ``cpu``, must be the first ones of their ranks, and take
    equally many bytes on each.  See :mod:`.roles` for `letters`.
    """
    device_list(instance, solution)
    chosen = transformer_choices(instance, solution, letters, "vLLM", CPU)
    own, held = (
        sum(one.exclusive.values(), np.zeros(instance.n, dtype=np.int64))
        for one in (instance, settled(instance, solution))
    )
    moved = [int((own - held)[first:end].sum()) for first, end, _ in solution.stages]
    for stage, names in enumerate(chosen):
        if any(after for before, after in pairwise(names) if not before):
            raise InputError(
                f"layers of stage {stage} on the CPU are not its first ones, which vLLM takes",
                field="choices",
                remedy="use llama.cpp, or alternatives that the first layers alone have (layers)",
            )
        if moved[stage] != moved[0]:
            raise InputError(
                f"stage {stage} has {moved[stage]:,} bytes on the CPU and stage 0 {moved[0]:,}: "
                "vLLM takes one number for all ranks",
                field="choices",
                remedy="start each rank by itself, or give equal layers",
            )
    return f"--cpu-offload-gb {max(moved[0], 0) / 2**30!r}\n"


def llama(
    instance: PipelinePartition,
    solution: PipelineSolution,
    *,
    letters: str = "",
    tensors: str = EXPERTS,
) -> str:
    """Return options of llama.cpp: layers by device, and which tensors are on the CPU.

    Of layers that take the alternative ``cpu`` those `tensors` are; the experts of a mixture if not
    said, ``.*`` for the whole layer.  See :mod:`.roles` for `letters`.
    """
    device_list(instance, solution)
    chosen = transformer_choices(instance, solution, letters, "llama.cpp", CPU)
    counts = [len(stage) for stage in chosen]
    counts[-1] += 1  # the output is one more
    line = f"--n-gpu-layers {sum(counts)} --tensor-split {','.join(map(str, counts))}"
    blocks = "|".join(str(block) for block, name in enumerate(chain(*chosen)) if name)
    if blocks:
        line += f' --override-tensor "blk\\.({blocks})\\.{TENSORS.of(tensors)}=CPU"'
    return line + "\n"
