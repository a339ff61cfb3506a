"""How vLLM is told degrees of parallelism: arguments of ``vllm serve``.

Source: the engine arguments of vLLM 0.33's documentation.
"""

from __future__ import annotations

from stagepack.errors import InputError
from stagepack.formats.hugging_face.layout import Layout
from stagepack.formats.serving.layers import environment
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition


def arguments(layout: Layout, instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return the arguments of a layout whose stages are `solution` of `instance`.

    Experts are divided among all devices of a stage or among none.
    """
    if instance.training:
        raise InputError("is training", field="training", remedy="write megatron or torchtitan")
    stage = layout.tensor * layout.data
    if layout.expert not in (1, layout.data) or (layout.expert > 1 and layout.tensor > 1):
        raise InputError(
            f"has experts on {layout.expert} of {stage} devices of a stage",
            field="expert",
            remedy="vLLM divides experts among all of them, or none: give expert= the copies, and "
            "tensor=1",
        )
    found = [
        f"--tensor-parallel-size {layout.tensor}",
        f"--pipeline-parallel-size {layout.pipeline}",
        f"--data-parallel-size {layout.data}",
        f"--max-num-seqs {layout.microbatch * layout.microbatches}",
        f"--max-model-len {layout.sequence}",
        *["--enable-expert-parallel"] * (layout.expert > 1),
    ]
    before = ""
    if layout.pipeline > 1:
        before = " ".join(environment("vLLM", instance, solution).split()) + " "
    return f"{before}vllm serve MODEL {' '.join(found)}\n"
