"""Window search: reoptimises the blocks near the boundaries between stages.

In the best known partition, each block gets a window of allowed stages.  The window is its own
stage and, for the blocks of a stage with the least work before or after them, also the neighbouring
stage.  The sweeps of :mod:`.sweeps` decide whether a partition within the windows improves the
objective by a given step, first coarsely and then finely, each followed by a beam that searches for
it.  The fraction of blocks that may move grows while nothing is found.  The steps shrink from turn
to turn, and are reset when blocks may move by two stages.

Cost: that of the sweeps.  Source: see :mod:`.sweeps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics.graph.frontier import label_state as state
from stagepack.heuristics.graph.frontier.model import Model
from stagepack.heuristics.graph.frontier.sweeps import Guide, Sweeps, Windows
from stagepack.instances.profile import Array


def size(sweeps: Sweeps) -> float:
    """Return of how many thousands of blocks sweeps are taken to be, when their time is planned."""
    return max(sweeps.tuning.windows.least_size, sweeps.blocks / 1000)


def windows(sweeps: Sweeps, stages: Array, part: float, reach: int) -> Windows:
    """Return the stages that blocks may take around those that they have.

    Parameters
    ----------
    stages : ndarray of int64, shape (blocks,)
        The stage of each block.
    part : float
        How many of a stage may move up, and how many down.
    reach : int
        Stages by which they may.
    """
    low, high = stages.copy(), stages.copy()
    for s in range(sweeps.stages):
        own = np.flatnonzero(stages == s)
        rank = np.argsort(np.argsort(sweeps.above[own] - sweeps.below[own], kind="stable"))
        place = rank / max(1, len(own) - 1)
        low[own[place <= part]] -= reach
        high[own[place >= 1 - part]] += reach
    return np.maximum(low, 0), np.minimum(high, sweeps.stages - 1)


def improved(
    sweeps: Sweeps, model: Model, limit: int, around: Windows, beam: int, work: float
) -> Array | None:
    """Return stages within a limit and windows, or None where none were found.

    Parameters
    ----------
    model : Model
        Of the order of devices.
    limit : int
        Ticks.
    around : tuple of ndarray
        Windows.
    beam : int
        Labels that live on, where a partition is looked for.
    work : float
        Seconds of work of a sweep at most.
    """
    low, high = sweeps.windows(limit)
    guide = Guide(model, (np.maximum(low, around[0]), np.minimum(high, around[1])), limit)
    tuning = sweeps.tuning.windows
    for turn, delta in enumerate(tuning.deltas):
        reverse = turn % 2 == 1
        swept = sweeps.run(reverse, limit, int(delta * limit), guide, work=work)
        if swept.status != state.DONE or swept.guide is None:
            return None
        guide = swept.guide
        found = sweeps.run(not reverse, limit, int(tuning.fine * limit), guide, beam=beam)
        if found.stages is not None:
            return found.stages
    return None


def search(
    sweeps: Sweeps,
    start: Array,
    model: Model,
    value: int,
    offer: Callable[[Array, Model], int | None],
    bound: int,
    turn: int,
) -> Iterator[None]:
    """Improve a partition until the step of this turn does not help; yield after every trial.

    Parameters
    ----------
    start : ndarray of int64, shape (blocks,)
        The stage of each block of the partition.
    model : Model
        Of the order of its devices.
    value : int
        Ticks of the partition.
    offer : callable
        Told of every better one; returns its ticks, None if it breaks a rule.
    bound : int
        Ticks below which nothing is known to be possible.
    turn : int
        How often this partition was searched before; there are twice as many as steps.
    """
    tuning = sweeps.tuning.windows
    reach, step = 1 + turn // len(tuning.steps), turn % len(tuning.steps)
    patience = tuning.patience * size(sweeps)
    part = 0
    while part < len(tuning.parts) and reach <= tuning.reach:
        limit = max(bound, value - max(1, int(tuning.steps[step] * value)))
        if limit >= value:
            return
        around = windows(sweeps, start, tuning.parts[part], reach)
        found = improved(sweeps, model, limit, around, tuning.beam, patience)
        better = None if found is None else offer(found, model)
        if found is not None and better is not None and better < value:
            start, value, part = found, better, 0
        else:
            part += 1
        yield
