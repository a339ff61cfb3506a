"""Simple rules as used by hand: the baselines with which optima are compared.

Stages with equal numbers of layers, or devices filled one after another to their shares of the
work.  Neither rule revises a decision.

Cost: O(n + k log n), with tables O(k n).  Source: practice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np

from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array

Pause = Callable[[], object]


def equal_layers(
    costs: RangeCosts, _: Pause = lambda: None, __: PipelineTuning = TUNING
) -> PipelineSolution | None:
    """Cut the chain into stages of (nearly) the same number of layers, at the nearest allowed cuts.

    Knows nothing of cycles or memory.  None when there are fewer spans than devices and every
    device must be used.  O(n).
    """
    cuts = np.flatnonzero(costs.allowed)
    stages = _stages(costs)
    if stages is None:
        return None
    ideal = np.arange(1, stages) * costs.n / stages
    at = np.searchsorted(cuts, ideal)
    nearer_left = ideal - cuts[at - 1] <= cuts[np.minimum(at, len(cuts) - 1)] - ideal
    at = at - nearer_left
    # Cuts must differ, and leave one span for each of the other stages.
    low = np.arange(1, stages)
    at = np.maximum.accumulate(np.clip(at, low, None) - low) + low
    at = np.minimum(at, len(cuts) - stages + low - 1)
    return _placed(costs, [0, *cuts[at].tolist(), costs.n])


def greedy(
    costs: RangeCosts, pause: Pause = lambda: None, tuning: PipelineTuning = TUNING
) -> PipelineSolution | None:
    """Fill each device to its share of the work that is left, as far as its memory goes.

    The share is by speed; a stage ends at the allowed cut whose compute is nearest to it.  None
    when some stage finds no end that fits, or the last one cannot take all that is left.
    `pause` is called now and then.  O(n + k log n); O(k n) with tables.
    """
    instance, n = costs.instance, costs.n
    stages = _stages(costs)
    if stages is None:
        return None
    cuts = np.flatnonzero(costs.allowed)
    classes = costs.device_class[list(instance.stage_devices[:stages])]
    whole = [max(int(_works(costs, c, 0, cuts[-1:])[0]), 1) for c in range(costs.classes)]
    # Of this device, and of this one and all after it.
    speed = 1.0 / np.array(whole, dtype=np.float64)[classes]
    parts = (speed / np.cumsum(speed[::-1])[::-1]).tolist()
    tabular = instance.compute_table is not None or costs.tabular
    # One entry of a view of memory is read in a tenth of the time of one of an array.
    works = [] if tabular else [row.data for row in costs.prefix]
    boundaries, at = [0], 0
    for i, (c, part) in enumerate(zip(classes.tolist(), parts, strict=True)):
        if not i % tuning.stages_at_once:
            pause()
        last = len(cuts) - (stages - i)
        window = at, last if i == stages - 1 else at + 1, last
        stashes = min(instance.microbatches, stages - i) if instance.training else 0
        if tabular:
            at = _nearest_in_table(costs, cuts, window, c, stashes, part)
        else:
            at = _nearest(costs, cuts.data, works[c], window, c, stashes, part)
        if at < window[1]:
            return None
        boundaries.append(int(cuts[at]))
    return _placed(costs, boundaries) if boundaries[-1] == n else None


def _placed(costs: RangeCosts, boundaries: list[int]) -> PipelineSolution:
    """Return the first stages of the pipeline with these boundaries."""
    table = costs.instance.stage_devices[: len(boundaries) - 1]
    return PipelineSolution(tuple(boundaries), table)


def _stages(costs: RangeCosts) -> int | None:
    spans, stages = int(costs.allowed.sum()) - 1, len(costs.instance.stage_devices)
    if spans >= stages:
        return stages
    return spans if costs.instance.fewer_stages else None


def _nearest(
    costs: RangeCosts,
    cuts: memoryview,
    work: memoryview,
    window: tuple[int, int, int],
    c: int,
    stashes: int,
    part: float,
) -> int:
    """Return which of cuts[low..last] ends a stage nearest to its part of the rest and fits.

    `work` is that of all layers before each.  Less than `low`: none.
    """
    begin, low, last = window
    first, done = cuts[begin], work.__getitem__
    wanted = work[first] + (work[-1] - work[first]) * part
    # The first cut that is not below the share, and the first of those just below it.
    after = bisect_left(cuts, wanted, low, last + 1, key=done)
    before = bisect_left(cuts, work[cuts[max(low, after - 1)]], low, last + 1, key=done)
    above = min(after, last)
    at = above if work[cuts[above]] - wanted < wanted - work[cuts[before]] else before
    furthest = costs.furthest_end(first, cuts[at], c, stashes)
    return at if furthest >= cuts[at] else bisect_right(cuts, furthest) - 1


def _nearest_in_table(
    costs: RangeCosts, cuts: Array, window: tuple[int, int, int], c: int, stashes: int, part: float
) -> int:
    begin, low, last = window
    first, ends = int(cuts[begin]), cuts[low : last + 1]
    fits = np.flatnonzero(costs.fits_from(first, c, stashes)[ends])
    if not len(fits):
        return -1
    share = _works(costs, c, first, cuts[-1:])[0] * part
    works = _works(costs, c, first, ends[fits])
    return low + int(fits[np.argmin(np.abs(works - share))])


def _works(costs: RangeCosts, c: int, first: int, ends: Array) -> Array:
    """Return the ticks of the stages [first, end) on a device of class c."""
    if costs.instance.compute_table is not None:
        return np.asarray(costs.compute_matrix(c)[first, ends])
    return np.asarray(costs.prefix[c, ends] - costs.prefix[c, first])
