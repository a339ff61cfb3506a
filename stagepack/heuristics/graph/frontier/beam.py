"""Beam search: places blocks along a narrow order and keeps the most promising partial partitions.

A label is a partial partition as in :mod:`.sweeps`.  It is promising if much of the limit
on the loads remains, after the expected cost of its live nets.  For each width of the beam, in both
directions, the limit is moved by bisection between the bound and the best partition.

Cost: O(width * stages * (nets and edges of the blocks)) a sweep; memory linear in blocks and width.
Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.graph.frontier.model import Model
from stagepack.heuristics.graph.frontier.sweeps import Sweeps
from stagepack.heuristics.graph.frontier.tuning import BeamTuning
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.profile import Array


def search(
    sweeps: Sweeps,
    bound: int,
    value: int,
    take: Callable[[Array, Model], int | None],
    tuning: BeamTuning = TUNING.beam,
) -> None:
    """Look for partitions of fewer ticks than `value`, until `bound` is met or beams are widest.

    `take` is told of stages on devices in the order of a model; it returns ticks, None if they
    break a rule.
    """
    for width in tuning.widths:
        low = bound
        while value - low > value // max(1, tuning.grain):
            limit = low + (value - low - 1) // 2
            found = _within(sweeps, limit, width, take)
            value, low = (value, limit + 1) if found is None else (found, low)


def _within(
    sweeps: Sweeps, limit: int, width: int, take: Callable[[Array, Model], int | None]
) -> int | None:
    """Return the ticks of a partition within a limit, or None where beams find none."""
    for model in sweeps.models:
        for reverse in (False, True):
            guide = sweeps.guide(limit, model)
            stages = sweeps.run(reverse, limit, 0, guide, beam=width).stages
            value = None if stages is None else take(stages, model)
            if value is not None and value <= limit:
                return value
    return None
