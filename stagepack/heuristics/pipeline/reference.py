"""Auto Pipeline's exact recurrence, over every transfer threshold: clear rather than fast.

For one threshold T, with cost_i(a, b) infinite where the stage does not fit or transfers more::

    best_0(b) = cost_0(0, b)
    best_i(b) = min over a of max(best_{i-1}(a), cost_i(a, b))

and the answer is the least T + best_{k-1}(n) over all thresholds T.  O(k n^2) steps for each of up
to k n^2 / 2 thresholds; vectorised over last cuts and thresholds.  Source: *Auto Pipeline*
(graphcore/ipu_tensorflow_addons, README).
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress

INFINITE = np.int64(2**61)
BLOCK = 2**21  # entries of a table (last cut, threshold) held at a time
FILLING = 4e-8  # seconds of work to fill an entry of the tables,
LOOK = 2e-5  # to look at one end of one stage,
FETCH = 4e-8  # to fetch an entry for that,
ENTRY = 8e-9  # and to compare it with one threshold
LARGEST_TABLES = 2**28  # entries of all tables (stage, first, end)


def unsupported(instance: PipelinePartition) -> str:
    """Return why the recurrence does not apply to `instance`, or ''."""
    if instance.free_order or instance.fewer_stages:
        return "the recurrence puts stage i on device i; use dp"
    if 2 * instance.k * (instance.n + 1) ** 2 > LARGEST_TABLES:
        return f"tables of {instance.k:,} x {instance.n:,} x {instance.n:,} are too large; use dp"
    return ""


def solve(costs: RangeCosts, progress: Progress[PipelineSolution]) -> bool:
    """Find and prove an optimal partition; return False when there is none.

    Raises
    ------
    Stopped
        When the time is over before all thresholds are done.
    """
    compute, transfer = _tables(costs, progress)
    thresholds = np.zeros(1, dtype=np.int64)
    if costs.instance.objective is Objective.TRANSFER_BOUNDED:
        ranges = np.triu(np.ones_like(transfer[0], dtype=bool), k=1)
        distinct = []
        for table in transfer:
            progress.require_time()
            distinct.append(np.unique(table[ranges]))
        thresholds = np.unique(np.concatenate(distinct))
    else:
        transfer[:] = 0
    best, best_threshold = INFINITE, None
    step = max(1, BLOCK // (costs.n + 1))
    for begin in range(0, len(thresholds), step):
        block = thresholds[begin : begin + step]
        total = _sweep(compute, transfer, block, progress)[-1][costs.n] + block
        at = int(np.argmin(total))
        if total[at] < best:
            best, best_threshold = total[at], block[at : at + 1]
            progress.offer(_trace_back(compute, transfer, best_threshold, progress), "dp-reference")
    if best_threshold is None:
        return False
    progress.raise_bound(costs.bound(int(best)), "exhausted search")
    return True


def _tables(costs: RangeCosts, progress: Progress[PipelineSolution]) -> tuple[Array, Array]:
    """Return compute and transfer ticks, both (k, n + 1, n + 1); compute infinite where unfit.

    For the objectives without a transfer term of its own, compute is the whole cost of the stage.
    """
    instance, k, n = costs.instance, costs.k, costs.n
    compute = np.empty((k, n + 1, n + 1), dtype=np.int64)
    transfer = np.empty_like(compute)
    for i, c in enumerate(costs.device_class.tolist()):
        spend(FILLING * compute[i].size)
        progress.require_time()
        stashes = min(instance.microbatches, k - i) if instance.training else 0
        recv, send = costs.recv[c][:, None], costs.send[c][None, :]
        work = costs.compute_matrix(c)
        progress.require_time()
        transfer[i] = recv + send + costs.host
        if instance.objective is Objective.SUM:
            work = work + transfer[i]
        elif instance.objective is Objective.OVERLAP:
            work = np.maximum(np.maximum(work, recv), send)
        progress.require_time()
        fits = costs.fits_matrix(c, stashes)
        progress.require_time()
        compute[i] = work
        compute[i][~fits] = INFINITE
    return compute, transfer


def _sweep(
    compute: Array, transfer: Array, thresholds: Array, progress: Progress[PipelineSolution]
) -> list[Array]:
    """Return best_i(b) for every stage i, each (n + 1, thresholds), within each threshold."""
    k, width, _ = compute.shape

    def cost(i: int, a: slice, b: int) -> Array:
        limited = transfer[i, a, b, None] > thresholds[None, :]
        return np.where(limited, INFINITE, compute[i, a, b, None])

    first = np.concatenate([cost(0, slice(0, 1), b) for b in range(width)])
    sweep = [first]
    for i in range(1, k):
        best = np.full((width, len(thresholds)), INFINITE)
        # Only the whole chain matters after the last stage.
        for b in range(i + 1, width) if i < k - 1 else (width - 1,):
            spend(LOOK + (b - i) * (FETCH + ENTRY * len(thresholds)))
            progress.require_time()
            before = slice(i, b)
            best[b] = np.maximum(sweep[-1][before], cost(i, before, b)).min(
                axis=0, initial=INFINITE
            )
        sweep.append(best)
    return sweep


def _trace_back(
    compute: Array, transfer: Array, threshold: Array, progress: Progress[PipelineSolution]
) -> PipelineSolution:
    """Return an optimal partition within one threshold."""
    sweep = _sweep(compute, transfer, threshold, progress)
    cuts = [compute.shape[1] - 1]
    for i in range(len(sweep) - 1, 0, -1):
        b = cuts[-1]
        cost = np.where(transfer[i, :b, b] > threshold[0], INFINITE, compute[i, :b, b])
        cuts.append(int(np.argmin(np.maximum(sweep[i - 1][:b, 0], cost))))
    return PipelineSolution.in_order([0, *reversed(cuts)] if cuts[-1] else reversed(cuts))
