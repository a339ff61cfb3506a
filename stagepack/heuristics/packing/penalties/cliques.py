"""A lower bound on what sharing costs: sets of blocks that are larger than the memory.

Every two blocks of a clique must not overlap, or pay for it.  Its bytes beyond the memory have to
be shared, and a pair saves as many as its smaller block has: the sum of these over the pairs that
pay is at least the excess.  Such rows are weighed so that no pair is worth more than its cost; what
they demand is then a bound (the Lagrangian dual of covering).  Weights rise by subgradients, and
cliques are grown where the average of their answers is violated most.

Cost: O(b) a block of a clique, O(entries of all cliques) a step.  Source: subgradients and averages
as in Barahona and Anbil, "The volume algorithm", 2000; cliques: own work.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive.greedy import KeepGoing
from stagepack.heuristics.packing.penalties.pairs import Pairs
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.profile import Array
from stagepack.progress import Stopped, pausing

SCALE = 2**20
"""What a row demands: its entries are whole numbers, so that bounds are exact."""

LARGEST = 2**36
"""Costs together up to which that fits 64 bits."""


def unsupported(pairs: Pairs, *, tuning: PackingTuning = TUNING) -> str:
    """Return why no clique is sought, or ''."""
    if not pairs.blocks.rigid:
        return "cliques are of blocks of full height at all times"
    if pairs.blocks.b > tuning.penalties.crowded:
        return f"cliques are sought of up to {tuning.penalties.crowded:,} blocks"
    return "costs are too large" if int(pairs.cost.sum()) >= LARGEST else ""


def bound(
    pairs: Pairs,
    capacity: int,
    upper: int | None = None,
    *,
    seed: int = 0,
    keep_going: KeepGoing,
    on_bound: Callable[[int], object] = lambda bound: None,
    tuning: PackingTuning = TUNING,
) -> int:
    """Return a lower bound on the cost of all placements below `capacity`.

    To `pairs`, :func:`unsupported` has no objection.  `upper` is the cost of a placement: a bound
    as high ends the search.  Random numbers are of the `seed`.  `keep_going` is asked now and then;
    the bound is the best so far once it says no.  `on_bound` is called with every better bound.
    """
    steer, found = tuning.penalties, pairs.certain
    try:
        rows = _Rows(pairs, capacity, seed, keep_going, tuning=tuning)
    except Stopped:
        return found
    aim = (upper if upper is not None else int(pairs.cost.sum()) + pairs.certain) - pairs.certain
    idle = 0
    for _ in range(steer.rounds):
        if not keep_going():
            break
        fresh = rows.grow(keep_going)
        now = pairs.certain + rows.rise(aim, keep_going)
        idle = 0 if fresh or now > found else idle + 1
        if now > found:
            found = now
            on_bound(found)
        if found >= pairs.certain + aim or idle > steer.idle or not len(rows.entry):
            break
    return found


class _Rows:
    """Cliques that are too large, as rows over pairs, and their weights."""

    def __init__(
        self,
        pairs: Pairs,
        capacity: int,
        seed: int,
        keep_going: KeepGoing,
        *,
        tuning: PackingTuning,
    ) -> None:
        self.tuning = tuning
        blocks, b = pairs.blocks, pairs.blocks.b
        ptr, other = blocks.neighbours(pausing(keep_going))
        self.pair = np.full((b, b), -1, dtype=np.int64)
        whole = (pairs.low == 0).all(axis=1) & (pairs.high == blocks.size[pairs.member]).all(axis=1)
        one, another = pairs.member[whole].T
        self.pair[one, another] = self.pair[another, one] = np.flatnonzero(whole)
        self.near = self.pair >= 0
        met = np.repeat(np.arange(b), np.diff(ptr)), other
        self.near[met] = True
        self.pair[met] = -1  # they never share, so that nobody pays
        np.fill_diagonal(self.near, False)
        self.size, self.room = blocks.size, _room(pairs, capacity)
        self.cost = pairs.cost
        self.random = np.random.default_rng(seed)
        self.seen = set[tuple[int, ...]]()
        self.ptr = np.zeros(1, dtype=np.int64)
        self.of, self.entry = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self.weight = np.zeros(0)
        self.answer = np.zeros(len(pairs))
        self.least = 0

    def grow(self, keep_going: KeepGoing) -> bool:
        """Add cliques that the average answer violates; return whether there are any new ones."""
        steer, fresh = self.tuning.penalties, 0
        for start in self.random.integers(len(self.size), size=steer.tried).tolist():
            if not keep_going():
                break
            effort.spend(steer.clique)
            fresh += self._add(self._clique(start))
        self.weight = np.concatenate([self.weight, np.zeros(fresh)])
        return fresh > 0

    def _clique(self, block: int) -> list[int]:
        """Return a clique from a block on, of much that the answer does not save."""
        members, may = [block], self.near[block].copy()
        saved = self._saved(block)
        excess = int(self.size[block]) - self.room
        soon = self.random.random() < self.tuning.penalties.small
        while may.any() and not (soon and excess > 0):
            at = np.flatnonzero(may)
            gain = np.maximum(self.size[at] - saved[at], 0.0)
            if not gain.any():
                break
            # What is gained now, and what all could gain that are left then.
            later = gain + self.near[np.ix_(at, at)] @ gain
            later *= (0.8 + 0.4 * self.random.random(len(at))) * (gain > 0)
            best = int(at[later.argmax()])
            excess += self.size[best] - saved[best]
            members.append(best)
            may &= self.near[best]
            saved += self._saved(best)
        return members if excess > 1e-6 * self.room else []

    def _saved(self, block: int) -> Array:
        """Return what the average answer saves of each block beside this one."""
        pair = self.pair[block]
        paid = np.where(pair >= 0, self.answer[pair], 0.0)
        return np.asarray(np.minimum(self.size[block], self.size) * paid)

    def _add(self, clique: list[int]) -> bool:
        """Add the row of a clique that is too large; return whether it is a new one."""
        key = tuple(sorted(clique))
        if not clique or key in self.seen:
            return False
        self.seen.add(key)
        i, j = np.triu_indices(len(key), 1)
        one, another = np.array(key)[i], np.array(key)[j]
        excess = int(self.size[list(key)].sum()) - self.room
        pays = self.pair[one, another] >= 0
        one, another = one[pays], another[pays]
        saved = np.minimum(np.minimum(self.size[one], self.size[another]), excess)
        # Rounded up, a row demands less.  Sizes have 62 bits, so that floats divide them.
        entry = np.ceil(saved / excess * SCALE * (1 + 1e-9)).astype(np.int64)
        self.of = np.concatenate([self.of, self.pair[one, another]])
        self.entry = np.concatenate([self.entry, entry])
        self.ptr = np.append(self.ptr, len(self.of))
        return True

    def rise(self, aim: int, keep_going: KeepGoing) -> int:
        """Raise the weights for some steps towards a bound `aim`; return the best bound so far."""
        steer, many = self.tuning.penalties, len(self.ptr) - 1
        row, part = np.repeat(np.arange(many), np.diff(self.ptr)), self.entry / SCALE
        stride, best, vain = 1.0, -math.inf, 0
        top = self.weight
        for _ in range(steer.ascents):
            effort.spend(self.tuning.prices.call + steer.ascent * len(row))
            left = self.cost - np.bincount(
                self.of, self.weight[row] * part, minlength=len(self.cost)
            )
            value = float(self.weight.sum() + np.minimum(left, 0).sum())
            if value > best:
                best, top, vain = value, self.weight, 0
            elif (vain := vain + 1) > steer.vain:
                stride, vain = stride / 2, 0
            paid = (left < 0).astype(float)
            self.answer = 0.9 * self.answer + 0.1 * paid
            slope = 1 - np.bincount(row, part * paid[self.of], minlength=many)
            slope[(self.weight == 0) & (slope < 0)] = 0
            norm = float(slope @ slope)
            if norm == 0 or not keep_going():
                break
            reach = max(1.0, min(aim, 1.1 * best + 1) - value)
            self.weight = np.maximum(0, self.weight + stride * reach / norm * slope)
        self.weight = top
        self.least = max(self.least, self._exact(row))
        return self.least

    def _exact(self, row: Array) -> int:
        """Return the bound of the weights in whole numbers, rounded up to what costs allow."""
        fine: int = 2 ** (60 - 20 - int(self.cost.sum()).bit_length() - 2)
        weight = np.floor(np.minimum(self.weight, float(self.cost.sum())) * fine).astype(np.int64)
        left = self.cost * (SCALE * fine)
        np.subtract.at(left, self.of, weight[row] * self.entry)
        total: int = sum((weight * SCALE).tolist()) + sum(np.minimum(left, 0).tolist())
        step = int(np.gcd.reduce(self.cost))
        return max(0, -(-total // (SCALE * fine * step)) * step)


def _room(pairs: Pairs, capacity: int) -> int:
    """Return the bytes below the capacity that any block may use."""
    blocks = pairs.blocks
    if (np.diff(blocks.range_ptr) == 0).any():
        return capacity
    room, reach = 0, 0
    order = np.argsort(blocks.range_low, kind="stable")
    for low, high in zip(
        blocks.range_low[order].tolist(), blocks.range_high[order].tolist(), strict=True
    ):
        top = min(high, capacity)
        room += max(0, top - max(low, reach))
        reach = max(reach, top)
    return room
