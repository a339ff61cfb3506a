"""The exact method for latency, and for moves: a shortest path through chain and devices.

`least[q, a]` is what the layers [a, n) cost at least when the stages that hold them lead the
automaton of devices to state q; a stage costs what it computes, receives and sends.  In a free
order of unlike devices states are subsets of these.

Cost: O(transitions * n) steps, with tables O(transitions * n**2); O(states * n) numbers are kept.
Source: own work; the program over subsets is that of Held and Karp (1962).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stagepack.errors import InputError
from stagepack.heuristics.effort import spend
from stagepack.heuristics.pipeline.bounds import filled
from stagepack.heuristics.pipeline.kernels import UNLIMITED, Chain
from stagepack.heuristics.pipeline.latency_kernels import extend
from stagepack.heuristics.pipeline.prober import Prober
from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import Objective, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress


def solve(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning = TUNING
) -> bool:
    """Find and prove a partition of least latency; return False when none fits."""
    order, instance = costs.order, costs.instance
    if order.states * (costs.n + 1) <= tuning.latency_cells:
        found = None
        for limited in _alternatives(costs):
            other = _shortest(limited, progress, tuning)
            if other is not None and (found is None or other[0] < found[0]):
                found = other
                progress.offer(found[1], "dp")
        if found is None:
            return False
        progress.raise_bound(costs.bound(found[0] + costs.host), "exhausted search", filled(costs))
        return True
    if instance.free_order and not instance.alternatives:  # the given order is one of all
        given = RangeCosts.of(instance.replace(free_order=False), progress.require_time)
        if given.order.states * (costs.n + 1) <= tuning.latency_cells:
            found = _shortest(given, progress, tuning)
            if found is not None:
                progress.offer(found[1], "dp")
    raise InputError(
        f"{order.states:,} choices of devices for {costs.n:,} layers are more than "
        f"{tuning.latency_cells:,} cells",
        field="method dp",
        remedy="use fewer devices or fewer kinds of them, join layers, or fix their order",
    )


def _alternatives(costs: RangeCosts) -> Iterator[RangeCosts]:
    """Yield costs within limits that, together, allow what may be allowed.

    Of `moves` within a sum of compute and transfer these are pairs of limits, one for each transfer
    that some stage has; otherwise what is given.
    """
    bounded = Objective.TRANSFER_BOUNDED
    if costs.within is None or costs.within[0].instance.objective is not bounded:
        yield costs
        return
    limited, _, most = costs.within
    total, found = most + limited.compute_bound(), set[int]()
    for c in {*limited.device_class.tolist()}:
        moved = limited.recv[c][:, None] + limited.send[c] + limited.host
        moved = moved + (limited.extra[c] if limited.extra else 0)
        found.update(np.unique(moved[np.triu_indices(costs.n + 1, 1)]).tolist())
    least = limited.transfer_bound() + limited.host
    for transfer in sorted(found, reverse=True):
        if least <= transfer <= most:
            yield costs.with_limits(total - transfer, transfer)


def _shortest(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: PipelineTuning
) -> tuple[int, PipelineSolution] | None:
    """Return the least ticks, without the host's, and a partition that takes them, if one fits."""
    order, probes = costs.order, tuning.probes
    chain = Prober(costs, progress, probes).chain
    least = np.empty((order.states, costs.n + 1), dtype=np.int64)
    least[0], least[0, costs.n] = UNLIMITED, 0
    queue, done = np.empty(costs.n + 1, dtype=np.int64), 0
    while done < len(order.source):
        progress.require_time()
        before, done = done, extend(done, probes.steps_at_once, chain, least, queue)
        spend((done - before) * costs.n * probes.step_seconds)
    ends = np.where(order.accepting, least[:, 0], UNLIMITED)
    state = int(ends.argmin())
    value = int(ends[state])
    return None if value >= UNLIMITED else (value, _partition(costs, chain, least, state))


def _partition(costs: RangeCosts, chain: Chain, least: Array, state: int) -> PipelineSolution:
    """Return the partition whose tails are the cheapest, from the head on."""
    order, cuts, classes = costs.order, [0], list[int]()
    while cuts[-1] < costs.n:
        a = cuts[-1]
        for t in range(order.arrivals[state], order.arrivals[state + 1]):
            c, before = int(order.device_class[t]), least[order.source[t]]
            cost = before + costs.send[c] + costs.recv[c, a]
            if chain.tabular:
                cost, fits = cost + chain.compute[c, a], chain.fits[chain.window[t], a]
            else:
                cost += costs.prefix[c] - costs.prefix[c, a]
                fits = np.arange(costs.n + 1) <= chain.reach[chain.window[t], a]
            found = np.flatnonzero((cost == least[state, a]) & (before < UNLIMITED) & fits)
            found = found[found > a]
            if len(found):
                state = int(order.source[t])
                cuts.append(int(found[0]))
                classes.append(c)
                break
    return costs.partition(cuts, classes)
