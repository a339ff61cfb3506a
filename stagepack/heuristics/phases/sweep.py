"""Search over microbatches and numbers of I/O tiles, an exact search over boundaries in each.

Both are numbers of the whole plan, so that each pair is a problem of its own; pairs are taken by
rising lower bound and left out once that reaches the best plan known.  What a group needs of
memory and policies is found once a microbatch, times once a pair.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator

import numpy as np

from stagepack.heuristics.phases import dp
from stagepack.heuristics.phases.bounds import WorkBounds
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.options import OptionTable, assemble
from stagepack.heuristics.phases.policies import MOST_LABELS, PolicyRows, find_policies, ideal
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.solution import PhaseSolution
from stagepack.result import Progress, Stopped, Termination

MANY_LABELS = 16 * MOST_LABELS
"""Labels at each layer beyond which a look takes too long."""


class Sweep:
    """The pairs (microbatch, I/O tiles) of an instance, with what is known of each.

    Methods raise :class:`Stopped` when `progress` runs out of time.

    Attributes
    ----------
    bounds : dict of (int, int) to int
        By pair, cycles that no plan with it goes below; 2**62 where there is none at all.
    inexact : str
        Why the best plan of a pair may be missed; '' when it is not.
    looks : list of int, or None
        How often :meth:`time_left` may still say yes: a limit that holds on any machine alike.
    """

    def __init__(
        self, instance: PhaseSchedule, progress: Progress[PhaseSolution], looks: int | None = None
    ) -> None:
        self.instance, self.progress = instance, progress
        self.looks = None if looks is None else [looks]  # shared with sweeps within this one
        self._work = work = WorkBounds(instance)
        self.bounds = {
            (microbatch, io_tiles): work.of(microbatch, io_tiles)
            for microbatch in instance.microbatches
            for io_tiles in instance.io_tile_choices
        }
        self.inexact = ""
        self._exact = True
        self._most, self._thinned = MOST_LABELS, False
        self.infeasible: set[tuple[int, int]] = set()
        self.costs = functools.cache(functools.partial(RangeCosts, instance))
        self._policies: dict[tuple[int, bool], PolicyRows] = {}
        self._bounding: dict[tuple[int, bool], PolicyRows] = {}

    def within(self, progress: Progress[PhaseSolution]) -> Sweep:
        """Return a sweep that knows as much, but tells another `progress`."""
        other = copy.copy(self)
        other.progress, other.bounds = progress, dict(self.bounds)
        other.infeasible = set(self.infeasible)
        other._policies, other._bounding = dict(self._policies), dict(self._bounding)
        return other

    def ranked(self) -> list[tuple[int, int]]:
        """Return the pairs by rising bound."""
        return sorted(self.bounds, key=lambda pair: (self.bounds[pair], pair))

    @property
    def upper(self) -> int:
        """What a plan must beat."""
        best = self.progress.objective
        return UNLIMITED if best is None else int(best)

    def time_left(self) -> bool:
        """Whether to go on: there is time, and where looks are counted some are left."""
        if self.looks is not None:
            self.looks[0] -= 1
            if self.looks[0] < 0:
                self.progress.stop(Termination.TIME_LIMIT)
        return self.progress.keep_going()

    def keep_going(self) -> bool:
        """Return True, or raise :class:`Stopped`: an answer for lack of time is none."""
        if not self.time_left():
            raise Stopped
        return True

    def table(self, microbatch: int, io_tiles: int) -> OptionTable:
        """Return the options with this pair."""
        costs = self.costs(microbatch)
        track = self.instance.prefetch and io_tiles > 0
        key = (microbatch, track)
        if key not in self._policies:
            self._policies[key] = find_policies(
                costs,
                track=track,
                most=self._most,
                longest=self._longest(microbatch),
                keep_going=self.keep_going,
            )
        rows = self._policies[key]
        self._thinned |= rows.thinned
        return OptionTable(costs, rows, io_tiles, keep_going=self.keep_going)

    def _longest(self, microbatch: int) -> int:
        """Return cycles that a step may compute again, at most, in a plan that is better."""
        if self.upper >= UNLIMITED:
            return UNLIMITED
        return self._work.longest_recomputation(microbatch, self.upper)

    def bound_tables(self, microbatch: int, io_tiles: int) -> Iterator[OptionTable]:
        """Return tables that are at least as good as anything possible."""
        costs = self.costs(microbatch)
        for relaxed in (False, True):
            key = (microbatch, relaxed)
            if key not in self._bounding:
                self._bounding[key] = (
                    find_policies(
                        costs,
                        bounding=True,
                        most=self._most,
                        longest=self._longest(microbatch),
                        keep_going=self.keep_going,
                    )
                    if relaxed
                    else ideal(costs, self.keep_going)
                )
            rows = self._bounding[key]
            self._thinned |= rows.thinned
            if not rows.inexact:
                yield OptionTable(costs, rows, io_tiles, keep_going=self.keep_going)

    def look(self, pair: tuple[int, int], source: str) -> None:
        """Search one pair: offer its best plan if it beats the best known, and raise its bound."""
        if self._exact:
            table = self.table(*pair)
            if not table.inexact:
                self._search(pair, table, source)
                return
            self._exact = False
            self.inexact = table.inexact
        for table in self.bound_tables(*pair):
            if self._relax(pair, table, source):
                return
        table = self.table(*pair)
        chosen = dp.search(table, dp.rest(table), self.upper, keep_going=self.keep_going)
        if chosen is not None:
            self.offer(assemble(table, chosen), source)

    def _search(self, pair: tuple[int, int], table: OptionTable, source: str) -> None:
        """Find the best plan of a pair all of whose options are known."""
        least = dp.rest(table)
        self.bounds[pair] = max(self.bounds[pair], int(least[0]))
        chosen = dp.search(table, least, self.upper, keep_going=self.keep_going)
        if chosen is None:
            self._exclude(pair)
            return
        self.bounds[pair] = max(self.bounds[pair], self.value(table, chosen))
        self.offer(assemble(table, chosen), source)

    def _relax(self, pair: tuple[int, int], table: OptionTable, source: str) -> bool:
        """Bound a pair by options that need not be possible; return whether that settles it.

        If the plan they give is possible after all, and costs no more, it is the best one.
        """
        chosen = dp.search(table, dp.rest(table), self.upper, keep_going=self.keep_going)
        if chosen is None:
            self._exclude(pair)
            return True
        value = self.value(table, chosen)
        self.bounds[pair] = max(self.bounds[pair], value)
        if not table.rows.named:
            return False
        solution = assemble(table, chosen)
        if self.instance.check(solution):
            return False
        self.progress.offer(solution, source)
        return self.instance.evaluate(solution) == value

    def _exclude(self, pair: tuple[int, int]) -> None:
        """Note that no plan of a pair is better than the best one known."""
        if self.upper >= UNLIMITED:
            self.infeasible.add(pair)
        self.bounds[pair] = max(self.bounds[pair], self.upper)

    def value(self, table: OptionTable, chosen: list[int]) -> int:
        """Return the cycles of a plan made of options."""
        total, kept = 0, np.zeros(1, dtype=np.int64)
        for at, number in enumerate(chosen):
            total += int(table.time[number])
            if at and table.prefetch:
                before, after = np.array([chosen[at - 1]]), np.array([number])
                total -= int(dp.hidden(table, before, kept, after)[0, 0])
            kept = kept + table.kept[number]
        return total

    def offer(self, solution: PhaseSolution, source: str) -> None:
        """Offer a plan, unless it breaks a budget, of which this search knows nothing."""
        instance = self.instance
        limited = (instance.remote_memory, instance.graphs) != (None, None)
        if limited and instance.check(solution):
            self.inexact = self.inexact or "budgets are not searched"
            return
        self.progress.offer(solution, source)

    def run(self, source: str, *, patient: bool = True) -> None:
        """Search all pairs; the bound is raised as they are done.

        Where there were more policies than labels follow, all is done again with more labels, if
        `patient`.
        """
        while True:
            self._once(source)
            done = self.progress.proved or self.none_fits
            if done or not patient or not self._thinned or self._most >= MANY_LABELS:
                return
            self._most *= 4
            self._thinned, self._exact, self.inexact = False, True, ""
            self._policies.clear()
            self._bounding.clear()

    def _once(self, source: str) -> None:
        """Search the pairs by rising bound, as far as they could beat the best plan."""
        self.raise_bound()
        least = UNLIMITED  # of the pairs that were searched
        order = self.ranked()
        for at, pair in enumerate(order):
            if self.bounds[pair] >= self.upper:
                least = min(least, self.bounds[pair])
                break
            self.look(pair, source)
            least = min(least, self.bounds[pair])
            following = self.bounds[order[at + 1]] if at + 1 < len(order) else UNLIMITED
            self._raise_bound(min(least, following))
            self.keep_going()
        self._raise_bound(least)

    def raise_bound(self) -> None:
        """Tell `progress` the least bound of all pairs."""
        self._raise_bound(min(self.bounds.values()))

    def _raise_bound(self, least: int) -> None:
        if least < UNLIMITED:
            searched = "relaxed phases" if self.inexact else "exhausted search"
            kind = searched if self.progress.solution is not None else "work bound"
            self.progress.raise_bound(min(least, self.upper), kind)

    @property
    def none_fits(self) -> bool:
        """Whether no pair has a plan."""
        return len(self.infeasible) == len(self.bounds)
