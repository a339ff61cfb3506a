"""Proofs that buffers do not fit into a capacity, replayed step by step.

A proof names some buffers and some moments, and refutes even what is left of the instance then:
that these buffers keep apart at these moments.  Of what is left, sizes are rounded up to multiples
of what all alignments share, as in :mod:`.packing`; buffers that conflict with all others are put
at the bottom, and sizes are counted in units of their common divisor.  Then the steps speak of one
*canonical* packing within the capacity: one of least sum of size * offset; among these one of least
sum of size^2 * offset; identical buffers as listed.  For each buffer not yet placed, `low` is what
its offset is known to be at least, and `base` the highest top of its placed neighbours; it is above
all of these.

place i   `low` of i is its base, and no unplaced neighbour fits below: i is there, or higher.  Two
          proofs follow, first of i at its base, then of i above it.
lift i    `low` of i exceeds its base, so that it stands on an unplaced neighbour (but not on a
          smaller one of its own moments, nor on a later identical one): not below their least top.
queue i   The identical buffer before i, alive with it at a moment named, is unplaced: i is not
          below its least top.
full t    Of what is unplaced at moment t, some lies above a floor and is too large for the rest.
drop i    `low` of i exceeds its base, where nothing unplaced can be in its way any more.
swap i    i lies directly on a smaller buffer of the same moments.

The last three end a case.  Why each is right: docs/exact-packing.md.  A step costs O(neighbours),
or a sort of what is alive at a moment.  Source: own work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stagepack.verify.rules import Claimed, UnprovedError

if TYPE_CHECKING:
    from stagepack.instances.packing.data import PackingData

PLACE, LIFT, QUEUE, FULL, DROP, SWAP = range(6)
"""What a step does: step = 6 * number + one of these."""

PEAKS = ("peak", "fit", "bank-conflicts")
"""Objectives of which the highest address is a part."""

MOST_BUFFERS = 1024
"""Buffers that steps may speak of."""

MOST_MOMENTS = 4096

EACH = 16
"""Elementary steps for each one of a proof, on the clock."""


def misfit(instance: PackingData, evidence: Mapping[str, Any], claimed: Claimed) -> None:
    """Replay why some buffers do not fit into a capacity: a rule of :mod:`.packing`."""
    capacity, which, moments = evidence["capacity"], evidence["buffers"], evidence["moments"]
    goal = instance.ceiling if claimed.bound is None else math.ceil(claimed.bound) - 1
    if instance.objective.value not in PEAKS or goal is None:
        raise UnprovedError("it speaks of the peak of one memory")
    if not isinstance(capacity, int) or capacity < goal:
        raise UnprovedError(f"a capacity of {capacity} is not {goal:,}")
    if len(which) > MOST_BUFFERS or len(moments) > MOST_MOMENTS:
        raise UnprovedError("it speaks of too many buffers or moments")
    if len(set(which)) < len(which) or not set(which) <= set(range(instance.n)):
        raise UnprovedError("what it speaks of are no buffers, or one twice")
    free = sharing(instance)
    some = [number for i in which for number in free.get(i, ())]
    if len(set(some)) < len(some):
        raise UnprovedError("it speaks of two buffers that may overlap")
    alive = alive_at(instance, which, moments, claimed)
    Replay(*_rounded(instance, which, capacity), alive).run(evidence["steps"], claimed)


def _rounded(instance: PackingData, which: list[int], capacity: int) -> tuple[list[int], int]:
    """Return sizes rounded up to what all alignments have in common, and a capacity for these.

    No buffer lies above the last multiple below the capacity at which it fits.
    """
    size = [int(instance.size[i]) for i in which]
    step = math.gcd(*(int(instance.alignment[i]) for i in which)) or 1
    wide = [nbytes + -nbytes % step for nbytes in size]
    tops = [(capacity - s) // step * step + w for s, w in zip(size, wide, strict=True)]
    return wide, max(tops, default=capacity)


def sharing(instance: PackingData) -> dict[int, list[int]]:
    """Return numbers of the sets of buffers that may share bytes, by buffer.

    They have one place, or one lies in place of or inside of the other, or is exempt from it.
    """
    place = {i: group for group in map(set, instance.colocated) for i in group}
    for view in instance.views:
        less, more = sorted((place.get(i, {i}) for i in (view.buffer, view.host)), key=len)
        more |= less
        place.update(dict.fromkeys((*less, view.buffer, view.host), more))
    groups = {id(group): group for group in place.values()}.values()
    found: dict[int, list[int]] = {}
    for number, group in enumerate((*groups, *instance.in_place, *instance.exempt)):
        for i in group:
            found.setdefault(i, []).append(number)
    return found


def alive_at(
    instance: PackingData, which: list[int], moments: list[int], claimed: Claimed
) -> list[int]:
    """Return, as the bits of a number, `which` buffers hold all of their bytes at each moment.

    `moments` are those of the `instance`; each is a step that is `claimed`.
    """
    gaps = [gap for gap in instance.gaps if gap.buffer in which]
    lives = [(i, int(instance.start[i]), int(instance.end[i])) for i in which]
    found = []
    for number, moment in enumerate(moments):
        claimed.step(EACH * number)
        turns = turns_of(instance, moment)
        alive = {i for i, start, end in lives if any(start <= t < end for t in turns)}
        alive -= {gap.buffer for gap in gaps if any(gap.start <= t < gap.end for t in turns)}
        found.append(sum(1 << at for at, i in enumerate(which) if i in alive))
    return found


def turns_of(instance: PackingData, moment: int) -> list[int]:
    """Return a moment in all turns in which a lifetime may hold it."""
    if instance.conflicts is not None:
        raise UnprovedError("there are no moments")
    if not isinstance(moment, int):  # a float plus a long period is some other moment
        raise UnprovedError(f"{moment!r} is no moment")
    period = instance.period
    return [moment] if period is None else [moment % period, moment % period + period]


def _bits(number: int) -> Iterator[int]:
    """Yield the places of the bits of a number that are set, rising."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


class Replay:
    """What is known of a canonical packing; `alive`: who is at each moment, as bits."""

    def __init__(self, size: list[int], capacity: int, alive: list[int]) -> None:
        """Take `size` by buffer, and the `capacity` that they have to live in, both in bytes."""
        everyone = (1 << len(size)) - 1
        near, self._life = [0] * len(size), [0] * len(size)
        for t, members in enumerate(alive):
            for i in _bits(members):
                near[i] |= members
                self._life[i] |= 1 << t
        bottom = sum(1 << i for i, met in enumerate(near) if met | 1 << i == everyone)
        left = list(_bits(everyone & ~bottom))
        capacity -= sum(size[i] for i in _bits(bottom))
        unit = math.gcd(*(size[i] for i in left)) or 1
        self._capacity = capacity // unit
        self._size = [s // unit for s in size]
        self._near: list[list[int]] = [[]] * len(size)
        self._members = [list(_bits(members & ~bottom)) for members in alive]
        self._before = [-1] * len(size)
        latest: dict[tuple[int, int], int] = {}
        for i in left:
            self._near[i] = list(_bits(near[i] & ~bottom & ~(1 << i)))
            if self._life[i]:  # or nothing keeps it from its like, or from anything
                alike = self._size[i], self._life[i]
                self._before[i] = latest.get(alike, -1)
                latest[alike] = i
        self._low, self._base = [0] * len(size), [0] * len(size)
        self._at = [0 if bottom >> i & 1 else -1 for i in range(len(size))]  # -1: unplaced
        self._past: list[tuple[int, int, int]] = []
        self._cases: list[tuple[int, int, bool]] = []  # buffer, rows of the past, whether above
        self.done = capacity < 0

    def run(self, steps: Sequence[int], claimed: Claimed) -> None:
        """Take all steps; raise where one does not follow, and where cases are left at the end."""
        for number, step in enumerate(steps):
            claimed.step(EACH * number)
            try:
                self.take(step)
            except UnprovedError as wrong:
                raise UnprovedError(f"step {number:,}: {wrong}") from None
        if not self.done:
            raise UnprovedError(f"{len(self._cases):,} cases are left open at the end")

    def take(self, step: int) -> None:
        """Take a step, or raise why it does not follow, which changes nothing."""
        which, rule = divmod(step, 6)
        rules = self._place, self._lift, self._queue, self._full, self._drop, self._swap
        if self.done:
            raise UnprovedError("all was proved before")
        if not 0 <= which < (len(self._members) if rule == FULL else len(self._size)):
            raise UnprovedError("there is none of this number")
        if rule not in (FULL, SWAP) and self._at[which] >= 0:
            raise UnprovedError("it is placed")
        rules[rule](which)

    def _place(self, i: int) -> None:
        low = self._low[i]
        if low > self._base[i]:
            raise UnprovedError("it is known to lie above its base")
        waiting = [k for k in self._near[i] if self._at[k] < 0]
        if any(self._low[k] + self._size[k] <= low for k in waiting):
            raise UnprovedError("an unplaced neighbour may lie below it")
        self._cases.append((i, len(self._past), False))
        self._at[i], top = low, low + self._size[i]
        for k in waiting:
            if self._base[k] < top:
                self._change(k, max(self._low[k], top), top)

    def _lift(self, i: int) -> None:
        self._require_above(i)
        life, size = self._life[i], self._size[i]
        tops = [
            self._low[k] + self._size[k]
            for k in self._near[i]
            if self._at[k] < 0
            and (self._life[k] != life or self._size[k] > size or (self._size[k] == size and k < i))
        ]
        self._change(i, max(self._low[i], min(tops, default=self._capacity + 1)), self._base[i])

    def _queue(self, i: int) -> None:
        before = self._before[i]
        if before < 0 or self._at[before] >= 0:
            raise UnprovedError("no identical buffer before it is unplaced")
        self._change(i, max(self._low[i], self._low[before] + self._size[before]), self._base[i])

    def _full(self, t: int) -> None:
        waiting = [(self._low[k], self._size[k]) for k in self._members[t] if self._at[k] < 0]
        above = 0
        for low, size in sorted(waiting, reverse=True):
            above += size
            if low + above > self._capacity:
                return self._close()
        raise UnprovedError("what is unplaced there may fit")

    def _drop(self, i: int) -> None:
        self._require_above(i)
        top = self._base[i] + self._size[i]
        if any(self._low[k] < top for k in self._near[i] if self._at[k] < 0):
            raise UnprovedError("an unplaced neighbour may keep it from its base")
        self._close()

    def _swap(self, i: int) -> None:
        at, size, life = self._at[i], self._size[i], self._life[i]
        if at < 0 or not any(
            0 <= self._at[k] == at - self._size[k]
            and self._size[k] < size
            and self._life[k] == life
            for k in self._near[i]
        ):
            raise UnprovedError("it lies on no smaller buffer of its moments")
        self._close()

    def _require_above(self, i: int) -> None:
        if self._low[i] <= self._base[i]:
            raise UnprovedError("it may lie at its base")

    def _change(self, i: int, low: int, base: int) -> None:
        self._past.append((i, self._low[i], self._base[i]))
        self._low[i], self._base[i] = low, base

    def _close(self) -> None:
        """End the case at hand, and all that end with it."""
        while self._cases:
            i, rows, above = self._cases.pop()
            while len(self._past) > rows:
                k, self._low[k], self._base[k] = self._past.pop()
            if not above:
                self._at[i] = -1
                self._cases.append((i, rows, True))
                self._change(i, self._low[i] + 1, self._base[i])
                return
        self.done = True
