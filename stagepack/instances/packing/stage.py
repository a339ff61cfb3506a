"""The memory of one pipeline stage on its device, as buffers with lifetimes.

Steps are the layers of the stage.  Two buffers live all the time: the permanent bytes of its layers
and those of the microbatches in flight.  A tensor written before a layer and read after it lives
from the step after its writer up to the step before its last reader.  In these two steps it is part
of the working memory of the layer, which lives for one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.profiled import HELD, Row, different
from stagepack.instances.pipeline import PipelinePartition
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.profile import Lifetimes


def stage_packing(
    partition: PipelinePartition, stage: tuple[int, int, int], in_flight: int
) -> LmemPacking | None:
    """Return the buffers of a stage; None where the tensors are not known, or it keeps nothing.

    The `stage` is its first layer, the one behind its last, and its device; `in_flight` are the
    bytes that microbatches in flight keep.
    """
    first, end, device = stage
    if partition.tensors is None or partition.memory_table is not None:
        return None
    if not np.array_equal(partition.tensors.carried(), partition.carry):
        return None  # which does not count
    n = end - first
    passing = (partition.temporary + partition.carry)[first:end]
    held = stage_memory(partition, first, end, device, 0) - int(passing.max())
    rows = [
        (HELD, held, 0, n),
        ("microbatches in flight", in_flight, 0, n),
        *_carried(partition.tensors, first, end),
        *(
            (f"inside {partition.layer_name(first + at)}", nbytes, at, at + 1)
            for at, nbytes in enumerate(partition.temporary[first:end].tolist())
        ),
    ]
    rows = [row for row in rows if row[1]]
    if not rows:
        return None
    names, *columns = zip(*rows, strict=True)
    return _buffers(partition, device, different(names), columns)


def is_of_stage(
    packing: LmemPacking, partition: PipelinePartition, stage: tuple[int, int, int], in_flight: int
) -> bool:
    """Return whether at every layer as many bytes are alive as a stage keeps there, and no more.

    Which tensors these are, files of partitions do not say.  The packing has plain buffers in the
    memory of the stage's device, nothing else; `stage` and `in_flight` as for
    :func:`stage_packing`.
    """
    first, end, device = stage
    if partition.memory_table is not None:
        return False
    columns = packing.size, packing.start, packing.end
    if _buffers(partition, device, packing.ids, columns).digest != packing.digest:
        return False
    passing = (partition.temporary + partition.carry)[first:end]
    held = stage_memory(partition, first, end, device, 0) - int(passing.max()) + in_flight
    changes = np.zeros(end - first + 1, dtype=np.int64)
    if packing.start.min() < 0 or packing.end.max() > end - first:
        return False
    np.add.at(changes, packing.start, packing.size)
    np.subtract.at(changes, packing.end, packing.size)
    return np.array_equal(np.cumsum(changes[:-1]), held + passing)


def _buffers(
    partition: PipelinePartition, device: int, names: Sequence[str] | None, columns: Sequence[Any]
) -> LmemPacking:
    """Return buffers, of sizes, starts and ends, in the memory of a device."""
    capacity = partition.cluster.devices[device].memory
    return LmemPacking.from_arrays(
        *columns,
        ids=names,
        capacity=capacity,
        objective="peak" if capacity is None else "fit",
        name=f"{partition.name}, {partition.device_name(device)}",
    )


def _carried(tensors: Lifetimes, first: int, end: int) -> list[Row]:
    """Return the tensors that are carried past layers of [first, end)."""
    columns = (tensors.born + 1).tolist(), tensors.last_use.tolist(), tensors.nbytes.tolist()
    return [
        (name, nbytes, max(born, first) - first, min(last, end) - first)
        for name, born, last, nbytes in zip(tensors.names, *columns, strict=True)
        if max(born, first) < min(last, end)
    ]
