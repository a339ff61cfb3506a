"""The cost of groups: the best cut of each of many sets of operators.

A group is grown from its end, while the ranges that slices read are kept for every axis and every
number of parts (see :mod:`.growth_kernels`).  A cut is feasible if the bytes alive in every row
fit.  Whether its buffers can be placed is tested later, for the few groups of a plan; a cut that
cannot be placed is banned.  Until then costs are optimistic, so that sums of them are lower bounds.

Cost: O(parts * edges) for ranges and O(cuts * rows) for prices, a group.  Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.effort import SHORT, spend
from stagepack.heuristics.groups import group_kernels as kernels
from stagepack.heuristics.groups.growth_kernels import KNOWN, SLOT_COLUMNS, Group, columns
from stagepack.heuristics.groups.least import behind
from stagepack.heuristics.groups.network import cuts as ways
from stagepack.heuristics.groups.network import machine, network
from stagepack.heuristics.groups.network_state import ALONE as STANDS_ALONE
from stagepack.heuristics.groups.network_state import END_EDGE, FIRST_EDGE
from stagepack.heuristics.groups.tuning import TUNING, GroupsTuning, OracleTuning
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.regions import Cut
from stagepack.instances.groups.timesteps import alone_cycles
from stagepack.instances.profile import Array

NONE = int(kernels.NONE)
ALONE = -1
"""The cut of an operator that runs from and to global memory."""
ON = (0, 1, 3, 4)
"""The axes that are cut."""

Members = range | tuple[int, ...]
"""The operators of a group, rising."""


class Ends(NamedTuple):
    """Groups that end at an operator: their cycles and cuts, by first operator from `low` on."""

    low: int
    cycles: Array
    chosen: Array


class Oracle:
    """The best cut of groups, of consecutive operators or any.

    Operators of a group run in the order in which the instance has them.  `branching`:
    :meth:`price` will be asked for groups that part from one another, which takes room to go back.
    A group has `longest` operators at most, where that is less than the instance allows.  `pause`
    is called several times a second; it raises where the run is over.

    `cuts` are ways to cut a group, in the order in which they are tried; `behind`, int64 of shape
    (n + 1,), the least cycles of all operators from each one on, whatever the groups.  `bans` are
    cuts of groups that are not to be taken, by members.
    """

    def __init__(
        self,
        instance: LayerGrouping,
        *,
        branching: bool = False,
        longest: int | None = None,
        pause: Callable[[], None] = lambda: None,
        tuning: GroupsTuning = TUNING,
    ) -> None:
        self.instance, self._pause, self.tuning = instance, pause, tuning
        self.cuts = ways(instance)
        pause()
        self._net, self._machine = network(instance, pause, tuning), machine(instance)
        self.longest = min(instance.n, instance.max_group, longest or instance.n)
        known = self._net.operators
        inputs = np.sort(known[:, END_EDGE] - known[:, FIRST_EDGE])
        # What the operators of a group read and write at most: those that read most, and as many.
        edges = int(inputs[-self.longest :].sum()) + self.longest
        slots = min(edges, len(instance.tensors))
        member, of = np.zeros(self.longest, np.int64), np.full(len(instance.tensors), -1)
        self._room = _Room(member, of, slots, edges if branching else 0, tuning.oracle)
        self._room.part(self.cuts, pause)
        self._rows = kernels.Rows(
            np.zeros((self.longest, 7), np.int64), np.zeros(3 * self.longest + 2, np.int64)
        )
        self.behind = behind(self._net, self._machine)
        lone = np.where(known[:, STANDS_ALONE], np.arange(1, instance.n + 1), 0)
        self._behind = np.maximum.accumulate(np.concatenate(([0], lone)))
        self.bans: dict[Members, frozenset[int]] = {}
        self._lasts: set[int] = set()  # of the groups that have any

    def low(self, b: int) -> int:
        """Return the least a for which [a, b) may be a group."""
        if self._net.operators[b - 1, STANDS_ALONE]:
            return b - 1
        return max(b - self.longest, int(self._behind[b - 1]))

    def ends(self, b: int, *, eager: bool = False) -> Ends:
        """Return what the groups that end before operator `b` cost.

        With `eager` the first cut that fits is taken, in place of the quickest.
        """
        low = self.low(b)
        if self._net.operators[b - 1, STANDS_ALONE]:
            return Ends(low, np.array([self._alone(b - 1)]), np.array([ALONE]))
        steps = np.ones((b - low, 4), np.int64)
        steps[:, 0], steps[:, 1], steps[:, 2] = np.arange(b - 1, low - 1, -1), np.arange(b - low), 0
        groups = range(b - 1, low - 1, -1) if b - 1 in self._lasts else ()
        banned = [self.banned(range(a, b)) for a in groups]
        cycles, chosen = self.price(steps, banned, eager=eager)
        return Ends(low, cycles[::-1], chosen[::-1])

    def price(
        self,
        steps: Array,
        banned: Sequence[Collection[int]],
        *,
        below: Array | None = None,
        eager: bool = False,
    ) -> tuple[Array, Array]:
        """Return the least cycles of groups, each grown from the one before, and their cuts.

        `steps`, int64 (groups, 4), are an operator; its age in the group that it completes, that
        is, how many come after it; whether a later step goes back behind this one; whether the
        group is asked for.  `banned` are the cuts of each group that are not to be taken.  `below`,
        int64 (groups,), are cycles that are of no use, nor are any more: they are returned where no
        cut takes less.  `eager` is as for :meth:`ends`.
        """
        cycles = np.full(len(steps), NONE) if below is None else below.copy()
        chosen = np.full(len(steps), ALONE)
        for at in np.flatnonzero(steps[:, 1] == 0):
            if steps[at, 3]:
                cycles[at] = min(cycles[at], self._alone(int(steps[at, 0])))
        mask, asked, tuning = self._mask(banned), steps[:, 3] > 0, self.tuning.oracle
        for group, floors, first, cuts in self._room.portions():
            place = np.array([0, -1, -1])
            while place[0] < len(steps):
                done = 0
                for most in (min(SHORT, tuning.steps_at_once), tuning.steps_at_once):
                    if place[0] == len(steps):
                        break
                    done += kernels.sweep(
                        self._net,
                        self._machine,
                        group,
                        self._rows,
                        floors,
                        cuts,
                        first,
                        steps,
                        mask,
                        eager,
                        cycles,
                        chosen,
                        place,
                        most - done,
                    )
                spend(tuning.call_price + tuning.step_price * done)
                self._pause()
            if eager and (chosen[asked] != ALONE).all():
                break
        return cycles, chosen

    def _alone(self, at: int) -> int:
        """Return the cycles of an operator that runs by itself; `NONE` where it may not."""
        if not self.instance.stands(at):
            return NONE
        spend(self.tuning.oracle.alone_price)
        return alone_cycles(self.instance, at)

    def again(self, members: Members, *, eager: bool = False) -> tuple[int, int]:
        """Return the least cycles of one group and its cut, after a ban."""
        steps = np.zeros((len(members), 4), np.int64)
        steps[:, 0], steps[:, 1] = members[::-1], np.arange(len(members))
        steps[-1, 3] = 1
        banned = [frozenset[int]()] * (len(members) - 1) + [self.banned(members)]
        cycles, chosen = self.price(steps, banned, eager=eager)
        return int(cycles[-1]), int(chosen[-1])

    def ban(self, members: Members, cut: int) -> None:
        """Never take a cut for a group again: its buffers cannot be placed."""
        self.bans[members] = self.banned(members) | {cut}
        self._lasts.add(members[-1])

    def banned(self, members: Members) -> frozenset[int]:
        """Return the cuts of a group that are not to be taken."""
        return self.bans.get(members, frozenset())

    def _mask(self, banned: Sequence[Collection[int]]) -> Array:
        """Return what is banned, shape (groups, cuts); (0, 0) where nothing is."""
        if not any(banned):
            return np.zeros((0, 0), np.bool_)
        found = np.zeros((len(banned), len(self.cuts)), dtype=np.bool_)
        for at, which in enumerate(banned):
            found[at, list(which)] = True
        return found


class _Portion(NamedTuple):
    """Some of the cuts that follow one another, and a group that knows their tracks."""

    group: Group
    floors: Array
    first: int
    cuts: Array


class _Room:
    """Room for what is known of groups: of so many cuts at a time that it does not grow with them.

    `member` and `of` are as in :class:`.growth_kernels.Group`; a group has so many `slots` of
    tensors, and so many `entries`, slots to remember over all its operators; 0: none.
    """

    def __init__(
        self, member: Array, of: Array, slots: int, entries: int, tuning: OracleTuning
    ) -> None:
        self._member, self._of, self._slots, self._entries = member, of, slots, entries
        self._tuning = tuning
        self._rows = len(member) if entries else 0
        self._flat: list[Array] = []
        self._parted: list[tuple[range, list[tuple[int, int]]]] = []
        self._cuts = self._place = np.zeros((0, 0), dtype=np.int64)
        self._kept: list[_Portion] = []

    def part(self, cuts: Sequence[Cut], pause: Callable[[], None]) -> None:
        """Part all cuts, as many at a time as there is room for, and one at least."""
        flat = np.fromiter(chain.from_iterable(cuts), np.int64, len(ON) * len(cuts))
        self._cuts = flat.reshape(-1, len(ON))
        self._place = np.empty((len(ON), self._cuts.max() + 1), dtype=np.int64)
        pause()
        parted: list[tuple[range, list[tuple[int, int]]]] = []
        known: dict[tuple[int, int], None] = {}
        tuning = self._tuning
        first, width, longest = 0, SLOT_COLUMNS, tuning.numbers // max(self._rows, 1)
        few = tuning.first_cuts if len(cuts) > tuning.many_cuts else len(cuts)
        for at, parts in enumerate(self._cuts.tolist()):
            if at % tuning.cuts_at_once == 0:
                spend(tuning.part_price * min(tuning.cuts_at_once, len(cuts) - at))
                pause()
            new = [track for track in zip(ON, parts, strict=True) if track not in known]
            if not new and at - first <= longest and at != few:
                continue
            width += _width(new)
            full = (self._slots + self._entries) * width > tuning.numbers or at - first > longest
            if known and (full or at == few):
                parted.append((range(first, at), [*known]))
                new = [*zip(ON, parts, strict=True)]
                known, first, width = {}, at, SLOT_COLUMNS + _width(new)
            known |= dict.fromkeys(new)
        parted.append((range(first, len(cuts)), [*known]))
        pause()
        most = SLOT_COLUMNS + max(_width(tracks) for _, tracks in parted)
        sizes = self._slots * most, self._entries * (most + 1)
        self._flat = [np.zeros(size, np.int64) for size in sizes]
        self._parted = parted
        pause()
        self._kept = [self._portion(*parted[0])] if len(parted) == 1 else []
        pause()

    def portions(self) -> Iterable[_Portion]:
        """Return all portions: one that is all is kept, of many each is made anew."""
        return self._kept or (self._portion(*part) for part in self._parted)

    def _portion(self, which: range, known: Sequence[tuple[int, int]]) -> _Portion:
        """Return a group that knows the tracks of some cuts, and these cuts by their tracks."""
        cuts = self._cuts[which.start : which.stop]
        begins = accumulate((columns(parts) for _, parts in known), initial=SLOT_COLUMNS)
        width = SLOT_COLUMNS + _width(known)
        self._of.fill(-1)
        slots, past = (
            flat[: rows * wide].reshape(rows, wide)
            for flat, rows, wide in zip(
                self._flat, (self._slots, self._entries), (width, width + 1), strict=True
            )
        )
        group = Group(
            np.array([(*track, 0, at) for track, at in zip(known, begins, strict=False)], np.int64),
            self._member,
            self._of,
            np.zeros(KNOWN, np.int64),
            slots,
            np.zeros((self._rows, KNOWN + len(known)), np.int64),
            past,
        )
        floors = np.zeros((max(self._rows, 1), len(cuts), 6), np.int64)
        for at, (axis, parts) in enumerate(known):
            self._place[ON.index(axis), parts] = at
        return _Portion(group, floors, which.start, self._place[range(len(ON)), cuts])


def _width(tracks: Iterable[tuple[int, int]]) -> int:
    """Return how many columns of slots tell of some tracks."""
    return sum(columns(parts) for _, parts in tracks)
