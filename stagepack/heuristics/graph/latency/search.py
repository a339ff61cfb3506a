"""Places for the objective latency: cuts of topological orders, then simulated annealing.

An order is cut into stages of all devices and units on CPUs that take the least time one after the
other; what runs at once is seen when the cut is weighed.  Annealing moves blocks, together with
those that must not stay before or after them, and computes anew when all ends.

Cost: O(units * members of nets) for a cut and class of device; O(nodes + edges) for a move.
Source: ours; Kirkpatrick et al., *Optimization by Simulated Annealing*, Science 1983.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.latency.sample import OFTEN, Sample
from stagepack.heuristics.graph.latency.search_kernels import (
    BEST,
    FAR,
    STEPS,
    Graph,
    Order,
    Scratch,
    anneal,
    cut,
    worth,
)
from stagepack.heuristics.graph.tuning import TUNING, LatencyTuning
from stagepack.instances.graph.compact import FORBIDDEN, Compact
from stagepack.instances.graph.components import rows
from stagepack.instances.profile import Array


class PlaceSearch:
    """A search for places of blocks: accelerators, or -1 for a CPU.

    `best` are the best places so far, None before any; `value` their ticks.  All that is drawn
    follows from `seed`; `pause` is called now and then, and what it raises ends the search.
    """

    def __init__(
        self,
        sample: Sample,
        seed: int,
        pause: Callable[[], object],
        tuning: LatencyTuning = TUNING.latency,
    ) -> None:
        self.sample, self.tuning, self._pause = sample, tuning, pause
        self.best: Array | None = None
        self.value = FAR
        self._random = np.random.default_rng(seed)
        k, n, blocks = len(sample.room), sample.instance.n, sample.blocks
        node_ptr, node = rows(blocks, sample.block_of, np.arange(n))
        after_ptr, after = rows(n, sample.edges[:, 0], sample.edges[:, 1])
        ends = sample.block_of[sample.edges]
        ends = ends[ends[:, 0] != ends[:, 1]]
        # Readers as they are, what is read by its number from the other end: rows rise from 0.
        near_ptr, near = rows(
            blocks,
            np.concatenate((ends[:, 0], ends[:, 1])),
            np.concatenate((blocks + ends[:, 1], blocks - 1 - ends[:, 0])),
        )
        time = sample.time[sample.kind] if k else np.zeros((0, blocks), dtype=np.int64)
        self._graph = Graph(
            sample.block_of,
            node_ptr,
            node,
            after_ptr,
            after,
            near_ptr,
            near - blocks,
            sample.net_ptr,
            sample.net,
            sample.cost,
            np.where(sample.fast, time, FAR),
            sample.cpu_time,
            sample.slow.astype(np.int64),
            sample.size,
            sample.room,
        )
        groups, marks = k + n, max(k, blocks)
        sizes = (groups, groups, groups, groups, k, n, marks, blocks, blocks, k)
        self._scratch = Scratch(*(np.zeros(size, dtype=np.int64) for size in sizes))
        self._steps = n + len(after) + len(sample.net)

    def take(self, places: Array) -> bool:
        """Keep places if they are the best; return whether they are."""
        effort.spend(self.tuning.step_price * self._steps)
        ticks = worth(places.astype(np.int64), self._graph, self._scratch)
        if ticks >= min(self.value, FAR):
            return False
        self.best, self.value = places.astype(np.int64), ticks
        return True

    def everything(self, most: int, often: int) -> bool:
        """Take the best of all places, if these are `most` at most; return whether they are.

        Of like accelerators that are empty only the first is tried.  There is a pause after so many
        places as `often` says.
        """
        kinds, blocks = self.sample.kind.tolist(), self.sample.blocks
        if (1 + len(kinds)) ** blocks > most:
            return False
        twin = [
            max((e for e in range(d) if kinds[e] == kinds[d]), default=d) for d in range(len(kinds))
        ]

        def given(first: list[int]) -> Iterator[list[int]]:
            if len(first) == blocks:
                yield first
                return
            for place in range(-1, len(kinds)):
                if place < 0 or twin[place] == place or twin[place] in first:
                    yield from given([*first, place])

        for at, places in enumerate(given([])):
            self.take(np.array(places, dtype=np.int64))
            if at % often == 0:
                self._pause()
        return True

    # ------------------------------------------------------------------ cuts of orders

    def cuts(self) -> Iterator[bool]:
        """Take cuts of topological orders; yield of each whether it is the best place so far."""
        sample = self.sample
        yield self.take(np.full(sample.blocks, -1))
        compact = Compact.of(sample.instance, self._pause)
        if compact.blocks * (len(sample.room) + 1) > self.tuning.most_cells:
            return
        devices = np.arange(len(sample.room))
        for order in self._orders(compact):
            cuts = self._along(compact, order, devices)
            if cuts is not None:
                yield self.take(cuts)
            # Devices that differ are taken in other orders, too.
            devices = self._random.permutation(devices)

    def _orders(self, compact: Compact) -> Iterator[list[int]]:
        """Yield units in topological orders: as numbered, last or first come first, at random."""
        after = np.split(compact.after, compact.after_ptr[1:-1])
        waits = np.diff(compact.before_ptr)
        yield list(range(compact.blocks))
        for turn in range(self.tuning.orders - 1):
            waiting = waits.tolist()
            order: list[int] = []
            ready = np.flatnonzero(waits == 0).tolist()
            draws = self._random.integers(0, 2**31, compact.blocks).tolist()
            while ready:
                # At random, yet mostly what came last: depth first has few live tensors.
                at = draws[len(order)] % min(len(ready), 1 + turn % 4) - 1
                u = ready.pop(at if turn > 1 else turn - 1)
                if len(order) % OFTEN == 0:
                    self._pause()
                order.append(u)
                for v in after[u].tolist():
                    waiting[v] -= 1
                    if waiting[v] == 0:
                        ready.append(v)
            self._pause()
            yield order

    def _along(self, compact: Compact, order: list[int], devices: Array) -> Array | None:
        """Return the places of the best cut of an order, None where none fits."""
        sample, n, k = self.sample, compact.blocks, len(devices)
        place = np.empty(n, dtype=np.int64)
        place[order] = np.arange(n)
        kinds, cpu = compact.device_class, np.full(n, FAR)
        time = np.where(compact.time[0] < FORBIDDEN, compact.time[0], FAR)[:, order]
        if sample.instance.cpus:
            cpu = time[kinds[-1]]
        net = np.repeat(np.arange(compact.nets), np.diff(compact.net_ptr))
        where = place[compact.net]
        first, last = np.full(compact.nets, n), np.full(compact.nets, -1)
        np.minimum.at(first, net, where)
        np.maximum.at(last, net, where)
        net_ptr, nets = rows(n, where, net)
        size = (compact.size + compact.stash)[order]
        units = Order(time, cpu, size, net_ptr, nets, first, last, compact.net_cost)
        best = np.full((k + 1, n + 1), FAR)
        came, mark = np.zeros((k + 1, n + 1), dtype=np.int64), np.full(compact.nets, -1)
        each = n + len(nets)
        part = max(1, self.tuning.chunk // each)
        for d in range(k + 1):
            device = int(devices[d - 1]) if d else 0
            kind, room = (int(kinds[device]), int(sample.room[device])) if d else (0, 0)
            for begin in range(0, n, part):
                end = min(n, begin + part)
                cut(d, begin, end, kind, room, units, best, came, mark)
                effort.spend(self.tuning.step_price * each * (end - begin))
                self._pause()
        if best[k, n] >= FAR:
            return None
        found, at, d = np.full(n, -1), n, k
        while at > 0:
            begin = int(came[d, at])
            if begin < 0:
                at = -1 - begin
            elif begin > n:
                d -= 1
            else:
                found[begin:at] = devices[d - 1]
                at, d = begin, d - 1
        result = np.empty(sample.blocks, dtype=np.int64)
        result[sample.block_of] = found[place[compact.block_of]]
        return result

    # ------------------------------------------------------------------ annealing

    def round(self, seconds: float = math.inf) -> bool:
        """Anneal once from the best places; return whether better ones were found.

        At most so many `seconds` of work, however much faster it has to cool then.
        """
        assert self.best is not None
        before, tuning = self.value, self.tuning
        places, best = self.best.copy(), self.best.copy()
        random = self._random.integers(1, 2**63, 1, dtype=np.uint64)
        state = np.array([before, 0, before, 0], dtype=np.int64)
        price = tuning.step_price * (self._steps + tuning.move_steps)
        most = max(tuning.least_moves, tuning.moves * len(places))
        moves = max(1, int(min(most, seconds / max(price, 1e-12))) // tuning.coolings)
        part = max(1, tuning.chunk // self._steps)
        try:
            for heat in np.geomspace(tuning.hottest, tuning.coldest, tuning.coolings).tolist():
                for begin in range(0, moves, part):
                    some = min(part, moves - begin)
                    ticks = max(1.0, heat * before)
                    chances = ticks, tuning.even_share, tuning.odds
                    anneal(some, *chances, random, places, best, state, self._graph, self._scratch)
                    steps = int(state[STEPS]) + tuning.move_steps * some
                    effort.spend(tuning.step_price * steps)
                    self._pause()
        finally:
            if state[BEST] < self.value:
                self.best, self.value = best, int(state[BEST])
        return self.value < before
