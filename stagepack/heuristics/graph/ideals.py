"""The exact method: a dynamic program over ideals (sets of blocks closed under predecessors).

The ideals are enumerated once (:mod:`.ideals_kernels`), except those that no set of devices can
hold within the limit.  They are then processed in an order in which each one comes after its
subsets.  The limit is the value of the best known partition and falls during the sweep.  If nothing
better is found, this partition is optimal.  Objectives with two separate loads are solved by
:mod:`.pairs` with limits on the first load.

Cost: steps as :mod:`.ideals_kernels` says.  Memory is linear in the number of ideals and of their
possible next blocks; above `most_bytes` the search gives up.  Source: own work, after Tarnawski et
al. (NeurIPS 2020).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.stage_kernels import FAR, SLACK, WORK, unmarked
from stagepack.heuristics.graph.staging import Found, Staging
from stagepack.heuristics.graph.tuning import TUNING, IdealsTuning
from stagepack.instances.graph import Compact
from stagepack.instances.profile import Array

if TYPE_CHECKING:
    from stagepack.heuristics.graph.ideals_kernels import Cells, Ideals

CELL = 18
"""Bytes of what a stage up to an ideal holds: see :class:`.ideals_kernels.Cells`."""
ENTRIES = ("next_block", "target")
"""What ideals have several of each."""


class TooManyError(Exception):
    """There are more ideals, or ways to use devices, than there is room for."""


def nearly_chain(compact: Compact, tuning: IdealsTuning = TUNING.ideals) -> bool:
    """Whether a small graph has hardly more ideals than a chain of as many blocks.

    Cost: O(blocks^2) looks at a block, of which there are few.
    """
    blocks, most = compact.blocks, tuning.chain * compact.blocks
    if blocks > tuning.small:
        return False
    needs = [0] * blocks
    for block, (first, end) in enumerate(itertools.pairwise(compact.before_ptr.tolist())):
        for other in compact.before[first:end].tolist():
            needs[block] |= 1 << other
    met, left = {0}, [0]
    while left and len(met) <= most:
        ideal = left.pop()
        larger = {ideal | 1 << block for block in range(blocks) if needs[block] & ~ideal == 0} - met
        met |= larger
        left.extend(larger)
    effort.spend(tuning.look_price * blocks * len(met))
    return len(met) <= most


class Lattice:
    """The ideals of a graph; `TooManyError` is raised when they take too much memory.

    `pause` is called between chunks of work; what it raises ends the search.
    """

    def __init__(self, staging: Staging, pause: Callable[[], object]) -> None:
        from stagepack.heuristics.graph import ideals_kernels

        self.staging, self.tuning = staging, staging.tuning.ideals
        self._kernels = ideals_kernels
        self._pause = pause
        n, nets = staging.n, len(staging.blocks.cost)
        self._cut = unmarked(nets)
        self._rows = np.zeros((n + 1, staging.columns), dtype=np.int64)
        self.count = 0
        self._enumerate()

    def _enumerate(self) -> None:
        """List all ideals."""
        staging, kernels, n = self.staging, self._kernels, self.staging.n
        rooms = len(staging.rooms.limit)
        # More than n blocks that may come next, for the first ideal; others are begun where there
        # is room for one more and as many blocks, and `_larger` makes it.
        room = self.tuning.first_room
        more = room * 4 + 2 * n
        ideals = self._ideals = kernels.Ideals(
            parent=np.empty(room, np.int32),
            last=np.empty(room, np.int32),
            first=np.empty(room + 1, np.int64),
            next_block=np.empty(more, np.int32),
            target=np.empty(more, np.int32),
            sums=np.empty((rooms, room)),
            crossing=np.empty((2, room), np.int64),
        )
        state = np.zeros(5, dtype=np.int64)
        branch, cursor = np.zeros((2, n + 1), dtype=np.int64)
        missing = staging.missing.copy()
        most_steps = self.tuning.chunk
        chunk = min(effort.SHORT, most_steps)
        while True:
            end = kernels.enumerate_ideals(
                state,
                chunk,
                *staging.after,
                missing,
                staging.blocks,
                staging.rooms,
                self._cut,
                self._rows,
                branch,
                cursor,
                ideals,
            )
            effort.spend(self.tuning.listing_price * state[kernels.STEPS])
            self.count = int(state[kernels.COUNT])
            if end == kernels.DONE:
                return
            if end == kernels.GO_ON and chunk < most_steps:
                chunk = most_steps  # too soon to ask for the time
                continue
            self._pause()
            self._require_memory()
            if end == kernels.FULL:
                ideals = self._ideals = self._larger(ideals)

    def _larger(self, ideals: Ideals) -> Ideals:
        """Return the same ideals with more room, where there is none left."""
        used = int(ideals.first[self.count])
        many = self.count + 2 > len(ideals.parent)
        crowded = used + 2 * self.staging.n > len(ideals.next_block)
        arrays = ideals._asdict()
        most = [0, 0]  # more would be too much memory: see `_require_memory`
        for name, array in arrays.items():
            most[name in ENTRIES] += array.nbytes // array.shape[-1]
        most = [self.tuning.most_bytes // each + 2 * self.staging.n + 3 for each in most]
        try:
            grown = {
                name: self._extended(array, most[name in ENTRIES])
                if (many, crowded)[name in ENTRIES]
                else array
                for name, array in arrays.items()
            }
        except MemoryError:  # this machine has less: other searches can do with it
            raise TooManyError(f"{self.count:,} ideals take more memory than there is") from None
        return self._kernels.Ideals(**grown)

    def _extended(self, array: Array, most: int) -> Array:
        """Return an array with more room along its last axis, where it has less than the most."""
        used = array.shape[-1]
        tuning = self.tuning
        large = used >= tuning.growth * tuning.first_room
        room = max(used, most if large else min(tuning.growth * used, most))
        grown = np.empty((*array.shape[:-1], room), array.dtype)
        for at in range(0, used, tuning.part):
            part = slice(at, min(used, at + tuning.part))
            grown[..., part] = array[..., part]
            effort.spend(tuning.copying_price * tuning.part)
            self._pause()
        return grown

    def _require_memory(self, cells: int = 0) -> None:
        """Give up where ideals, and so many cells, take too much of it."""
        ideals, count = self._ideals, self.count
        used = {name: int(ideals.first[count]) for name in ENTRIES}
        taken = sum(
            array.nbytes // array.shape[-1] * used.get(name, count)
            for name, array in ideals._asdict().items()
        )
        if taken + CELL * cells > self.tuning.most_bytes:
            raise TooManyError(f"{count:,} ideals take too much memory")

    # ------------------------------------------------------------------ the sweep

    def best(self, limit: int, first_limit: int = FAR) -> Found | None:
        """Return the best partition of less than `limit` ticks; None proves there is none.

        `first_limit` is the greatest load of the forward pass, where it counts apart.
        """
        staging, kernels, n = self.staging, self._kernels, self.staging.n
        limits = np.array([limit - 1, min(first_limit, FAR), 1], dtype=np.int64)
        cells = self._cells(limits)
        if cells.first[1] == 0:
            return None
        cells.value[0] = 0
        state = np.array([-1, -1, limit, first_limit, staging.most_devices, 0, 0, 0, 0], np.int64)
        branch = kernels.Branch(*np.zeros((6, n + 2), dtype=np.int64))  # ideals of 0 to n blocks
        states = np.zeros((2, staging.automaton.states), dtype=np.int64)
        work = np.zeros(staging.columns - WORK, dtype=np.int64)
        ahead = kernels.Ahead(*states, limits, work)
        for array in self._cut:
            array[:] = 0
        most_steps = self.tuning.chunk
        chunk = min(effort.SHORT, most_steps)
        while True:
            done = kernels.sweep(
                state,
                chunk,
                self.count,
                staging.blocks,
                staging.automaton.ways,
                staging.rooms,
                self._ideals,
                cells,
                self._cut,
                self._rows,
                branch,
                ahead,
            )
            effort.spend(self.tuning.sweeping_price * state[kernels.SWEPT])
            if done:
                return self._found(cells)
            if chunk < most_steps:
                chunk = most_steps
                continue
            self._pause()

    def _cells(self, limits: Array) -> Cells:
        """Return the cells of partitions within limits, without values."""
        counts, states = [np.zeros(1, np.int64)], []
        tuning = self.tuning
        part = max(1, tuning.part // self.staging.automaton.states)
        for begin in range(0, self.count, part):
            possible = self._possible(begin, min(self.count, begin + part), limits)
            counts.append(possible.sum(axis=1))
            states.append(np.nonzero(possible)[1].astype(np.int16))
            effort.spend(tuning.cell_price * tuning.part * len(limits))
            self._pause()
            self._require_memory(sum(map(len, states)))
        state = np.concatenate(states)
        return self._kernels.Cells(
            first=np.cumsum(np.concatenate(counts)),
            state=state,
            value=np.full(len(state), FAR),
            origin=np.empty(len(state), np.int32),
            way=np.empty(len(state), np.int32),
            beyond=np.empty(self.count, np.int64),
        )

    def _possible(self, begin: int, end: int, limits: Array) -> Array:
        """Return, shape (ideals, states), as :func:`.stage_kernels.possible` does for one."""
        rooms, ideals = self.staging.rooms, self._ideals
        found = np.ones((end - begin, self.staging.automaton.states), dtype=bool)
        for r, kind in enumerate(rooms.kind.tolist()):
            limit = limits[rooms.limit[r]] * SLACK
            both = rooms.scale[r] * ideals.crossing[kind, begin:end] if kind >= 0 else 0.0
            placed = ideals.sums[r, begin:end]
            rest = ideals.sums[r, self.count - 1] - placed
            with np.errstate(invalid="ignore"):  # no limit of 0 says nothing
                found &= ~((placed + both)[:, None] > rooms.used[r] * limit + SLACK)
                found &= ~((rest + both)[:, None] > rooms.left[r] * limit + SLACK)
        return found

    def _found(self, cells: Cells) -> Found | None:
        """Return the best partition met."""
        source, first = self.staging.automaton.source, cells.first
        i = self.count - 1
        last = cells.value[first[i] : first[i + 1]]
        if not len(last) or last.min() >= FAR:
            return None
        cell = int(first[i] + last.argmin())
        value, placed, members = int(cells.value[cell]), [], self._members(i)
        while i:
            way, origin = int(cells.way[cell]), int(cells.origin[cell])
            within = self._members(origin)
            placed.append((np.array(sorted(members - within)), way))
            members = within
            i, states = origin, cells.state[first[origin] : first[origin + 1]]
            cell = int(first[i] + np.flatnonzero(states == source[way])[0])
        return self.staging.found(value, placed)

    def _members(self, i: int) -> set[int]:
        """Return the blocks of an ideal."""
        last, parent = memoryview(self._ideals.last), memoryview(self._ideals.parent)
        found = set()
        while i:
            found.add(last[i])
            i = parent[i]
        return found
