"""How Megatron-LM is told degrees of parallelism: arguments of its training scripts.

Source: ``ModelParallelConfig``, ``TransformerConfig`` and ``DistributedDataParallelConfig`` of
megatron-core 0.16.1, of whose fields Megatron-LM makes its arguments.  A device's rank is its
number: tensor groups innermost, then copies, then stages (``--use-tp-pp-dp-mapping`` off).
"""

from __future__ import annotations

from stagepack.errors import InputError
from stagepack.formats.hugging_face.layout import Layout
from stagepack.formats.megatron.layout import layout as line_of
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition


def arguments(layout: Layout, instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return the arguments of a layout whose stages are `solution` of `instance`.

    Weights that are divided among copies (``zero=3``) are refused.
    """
    if not instance.training:
        raise InputError("is inference", field="training", remedy="write vllm")
    if layout.zero == 3:
        raise InputError(
            "divides weights among copies", field="zero", remedy="give zero=1, or write torchtitan"
        )
    said: dict[str, object] = {
        "tensor-model-parallel-size": layout.tensor,
        "pipeline-model-parallel-size": layout.pipeline,
        "expert-model-parallel-size": layout.expert,
        "micro-batch-size": layout.microbatch,
        "global-batch-size": layout.samples,
        "seq-length": layout.sequence,
    }
    found = [f"--{name} {value}" for name, value in said.items()]
    found += ["--sequence-parallel"] * (layout.tensor > 1)
    found += ["--use-distributed-optimizer"] * (layout.zero > 0 and layout.data > 1)
    if layout.recompute:
        full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        found.append(full)
    if layout.pipeline > 1:
        stages = line_of(instance, solution).strip()
        found.append(f"--pipeline-model-parallel-layout '{stages}'")
    return " ".join(found) + "\n"
