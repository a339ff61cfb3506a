"""Stages as DeepSpeed takes them: a ``PipelineModule`` with its parts.

Source: ``deepspeed/runtime/pipe/module.py`` of DeepSpeed 0.19: ``_partition_layers`` chooses the
parts of the list of layers, by a balancer that looks at the difference of loads.
"""

from __future__ import annotations

from stagepack.formats.roles import device_list, require_own_figures
from stagepack.formats.roles import require_placed as require_placed
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition

TEXT = '''\
"""A PipelineModule in stages that were chosen before."""

from deepspeed.runtime.pipe.module import PipelineModule

PARTS = {parts}{visible}


class PartedPipelineModule(PipelineModule):
    """Stage i has the layers PARTS[i], ..., PARTS[i + 1] - 1 of the list that it is given."""

    def _partition_layers(self, method="uniform"):
        if len(self._layer_specs) != PARTS[-1] or self.num_stages != len(PARTS) - 1:
            raise ValueError(
                f"{{len(self._layer_specs)}} layers in {{self.num_stages}} stages: PARTS are for "
                f"{{PARTS[-1]}} in {{len(PARTS) - 1}}"
            )
        self.parts = PARTS
        self._set_bounds(start=PARTS[self.stage_id], stop=PARTS[self.stage_id + 1])
'''


def module(instance: PipelinePartition, solution: PipelineSolution) -> str:
    """Return Python that defines ``PARTS`` and a subclass of ``PipelineModule`` that keeps to them.

    Its list of layers is to have one for each layer of the instance; each reads what the one before
    returns, so that what skips stages is relayed by the layers themselves.
    """
    require_own_figures(solution, "DeepSpeed")
    visible = device_list(instance, solution)
    return TEXT.format(
        parts=list(solution.boundaries), visible=visible and f"  # for ranks on {visible}"
    )
