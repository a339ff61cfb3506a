"""Policies of list schedules: how far F may run ahead, how far W may lag behind, and priorities.

These are the policies behind the known rules, from the shortest possible ramps to any lifetime in
between.

Cost: O(p + edges) each.  Sources: see :mod:`.greedy`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from stagepack.heuristics.schedule.effort import Looks
from stagepack.heuristics.schedule.greedy_kernels import B, F, Policy, W
from stagepack.heuristics.schedule.lower_bounds import bounds
from stagepack.heuristics.schedule.lower_bounds.queues import round_trips
from stagepack.heuristics.schedule.lower_bounds.ramps import Ramps
from stagepack.heuristics.schedule.rules import depths
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.heuristics.schedule.tuning import TUNING, ListsTuning
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule


def policies(
    instance: PipelineSchedule,
    lower: int | None = None,
    looks: Looks | None = None,
    tuning: ListsTuning = TUNING.lists,
) -> Iterator[Policy]:
    """Yield policies that may well be the best, the most promising first.

    `lower` is a bound on the objective, found here when absent; `looks` asks the clock after every
    stage.
    """
    looks = looks or Looks()
    if lower is None:
        lower = bounds.bound(instance)[0]
    depth = depths(instance)
    debts = [np.full(instance.p, FAR, dtype=np.int64)]
    if instance.split:
        debts += [depth.max() - depth, np.zeros(instance.p, dtype=np.int64)]
    caps = _caps(instance, depth, lower, looks, tuning)
    combined = [policies_of(instance, depth, *both) for both in itertools.product(caps, debts)]
    for row in zip(*combined, strict=True):
        yield from row


def policies_of(
    instance: PipelineSchedule, depth: Array, cap: Array, debt: Array
) -> Iterator[Policy]:
    """Yield policies with these caps and debts, the most promising first.

    `depth`, int64 (p,), is of :func:`.rules.depths`; `cap` and `debt`, int64 (p,), are how many F's
    may run ahead of B's, and B's ahead of W's.
    """
    p, d = instance.p, instance.d
    ranks = [_rank(depth, turn) for turn in ((F, B, W), (B, F, W))]
    if d < p:
        ranks += [_rank(-depth, turn) for turn in ((F, B, W), (B, F, W))]
    waits = [np.zeros((p, 3), dtype=np.int64)]
    if instance.weight is not None:
        waits.append(waits[0].copy())
        waits[1][:, W] = instance.weight
    stricts = (0, 1) if instance.split else (0,)
    for rank, strict, wait in itertools.product(ranks, stricts, waits):
        yield Policy(cap, debt, rank, wait, np.full(d, strict, dtype=np.int64))


def _caps(
    instance: PipelineSchedule, depth: Array, lower: int, looks: Looks, tuning: ListsTuning
) -> list[Array]:
    """Return caps on the F's ahead of the B's, each of shape (p,).

    What the least ramps of :class:`.ramps.Ramps` need; the number of stages below (1F1B), almost
    twice that (zero bubble H2), parts of it; as many as fit; and, where a microbatch takes T
    cycles, as many as start between an F and its B, for T from a third of the work to all in
    sequence: the lifetimes of Qi et al. 2024, Pipeline parallelism with controllable memory (arXiv
    2405.15362).
    """
    most = instance.microbatches.astype(np.int64)
    if not instance.training or instance.backward is None:
        return [most]
    caps = [depth, 2 * depth - 1, most]
    least = Ramps(instance, looks).warm_up(lower)
    if least is not None:
        caps.insert(0, least)
    trip = round_trips(instance, looks)
    shortest = float((instance.work / most.max()).max()) / 3
    longest = max(shortest, float(trip.max()))
    periods = np.geomspace(shortest, longest, tuning.periods)
    shares = [share * depth for share in tuning.caps] + [trip / period for period in periods]
    distinct = {
        tuple(np.clip(np.ceil(share), 1, most).astype(np.int64).tolist()) for share in shares
    }
    rest = [np.array(cap, dtype=np.int64) for cap in sorted(distinct, reverse=True)]
    return [np.clip(cap, 1, most) for cap in caps] + rest


def _rank(depth: Array, turn: tuple[int, int, int]) -> Array:
    """Return ranks by kind, the last of `turn` lowest and B before F for (F, B, W); then by depth.

    The F's of stages near the end come first, and the B's of stages near the beginning.
    """
    rank = np.zeros((len(depth), 3), dtype=np.int64)
    scale = 2 * int(np.abs(depth).max()) + 2
    place = {turn[1]: 2, turn[0]: 1, turn[2]: 0}
    for kind in (F, B, W):
        rank[:, kind] = place[kind] * scale + (depth if kind else -depth)
    return rank
