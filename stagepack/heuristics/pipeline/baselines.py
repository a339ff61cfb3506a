"""Naive rules, as people apply them by hand: the baselines every optimum is compared with."""

from __future__ import annotations

import numpy as np

from stagepack.instances.pipeline import PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array


def equal_layers(costs: RangeCosts) -> PipelineSolution | None:
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
    return PipelineSolution.in_order([0, *cuts[at].tolist(), costs.n])


def greedy(costs: RangeCosts) -> PipelineSolution | None:
    """Fill each device to its share of the work that is left, as far as its memory goes.

    The share is by speed; a stage ends at the allowed cut whose compute is nearest to it.  None
    when some stage finds no end that fits, or the last one cannot take all that is left.  O(k n).
    """
    instance, n = costs.instance, costs.n
    stages = _stages(costs)
    if stages is None:
        return None
    cuts = np.flatnonzero(costs.allowed)
    whole = [max(_work(costs, 0, cuts[-1:], c)[0], 1) for c in range(costs.classes)]
    speed = 1.0 / np.array(whole, dtype=np.float64)[costs.device_class]
    boundaries, at = [0], 0
    for i in range(stages):
        c, first = int(costs.device_class[i]), boundaries[-1]
        stashes = min(instance.microbatches, stages - i) if instance.training else 0
        if i == stages - 1:
            ends = cuts[-1:]
        else:
            ends = cuts[at + 1 : len(cuts) - (stages - 1 - i)]
        ends = ends[_fits(costs, first, ends, c, stashes)]
        if not len(ends):
            return None
        work = _work(costs, first, ends, c)
        share = _work(costs, first, np.array([n]), c)[0] * speed[i] / speed[i:stages].sum()
        end = int(ends[np.argmin(np.abs(work - share))])
        boundaries.append(end)
        at = int(np.searchsorted(cuts, end))
    return PipelineSolution.in_order(boundaries)


def _stages(costs: RangeCosts) -> int | None:
    spans = int(costs.allowed.sum()) - 1
    if spans >= costs.k:
        return costs.k
    return spans if costs.instance.fewer_stages else None


def _work(costs: RangeCosts, first: int, ends: Array, c: int) -> Array:
    if costs.instance.compute_table is not None:
        return np.asarray(costs.compute_matrix(c)[first, ends])
    return np.asarray(costs.prefix[c, ends] - costs.prefix[c, first])


def _fits(costs: RangeCosts, first: int, ends: Array, c: int, stashes: int) -> Array:
    if costs.tabular:
        return np.asarray(costs.fits_matrix(c, stashes)[first, ends])
    return np.asarray(ends <= costs.reach(c, stashes)[first])
