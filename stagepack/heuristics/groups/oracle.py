"""What groups cost at least: the best way to cut [a, b), for all a, and the proof that it packs.

Idea: grow the group from its end, and know the ranges that slices read on every axis and for every
number of parts (see :mod:`.group_kernels`).  A cut is taken where the bytes alive in every row fit;
whether they can be placed is asked later, for the few groups of a plan, and a cut that cannot be
placed is banned.  Until then costs are optimistic, so that sums of them are bounds.

Cost: O(parts * edges) for ranges and O(cuts * rows) for prices, a group.  Source: ours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.groups import group_kernels as kernels
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
    """The best cut of every group of consecutive operators.

    Parameters
    ----------
    instance : LayerGrouping

    Attributes
    ----------
    cuts : list of Cut
        Ways to cut a group, in the order in which they are tried.
    """

    def __init__(self, instance: LayerGrouping) -> None:
        self.instance = instance
        self.cuts = ways(instance)
        self._net, self._machine = network(instance), machine(instance)
        known = sorted({(axis, cut[at]) for cut in self.cuts for at, axis in enumerate(ON)})
        place = {track: at for at, track in enumerate(known)}
        self._cuts = np.array(
            [[place[axis, cut[at]] for at, axis in enumerate(ON)] for cut in self.cuts],
            dtype=np.int64,
        )
        self._tracks = _tracks(known, self._most_slots())
        self._slots = _slots(len(instance.tensors))
        length = min(instance.n, instance.max_group)
        self._rows = kernels.Rows(
            np.zeros(length, np.int64),
            np.zeros((3, length), np.int64),
            np.zeros((3, length), np.int64),
            np.zeros(3 * length + 2, np.int64),
        )
        self._banned: dict[tuple[int, int], set[int]] = {}

    def _most_slots(self) -> int:
        """Return how many tensors a group may have to do with."""
        edge = self._net.edge
        length = min(self.instance.n, self.instance.max_group)
        widest = int((edge[length:] - edge[:-length]).max()) if length else 0
        return widest + length

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
        cycles, chosen = np.full(b - low, NONE), np.full(b - low, ALONE)
        if self.instance.stands(b - 1):
            cycles[-1] = alone_cycles(self.instance, b - 1)
        if self.instance.alone(b - 1):
            return Ends(low, cycles, chosen)
        kernels.sweep(
            self._net,
            self._machine,
            self._tracks,
            self._slots,
            self._rows,
            self._cuts,
            b,
            low,
            self._bans(low, b),
            eager,
            cycles,
            chosen,
        )
        return Ends(low, cycles, chosen)

    def ban(self, a: int, b: int, cut: int) -> None:
        """Never take a cut for [a, b) again: its buffers cannot be placed."""
        self._banned.setdefault((a, b), set()).add(cut)

    def _bans(self, low: int, b: int) -> Array:
        known = [(a, self._banned[a, b]) for a in range(low, b) if (a, b) in self._banned]
        if not known:
            return np.zeros((0, 0), np.bool_)
        found = np.zeros((b - low, len(self.cuts)), np.bool_)
        for a, which in known:
            found[a - low, list(which)] = True
        return found

    def cut(self, which: int) -> Cut:
        """Return a way to cut."""
        return self.cuts[which]


def _tracks(known: list[tuple[int, int]], slots: int) -> kernels.Tracks:
    count, most = len(known), max(parts for _, parts in known)
    ranges = (count, slots, most)
    return kernels.Tracks(
        np.array([axis for axis, _ in known], np.int64),
        np.array([parts for _, parts in known], np.int64),
        np.zeros(ranges, np.int64),
        np.zeros(ranges, np.int64),
        np.zeros(ranges[:2], np.int64),
        np.zeros(ranges[:2], np.int64),
        np.zeros(ranges[:2], np.bool_),
        np.zeros(count, np.bool_),
    )


def _slots(tensors: int) -> kernels.Slots:
    return kernels.Slots(
        np.full(tensors, -1, np.int64),
        np.zeros(tensors, np.int64),
        np.zeros(1, np.int64),
        np.zeros(tensors, np.int64),
        np.zeros(tensors, np.int64),
    )


def load_kernels() -> None:
    """Compile or load what :class:`Oracle` runs, on a network of one operator."""
    tiny = LayerGrouping.from_arrays(
        [Operator(name="y", kind=OperatorKind.ELEMENTWISE, inputs=("x",), shape=(1, 1, 1, 1))],
        [Source(name="x", shape=(1, 1, 1, 1))],
        chip=GENERIC,
    )
    Oracle(tiny).ends(1)
