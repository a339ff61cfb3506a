"""Steady states: one microbatch is placed on devices that repeat it with a period.

The shorter the period, the better for many microbatches; it is never below the work of a device
for one microbatch.  Periods are tried from there on upward, each with random placings within
memory.  The placing, repeated for all microbatches, gives the orders of all devices, and longest
paths close up what its ramps leave open; or list scheduling completes the ramps, with as many
microbatches in flight as the steady state has.

Sources: modulo scheduling, Rau 1996, Iterative modulo scheduling; building blocks of Qi et al.
2024, Pipeline parallelism with controllable memory (arXiv 2405.15362).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from stagepack.heuristics.schedule import annealing
from stagepack.heuristics.schedule.bounds import bound
from stagepack.heuristics.schedule.greedy import Lists, Settings, policies_of, rounds
from stagepack.heuristics.schedule.greedy_kernels import B, F, W
from stagepack.heuristics.schedule.modulo_kernels import place_best
from stagepack.heuristics.schedule.timing import Timing
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.result import Progress

TRIES = 150
"""Random placings of a period in the first round; each round doubles them, up to 16 times."""

STEP = 1.01
"""Ratio of one period to the one before."""

SHARES = (1.0, 1.5, 2.0, 3.0)
"""How many times the F's in flight in the steady state lists may keep in flight."""


def unsupported(instance: PipelineSchedule) -> str:
    """Return why periods do not apply to `instance`, or ''."""
    if len(set(instance.microbatches.tolist())) > 1:
        return "needs the same number of microbatches for all stages"
    return ""


def search(instance: PipelineSchedule, progress: Progress[Any], settings: Settings) -> None:
    """Report ever better schedules to `progress` until it says stop.

    With ``settings.deterministic`` it ends after a fixed amount of work.
    """
    with progress.setup("compiling kernels"):
        warm_up()
    progress.raise_bound(*bound(instance))
    lists = Lists(instance)
    timing, shop = lists.timing, lists.shop
    m = int(instance.microbatches[0])
    work = np.zeros(instance.d, dtype=np.int64)
    np.add.at(work, instance.devices, shop.duration.sum(axis=1))
    sequence = int(shop.duration.sum() + 2 * instance.lag.sum())
    random = np.random.default_rng(settings.seed).integers(1, 1 << 63, size=1, dtype=np.uint64)
    order = np.array(instance.order, dtype=np.int64)
    time = np.zeros((instance.p, 3), dtype=np.int64)
    best: int | None = None
    best_order: Array | None = None
    for number in rounds(settings):
        period = int(work.max())
        while period <= sequence and (best is None or period * (m - 1) < best):
            if not progress.keep_going():
                return
            if place_best(shop, order, period, TRIES << min(number, 4), random, time):
                for source, found in _completed(lists, time, period):
                    if not progress.keep_going():
                        return
                    start = timing.best(found) if timing.fits(found) else None
                    if start is None:
                        continue
                    solution = ScheduleSolution.of(instance, start)
                    value = int(instance.evaluate(solution))
                    if best is None or value < best:
                        best, best_order = value, found
                        progress.offer(solution, f"{source}, period {period}")
            period = max(period + 1, int(period * STEP))
        if best_order is None:
            progress.reason = "no period was found whose steady state is within memory"
            continue
        best_order = annealing.improve(
            timing,
            best_order,
            seed=settings.seed + number,
            keep_going=progress.keep_going,
            on_order=lambda found: _offer(timing, found, progress),
        )
        best = int(instance.evaluate(ScheduleSolution.of(instance, _starts(timing, best_order))))


def _completed(lists: Lists, time: Array, period: int) -> Iterator[tuple[str, Array]]:
    """Yield orders, flat, whose steady state is `time`: repeated, and by list scheduling.

    The lists keep as many F's ahead of B's as the steady state does, or more, for a ramp ends
    sooner with more; and as many B's ahead of W's, or any number.
    """
    instance = lists.instance
    yield "modulo", _unrolled(instance, time, period)
    if not instance.training:
        return
    most = instance.microbatches
    cap = np.clip(-((time[:, F] - time[:, B]) // period), 1, most)
    debts = [np.full(instance.p, FAR, dtype=np.int64)]
    if instance.split:
        debts.append(np.clip((time[:, W] - time[:, B]) // period, 0, most))
    for share, debt in itertools.product(SHARES, debts):
        ahead = np.clip(np.rint(share * cap).astype(np.int64), 1, most)
        for policy in policies_of(instance, ahead, debt):
            found = lists.order(policy)
            if found is not None:
                yield "modulo and lists", found


def _offer(timing: Timing, order: Array, progress: Progress[Any]) -> None:
    solution = ScheduleSolution.of(timing.instance, _starts(timing, order))
    progress.offer(solution, "modulo and annealing")


def _starts(timing: Timing, order: Array) -> Array:
    start = timing.best(order)
    if start is None:
        raise ValueError("orders contradict one another")
    return start


def _unrolled(instance: PipelineSchedule, time: Array, period: int) -> Array:
    """Return the orders, flat, in which every microbatch follows the last after `period`."""
    operations = instance.operations
    start = time[operations.stage, operations.kind] + period * operations.microbatch
    return np.lexsort((start, operations.device))


def warm_up() -> None:
    """Run every kernel once, so that all are compiled."""
    tiny = PipelineSchedule.from_arrays([1], [1], [1], microbatches=1, objective="span")
    bound(tiny)
    lists = Lists(tiny)
    timing, shop = lists.timing, lists.shop
    time = np.zeros((1, 3), dtype=np.int64)
    random = np.ones(1, dtype=np.uint64)
    place_best(shop, np.zeros(1, dtype=np.int64), 3, 1, random, time)
    for _, order in _completed(lists, time, 3):
        timing.best(order)
    timing.fits(order)
    annealing.improve(timing, order, legs=1)
