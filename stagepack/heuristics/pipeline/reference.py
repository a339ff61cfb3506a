"""Auto Pipeline's exact recurrence over all transfer thresholds; a reference for correctness.

For one threshold T, with cost_i(a, b) infinite if the stage does not fit or transfers more::

    best_0(b) = cost_0(0, b)
    best_i(b) = min over a of max(best_{i-1}(a), cost_i(a, b))

The result is the least T + best_{k-1}(n) over all thresholds T that occur as the transfer of a
stage that fits.  It takes O(k n w) steps for each of up to k n w thresholds, if stages of at most w
layers fit.  For a fair comparison it is implemented efficiently: costs and thresholds are replaced
by their ranks, so that small integers are compared, and all stages of one length are evaluated
together, for as many thresholds as fit into the cache.  Source: *Auto Pipeline*
(graphcore/ipu_tensorflow_addons, README).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.pipeline.tuning import TUNING, RecurrenceTuning
from stagepack.instances.arrays import distinct
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array
from stagepack.progress import Progress

INFINITE = np.int64(2**61)


class Numbered(NamedTuple):
    """All stages, their costs numbered in rising order."""

    # (k, n + 1, n + 1): number of the compute of the stage i of layers [a, b); that of infinity
    # where it is unfit.
    cost: Array
    # (k, n + 1, n + 1): number of the first threshold that its transfer is within.
    allowed_from: Array
    lengths: list[Array]  # of each stage, the numbers of layers with which it may fit
    # What the numbers stand for; infinity is the last value.
    values: Array
    thresholds: Array


def unsupported(instance: PipelinePartition) -> str:
    """Return why the recurrence does not apply to `instance`, or ''."""
    if instance.free_order or instance.fewer_stages:
        return "the recurrence puts stage i on device i; use dp"
    if instance.objective in (Objective.LATENCY, Objective.HEADROOM, Objective.MOVES):
        return f"the recurrence knows no objective {instance.objective}; use dp"
    if 2 * instance.k * (instance.n + 1) ** 2 > TUNING.recurrence.table_limit:
        return f"tables of {instance.k:,} x {instance.n:,} x {instance.n:,} are too large; use dp"
    return ""


def solve(
    costs: RangeCosts,
    progress: Progress[PipelineSolution],
    tuning: RecurrenceTuning = TUNING.recurrence,
) -> bool:
    """Find and prove an optimal partition; return False when there is none."""
    stages, n = _numbered(*_tables(costs, progress, tuning), progress, tuning), costs.n
    best, best_at = INFINITE, -1
    step = max(1, tuning.block // (n + 1))
    for begin in range(0, len(stages.thresholds), step):
        block = np.arange(begin, min(begin + step, len(stages.thresholds)))
        last = stages.values[_sweep(stages, block, progress, tuning)[-1][n]]
        total = np.where(last < INFINITE, last + stages.thresholds[block], INFINITE)
        at = int(np.argmin(total))
        if total[at] < best:
            best, best_at = total[at], begin + at
            progress.offer(_trace_back(stages, best_at, progress, tuning), "dp-reference")
    if best_at < 0:
        return False
    progress.raise_bound(costs.bound(int(best)), "exhausted search")
    return True


def _tables(
    costs: RangeCosts, progress: Progress[PipelineSolution], tuning: RecurrenceTuning
) -> tuple[Array, Array]:
    """Return compute and transfer ticks, both (k, n + 1, n + 1); compute infinite where unfit.

    For the objectives without a transfer term of its own, compute is the whole cost of the stage,
    and transfer is 0.
    """
    instance, k, n = costs.instance, costs.k, costs.n
    compute = np.empty((k, n + 1, n + 1), dtype=np.int64)
    transfer = np.empty_like(compute)
    for i, c in enumerate(costs.device_class.tolist()):
        spend(tuning.fill_seconds * compute[i].size)
        progress.require_time()
        stashes = min(instance.microbatches, k - i) if instance.training else 0
        recv, send = costs.recv[c][:, None], costs.send[c][None, :]
        work = costs.compute_matrix(c)
        progress.require_time()
        transfer[i] = recv + send + costs.host
        if costs.extra:
            transfer[i] += costs.extra[c]
        if instance.objective is Objective.SUM:
            work = work + transfer[i]
        elif instance.objective is Objective.OVERLAP:
            work = np.maximum(np.maximum(work, recv), send)
        progress.require_time()
        fits = costs.fits_matrix(c, stashes)
        progress.require_time()
        compute[i] = work
        compute[i][~fits] = INFINITE
        if instance.objective is not Objective.TRANSFER_BOUNDED:
            transfer[i] = 0
    return compute, transfer


def _numbered(
    compute: Array,
    transfer: Array,
    progress: Progress[PipelineSolution],
    tuning: RecurrenceTuning,
) -> Numbered:
    """Return the tables as numbers of their values, in the smallest type that holds them."""
    k, width, _ = compute.shape
    values = np.append(_distinct(compute, compute, progress, tuning), INFINITE)
    thresholds = _distinct(transfer, compute, progress, tuning)
    cost = np.empty(compute.shape, dtype=np.min_scalar_type(len(values)))
    allowed_from = np.empty(compute.shape, dtype=np.min_scalar_type(len(thresholds)))
    found = np.zeros((k, width), dtype=bool)
    for i, rows in _parts(compute, progress, tuning):
        cost[i, rows] = np.searchsorted(values, compute[i, rows])
        allowed_from[i, rows] = np.searchsorted(thresholds, transfer[i, rows])
        first, end = np.nonzero(compute[i, rows] < INFINITE)
        found[i, end - first - rows.start] = True
    lengths = [np.flatnonzero(row) for row in found]
    return Numbered(cost, allowed_from, lengths, values, thresholds)


def _distinct(
    table: Array,
    compute: Array,
    progress: Progress[PipelineSolution],
    tuning: RecurrenceTuning,
) -> Array:
    """Return the entries of stages that fit, in order, each once."""
    runs = [np.empty(0, dtype=np.int64)]
    for i, rows in _parts(table, progress, tuning):
        runs.append(distinct(table[i, rows][compute[i, rows] < INFINITE]))
        while len(runs) > 1 and len(runs[-2]) <= len(runs[-1]):
            runs[-2:] = [_merged(runs[-2:], progress)]
    return _merged(runs, progress)


def _merged(runs: list[Array], progress: Progress[PipelineSolution]) -> Array:
    """Return the values of rising runs as one; the sort that is stable merges such runs."""
    progress.require_time()
    return distinct(np.sort(np.concatenate(runs), kind="stable"))


def _parts(
    table: Array, progress: Progress[PipelineSolution], tuning: RecurrenceTuning
) -> Iterator[tuple[int, slice]]:
    """Yield every stage with its rows, some at a time, which count as numbered."""
    k, width, _ = table.shape
    at_once = max(1, tuning.entries_at_once // width)
    for i in range(k):
        for low in range(0, width, at_once):
            rows = slice(low, min(width, low + at_once))
            spend(tuning.number_seconds / 3 * (rows.stop - low) * width)
            progress.require_time()
            yield i, rows


def _sweep(
    stages: Numbered,
    block: Array,
    progress: Progress[PipelineSolution],
    tuning: RecurrenceTuning,
) -> list[Array]:
    """Return best_i(b) for every stage i, each (n + 1, thresholds), as numbers, for a block."""
    k, width, _ = stages.cost.shape
    n, infinite = width - 1, stages.cost.dtype.type(len(stages.values) - 1)
    block = block.astype(stages.allowed_from.dtype)

    def limited(i: int, a: Array | int, b: Array | int, before: Array) -> Array:
        """Return the larger of what was before and the cost of stages, infinite beyond limits."""
        worst = np.maximum(before, stages.cost[i, a, b][:, None])
        worst[stages.allowed_from[i, a, b][:, None] > block] = infinite
        return np.asarray(worst)

    nothing = np.zeros((1, len(block)), dtype=stages.cost.dtype)
    sweep = [limited(0, 0, np.arange(width), nothing)]
    for i in range(1, k):
        best = np.full((width, len(block)), infinite, dtype=stages.cost.dtype)
        for length in stages.lengths[i].tolist():
            # Only the whole chain matters after the last stage.
            low, high = max(i, n - length if i == k - 1 else 0), width - length
            if low >= high:
                continue
            spend(tuning.length_seconds + (high - low) * tuning.compare_seconds * len(block))
            progress.require_time()
            a, ends = np.arange(low, high), best[low + length :]
            np.minimum(ends, limited(i, a, a + length, sweep[-1][low:high]), out=ends)
        sweep.append(best)
    return sweep


def _trace_back(
    stages: Numbered, at: int, progress: Progress[PipelineSolution], tuning: RecurrenceTuning
) -> PipelineSolution:
    """Return an optimal partition within one threshold."""
    sweep = _sweep(stages, np.array([at]), progress, tuning)
    cuts = [stages.cost.shape[1] - 1]
    for i in range(len(sweep) - 1, 0, -1):
        b = cuts[-1]
        worst = np.maximum(sweep[i - 1][:b, 0], stages.cost[i, :b, b])
        worst[stages.allowed_from[i, :b, b] > at] = len(stages.values) - 1
        cuts.append(int(np.argmin(worst)))
    return PipelineSolution.in_order([0, *reversed(cuts)] if cuts[-1] else reversed(cuts))
