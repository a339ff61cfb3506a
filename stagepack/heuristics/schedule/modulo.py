"""Steady states: one microbatch is placed on devices that repeat it with a fixed period.

Short periods are best for many microbatches.  The period is at least the work of a device for one
microbatch.  Periods are tried in rising order from there, each with random placements that respect
memory.  A placement, repeated for all microbatches, gives the orders of all devices, and longest
paths remove idle time in its ramps.  Alternatively, list scheduling completes the ramps, with as
many microbatches in flight as the steady state has.

Cost: for m operations of a microbatch on a device O(m^3) at worst a placement, O(operations + arcs)
to complete one.

Sources: modulo scheduling, Rau 1996, Iterative modulo scheduling; building blocks of Qi et al.
2024, Pipeline parallelism with controllable memory (arXiv 2405.15362).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics.schedule import annealing, effort
from stagepack.heuristics.schedule.effort import Settings
from stagepack.heuristics.schedule.greedy import Lists, evaluation, rounds
from stagepack.heuristics.schedule.greedy_kernels import B, F, Shop, W
from stagepack.heuristics.schedule.lower_bounds import bounds
from stagepack.heuristics.schedule.modulo_kernels import place_best
from stagepack.heuristics.schedule.policies import policies_of
from stagepack.heuristics.schedule.rules import depths
from stagepack.heuristics.schedule.timing import Timing
from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.instances.schedule import PipelineSchedule, ScheduleSolution
from stagepack.progress import Progress, Stopped

TRIES = 150
"""Random placings of a period in the first round; each round doubles them, up to 16 times."""

LOOKED = 15_000_000
"""Operations looked at in a kernel call: less than a tenth of a second."""

MOST = 3_000_000
"""Pairs of operations of a microbatch on the same device up to which periods are tried."""

COST = 1.2
"""Steps of a look."""

STEP = 1.01
"""Ratio of one period to the one before."""

SPARSE = 3
"""Times the microbatches, delays between operations of a device from which on they are sorted."""

SHARES = (1.0, 1.5, 2.0, 3.0)
"""How many times the F's in flight in the steady state lists may keep in flight."""


def unsupported(instance: PipelineSchedule) -> str:
    """Return why periods do not apply to `instance`, or ''."""
    if len(set(instance.microbatches.tolist())) > 1:
        return "needs the same number of microbatches for all stages"
    pairs = int(((np.bincount(instance.devices) * len(instance.kinds)) ** 2).sum())
    if pairs > MOST:
        return (
            f"is for microbatches with up to {MOST:,} pairs of operations on the same device, "
            f"not {pairs:,}"
        )
    return ""


def search(
    instance: PipelineSchedule,
    progress: Progress[ScheduleSolution],
    settings: Settings,
    start: ScheduleSolution | None = None,
) -> None:
    """Report ever better schedules to `progress` until it says stop.

    Parameters
    ----------
    instance : PipelineSchedule
        One that is not :func:`unsupported`.
    progress : Progress
    settings : Settings
        With `deterministic` it ends after a fixed amount of work.
    start : ScheduleSolution, optional
        Nothing worse is gone on from.
    """
    with contextlib.suppress(Stopped):
        _Periods(instance, progress, settings, start).run()


class _Periods:
    """The best schedule so far, and what periods are tried with.

    Attributes
    ----------
    best : int or None
        Objective value of the best schedule.
    order : ndarray of int64 or None
        The orders of all devices in it, flat.
    """

    def __init__(
        self,
        instance: PipelineSchedule,
        progress: Progress[ScheduleSolution],
        settings: Settings,
        start: ScheduleSolution | None,
    ) -> None:
        self.instance, self.progress, self.settings = instance, progress, settings
        self.keep_going = effort.asking(progress)
        if progress.bound is None:
            progress.raise_bound(*bounds.bound(instance, self.keep_going))
        self.lists = Lists(instance, look=effort.looking(progress))
        self.random = np.random.default_rng(settings.seed).integers(1, 1 << 63, 1, np.uint64)
        self.best = None if start is None else int(instance.evaluate(start))
        self.order = None if start is None else self.lists.timing.order_of(start.start)

    def run(self) -> None:
        """Try all periods and improve the best schedule, with more work from round to round."""
        for number in rounds(self.settings):
            if not self.keep_going(0):
                return
            for period in self._periods():
                if not self.keep_going(0):
                    return
                self._try(period, TRIES << min(number, 4))
            if self.order is None:
                self.progress.reason = "no repeating pattern was found that keeps within the memory"
                continue
            if not self.keep_going(0):
                return
            if annealing.affordable(self.lists.timing):
                self._improve(self.order, number)

    def _periods(self) -> Iterator[int]:
        """Yield periods from the least to that of one microbatch after the other.

        They end where all microbatches take as long as the best schedule.
        """
        instance, m = self.instance, int(self.instance.microbatches[0])
        sequence = int(self.lists.shop.duration.sum() + 2 * instance.lag.sum())
        period = int(instance.work.max()) // m
        while period <= sequence and (self.best is None or period * (m - 1) < self.best):
            yield period
            period = max(period + 1, int(period * STEP))

    def _try(self, period: int, tries: int) -> None:
        """Place a microbatch at random so many times; complete and offer the best placing."""
        instance, timing = self.instance, self.lists.timing
        order = np.array(instance.order, dtype=np.int64)
        time = np.zeros((instance.p, 3), dtype=np.int64)
        if not placed(self.lists.shop, order, period, tries, self.random, time, self.keep_going):
            return
        for source, found in _completed(self.lists, time, period, self.keep_going):
            starts = timing.best(found) if timing.fits(found) else None
            if starts is None:
                continue
            solution = ScheduleSolution.of(instance, starts)
            value = int(instance.evaluate(solution))
            self.keep_going(evaluation(instance))
            if self.best is None or value < self.best:
                self.best, self.order = value, found
                effort.offer(instance, self.progress, solution, f"{source}, period {period:,}")

    def _improve(self, order: Array, number: int) -> None:
        """Anneal the orders of the best schedule; later rounds cool more slowly."""
        timing = self.lists.timing
        self.order = annealing.improve(
            timing,
            order,
            seed=self.settings.seed + number,
            settings=annealing.cooling(number, timing),
            least=int(self.progress.bound or 0),
            keep_going=self.keep_going,
            on_order=lambda found: _offer(timing, found, self.progress),
        )
        self.best = timing.value(self.order)


def placed(
    shop: Shop,
    order: Array,
    period: int,
    tries: int,
    random: Array,
    time: Array,
    keep_going: Callable[[int], bool],
) -> bool:
    """Set `time` to the placing of shortest passage among random ones; False when there is none.

    Parameters
    ----------
    shop : Shop
    order : ndarray of int64, shape (p,)
        The stages, producers first.
    period : int
        Cycles.
    tries : int
        Random placings.
    random : ndarray of uint64, shape (1,)
        State of the generator.
    time : ndarray of int64, shape (p, 3)
        Starts of F, B, W of one microbatch.
    keep_going : callable
        Asked several times a second, with the steps since; once it says no, the answer is False.
    """
    scratch, state = np.zeros_like(time), np.array([0, 0, FAR])
    while state[0] < tries:
        looked = place_best(shop, order, period, tries, random, state, LOOKED, scratch, time)
        if not keep_going(int(COST * looked)):
            return False
    return bool(state[2] < FAR)


def _completed(
    lists: Lists, time: Array, period: int, keep_going: Callable[[int], bool]
) -> Iterator[tuple[str, Array]]:
    """Yield orders, flat, whose steady state is `time`: repeated, and by list scheduling.

    The lists keep as many F's ahead of B's as the steady state does, or more, for a ramp ends
    sooner with more; and as many B's ahead of W's, or any number.
    """
    instance = lists.instance
    yield "modulo", _unrolled(lists, time, period, keep_going)
    if not instance.training:
        return
    most = instance.microbatches
    depth = depths(instance)
    cap = np.clip(-((time[:, F] - time[:, B]) // period), 1, most)
    debts = [np.full(instance.p, FAR, dtype=np.int64)]
    if instance.split:
        debts.append(np.clip((time[:, W] - time[:, B]) // period, 0, most))
    for share, debt in itertools.product(SHARES, debts):
        ahead = np.clip(np.rint(share * cap).astype(np.int64), 1, most)
        for policy in policies_of(instance, depth, ahead, debt):
            if not keep_going(0):
                return
            found = lists.order(policy, keep_going)
            if found is not None:
                yield "modulo and lists", found


def _offer(timing: Timing, order: Array, progress: Progress[ScheduleSolution]) -> None:
    solution = ScheduleSolution.of(timing.instance, _starts(timing, order))
    effort.offer(timing.instance, progress, solution, "modulo and annealing")


def _starts(timing: Timing, order: Array) -> Array:
    start = timing.best(order)
    if start is None:
        raise ValueError("orders contradict one another")
    return start


def _unrolled(lists: Lists, time: Array, period: int, keep_going: Callable[[int], bool]) -> Array:
    """Return the orders, flat, in which every microbatch follows the last after `period`.

    O(n), and a logarithm where delays are long beside the microbatches.

    Parameters
    ----------
    lists : Lists
    time : ndarray of int64, shape (p, 3)
        Starts of F, B, W of one microbatch.
    period : int
        Cycles.
    keep_going : callable
        Asked device after device, with the steps since.

    Raises
    ------
    Stopped
        Once `keep_going` says no.
    """
    instance, shop, device = lists.instance, lists.shop, []
    every = np.arange(int(instance.microbatches[0]))
    for d in range(instance.d):
        # Round q of the loop runs, in the order of their phases, microbatch q - delay of each.
        own = shop.own_stage[shop.own_first[d] : shop.own_first[d + 1]].tolist()
        rows = [(s, k) for s in own for k in range(len(instance.kinds))]
        rows.sort(key=lambda row: (time[row] % period, row))
        delay = np.array([int(time[row] // period) for row in rows])
        delay -= delay.min()
        first = np.array([instance.operations.op(*row, 0) for row in rows])
        if delay.max() > SPARSE * len(every):  # rounds would be empty, nearly all of them
            turn = (delay[:, None] + every).reshape(-1)
            found = (first[:, None] + every).reshape(-1)[np.argsort(turn, kind="stable")]
        else:
            turn = np.arange(len(every) + delay.max())[:, None] - delay
            found = (first + turn)[(turn >= 0) & (turn < len(every))]
        device.append(found)
        if not keep_going(len(found)):
            raise Stopped
    return np.concatenate(device)
