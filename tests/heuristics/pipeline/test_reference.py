from __future__ import annotations

import numpy as np

from stagepack.heuristics.pipeline import reference
from stagepack.heuristics.pipeline.tuning import TUNING
from stagepack.instances.pipeline import PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.progress import Progress


def test_thresholds_are_transfers_of_stages_that_fit() -> None:
    # Sending at cut c takes 2**c cycles; a device holds two layers.
    instance = PipelinePartition.from_arrays(
        [1] * 4,
        devices=2,
        exclusive=[1] * 4,
        capacity=2,
        objective="transfer-bounded",
        send_cycles=[[1, 2, 4, 8, 16]] * 2,
        recv_cycles=np.zeros((2, 5), dtype=np.int64),
    )
    progress: Progress[PipelineSolution] = Progress(instance.evaluate, instance.check)
    costs = RangeCosts(instance)
    tables = reference._tables(costs, progress, TUNING.recurrence)
    stages = reference._numbered(*tables, progress, TUNING.recurrence)
    # Stages [0, 1) to [3, 4), the last of which sends nothing.
    assert stages.thresholds.tolist() == [0, 2, 4, 8]
    assert stages.values.tolist() == [1, 2, reference.INFINITE]
    assert [lengths.tolist() for lengths in stages.lengths] == [[1, 2], [1, 2]]
    assert stages.cost[0, 0].tolist() == [2, 0, 1, 2, 2]
    assert stages.cost.dtype == np.uint8
    assert reference.solve(costs, progress)
    assert progress.objective == 2 + 4
