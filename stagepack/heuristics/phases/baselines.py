"""Simple rules as used by hand: the baselines with which optima are compared.

Each rule fixes the policy of every layer and then cuts the chain; each phase gets the fastest mode
that fits.  If there are several microbatch sizes and numbers of I/O tiles, each rule is applied to
every microbatch size, with no I/O tiles and with the smallest allowed number.

Cost: O(options) for a plan, once they are known; :func:`heads` examines only the groups that it
takes.  Source: practice, except for :func:`checkpoints`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.phases import liveness_kernels
from stagepack.heuristics.phases.cycles import rooms
from stagepack.heuristics.phases.options import OptionTable
from stagepack.heuristics.phases.policies import CODES, PolicyRows, chosen, uniform
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.tuning import TUNING, PhasesTuning
from stagepack.instances.phases.data import Policy
from stagepack.instances.phases.instance import PhaseSchedule

Going = Callable[[], bool]
Policies = Callable[[RangeCosts, Going], PolicyRows]


def pairs(instance: PhaseSchedule) -> list[tuple[int, int]]:
    """Return the microbatches and numbers of I/O tiles to which rules are applied."""
    counts = instance.io_tile_choices
    tiles = [*[0] * counts.none, *counts.some[:1]]
    return [(microbatch, count) for microbatch in instance.microbatches for count in tiles]


def one_policy(costs: RangeCosts, keep_going: Going) -> PolicyRows:
    """Give every layer the first policy allowed: stash, where it is."""
    return uniform(costs, costs.instance.policies[0], keep_going)


def keep(costs: RangeCosts, keep_going: Going) -> PolicyRows:
    """Keep everything on chip."""
    return uniform(costs, Policy.KEEP, keep_going)


def checkpoints(costs: RangeCosts, keep_going: Going, change: int = 0) -> PolicyRows:
    """Drop all of a group of m layers but every (ceil(sqrt(m)) + change)-th, from the first on.

    Checkpoints are stashed; in the last group, whose backward part follows at once, they are kept.
    Source: Chen, Xu, Zhang and Guestrin 2016 (training deep nets with sublinear memory cost).
    Segments are `change` longer (or shorter) than the root of the layers.  `keep_going` is asked
    now and then; once it says no, rows are missing, and the answer says so.
    """
    allowed = costs.instance.policies

    def rule(first: int, end: int) -> list[Policy]:
        wanted = (Policy.KEEP, Policy.STASH) if end == costs.n else (Policy.STASH, Policy.KEEP)
        saved = next(policy for policy in wanted if policy in allowed)
        every = max(1, math.isqrt(end - first - 1) + 1 + change)
        return [
            saved if (at - first) % every == every - 1 else Policy.RECOMPUTE
            for at in range(first, end)
        ]

    return chosen(costs, rule, keep_going)


def attempts(policies: Policies, layers: int) -> Iterator[Policies]:
    """Yield a rule, then what to try in turn where it finds no plan that fits.

    That is something for `checkpoints` alone: segments ever shorter and longer than the root.
    """
    yield policies
    if policies is checkpoints:
        for change in range(1, math.isqrt(layers) + 2):
            yield functools.partial(checkpoints, change=-change)
            yield functools.partial(checkpoints, change=change)


def from_head(table: OptionTable, keep_going: Going = lambda: True) -> list[int] | None:
    """Return options that put as many layers into each group as fit, from the first layer on."""
    return _walk(table, lambda ends: int(ends.max()), keep_going)


def heads(
    instance: PhaseSchedule,
    microbatch: int,
    io_tiles: int,
    policy: Policy | None,
    keep_going: Going,
    tuning: PhasesTuning = TUNING,
) -> list[int] | None:
    """Return the boundaries of groups that hold as many layers as fit, from the first layer on.

    No other groups are looked at; None where some layer does not fit.  A group that fits although
    one of fewer layers does not may be missed.  `microbatch` and `io_tiles` are those of the plan,
    `policy` that of all layers, None in inference.  What `keep_going`, called now and then, raises
    ends the pass.
    """
    n = instance.n
    costs = RangeCosts(
        instance, microbatch, cuts=range(n + 1), keep_going=keep_going, tuning=tuning
    )
    part = tuning.rules.layers_at_once
    given = np.full(n, liveness_kernels.NONE if policy is None else CODES[policy], dtype=np.int64)
    limits = (rooms(instance.chip, io_tiles)[0], costs.steps, part)
    sums = costs.weight_sums, costs.state_sums, costs.reach()
    found, at, kept = [0], 0, 0
    while at < n:
        keep_going()
        spend(tuning.prices.read_price * part)
        ends, at, kept = liveness_kernels.heads(costs.layers, *sums, given, limits, at, kept)
        if at < 0:
            return None
        found += ends.tolist()
    return found


def one_layer(table: OptionTable, keep_going: Going = lambda: True) -> list[int] | None:
    """Return options of one layer a group."""
    return _walk(table, lambda ends: int(ends.min()), keep_going, most=1)


def _walk(
    table: OptionTable,
    choose: Callable[[np.ndarray], int],
    keep_going: Going,
    most: int | None = None,
) -> list[int] | None:
    """Return options taken from the first layer on, None when there are none to go on with.

    `choose` gets where groups may end and returns where the next one does; a group has `most`
    layers at most.  What `keep_going`, asked now and then, raises ends the walk.
    """
    found: list[int] = []
    at = kept = 0
    tuning = table.costs.tuning
    often = tuning.rules.groups_at_once
    while at < table.n:
        spend(2 * tuning.prices.look_price)
        if len(found) % often == often - 1:
            keep_going()
        rows = np.arange(table.start[at], table.start[at + 1])
        fits = kept + table.need[rows] <= table.capacity
        if most is not None:
            fits &= table.end[rows] - at <= most
        rows = rows[fits]
        if not len(rows):
            return None
        end = choose(table.end[rows])
        rows = rows[table.end[rows] == end]
        best = int(rows[np.argmin(table.time[rows])])
        found.append(best)
        kept += int(table.kept[best])
        at = end
    return found
