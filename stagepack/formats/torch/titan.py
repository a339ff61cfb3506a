"""How torchtitan is told degrees of parallelism: arguments of its trainer.

Source: ``torchtitan/config/configs.py`` of torchtitan 0.3.0.  It divides weights among all copies
(``data_parallel_shard_degree``), or nothing (``data_parallel_replicate_degree``).
"""

from __future__ import annotations

import json
import shlex

from stagepack.errors import InputError
from stagepack.formats.hugging_face.layout import Layout
from stagepack.formats.torch.modules import torchtitan as stages_of
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition


def arguments(layout: Layout, instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return the arguments of a layout whose stages are `solution` of `instance`.

    Only an optimiser that is divided (``zero=1`` and 2) is refused where there are copies.
    """
    if not instance.training:
        raise InputError("is inference", field="training", remedy="write vllm")
    if layout.zero in (1, 2) and layout.data > 1:
        raise InputError(
            "divides the optimiser's state alone",
            field="zero",
            remedy="torchtitan divides weights, too: give zero=3, or zero=0",
        )
    copies = "shard" if layout.zero == 3 else "replicate"
    degrees: dict[str, object] = {
        "tensor_parallel_degree": layout.tensor,
        "pipeline_parallel_degree": layout.pipeline,
        f"data_parallel_{copies}_degree": layout.data,
        "expert_parallel_degree": layout.expert,
    }
    if copies == "replicate":
        degrees["data_parallel_shard_degree"] = 1
    if layout.pipeline > 1:
        degrees["pipeline_parallel_schedule"] = "1F1B"
        degrees["pipeline_parallel_microbatch_size"] = layout.microbatch
        parts = json.loads(stages_of(instance, solution))
        named = json.dumps(parts, separators=(",", ":"))
        degrees["module_fqns_per_model_part"] = shlex.quote(named)
    found = [f"--parallelism.{name} {value}" for name, value in degrees.items()]
    found.append(f"--training.local_batch_size {layout.microbatch * layout.microbatches}")
    found.append(f"--training.global_batch_size {layout.samples}")
    found.append(f"--training.seq_len {layout.sequence}")
    return " ".join(found) + "\n"
