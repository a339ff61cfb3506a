"""Local search over the memories in which blocks live.

A block moves to another of its homes, or two blocks change places.  The memories that this touches
are packed anew by greedy rules, and searched where they are small.  A change is kept unless more
bytes end above the capacities, or these being equal, the objective is worse.

Cost: two greedy packings for every change whose load fits.  Source: own work; moves and swaps are
usual for generalised assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import spill
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.homes import alone_in, possible
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking, Objective
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array


class _Packed(NamedTuple):
    """Some buffers in one memory."""

    # `buffers`, `offsets`: int64: which, and where.
    buffers: Array
    offsets: Array
    # `peak`, `over`: highest address, and by how much it is above the end.
    peak: int
    over: int
    highest: Array  # int64: blocks that end above the memory, else those that end at the peak


class _Search:
    """What is known of the packings of single memories."""

    def __init__(
        self, instance: LmemPacking, keep_going: Callable[[], bool], tuning: PackingTuning
    ) -> None:
        self.instance, self.keep_going, self.tuning = instance, keep_going, tuning
        self.blocks = blocks = Blocks.of(instance)
        self.memories = range(len(instance.memories))
        self.home = np.ones((blocks.b, len(self.memories)), dtype=bool)
        np.logical_and.at(self.home, blocks.block, possible(instance))
        self.ends = [spill.end_of(instance, k) for k in self.memories]
        accesses = np.zeros(blocks.b, dtype=np.int64)
        np.add.at(accesses, blocks.block, instance.accesses)
        costs = np.array([memory.cost for memory in instance.memories], dtype=np.int64)
        spilt = instance.objective is Objective.SPILL
        self.cost = accesses[:, None] * costs if spilt else np.zeros_like(self.home, dtype=np.int64)
        self._known: dict[tuple[int, bytes], _Packed | None] = {}

    def load(self, k: int, at: Array) -> int:
        """Return the largest load of memory k."""
        here = at[np.repeat(np.arange(self.blocks.b), np.diff(self.blocks.piece_ptr))] == k
        held = (self.blocks.high - self.blocks.low)[here]
        steps = np.bincount(self.blocks.first[here], held, self.blocks.sections + 1)
        steps -= np.bincount(self.blocks.end[here], held, self.blocks.sections + 1)
        effort.spend(self.tuning.prices.call + self.tuning.prices.item * len(steps))
        return int(np.cumsum(steps).max(initial=0))

    def packed(self, k: int, at: Array) -> _Packed | None:
        """Return the blocks of memory k packed; None where there is no place or time."""
        members = np.flatnonzero(at == k)
        key = k, members.tobytes()
        if key not in self._known:
            if len(self._known) > self.tuning.homes.remembered:
                self._known.clear()
            self._known[key] = self._pack(k, members)
        return self._known[key]

    def _pack(self, k: int, members: Array) -> _Packed | None:
        nothing = members[:0]
        buffers = np.flatnonzero(np.isin(self.blocks.block, members))
        if not len(buffers):
            return _Packed(nothing, nothing, 0, 0, nothing)
        found = spill.packed(self.instance, k, buffers, self.keep_going, tuning=self.tuning)
        offsets, end = None if found is None else found[0], self.ends[k]
        if end is not None and (found is None or len(found[1])):
            part = alone_in(self.instance, k, buffers, capacity=end, banks=None, penalties=None)
            blocks = Blocks.of(part)
            small = blocks.b <= self.tuning.homes.searched
            if small and not exact.unsupported(blocks, tuning=self.tuning):
                decided = exact.decide(
                    blocks,
                    end,
                    keep_going=self.keep_going,
                    node_limit=self.tuning.homes.nodes,
                    tuning=self.tuning,
                )
                if decided.offsets is not None:
                    offsets = blocks.expand(decided.offsets)
        if offsets is None:
            return None
        tops = offsets + self.instance.size[buffers]
        peak = int(tops.max())
        over = 0 if end is None else max(0, peak - end)
        highest = tops > end if end is not None and over else tops == peak
        return _Packed(buffers, offsets, peak, over, self.blocks.block[buffers[highest]])


def improve(
    instance: LmemPacking,
    memory: Array,
    *,
    keep_going: Callable[[], bool],
    on_solution: Callable[[Array, Array], None],
    seed: int = 0,
    tuning: PackingTuning = TUNING,
) -> Array:
    """Move and swap blocks between memories until nothing is gained for long; return the memories.

    An instance with memories, of any objective but penalties.  Buffers live in `memory`, int64 of
    shape (n,), at first; memories may be too full.  `keep_going` is asked several times a second;
    once it says no, that is all.  `on_solution` is called with offsets and memories, int64 of shape
    (n,), where they are better than before.  Random numbers are of the `seed`.
    """
    search = _Search(instance, keep_going, tuning)
    blocks, rng = search.blocks, np.random.default_rng(seed)
    at = np.zeros(blocks.b, dtype=np.int64)
    at[blocks.block] = memory
    state = [search.packed(k, at) for k in search.memories]
    loads = [search.load(k, at) for k in search.memories]
    movable = np.flatnonzero(search.home.sum(axis=1) > 1)
    told: tuple[float, int] | None = None

    def worth(state: list[_Packed | None], at: Array) -> tuple[float, int]:
        over = sum(np.inf if one is None else one.over for one in state)
        value = int(search.cost[np.arange(blocks.b), at].sum())
        if instance.objective is Objective.PEAK:
            value = sum(one.peak for one in state if one is not None)
        return over, value

    best = worth(state, at)
    idle = 0
    while len(movable) and idle < tuning.homes.tries and keep_going():
        if best[0] == 0 and (told is None or best < told):
            told = best
            _tell(instance, state, on_solution)
        if best[0] == 0 and instance.objective is Objective.FIT:
            break
        idle += 1
        effort.spend(tuning.prices.call)
        changed = _change(search, state, at, movable, best[0] > 0, rng)
        if changed is None:
            continue
        touched = np.unique(np.concatenate([at[at != changed], changed[at != changed]])).tolist()
        cost = int(search.cost[np.arange(blocks.b), changed].sum())
        if best[0] == 0 and cost > best[1] and instance.objective is Objective.SPILL:
            continue
        new_loads, fits = list(loads), True
        for k in touched:
            new_loads[k], end = search.load(k, changed), search.ends[k]
            fits &= end is None or new_loads[k] <= max(end, loads[k])
        if not fits:
            continue
        new = list(state)
        for k in touched:
            new[k] = search.packed(k, changed)
        found = worth(new, changed)
        if found <= best:
            idle = 0 if found < best else idle
            state, at, loads, best = new, changed, new_loads, found
    if best[0] == 0 and (told is None or best < told):
        _tell(instance, state, on_solution)
    return np.asarray(at[blocks.block])


def _change(
    search: _Search,
    state: list[_Packed | None],
    at: Array,
    movable: Array,
    full: bool,
    rng: np.random.Generator,
) -> Array | None:
    """Return where blocks live after a move or swap drawn at random; None for one that is none.

    Where some memories are too `full`, or else for the peak, the highest blocks in `state` move
    more often.  Blocks live `at` memories, int64 of shape (b,); those that are `movable` have a
    choice.
    """
    some = movable
    if full:
        crowded = [k for k, one in enumerate(state) if one is None or one.over]
        some = movable[np.isin(at[movable], crowded)]
    if rng.random() < search.tuning.homes.highest:
        high = [one.highest for one in state if one is not None and (one.over or not full)]
        top = np.intersect1d(np.concatenate([*high, movable[:0]]), some)
        some = top if len(top) else some
    if not len(some):
        some = movable
    block = int(some[rng.integers(len(some))])
    others = np.flatnonzero(search.home[block])
    others = others[others != at[block]]
    target = int(others[rng.integers(len(others))])
    changed = at.copy()
    if rng.random() < search.tuning.homes.swapped:
        back = movable[(at[movable] == target) & search.home[movable, at[block]]]
        if not len(back):
            return None
        changed[int(back[rng.integers(len(back))])] = at[block]
    changed[block] = target
    return changed


def _tell(
    instance: LmemPacking,
    state: list[_Packed | None],
    on_solution: Callable[[Array, Array], None],
) -> None:
    """Hand over a placement in which everything fits, as offsets and memories."""
    offsets, memory = np.zeros((2, instance.n), dtype=np.int64)
    for k, one in enumerate(state):
        if one is not None:
            offsets[one.buffers], memory[one.buffers] = one.offsets, k
    on_solution(offsets, memory)
