"""Every packing in which no buffer can move down.

A block, the buffers that share an offset, lies above or below any other that it meets.  Of the best
packings take one whose offsets add up to the least, and its blocks by rising offset.  Each is as
low as those before allow: if it could move down beside these, it could beside the others, which lie
above.  So trying all orders of blocks, each as low as the ones before allow, and none below the one
before, meets that packing.  This holds for whatever any block may do alone (alignment, ranges,
fixed offsets), whoever meets whom (times, circles, conflicts, memories).  Which pairs in place have
one offset, which memory a buffer is in, and which buffers do not move is tried as well.  Bank
conflicts, views, segments, and gaps that leave a part of a buffer in use, depend on more: nothing
is tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeVar

from stagepack.claims.every import TooManyError
from stagepack.instances.packing.data import PackingData, PackingSolution

T = TypeVar("T")

MOST_BLOCKS = 20


def candidates(instance: PackingData, below: Fraction | None) -> Iterator[PackingSolution | None]:
    """Yield all such packings that may be better; None for a part of one."""
    objective, n = instance.objective.value, instance.n
    partial = any(0 < g.high - g.low < instance.size[g.buffer] for g in instance.gaps)
    if n > MOST_BLOCKS or partial or objective not in ("peak", "fit", "moves", "spill"):
        raise TooManyError
    special = any(memory.reserved or memory.alignment > 1 for memory in instance.memories)
    if special or instance.homes is not None or instance.views or instance.segment is not None:
        raise TooManyError
    never = set(instance.apart)
    in_place = [
        pair
        for pair in instance.in_place
        if pair not in never and not set(pair) & set(instance.exclusive)
    ]
    previous, size = instance.previous.tolist(), instance.size.tolist()
    moved = [i for i in range(n) if previous[i] >= 0 and objective == "moves"]
    meets = _meets(instance)
    for memory in itertools.product(range(len(instance.memories) or 1), repeat=n):
        costs = [instance.memories[m].cost for m in memory if instance.memories]
        spilt = sum(c * a for c, a in zip(costs, instance.accesses.tolist(), strict=False))
        for stays in _subsets(moved):
            gone = sum(size[i] for i in moved if i not in stays)
            yield None
            if below is not None and {"moves": gone, "spill": spilt}.get(objective, -1) >= below:
                continue
            fixed = {i: f for i, f in enumerate(instance.fixed.tolist()) if f >= 0}
            if any(fixed.get(i, previous[i]) != previous[i] for i in stays):
                continue
            fixed |= {i: previous[i] for i in stays}
            for pairs in _subsets(in_place):
                tied: list[tuple[int, ...]] = [*instance.colocated, *pairs]
                blocks = _blocks(n, tied)
                alone = {pair for g in instance.colocated for pair in itertools.permutations(g, 2)}
                alone |= {pair for one in pairs for pair in (one, one[::-1])}
                inside = (p for block in blocks for p in itertools.permutations(block, 2))
                if any(len({memory[i] for i in block}) > 1 for block in blocks) or any(
                    pair in meets and pair not in alone for pair in inside
                ):
                    yield None
                    continue
                yield from _Places(instance, meets, blocks, memory, fixed, below).orders((), {})


def _subsets(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    for count in range(len(items) + 1):
        yield from itertools.combinations(items, count)


def _blocks(n: int, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the buffers that groups tie to one another."""
    owner = list(range(n))
    for group in groups:
        old = {owner[i] for i in group}
        owner = [min(old) if o in old else o for o in owner]
    return [[i for i in range(n) if owner[i] == o] for o in sorted({*owner})]


def _meets(instance: PackingData) -> set[tuple[int, int]]:
    """Return the pairs of buffers, either way round, that must not overlap."""
    alone, held = set(instance.exclusive), (instance.size > 0).tolist()
    held_pairs = itertools.permutations(itertools.compress(range(instance.n), held), 2)
    apart = {pair for pair in held_pairs if alone.intersection(pair)}
    for i, j in instance.apart:
        if held[i] and held[j]:
            apart |= {(i, j), (j, i)}
    exempt = {pair for i, j in instance.exempt for pair in ((i, j), (j, i))}
    return _together(instance, held) - exempt | apart


def _together(instance: PackingData, held: list[bool]) -> set[tuple[int, int]]:
    """Return the pairs of buffers that are in use together."""
    n = instance.n
    if instance.conflicts is not None:
        graph = [(i, j) for i, j in instance.conflicts.tolist() if held[i] and held[j]]
        return {pair for i, j in graph for pair in ((i, j), (j, i))}
    lives = zip(instance.start.tolist(), instance.end.tolist(), strict=True)
    pieces = [[life] for life in lives]
    for gap in instance.gaps:
        if gap.high == gap.low:
            pieces[gap.buffer] = [
                part
                for a, b in pieces[gap.buffer]
                for part in ((a, min(b, gap.start)), (max(a, gap.end), b))
                if part[0] < part[1]
            ]
    turns = [0] if instance.period is None else [-instance.period, 0, instance.period]
    return {
        (i, j)
        for i, j in itertools.permutations(itertools.compress(range(n), held), 2)
        for (a, b), (c, d), turn in itertools.product(pieces[i], pieces[j], turns)
        if a + turn < d and c < b + turn
    }


class _Places:
    """Where blocks may lie, given which buffers share an offset, and their memories."""

    def __init__(
        self,
        instance: PackingData,
        meets: set[tuple[int, int]],
        blocks: list[list[int]],
        memory: tuple[int, ...],
        fixed: dict[int, int],
        below: Fraction | None,
    ) -> None:
        self._instance, self._blocks, self._memory, self._fixed = instance, blocks, memory, fixed
        self._size = instance.size.tolist()
        self._step = [math.lcm(*instance.alignment[block].tolist()) for block in blocks]
        tops = [m.capacity for m in instance.memories] or [instance.ceiling]
        better = instance.objective.value in ("peak", "fit") and below is not None
        highest = math.ceil(below) - 1 if better and below is not None else math.inf
        self._room = [min(highest, math.inf if (t := tops[m]) is None else t) for m in memory]
        # By how much a block lies above another one that it meets.
        self._above = {
            (one, other): max(rises)
            for one, other in itertools.permutations(range(len(blocks)), 2)
            if (
                rises := [
                    self._size[i]
                    for i, j in itertools.product(blocks[one], blocks[other])
                    if (i, j) in meets and memory[i] == memory[j]
                ]
            )
        }

    def orders(
        self, last: tuple[int, ...], placed: dict[int, int]
    ) -> Iterator[PackingSolution | None]:
        """Yield what begins with some blocks at their offsets, the last (offset, block) of them."""
        yield None
        found = {}
        for b in range(len(self._blocks)):
            if b not in placed:
                least = [o + self._above[a, b] for a, o in placed.items() if (a, b) in self._above]
                offset = self._lowest(b, max(least, default=0))
                if offset is None:
                    return  # wherever the others go
                found[b] = offset
        if not found:
            offsets = [0] * self._instance.n
            for b, offset in placed.items():
                for i in self._blocks[b]:
                    offsets[i] = offset
            memory = list(self._memory) if self._instance.memories else None
            yield PackingSolution.of(self._instance, offsets, memory)
        for b, offset in found.items():
            if (offset, b) > last:
                yield from self.orders((offset, b), placed | {b: offset})

    def _lowest(self, b: int, offset: int) -> int | None:
        """Return the lowest offset from one on that a block may have alone; None: there is none."""
        before, step = -1, self._step[b]
        while before < offset:
            before = offset
            for i in self._blocks[b]:
                offset = -(-offset // step) * step
                offset = max(offset, self._fixed.get(i, 0))
                for low, high in self._instance.reserved:
                    if low < offset + self._size[i] and offset < high:
                        offset = high
                ranges = [(r.low, r.high) for r in self._instance.allowed if r.buffer == i]
                ends = [max(low, offset) for low, high in ranges]
                fine = [
                    end
                    for end, (_, high) in zip(ends, ranges, strict=True)
                    if end + self._size[i] <= high
                ]
                if ranges:
                    offset = min(fine, default=-1)
                if offset < 0 or offset > self._fixed.get(i, offset):
                    return None
                if offset + self._size[i] > self._room[i]:
                    return None
        return offset
