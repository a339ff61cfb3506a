"""Among partitions that are as good, the most even: the largest load is least, then the next one.

Loads that are sorted, the largest first, are compared entry by entry.  That order stays when both
are given the same load more, so that a prefix of stages that is less even than another one with
the same last cut is in no best partition: a dynamic program over the cuts keeps one for each.
Of prefixes with equal loads, what stages hold is compared in the same way.
Only cuts are looked at that leave both sides room within the limit.  O(stages * w * w * stages)
for w cuts in a window; where that is too much, each stage takes its share of what is left.
Source: own work; the order is the leximax order of fair division.

Where devices have several stages, cuts of a partition are moved instead, one or some neighbouring
ones at a time, for as long as that makes it more even.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import NamedTuple, assert_never

import numpy as np

from stagepack.heuristics.pipeline.tuning import TUNING, PipelineTuning
from stagepack.instances.pipeline import Objective, PipelinePartition, PipelineSolution
from stagepack.instances.pipeline.check import stage_memory
from stagepack.instances.pipeline.ranges import RangeCosts
from stagepack.instances.profile import Array

Loads = list[int]


LARGEST_LOADS = ("bottleneck", "sum", "overlap", "transfer-bounded")
"""Objectives that are the largest load, so that all others are free."""


def applies(instance: PipelinePartition, tuning: PipelineTuning = TUNING) -> bool:
    """Return whether the most even partition of an instance is looked for."""
    tabular = instance.compute_table is not None or instance.memory_table is not None
    tabular = tabular or instance.reduces
    few = instance.n <= tuning.even_layers
    plain = not tabular and not instance.alternatives
    return few and plain and instance.objective in LARGEST_LOADS


def evened(
    costs: RangeCosts,
    solution: PipelineSolution,
    tuning: PipelineTuning = TUNING,
    pause: Callable[[], object] = lambda: None,
) -> Iterator[PipelineSolution]:
    """Yield partitions whose value is no more, the most even ones of some rows of devices.

    These are all devices, where some may stay unused, and those of the solution, in their order.
    Of the objective transfer-bounded neither limit of the solution is exceeded.  `pause` is called
    once a stage.  Of chains without tables.  With several stages a device at most one is yielded.
    """
    if costs.instance.placed:
        found = _shifted(costs, solution, tuning, pause)
        if found != solution:
            yield found
        return
    used, taken = list(solution.devices), {*solution.devices}
    spare = [d for d in range(costs.k) if d not in taken]
    everyone = used + spare if costs.instance.free_order else sorted(used + spare)
    for devices in [everyone] * bool(spare) + [used]:
        row = _Row(costs, solution, devices, pause)
        cuts = row.most_even(tuning.even_steps) if row.opens() else None
        if cuts is not None:
            yield PipelineSolution(tuple(cuts), tuple(devices))


def _shifted(
    costs: RangeCosts,
    solution: PipelineSolution,
    tuning: PipelineTuning,
    pause: Callable[[], object],
) -> PipelineSolution:
    """Return a partition of which no run of cuts can move a little to make devices more even.

    O(stages**2) for each run of cuts looked at, and a check of each that is tried.
    """
    instance, places = costs.instance, np.flatnonzero(costs.allowed)
    table = np.array(instance.stage_devices)
    stages, least = len(table), 0 if instance.fewer_stages else 1
    works = costs.prefix[costs.device_class[table]][:, places]
    on_device = np.eye(costs.k, dtype=np.int64)[table]
    ends = np.zeros(stages, dtype=np.int64)
    ends[instance.slots_of(solution)] = np.searchsorted(places, solution.boundaries[1:])
    ends = np.maximum.accumulate(ends)

    def loads(rows: Array) -> list[Loads]:
        """Return what devices do by cuts, each row the most first."""
        begins = np.concatenate([np.zeros_like(rows[:, :1]), rows[:, :-1]], axis=1)
        slots = np.arange(stages)
        each = (works[slots, rows] - works[slots, begins]) @ on_device
        found: list[Loads] = np.sort(each, axis=1)[:, ::-1].tolist()
        return found

    (now,), first, still, looks = loads(ends[None]), 0, 0, 0
    while still < stages - 1 and looks < tuning.even_looks:
        pause()
        runs = np.tri(stages, dtype=np.int64)[first : stages - 1]
        runs[:, :first] = 0
        rows = np.concatenate([ends + by * runs for n in tuning.even_shifts for by in (n, -n)])
        rows = rows[(np.diff(rows, axis=1, prepend=0) >= least).all(axis=1)]
        looks += len(rows)
        keys, still = loads(rows), still + 1
        for at in sorted(range(len(keys)), key=keys.__getitem__)[: tuning.even_tries]:
            if keys[at] >= now:
                break
            used = np.flatnonzero(np.diff(rows[at], prepend=0))
            cuts = 0, *places[rows[at][used]].tolist()
            found = PipelineSolution(cuts, tuple(table[used].tolist()))
            if not instance.check(found):
                solution, ends, now, still = found, rows[at], keys[at], 0
                break
        first = (first + 1) % (stages - 1) if still else first
    return solution


class _Prefix(NamedTuple):
    """Stages up to a cut."""

    loads: Loads
    """Below 0, the least first, so that the more even ones are the greater."""
    first: int
    """The layer with which the last stage begins."""
    held: list[int]
    """Bytes of the stages, likewise; empty until loads tie, or all of them are known."""


class _Row:
    """Devices in a row, each with one stage within the limits that a solution keeps."""

    def __init__(
        self,
        costs: RangeCosts,
        solution: PipelineSolution,
        devices: list[int],
        pause: Callable[[], object],
    ) -> None:
        self.costs, self.instance, self.pause = costs, costs.instance, pause
        self.devices, self.classes = devices, [int(costs.device_class[d]) for d in devices]
        self.limit = costs.largest_compute(solution)
        self.moved = costs.objective(solution) - self.limit  # of transfer-bounded alone
        self.works = {c: memoryview(costs.prefix[c]) for c in {*self.classes}}
        self.windows: list[range] = []

    def opens(self) -> bool:
        """Find between which cuts each stage may end; return whether there are any."""
        n, s = self.costs.n, len(self.classes)
        latest, earliest = [0], [n]
        for c in self.classes:
            work = self.works[c]
            latest.append(bisect_right(work, work[latest[-1]] + self.limit) - 1)
        for c in reversed(self.classes):
            work = self.works[c]
            earliest.append(bisect_left(work, work[earliest[-1]] - self.limit))
        earliest.reverse()
        self.windows = [
            range(max(low, t), min(high, n - s + t) + 1)
            for t, (low, high) in enumerate(zip(earliest, latest, strict=True))
        ]
        return all(self.windows) and 0 in self.windows[0] and n in self.windows[-1]

    def load(self, t: int, first: int, end: int) -> int | None:
        """Return the ticks of a stage; None: more than its limit."""
        costs, c = self.costs, self.classes[t]
        load = self.works[c][end] - self.works[c][first]
        match self.instance.objective:
            case Objective.BOTTLENECK:
                pass
            case Objective.SUM:
                load += costs.transfer(first, end, c)
            case Objective.OVERLAP:
                load = max(load, int(costs.recv[c, first]), int(costs.send[c, end]))
            case Objective.TRANSFER_BOUNDED:
                if load > self.limit or costs.transfer(first, end, c) > self.moved:
                    return None
                return load + costs.transfer(first, end, c)
            case Objective.LATENCY | Objective.HEADROOM | Objective.MOVES:
                raise ValueError("all loads count, or none")
            case unknown:
                assert_never(unknown)
        return load if load <= self.limit else None

    def most_even(self, most: int) -> list[int] | None:
        """Return cuts of the most even row; of shares where it takes more than `most` steps."""
        sizes = [len(window) for window in self.windows[1:-1]]
        looks = sum(a * b for a, b in zip([1, *sizes], [*sizes, 1], strict=True))
        if looks * len(sizes) > most:  # each copies the loads so far
            return self._by_shares()
        rows = [{0: _Prefix([], 0, [])}]
        ends = [*self.windows[1:-1], range(self.costs.n, self.costs.n + 1)]
        for t, window in enumerate(ends):
            self.pause()
            last, row = rows[-1], dict[int, _Prefix]()
            for first, before in last.items():
                furthest = self._furthest(t, first)
                for end in range(max(first + 1, window.start), min(furthest + 1, window.stop)):
                    load = self.load(t, first, end) if self.costs.allowed[end] else None
                    if load is None:
                        continue
                    loads = before.loads.copy()
                    insort(loads, -load)
                    known = row.get(end)
                    if known is None or loads > known.loads:
                        row[end] = _Prefix(loads, first, [])
                    elif loads == known.loads:
                        held = known.held or self._held(t, last[known.first], known.first, end)
                        own = self._held(t, before, first, end)
                        better = own > held
                        row[end] = _Prefix(loads, first if better else known.first, max(own, held))
            for end, one in row.items():
                if not one.held:
                    row[end] = one._replace(held=self._held(t, last[one.first], one.first, end))
            rows.append(row)
        return self._read(rows)

    def _held(self, t: int, before: _Prefix, first: int, end: int) -> list[int]:
        """Return the bytes of a prefix and one stage more, below 0."""
        left = len(self.devices) - t
        held = before.held.copy()
        insort(held, -stage_memory(self.instance, first, end, self.devices[t], left))
        return held

    def _read(self, rows: list[dict[int, _Prefix]]) -> list[int] | None:
        """Return the cuts that lead to the last layer."""
        if not rows[-1]:
            return None
        cuts = [self.costs.n]
        for row in reversed(rows[1:]):
            cuts.append(row[cuts[-1]].first)
        return cuts[::-1]

    def _by_shares(self) -> list[int] | None:
        """Return cuts that give each stage about its share of what is left; None: none fit."""
        cuts, speeds = [0], [self._speed(c) for c in self.classes]
        ahead = sum(speeds)
        for t, c in enumerate(self.classes[:-1]):
            self.pause()
            work, first, window = self.works[c], cuts[-1], self.windows[t + 1]
            share, ahead = min(1.0, speeds[t] / ahead), ahead - speeds[t]
            aim = bisect_left(work, work[first] + share * (work[self.costs.n] - work[first]))
            last = min(self._furthest(t, first), window.stop - 1)
            last = min(last, bisect_right(work, work[first] + self.limit) - 1)
            near = [b for b in (aim - 1, aim, last) if max(first + 1, window.start) <= b <= last]
            fits = [b for b in near if self.costs.allowed[b] and self.load(t, first, b) is not None]
            if not fits:
                return None
            cuts.append(min(fits, key=lambda b: abs(b - aim)))
        end, t = self.costs.n, len(self.classes) - 1
        if self._furthest(t, cuts[-1]) < end or self.load(t, cuts[-1], end) is None:
            return None
        return [*cuts, end]

    def _speed(self, c: int) -> float:
        """Return how much of the chain's work a device of a class does in a tick."""
        return 1 / max(1, self.works[c][self.costs.n])

    def _furthest(self, t: int, first: int) -> int:
        """Return the furthest end of a stage that its memory and fixed cuts allow."""
        instance, left = self.instance, len(self.classes) - t
        stashes = 0
        if instance.training and instance.stash.any():
            stashes = min(instance.microbatches, left)
        return self.costs.furthest_end(first, self.costs.n, self.classes[t], stashes)
