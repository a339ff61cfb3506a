"""Linear orders: stages are segments of a topological order, and the best cuts of it are exact.

A dynamic program (:mod:`.linear_kernels`) finds the best cuts of an order.  It only accepts values
below the best known one, so only short segments are examined.  Several orders are tried: random
ones, depth-first ones, and orders with little traffic across their cuts.  Then the best partition
is improved: the blocks within each stage, or within two neighbouring stages, are reordered at
random and the order is cut again.  If only blocks within stages are reordered, the old cuts remain
possible, so the value never gets worse.  If two stages are reordered as one, the boundary between
them has to be found again.  Partitions of equal value replace the best one, which keeps the search
from stagnating.

Cost: O(n * longest segment * (nets of a block + transitions)) an order.  Source: own work, after
the linear orders of Tarnawski et al. (NeurIPS 2020).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph import stage_kernels as kernels
from stagepack.heuristics.graph.pairs import least_sum
from stagepack.heuristics.graph.rooms import least_limit
from stagepack.heuristics.graph.stage_kernels import FAR, FORWARD_BACKWARD, unmarked
from stagepack.heuristics.graph.staging import Found, Staging
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from stagepack.heuristics.graph.linear_kernels import Table


class Line:
    """Cuts topological orders of a graph into stages; `table` is what the last order came to.

    `pause` is called between chunks of work; what it raises ends the search.
    """

    def __init__(self, staging: Staging, pause: Callable[[], object]) -> None:
        from stagepack.heuristics.graph import linear_kernels

        self.staging, self.tuning = staging, staging.tuning.orders
        self.arrange, self.unordered = linear_kernels.arrange, linear_kernels.BEFORE
        self._kernels = linear_kernels
        self._pause = pause
        blocks = staging.blocks
        self.nets = linear_kernels.Nets(blocks.of_first, blocks.of, blocks.members, blocks.cost)
        n, states = staging.n, staging.automaton.states
        self._segments = linear_kernels.Segments(
            blocks=blocks,
            ways=staging.automaton.ways,
            rooms=staging.rooms,
            sums=np.zeros((len(staging.rooms.limit), n + 1)),
            crossing=np.zeros((2, n + 1), dtype=np.int64),
            cut=unmarked(len(blocks.cost)),
            rows=np.zeros((1, staging.columns), dtype=np.int64),
            limits=np.zeros(3, dtype=np.int64),
            live=np.zeros(states, dtype=np.int64),
            least_work=np.zeros(staging.columns - kernels.WORK, dtype=np.int64),
        )
        self.table = self._empty_table(0)

    def cut(self, order: Array, limit: int, first_limit: int = FAR, grain: int = 1) -> Found | None:
        """Return the best stages along an order if they are worth less than `limit` ticks.

        `order`, int32 (n,), has all blocks, each after those before it.  `first_limit` is the
        greatest load of the forward pass, where it counts apart.  Stages begin and end at multiples
        of `grain`.
        """
        kernels_ = self._kernels
        most = self.staging.most_devices
        begin = kernels_.BEFORE
        state = np.array([begin, limit, first_limit, most, 0, grain], dtype=np.int64)
        self._clear(1 - (-len(order) // grain))
        table = self.table
        for array in self._segments.cut:
            array[:] = 0
        self._pause()
        most_steps = self.tuning.chunk
        chunk = min(effort.SHORT, most_steps)
        while True:
            done = kernels_.cut_order(state, chunk, order, self._segments, table)
            effort.spend(self.tuning.step_price * state[kernels_.STEPS])
            if done:
                break
            if chunk < most_steps:
                chunk = most_steps
                continue
            self._pause()
        q = int(table.value[-1].argmin())
        return self._found(order, q, grain) if table.value[-1, q] < FAR else None

    def _empty_table(self, rows: int) -> Table:
        """Return a table of so many rows, not written yet."""
        shape = rows, self.staging.automaton.states
        origin, way = np.empty((2, *shape), dtype=np.int32)
        return self._kernels.Table(np.empty(shape, dtype=np.int64), origin, way)

    def _clear(self, rows: int) -> None:
        """Begin the table anew, with so many rows."""
        if len(self.table.value) != rows:
            self.table = self._empty_table(rows)
        value = self.table.value
        part = self.tuning.rows
        for at in range(0, rows, part):
            value[at : at + part] = FAR
            self._pause()
        value[0, 0] = 0

    def _found(self, order: Array, q: int, grain: int) -> Found:
        """Return the stages that led to state q."""
        table, source = self.table, self.staging.automaton.source
        end, placed = len(table.value) - 1, []
        value = int(table.value[end, q])
        while end:
            begin, t = int(table.origin[end, q]), int(table.way[end, q])
            placed.append((order[begin * grain : end * grain], t))
            end, q = begin, int(source[t])
        return self.staging.found(value, placed)


class Hunt:
    """Looks for good partitions along many orders; `offer` is told of every better one.

    `pause` is called between chunks of work; what it raises ends the search.  All that is drawn
    follows from `seed`.
    """

    def __init__(
        self,
        staging: Staging,
        pause: Callable[[], object],
        offer: Callable[[Found], object],
        seed: int,
    ) -> None:
        self.best: Found | None = None
        self._near: Found | None = None
        self._drawn = False
        self._staging, self._pause, self._offer = staging, pause, offer
        self.tuning = tuning = staging.tuning.orders
        self._kinds = (tuning.narrow, tuning.depth_first, tuning.at_random)
        self._line = Line(staging, pause)
        self._seed, self._random = seed, np.random.default_rng(seed)
        costs = staging.blocks.cost
        self._unit = max(1.0, float(costs.mean())) if len(costs) else 1.0
        self._first = least_limit(staging.rooms, kernels.FIRST)
        self._value = least_limit(staging.rooms, kernels.VALUE)
        self._coarse = 1 + staging.n // tuning.fine

    def search(self, orders: int, patience: int, seconds: float, starts: int = 1) -> None:
        """Try orders of all tastes, then orders near the best, until `patience` have not helped.

        A start has `orders`, the first of which is where the last call ended, if there was any;
        `starts` is how often to begin anew.  The search ends after `seconds` of work.
        """
        end = effort.spent() + seconds
        anywhere = np.zeros(self._staging.n, dtype=np.int32)
        if self._near is None:
            self.try_order(np.arange(self._staging.n, dtype=np.int32), self._coarse)
        for start in range(starts):
            drawn = orders if start or not self._drawn else 0
            self._drawn = True
            if start:
                self._near = None
            for which in range(drawn):
                if effort.spent() > end:
                    return
                self.try_order(self._order(anywhere, self._kinds[which % 3]), self._coarse)
            failed = 0
            while self._near is not None and failed < patience and effort.spent() <= end:
                order = self._order(self._stages_from_tail(self._near), self._kinds[failed % 3])
                failed = 0 if self.try_order(order, ties=True) else failed + 1

    def _stages_from_tail(self, found: Found) -> Array:
        """Return the stage of each block, the last one first; two neighbours may count as one."""
        rank = len(found.ways) - 1 - found.stage_of
        last = int(rank.max())
        if last and self._random.random() < self.tuning.joined:
            rank = rank - (rank > int(self._random.integers(last)))
        return rank

    def along(self, rank: Array) -> bool:
        """Cut an order in which blocks of lower rank come last; whether that gave a better one.

        The order is the same whatever was tried before.  `rank` is that of the blocks of the
        compact form.
        """
        staging = self._staging
        from_tail = np.zeros(staging.n, dtype=np.int32)
        from_tail[staging.number[staging.kept]] = int(rank.max()) - rank[staging.kept]
        order = self._order(from_tail, self.tuning.narrow, np.random.default_rng(self._seed))
        coarse = self._coarse > 1 and self.try_order(order, self._coarse)
        return self.try_order(order) or coarse

    def _order(
        self,
        rank: Array,
        kind: tuple[float, float, float],
        random: np.random.Generator | None = None,
    ) -> Array:
        """Return an order in which blocks of lower rank come first."""
        staging = self._staging
        n, nets = staging.n, len(staging.blocks.cost)
        order, ready = np.empty((2, n), dtype=np.int32)  # each block becomes ready once
        lower = np.concatenate(([0], np.cumsum(np.bincount(rank))[:-1]))
        missing, placed = staging.missing.copy(), np.zeros(nets, dtype=np.int32)
        noise, end = (random or self._random).random(n), lower.copy()
        weights = np.array([kind[0], kind[1], kind[2] / self._unit])
        self._pause()
        state = np.array([self._line.unordered, 0], dtype=np.int64)
        most_steps = self.tuning.chunk
        done, chunk = False, min(effort.SHORT, most_steps)
        while not done:
            done = self._line.arrange(
                state,
                chunk,
                order,
                missing,
                *staging.after,
                self._line.nets,
                placed,
                ready,
                lower,
                end,
                rank,
                noise,
                weights,
                self.tuning.scored,
            )
            effort.spend(self.tuning.arranging_price * state[1])
            if not done and chunk < most_steps:
                chunk = most_steps
                continue
            self._pause()
        return order

    def try_order(self, order: Array, grain: int = 1, *, ties: bool = False) -> bool:
        """Cut an order; return whether that gave a better partition than the last ones did.

        `order` and `grain` are as for :meth:`Line.cut`.  With `ties` an equal partition, which is
        no better, takes the place of the last.
        """
        known = FAR if self._near is None else self._near.whole
        if self._staging.mode == FORWARD_BACKWARD:
            found = least_sum(
                lambda limit, first: self._line.cut(order, limit, first, grain),
                self._first,
                self._value,
                known,
                self.tuning.probes,
            )
        elif self._near is None:
            found = self._first_cut(order, grain)
        else:
            found = self._line.cut(order, known + int(ties), grain=grain)
        if found is None:
            return False
        self._near = found
        if self.best is None or found.whole < self.best.whole:
            self.best = found
            self._offer(found)
        return found.whole < known

    def _first_cut(self, order: Array, grain: int) -> Found | None:
        """Return the best cuts of an order, tried with limits near the bound first."""
        for part in self.tuning.first_limits:
            found = self._line.cut(order, self._value + self._value // part + 1, grain=grain)
            if found is not None:
                return found
        return self._line.cut(order, FAR, grain=grain)
