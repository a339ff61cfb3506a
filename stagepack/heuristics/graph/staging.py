"""The normal form of the searches: blocks from tail to head, and an automaton of devices.

Cost: O(edges + members of nets), and the states of the automaton (:mod:`.ways`).  Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph import stage_kernels as kernels
from stagepack.heuristics.graph.reduction import hosts, idle
from stagepack.heuristics.graph.rooms import rooms
from stagepack.heuristics.graph.stage_kernels import Blocks, Rooms
from stagepack.heuristics.graph.tuning import TUNING, GraphTuning
from stagepack.heuristics.graph.ways import Automaton
from stagepack.instances.arrays import distinct
from stagepack.instances.graph.compact import Compact
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array

MODES = {
    Objective.SUM: kernels.SUM,
    Objective.OVERLAP: kernels.OVERLAP,
    Objective.REPLICATED: kernels.REPLICATED,
    Objective.FORWARD_BACKWARD: kernels.FORWARD_BACKWARD,
    Objective.MEMORY: kernels.MEMORY,
}


@dataclass(frozen=True, eq=False)
class Found:
    """A partition that a search found."""

    # What it is worth: the sum of the two, which are the greatest loads of the backward and the
    # forward pass where these count apart; otherwise `first` is 0.
    value: int
    first: int
    stage_of: Array  # int32 (n,): stage of each block as the searches number them, from the head
    ways: tuple[int, ...]  # the transition that placed each stage

    @property
    def whole(self) -> int:
        """What it is worth."""
        return self.value + self.first


@dataclass(frozen=True, eq=False)
class Staging:
    """Blocks from the tail to the head, and what devices can follow one another."""

    compact: Compact
    host: Array  # see :mod:`.reduction`
    sequence: Array | None  # the class of each stage, where the order of devices is fixed
    # Blocks of no time with at most so many bytes count as if they had none: what is then
    # impossible is impossible, but not all that is possible is.
    light: int = 0
    tuning: GraphTuning = TUNING  # what steers the searches that work on this

    @classmethod
    def of(
        cls,
        compact: Compact,
        *,
        sequence: Array | None = None,
        light: int = 0,
        tuning: GraphTuning = TUNING,
    ) -> Staging:
        """Leave out what changes nothing.

        `sequence` is the class of each stage, where the order of devices is free but searches keep
        to one; `light` is as in :class:`Staging`.
        """
        if sequence is None and len(compact.class_count) > 1:
            sequence = compact.sequence  # of devices that are alike any order will do
        return cls(compact, hosts(compact, light), sequence, light, tuning)

    @cached_property
    def kept(self) -> Array:
        """Blocks of `compact` that remain, rising; the searches number them from the last one."""
        return np.flatnonzero(self.host == np.arange(len(self.host)))

    @property
    def n(self) -> int:
        """Number of blocks that remain."""
        return len(self.kept)

    @cached_property
    def mode(self) -> int:
        """What a stage is worth, as the kernels know it."""
        return MODES[self.compact.objective]

    @cached_property
    def number(self) -> Array:
        """Number of each block of `compact`, or of the one that it follows, from the tail."""
        number = np.empty(len(self.host), dtype=np.int32)
        number[self.kept] = np.arange(self.n - 1, -1, -1, dtype=np.int32)
        return number[self.host]

    @cached_property
    def after(self) -> tuple[Array, Array]:
        """Blocks to be placed directly after each, which come before it in the graph, as CSR."""
        compact = self.compact
        if compact.contiguous:
            owner = np.repeat(np.arange(compact.blocks), np.diff(compact.before_ptr))
            block, before = self.number[owner], self.number[compact.before]
            return _lists(block[block != before], before[block != before], self.n)
        # Any order will do; one along the nets is a good one.
        first, members = self.nets
        producer = np.repeat(self.producer, np.diff(first))
        later = members > producer
        return _lists(producer[later], members[later], self.n)

    @cached_property
    def missing(self) -> Array:
        """Number of blocks to be placed directly before each."""
        return np.bincount(self.after[1], minlength=self.n).astype(np.int32)

    @cached_property
    def _members(self) -> tuple[Array, Array]:
        """Nets and blocks that are a member: the producer first, the others rising, each once."""
        compact = self.compact
        sizes = np.diff(compact.net_ptr)
        net = np.repeat(np.arange(compact.nets), sizes)
        member = self.number[compact.net]
        producer = np.repeat(member[compact.net_ptr[:-1]], sizes)
        key = distinct((net * 2 + (member != producer)) * self.n + member)
        return key // (2 * self.n), key % self.n

    @cached_property
    def _joining(self) -> tuple[Array, Array, Array]:
        """Nets that join several blocks, and their members as CSR, the producer first."""
        compact, (net, member) = self.compact, self._members
        joins = np.bincount(net, minlength=compact.nets) > 1
        net, member = net[joins[net]], member[joins[net]]
        chosen = np.flatnonzero(joins)
        sizes = np.bincount(net, minlength=compact.nets)[chosen]
        first = np.concatenate(([0], np.cumsum(sizes)))
        return chosen, first.astype(np.int32), member.astype(np.int32)

    @property
    def nets(self) -> tuple[Array, Array]:
        """Members of each net as CSR, the producer first."""
        _, first, members = self._joining
        return first, members

    @cached_property
    def producer(self) -> Array:
        """The block that sends each net."""
        first, members = self.nets
        return members[first[:-1]]

    @cached_property
    def _of(self) -> tuple[Array, Array]:
        """Nets of each block as CSR."""
        first, members = self.nets
        which = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
        return _lists(members, which, self.n)

    @cached_property
    def blocks(self) -> Blocks:
        """What the kernels know of blocks and nets."""
        compact, kept = self.compact, self.kept[::-1]
        chosen, first, _ = self._joining
        of_first, of = self._of
        apart = self.mode == kernels.FORWARD_BACKWARD
        kind = compact.net_pass[chosen] if apart else np.zeros(len(chosen), dtype=np.int8)
        light = idle(compact, self.light)[kept]
        return Blocks(
            mode=self.mode,
            work=np.ascontiguousarray(compact.time[:, :, kept]),
            size=np.where(light, 0, compact.size[kept]),
            stash=np.where(light, 0, compact.stash[kept]),
            parameters=compact.parameters[kept],
            of_first=of_first,
            of=of,
            members=np.diff(first).astype(np.int32),
            producer=self.producer,
            cost=compact.net_cost[chosen],
            kind=kind.astype(np.int8),
            pays=compact.class_pays,
            memory=compact.class_memory,
            sync=float(compact.sync),
        )

    @cached_property
    def automaton(self) -> Automaton:
        """Which devices can follow one another."""
        return Automaton.of(self.compact, self.sequence)

    @cached_property
    def rooms(self) -> Rooms:
        """How much devices can hold together."""
        return rooms(self.blocks, self.automaton.used, self.compact.class_count)

    def prepare(self, pause: Callable[[], object]) -> None:
        """Make what all searches need, count it as work, and call `pause` between its parts."""
        size = self.compact.blocks + len(self.compact.net)
        effort.spend(self.tuning.staging_price * size)
        lists = ("number", "after", "missing", "_members", "_joining", "_of")
        for part in (*lists, "blocks", "automaton", "rooms"):
            getattr(self, part)
            pause()

    @property
    def columns(self) -> int:
        """Of a row of the kernels."""
        return kernels.WORK + self.compact.passes * len(self.compact.class_count)

    @property
    def most_devices(self) -> int:
        """On how many devices a stage is replicated at most."""
        return int(self.automaton.ways.devices.max())

    # ------------------------------------------------------------------ what was found

    def found(self, value: int, placed: list[tuple[Array, int]]) -> Found:
        """Return the partition of stages, from the head, each with the transition that placed it.

        `value` is what it is worth; the load of the backward pass alone, where the two count
        apart.  `placed` has the blocks and the transition of each stage.
        """
        stage_of = np.empty(self.n, dtype=np.int32)
        for stage, (blocks, _) in enumerate(placed):
            stage_of[blocks] = stage
        first = 0
        if self.mode == kernels.FORWARD_BACKWARD:
            first = self._first_load(stage_of, [way for _, way in placed])
        return Found(value, first, stage_of, tuple(way for _, way in placed))

    def _first_load(self, stage_of: Array, placed: list[int]) -> int:
        """Return the largest load of the forward pass."""
        blocks, ways = self.blocks, self.automaton.ways
        load = np.zeros(len(placed), dtype=np.int64)
        classes = ways.device_class[placed]
        np.add.at(load, stage_of, blocks.work[0, classes[stage_of], np.arange(self.n)])
        first, members = self.nets
        net = np.repeat(np.arange(len(blocks.cost)), np.diff(first))
        net, stage = np.divmod(np.unique(net * len(placed) + stage_of[members]), len(placed))
        cut = np.bincount(net, minlength=len(blocks.cost)) > 1
        pays = (cut & (blocks.kind == 0))[net] & blocks.pays[classes[stage]]
        np.add.at(load, stage[pays], blocks.cost[net[pays]])
        effort.spend(self.tuning.load_price * len(members))
        return int(load.max())

    def solution(self, found: Found) -> GraphSolution:
        """Return a partition as a solution of the instance."""
        compact, ways, used = self.compact, self.automaton.ways, self.automaton.used
        ways_placed = list(found.ways)
        classes = ways.device_class[ways_placed]
        place = np.arange(len(ways_placed))
        if self.sequence is not None:
            classes = self.sequence
            place = compact.devices - used[ways.target[ways_placed]].sum(axis=1)
        stage_of = place[found.stage_of[self.number]]
        replicas = ways.devices[ways_placed].tolist() if self.replicated else ()
        return compact.assignment(stage_of, classes.tolist(), replicas)

    @cached_property
    def replicated(self) -> bool:
        """Whether a stage may run on several devices."""
        return self.mode == kernels.REPLICATED


def _lists(owner: Array, entry: Array, n: int) -> tuple[Array, Array]:
    """Return the entries of each of n owners, rising and each once, as CSR."""
    width = int(entry.max(initial=0)) + 1
    keys = owner.astype(np.int64)
    keys *= width
    keys += entry
    keys = distinct(keys)
    first = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(np.bincount(keys // width, minlength=n), out=first[1:])
    keys %= width
    return first, keys.astype(np.int32)
