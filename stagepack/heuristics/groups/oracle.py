"""What groups cost at least: the best way to cut each of many sets of operators.

Idea: grow the group from its end, and know the ranges that slices read on every axis and for every
number of parts (see :mod:`.growth_kernels`).  A cut is taken where the bytes alive in every row
fit; whether they can be placed is asked later, for the few groups of a plan, and a cut that cannot
be placed is banned.  Until then costs are optimistic, so that sums of them are bounds.

Cost: O(parts * edges) for ranges and O(cuts * rows) for prices, a group.  Source: ours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from stagepack.heuristics.groups import group_kernels as kernels
from stagepack.heuristics.groups.growth_kernels import Past, Slots, Tracks
from stagepack.heuristics.groups.network import cuts as ways
from stagepack.heuristics.groups.network import machine, network
from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind, Source
from stagepack.instances.groups.check import alone_cycles
from stagepack.instances.groups.chip import GENERIC
from stagepack.instances.groups.regions import Cut
from stagepack.instances.profile import Array

NONE = int(kernels.NONE)
ALONE = -1
"""The cut of an operator that runs from and to global memory."""
ON = (0, 1, 3, 4)
"""The axes that are cut."""


class Ends(NamedTuple):
    """Groups that end at an operator: their cycles and cuts, by first operator from `low` on."""

    low: int
    cycles: Array
    chosen: Array


class Oracle:
    """The best cut of groups, of consecutive operators or any.

    Operators of a group run in the order in which the instance has them.

    Parameters
    ----------
    instance : LayerGrouping
    branching : bool
        Whether :meth:`price` will be asked for groups that part from one another, which takes
        room to go back.

    Attributes
    ----------
    cuts : list of Cut
        Ways to cut a group, in the order in which they are tried.
    """

    def __init__(self, instance: LayerGrouping, *, branching: bool = False) -> None:
        self.instance = instance
        self.cuts = ways(instance)
        self._net, self._machine = network(instance), machine(instance)
        known = sorted({(axis, cut[at]) for cut in self.cuts for at, axis in enumerate(ON)})
        place = {track: at for at, track in enumerate(known)}
        self._cuts = np.array(
            [[place[axis, cut[at]] for at, axis in enumerate(ON)] for cut in self.cuts],
            dtype=np.int64,
        )
        length = min(instance.n, instance.max_group)
        edges = int(np.sort(np.diff(self._net.edge))[-length:].sum()) + length
        self._tracks = _tracks(known, min(edges, len(instance.tensors)))
        self._slots = _slots(length, len(instance.tensors))
        self._past = _past(self._tracks, *((length, edges) if branching else (0, 0)))
        self._rows = kernels.Rows(
            np.zeros(length, np.int64),
            np.zeros((3, length), np.int64),
            np.zeros((3, length), np.int64),
            np.zeros(3 * length + 2, np.int64),
        )
        self._banned: dict[tuple[int, int], set[int]] = {}

    def low(self, b: int) -> int:
        """Return the least a for which [a, b) may be a group."""
        first = max(0, b - self.instance.max_group)
        lone = [at for at in range(first, b - 1) if self.instance.alone(at)]
        if b >= 1 and self.instance.alone(b - 1):
            return b - 1
        return max([first, *(at + 1 for at in lone)])

    def ends(self, b: int, *, eager: bool = False) -> Ends:
        """Return what the groups that end at b cost.

        Parameters
        ----------
        b : int
            One behind the last operator.
        eager : bool
            Whether to take the first cut that fits, in place of the quickest.
        """
        low = self.low(b)
        steps = np.ones((b - low, 4), np.int64)
        steps[:, 0], steps[:, 1], steps[:, 2] = np.arange(b - 1, low - 1, -1), np.arange(b - low), 0
        banned = [self._banned.get((a, b), ()) for a in range(b - 1, low - 1, -1)]
        cycles, chosen = self.price(steps, banned, eager=eager)
        return Ends(low, cycles[::-1], chosen[::-1])

    def price(
        self, steps: Array, banned: Sequence[Collection[int]], *, eager: bool = False
    ) -> tuple[Array, Array]:
        """Return the least cycles of groups, each grown from the one before, and their cuts.

        Parameters
        ----------
        steps : ndarray of int64, shape (groups, 4)
            An operator; its age in the group that it completes, that is, how many come after it;
            whether a later step goes back behind this one; whether the group is asked for.
        banned : sequence of collection of int
            Cuts that are not to be taken, of each group.
        eager : bool
            Whether to take the first cut that fits, in place of the quickest.
        """
        cycles, chosen = np.full(len(steps), NONE), np.full(len(steps), ALONE)
        for at in np.flatnonzero(steps[:, 1] == 0):
            if steps[at, 3] and self.instance.stands(int(steps[at, 0])):
                cycles[at] = alone_cycles(self.instance, int(steps[at, 0]))
        kernels.sweep(
            self._net,
            self._machine,
            self._tracks,
            self._slots,
            self._past,
            self._rows,
            self._cuts,
            steps,
            self._mask(banned),
            eager,
            cycles,
            chosen,
        )
        return cycles, chosen

    def ban(self, a: int, b: int, cut: int) -> None:
        """Never take a cut for [a, b) again: its buffers cannot be placed."""
        self._banned.setdefault((a, b), set()).add(cut)

    def _mask(self, banned: Sequence[Collection[int]]) -> Array:
        if not any(banned):
            return np.zeros((0, 0), np.bool_)
        found = np.zeros((len(banned), len(self.cuts)), np.bool_)
        for at, which in enumerate(banned):
            found[at, list(which)] = True
        return found

    def cut(self, which: int) -> Cut:
        """Return a way to cut."""
        return self.cuts[which]


def _tracks(known: list[tuple[int, int]], slots: int) -> Tracks:
    count, most = len(known), max(parts for _, parts in known)
    ranges = (count, slots, most)
    return Tracks(
        np.array([axis for axis, _ in known], np.int64),
        np.array([parts for _, parts in known], np.int64),
        np.zeros(ranges, np.int64),
        np.zeros(ranges, np.int64),
        np.zeros(ranges[:2], np.int64),
        np.zeros(ranges[:2], np.int64),
        np.zeros(ranges[:2], np.bool_),
        np.zeros(count, np.bool_),
    )


def _slots(rows: int, tensors: int) -> Slots:
    of = np.full(tensors, -1, np.int64)
    met = np.zeros(3, np.int64)
    return Slots(
        np.zeros(rows, np.int64), of, met, *(np.zeros(tensors, np.int64) for _ in range(5))
    )


def _past(tracks: Tracks, rows: int, entries: int) -> Past:
    count, _, most = tracks.start.shape
    return Past(
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        np.zeros((rows, count), np.bool_),
        np.zeros((entries, 5), np.int64),
        np.zeros((entries, count, 2, most), np.int64),
        np.zeros((entries, count, 2), np.int64),
        np.zeros((entries, count), np.bool_),
    )


def load_kernels() -> None:
    """Compile or load what :class:`Oracle` runs, on a network of one operator."""
    tiny = LayerGrouping.from_arrays(
        [Operator(name="y", kind=OperatorKind.ELEMENTWISE, inputs=("x",), shape=(1, 1, 1, 1))],
        [Source(name="x", shape=(1, 1, 1, 1))],
        chip=GENERIC,
    )
    Oracle(tiny).ends(1)
