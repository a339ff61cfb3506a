"""Simple rules as used by hand: stages of equal work or equal bytes along one topological order.

Each accelerator takes its share in turn, in proportion to its speed.  Limits of memory, CPUs and
traffic are not considered, so a result may violate them.  Cost: O(blocks).  Source: common
practice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stagepack.instances.graph import Compact
from stagepack.instances.graph.compact import FORBIDDEN
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.profile import Array


def equal_work(compact: Compact) -> Iterator[GraphSolution]:
    """Yield the partitions into equal shares of time, and of bytes, by numbers of the blocks."""
    time = np.where(compact.time < FORBIDDEN, compact.time, 0).sum(axis=0)
    devices = np.flatnonzero(compact.class_pays[compact.device_class])
    if not len(devices):
        devices = np.arange(compact.devices)
    classes = compact.device_class[devices]
    # A device that takes half as long takes twice the work.
    total = np.maximum(1, time.sum(axis=1))
    pace = total.min() / total[classes]
    for weight in (time[classes[0]], compact.size + compact.stash):
        stages = _shared(weight, pace)
        if compact.exact_stages:
            stages = _all_used(stages, len(devices))
        if compact.sequence is None:
            yield compact.assignment(stages, classes)
        else:
            yield compact.assignment(devices[stages], compact.sequence)


def _shared(weight: Array, pace: Array) -> Array:
    """Return the stage of each block: where the middle of its weight lies among the shares."""
    middle = np.cumsum(weight, dtype=np.float64) - weight / 2
    ends = np.cumsum(pace)[:-1] / pace.sum() * max(1, weight.sum())
    return np.searchsorted(ends, middle, side="right")


def _all_used(stages: Array, count: int) -> Array:
    """Return stages of which none is empty, as long as there are blocks enough."""
    place = np.arange(len(stages))
    # Stage s begins at block s at the latest, and leaves a block for each stage after it.
    latest, earliest = place, count - len(stages) + place
    return np.maximum.accumulate(np.clip(stages, np.maximum(0, earliest), latest))


def work_bound(compact: Compact) -> int:
    """Return ticks that no partition is below: the work shared out evenly, the longest block."""
    time = compact.time.min(axis=1)
    held = compact.stash if compact.objective == "memory" else 0
    least = time + held
    shares = -(-least.sum(axis=1) // compact.devices)
    alone = least.max(axis=1) if compact.objective != "replicated" else shares
    return int(np.maximum(shares, alone).sum())
