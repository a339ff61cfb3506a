"""Trying everything: every device for every block, for graphs of a few blocks.

Blocks are placed one after the other, in a topological order; of devices that are alike and still
empty only the first is tried, and a branch is left where the work placed so far is no less than the
best partition known.  All is counted in whole numbers of any size, so that figures of any magnitude
are exact: tiny ones beside huge ones, and fractions without a common unit.

Cost: up to devices ** blocks placements, each of them O(tensors).
Source: ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations_with_replacement, permutations
from typing import assert_never

import numpy as np

from stagepack.heuristics.graph.tuning import TUNING, EverythingTuning
from stagepack.instances.graph.compact import EXCHANGES, FORBIDDEN, UNLIMITED, Compact
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array


class Everything:
    """A search through all partitions of a few blocks.

    `pause` is called now and then with the seconds of work since; what it raises ends the search.
    Once :meth:`run` has returned True, `best` is the best partition of all, None if there is none.
    """

    def __init__(
        self,
        compact: Compact,
        pause: Callable[[float], object],
        tuning: EverythingTuning = TUNING.everything,
    ) -> None:
        self.compact, self._pause, self.tuning = compact, pause, tuning
        self.best: GraphSolution | None = None
        self._value: int | None = None
        self._placements, self._unpaid = 0, 0.0
        self._devices = range(compact.devices)
        self._set_rules()
        self._set_figures()

    def _set_rules(self) -> None:
        """Collect which blocks are before which, and what decides the order of stages."""
        compact = self.compact
        ends = compact.before_ptr.tolist()
        self._before = [
            (int(u), v)
            for v in range(compact.blocks)
            for u in compact.before[ends[v] : ends[v + 1]]
        ]
        self._shared = compact.objective == Objective.REPLICATED
        self._alike = compact.sequence is None
        self._class = compact.device_class.tolist()
        self._room = [int(compact.class_memory[c]) for c in self._class]
        self._size, self._stash = compact.size.tolist(), compact.stash.tolist()
        self._ordered = any(self._stash)

    def _set_figures(self) -> None:
        """Bring all times to whole numbers of one unit."""
        compact, instance = self.compact, self.compact.instance
        memory = compact.objective == Objective.MEMORY
        passes, blocks = range(compact.passes), range(compact.blocks)
        block = compact.block_of.tolist()
        whole = _fractions(instance.memory if memory else instance.time)
        slow = _fractions(instance.cpu_time) if instance.cpus and not memory else whole
        speed = _fractions(np.ones_like(instance.speeds) if memory else instance.speeds)
        which = instance.backward.tolist() if compact.passes > 1 else [False] * instance.n
        time = [[[Fraction(0) for _ in blocks] for _ in self._devices] for _ in passes]
        for d in self._devices:
            on = whole if d < instance.accelerators else slow
            pace = speed[d] if d < instance.accelerators else Fraction(1)
            for node, v in enumerate(block):
                time[which[node]][d][v] += on[node] / pace
        self._tensors = []
        if not memory:
            ends, readers = instance.consumer_ptr.tolist(), instance.consumers.tolist()
            amounts = _fractions(instance.traffic)
            for at, source in enumerate(instance.producer.tolist()):
                apart = {block[v] for v in readers[ends[at] : ends[at + 1]]} - {block[source]}
                if apart and amounts[at]:
                    self._tensors.append((which[source], block[source], apart, amounts[at]))
        self._paces = self._links()
        sync = Fraction(0)
        if self._shared:
            sync = EXCHANGES / self._paces[0][-1]
        figures = [ticks for row in time for device in row for ticks in device]
        figures += [
            amount / pace for *_, amount in self._tensors for row in self._paces for pace in row
        ]
        counts = range(1, len(self._devices) + 1) if self._shared else (1,)
        unit = math.lcm(*(f.denominator for f in [*figures, sync])) * math.lcm(*counts) ** 2
        self._time = [[[int(t * unit) for t in row] for row in rows] for rows in time]
        self._cost = [
            [[int(amount / pace * unit) for pace in row] for row in self._paces]
            for *_, amount in self._tensors
        ]
        self._sync = [p * int(sync * unit) for p in compact.parameters.tolist()]
        allowed = np.asarray((compact.time < FORBIDDEN).all(axis=0))
        self._places = [[d for d in self._devices if allowed[self._class[d], v]] for v in blocks]

    def _links(self) -> list[list[Fraction]]:
        """Return the bandwidth from device to device."""
        table = self.compact.instance.bandwidth
        if isinstance(table, np.ndarray):
            links = [_fractions(row) for row in table]
            # What a device sends to itself takes no time: nobody asks.
            return [[pace or Fraction(1) for pace in row] for row in links]
        return [[_fractions(np.array([table]))[0]] * len(self._devices) for _ in self._devices]

    # ------------------------------------------------------------------ the search

    def run(self) -> bool:
        """Look at all partitions; return False where these are too many."""
        work = [[0] * len(self._devices) for _ in self._time]
        return self._place(0, [], work)

    def _place(self, v: int, chosen: list[int], work: list[list[int]]) -> bool:
        """Place block v and those after it in all ways."""
        if v == self.compact.blocks:
            self._spend(self.tuning.costing_price)
            self._take(chosen)
            return True
        new: set[int] = set()
        for d in self._places[v]:
            if d not in chosen and self._alike:
                if self._class[d] in new:
                    continue
                new.add(self._class[d])
            self._placements += 1
            self._spend(self.tuning.placing_price)
            if self._placements > self.tuning.most_placements:
                return False
            for row, time in zip(work, self._time, strict=True):
                row[d] += time[d][v]
            if not self._hopeless(work) and not self._place(v + 1, [*chosen, d], work):
                return False
            for row, time in zip(work, self._time, strict=True):
                row[d] -= time[d][v]
        return True

    def _spend(self, seconds: float) -> None:
        """Count work, and pause now and then."""
        self._unpaid += seconds
        if self._unpaid > self.tuning.often * self.tuning.placing_price:
            self._pause(self._unpaid)
            self._unpaid = 0.0

    def _hopeless(self, work: list[list[int]]) -> bool:
        """Whether the work of blocks alone is no less than the best value known."""
        if self._value is None:
            return False
        if self._shared:  # all of it, on all devices
            return sum(work[0]) >= self._value * len(self._devices)
        return sum(map(max, work)) >= self._value

    def _take(self, chosen: list[int]) -> None:
        """Keep a placement of all blocks if it is valid and better."""
        used = sorted(set(chosen))
        if self.compact.exact_stages and not self._shared and len(used) < len(self._devices):
            return
        loads = self._loads(chosen)
        for order in self._orders(chosen, used):
            if not self._fits(chosen, order):
                continue
            for replicas in self._replicas(order):
                value = self._worth(chosen, order, loads, replicas)
                if self._value is None or value < self._value:
                    self._value = value
                    devices = np.array(chosen)[self.compact.block_of]
                    shared = replicas if self._shared else ()
                    self.best = GraphSolution.of(self.compact.instance, devices, order, shared)
            if not self._ordered and not self._shared:
                return

    def _orders(self, chosen: list[int], used: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield the orders of stages in which none reads what a later one makes."""
        rules = {(chosen[u], chosen[v]) for u, v in self._before if chosen[u] != chosen[v]}
        if any((b, a) in rules for a, b in rules):
            return
        for order in permutations(used) if self._alike else (tuple(used),):
            place = {d: at for at, d in enumerate(order)}
            if all(place[a] < place[b] for a, b in rules):
                yield order

    def _held(self, chosen: list[int], order: tuple[int, ...], figures: list[int]) -> list[int]:
        """Return what each stage holds of some bytes of each block and of its stashes."""
        held = []
        for at, d in enumerate(order):
            flying = min(self.compact.microbatches, len(order) - at)
            own = [v for v, there in enumerate(chosen) if there == d]
            held.append(sum(figures[v] + flying * self._stash[v] for v in own))
        return held

    def _fits(self, chosen: list[int], order: tuple[int, ...]) -> bool:
        """Whether every stage keeps its memory."""
        held = self._held(chosen, order, self._size)
        return all(
            nbytes <= self._room[d] or self._room[d] >= UNLIMITED
            for nbytes, d in zip(held, order, strict=True)
        )

    def _replicas(self, order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield numbers of devices of the stages."""
        if not self._shared:
            yield (1,) * len(order)
            return
        spare = len(self._devices) - len(order)
        for extra in range(spare if self.compact.exact_stages else 0, spare + 1):
            for more in combinations_with_replacement(range(len(order)), extra):
                yield tuple(1 + more.count(stage) for stage in range(len(order)))

    # ------------------------------------------------------------------ what it costs

    def _loads(self, chosen: list[int]) -> list[list[tuple[int, int, int]]]:
        """Return time, received and sent of every device, by pass."""
        count = len(self._devices)
        found = [[[0, 0, 0] for _ in range(count)] for _ in self._time]
        for v, d in enumerate(chosen):
            for loads, time in zip(found, self._time, strict=True):
                loads[d][0] += time[d][v]
        for (which, source, readers, _), cost in zip(self._tensors, self._cost, strict=True):
            home = chosen[source]
            others = {chosen[v] for v in readers} - {home}
            for other in others:
                found[which][other][1] += cost[home][other]
            if others:
                found[which][home][2] += max(cost[home][other] for other in others)
        paying = self.compact.class_pays
        return [
            [
                (time, received, sent) if paying[c] else (time, 0, 0)
                for (time, received, sent), c in zip(loads, self._class, strict=True)
            ]
            for loads in found
        ]

    def _worth(
        self,
        chosen: list[int],
        order: tuple[int, ...],
        loads: list[list[tuple[int, int, int]]],
        replicas: tuple[int, ...],
    ) -> int:
        """Return the objective in units."""
        match self.compact.objective:
            case Objective.MEMORY:
                return max(self._held(chosen, order, self._time[0][0]))
            case Objective.SUM | Objective.FORWARD_BACKWARD:
                return sum(max(map(sum, one)) for one in loads)
            case Objective.OVERLAP:
                return max(map(max, loads[0]))
            case Objective.REPLICATED:
                worst = 0
                for d, m in zip(order, replicas, strict=True):
                    time, received, sent = loads[0][d]
                    own = sum(p for v, p in enumerate(self._sync) if chosen[v] == d)
                    worst = max(worst, max(time + own * (m - 1) // m, received, sent) // m)
                return worst
            case Objective.LATENCY:
                raise ValueError("latency has a search of its own")
            case unknown:
                assert_never(unknown)


def _fractions(values: Array) -> list[Fraction]:
    """Return figures as they are: every double is a fraction."""
    return [Fraction(value) for value in values.tolist()]
