"""Search over microbatch sizes and numbers of I/O tiles; each is solved exactly over boundaries.

Both numbers are the same for the whole plan, so each pair is a separate problem.  Pairs are
processed in order of their lower bounds and skipped when the bound reaches the best known plan.
Memory and policies of a group are computed once per microbatch size, times once per pair.

If there are many numbers of I/O tiles, ranges of them are bounded together: with the compute and
memory of the smallest and the transfers and buffers of the largest number in the range, which no
number in between can improve on.  A range is either skipped or halved.

Cost: an exact search over boundaries (:mod:`.dp`) for each pair or range that is not skipped.
Source: own work.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Callable

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.phases import dp
from stagepack.heuristics.phases.bounds import WorkBounds
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.options import OptionTable, assemble
from stagepack.heuristics.phases.policies import PolicyRows, find_policies
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.tuning import TUNING, PhasesTuning
from stagepack.instances.phases.data import SEPARATE, PhaseSolution
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.progress import Progress, Stopped
from stagepack.result import Termination


class Pairs:
    """The pairs (microbatch, I/O tiles) of an instance, with what is known of each.

    Methods raise :class:`Stopped` when `progress` runs out of time.  `bounds` are, by pair, cycles
    that no plan with it goes below; 2**62 where there is none at all.  Of a range of numbers of I/O
    tiles the first stands for all.  `inexact` is why the best plan of a pair may be missed; '' when
    it is not.
    """

    def __init__(
        self,
        instance: PhaseSchedule,
        progress: Progress[PhaseSolution],
        tuning: PhasesTuning = TUNING,
    ) -> None:
        self.instance, self.progress, self.tuning = instance, progress, tuning
        self._work = work = WorkBounds(instance, tuning.options)
        counts = instance.io_tile_choices
        if len(counts) * len(instance.microbatches) <= SEPARATE:
            ranges = [(count, count) for count in counts]
        else:
            ranges = [(0, 0)] * counts.none
            ranges += [(some[0], some[-1]) for some in (counts.some,) if some]
        self._most: dict[tuple[int, int], int] = {}
        self.bounds = {}
        for microbatch in instance.microbatches:
            for low, high in ranges:
                self._most[microbatch, low] = high
                self.bounds[microbatch, low] = work.of(microbatch, low, high)
        spend(tuning.prices.look_price * len(self.bounds))
        self.inexact = ""
        self._exact = True
        self._labels, self._thinned = tuning.policies.labels, False
        self.infeasible: set[tuple[int, int]] = set()
        self._costs: dict[int, RangeCosts] = {}
        self._few: dict[int, RangeCosts] = {}
        self._policies: dict[tuple[int, bool], PolicyRows] = {}
        self._bounding: dict[int, PolicyRows] = {}

    def within(self, progress: Progress[PhaseSolution]) -> Pairs:
        """Return pairs of which as much is known, but that tell another `progress`."""
        other = copy.copy(self)
        other.progress, other.bounds = progress, dict(self.bounds)
        other._most, other._costs = dict(self._most), dict(self._costs)
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
        """Whether to go on."""
        spend(self.tuning.prices.look_price)
        return self.progress.keep_going()

    def insist(self) -> bool:
        """Return True, or raise :class:`Stopped` when interrupted: for the very first plan."""
        if self.progress.stop_reason() is Termination.INTERRUPTED:
            raise Stopped
        return True

    def keep_going(self) -> bool:
        """Return True, or raise :class:`Stopped`: an answer for lack of time is none."""
        if not self.time_left():
            raise Stopped
        return True

    def costs(self, microbatch: int) -> RangeCosts:
        """Return what groups cost with a microbatch; the last ones are kept."""
        if microbatch not in self._costs:
            if sum(len(costs) for costs in self._costs.values()) > self.tuning.pairs.groups_kept:
                for kept in (self._costs, self._policies, self._bounding):
                    kept.clear()
            self._costs[microbatch] = RangeCosts(
                self.instance, microbatch, keep_going=self.keep_going, tuning=self.tuning
            )
        return self._costs[microbatch]

    def few(self, microbatch: int, keep_going: Callable[[], bool]) -> RangeCosts:
        """Return what groups cost where they are few in all; else says that there are more."""
        if microbatch not in self._few:
            few = self.tuning.pairs.few_layers
            found = RangeCosts(
                self.instance, microbatch, few, keep_going=keep_going, tuning=self.tuning
            )
            self._few = {microbatch: found}
            if not found.inexact:
                self._costs.setdefault(microbatch, found)
        return self._few[microbatch]

    def table(self, microbatch: int, io_tiles: int) -> OptionTable:
        """Return the options with this pair; of a range, at least as good as any in it."""
        costs = self.costs(microbatch)
        track = self.instance.prefetch and io_tiles > 0
        key = (microbatch, track)
        if key not in self._policies:
            self._policies[key] = find_policies(
                costs,
                track=track,
                most=self._labels,
                longest=self._longest(microbatch),
                keep_going=self.keep_going,
            )
        rows = self._policies[key]
        self._thinned |= rows.thinned
        most = self._most[microbatch, io_tiles]
        return OptionTable(costs, rows, io_tiles, keep_going=self.keep_going, most=most)

    def _longest(self, microbatch: int) -> int:
        """Return cycles that a step may compute again, at most, in a plan that is better."""
        if self.upper >= UNLIMITED:
            return UNLIMITED
        return self._work.longest_recomputation(microbatch, self.upper)

    def bound_table(self, microbatch: int, io_tiles: int) -> OptionTable | None:
        """Return a table at least as good as anything possible; None where there was no time."""
        costs = self.costs(microbatch)
        if microbatch not in self._bounding:
            self._bounding[microbatch] = find_policies(
                costs,
                bounding=True,
                most=self._labels,
                longest=self._longest(microbatch),
                keep_going=self.keep_going,
            )
        rows = self._bounding[microbatch]
        self._thinned |= rows.thinned
        if rows.inexact or costs.inexact:
            return None
        most = self._most[microbatch, io_tiles]
        return OptionTable(costs, rows, io_tiles, keep_going=self.keep_going, most=most)

    def halve(self, pair: tuple[int, int]) -> None:
        """Bound a range of numbers of I/O tiles; unless that leaves it out, halve it."""
        microbatch, low = pair
        table = self.table(*pair)
        bounding = self.bound_table(*pair) if table.inexact else table
        if bounding is not None:
            chosen = self._best(bounding)
            if chosen is None:
                self._exclude(pair)
                return
            self.bounds[pair] = max(self.bounds[pair], self.value(bounding, chosen))
        bound = self.bounds.pop(pair)
        high, step = self._most.pop(pair), self.instance.io_tile_choices.some.step
        middle = low + (high - low) // step // 2 * step
        for first, last in ((low, middle), (middle + step, high)):
            self._most[microbatch, first] = last
            work = self._work.of(microbatch, first, last)
            self.bounds[microbatch, first] = max(bound, work)

    def look(self, pair: tuple[int, int], source: str) -> None:
        """Search one pair: offer its best plan if it beats the best known, and raise its bound."""
        if self._exact:
            table = self.table(*pair)
            if not table.inexact:
                self._search(pair, table, source)
                return
            self._exact = False
            self.inexact = table.inexact
        relaxed = self.bound_table(*pair)
        if relaxed is not None and self._relax(pair, relaxed, source):
            return
        table = self.table(*pair)
        chosen = self._best(table)
        if chosen is not None:
            self.offer(assemble(table, chosen), source)

    def _best(self, table: OptionTable) -> list[int] | None:
        """Return the options of the best plan of a table that beats the best known."""
        least = dp.rest(table, self.keep_going)
        return dp.search(table, least, self.upper, keep_going=self.keep_going)

    def _search(self, pair: tuple[int, int], table: OptionTable, source: str) -> None:
        """Find the best plan of a pair all of whose options are known."""
        least = dp.rest(table, self.keep_going)
        # No options, as none beats what is known: that says no more than what is known.
        self.bounds[pair] = max(self.bounds[pair], min(int(least[0]), self.upper))
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
        chosen = self._best(table)
        if chosen is None:
            self._exclude(pair)
            return True
        value = self.value(table, chosen)
        self.bounds[pair] = max(self.bounds[pair], value)
        solution = assemble(table, chosen)
        self.count_plan(solution)
        if self.progress.offer_if_valid(solution, source):
            return False
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

    def count_plan(self, solution: PhaseSolution) -> None:
        """Count that a plan is assembled, checked and evaluated."""
        prices, layers, phases = self.tuning.prices, self.instance.n, len(solution.mode)
        if self.instance.training:
            layers *= 3
        layer, phase = prices.layer_price, prices.phase_price
        if self.instance.n <= prices.moment_layers:
            layer, phase = prices.moment_layer_price, prices.moment_phase_price
        spend(15 * prices.look_price + layer * layers + phase * phases)

    def offer(self, solution: PhaseSolution, source: str) -> None:
        """Offer a plan, unless it breaks a budget, of which this search knows nothing."""
        instance = self.instance
        self.count_plan(solution)
        limited = (instance.remote_memory, instance.graphs) != (None, None)
        if not limited:
            self.progress.offer(solution, source)
        elif self.progress.offer_if_valid(solution, source):
            self.inexact = self.inexact or "budgets are not searched"

    def glimpse(self, source: str) -> None:
        """Offer plans of the most promising pairs of which few policies are followed.

        Soon done, and seldom far from the best: what is known then leaves out most of the rest.
        """
        known = self.inexact
        rows: dict[tuple[int, bool], PolicyRows] = {}
        tuning = self.tuning.pairs
        for microbatch, io_tiles in self.ranked()[: tuning.glimpsed]:
            if self._most[microbatch, io_tiles] > io_tiles:
                continue
            costs = self.costs(microbatch)
            key = microbatch, self.instance.prefetch and io_tiles > 0
            if key not in rows:
                rows[key] = find_policies(
                    costs, track=key[1], most=tuning.glimpse_labels, keep_going=self.keep_going
                )
            table = OptionTable(costs, rows[key], io_tiles, keep_going=self.keep_going)
            chosen = self._best(table)
            if chosen is not None:
                self.offer(assemble(table, chosen), source)
        self.inexact = known  # of a glance nothing follows

    def run(self, source: str, *, patient: bool = True) -> None:
        """Search all pairs; the bound is raised as they are done.

        Where there were more policies than labels follow, all is done again with more labels, if
        `patient`.
        """
        auto, labels = self.tuning.auto, self.tuning.policies
        if auto.glimpse and self.instance.training and len(self.instance.policies) > 1:
            self.glimpse(source)
        while True:
            self._once(source)
            done = self.progress.proved or self.none_fits or not auto.more_labels
            if done or not patient or not self._thinned or self._labels >= labels.most_labels:
                return
            self._labels *= labels.label_factor
            self._thinned, self._exact, self.inexact = False, True, ""
            self._policies.clear()
            self._bounding.clear()

    def _once(self, source: str) -> None:
        """Search the pairs by rising bound, as far as they could beat the best plan."""
        self.raise_bound()
        least = UNLIMITED  # of the pairs that were searched
        waiting = [(bound, pair) for pair, bound in self.bounds.items()]
        heapq.heapify(waiting)
        while waiting:
            bound, pair = heapq.heappop(waiting)
            if bound >= self.upper:
                least = min(least, bound)
                break
            if self._most[pair] > pair[1]:
                before = len(self.bounds)
                self.halve(pair)
                if len(self.bounds) > before:
                    heapq.heappush(waiting, (self.bounds[pair], pair))
                    other = next(reversed(self.bounds))
                    heapq.heappush(waiting, (self.bounds[other], other))
                else:
                    least = min(least, self.bounds[pair])
            else:
                self.look(pair, source)
                least = min(least, self.bounds[pair])
            self._raise_bound(min(least, waiting[0][0] if waiting else UNLIMITED))
            self.keep_going()
        self._raise_bound(least)

    def raise_bound(self) -> None:
        """Tell `progress` the least bound of all pairs."""
        self._raise_bound(min(self.bounds.values()))

    def _raise_bound(self, least: int) -> None:
        """Tell `progress` a bound on all pairs, and what found it."""
        if least < UNLIMITED:
            searched = "relaxed phases" if self.inexact else "exhausted search"
            kind = searched if self.progress.solution is not None else "work bound"
            self.progress.raise_bound(min(least, self.upper), kind)

    @property
    def none_fits(self) -> bool:
        """Whether no pair has a plan."""
        return len(self.infeasible) == len(self.bounds)
