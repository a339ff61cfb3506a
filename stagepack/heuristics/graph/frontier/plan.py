"""The steps of a sweep: which fields of the labels exist after each block, and which change.

The blocks are swept in a topological order.  A *net* is live from its first member to its last.  An
*anchor* is live from a block to its last direct successor; redundant edges have none.  After each
step the fields are updated whose remaining members changed, or whose lower bounds did: those of the
anchors from which a remaining block can be reached through remaining blocks.

Cost: for each step, the live nets and anchors with their remaining members and a few blocks
before each of them.  Source: see :mod:`.sweeps`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.graph.frontier.label_state import FIRST, KNOWN, LAST, PRODUCER, Plan
from stagepack.heuristics.graph.frontier.tuning import NarrowOrderTuning
from stagepack.heuristics.graph.tuning import TUNING
from stagepack.instances.profile import Array

Rows = list[list[int]]

WORD_BITS = 62
"""Bits of a word that hold fields; a net's has one more than there are stages."""


@dataclass
class Network:
    """Blocks, their order and their nets as rows."""

    # Direct predecessors and successors of every block, without edges that others imply.
    before: Rows
    after: Rows
    members: Rows  # blocks of every net, its producer first
    cost: list[int]  # ticks of every net

    def mirrored(self) -> Network:
        """Return the same network with all edges turned."""
        return Network(self.after, self.before, self.members, self.cost)


def rows(ptr: Array, flat: Array) -> Rows:
    """Return rows in CSR form as lists."""
    entries, ends = flat.tolist(), ptr.tolist()
    return [entries[a:b] for a, b in pairwise(ends)]


def with_sources(sources: Rows, order: Iterable[int], work: Array) -> Array:
    """Return the `work` of each block and of all that leads to it, O(n * n / 8).

    `order` has every block after its `sources`.
    """
    n = len(work)
    masks, found = [0] * n, np.zeros(n, dtype=np.int64)
    for v in order:
        mask = 1 << v
        for u in sources[v]:
            mask |= masks[u]
        masks[v] = mask
        packed = np.frombuffer(mask.to_bytes(n // 8 + 1, "little"), dtype=np.uint8)
        found[v] = work[np.unpackbits(packed, count=n, bitorder="little").astype(bool)].sum()
    return found


def reduced(before: Rows) -> tuple[Rows, Rows]:
    """Return predecessors and successors without implied edges; blocks are numbered topologically.

    Cost: O(edges * n / 64).
    """
    above: list[int] = []
    kept: Rows = []
    after: Rows = [[] for _ in before]
    for v, sources in enumerate(before):
        implied, direct = 0, []
        for u in sorted(sources, reverse=True):
            if not (implied >> u) & 1:
                direct.append(u)
                after[u].append(v)
                implied |= above[u]
        above.append(implied | sum(1 << u for u in direct))
        kept.append(direct[::-1])
    return kept, after


class _Slots:
    """Numbers that are given out, the least first, and given back."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []

    def take(self) -> int:
        """Return the least number that is free."""
        if self._free:
            return heapq.heappop(self._free)
        self.count += 1
        return self.count - 1

    def give(self, slot: int) -> None:
        """Give a number back."""
        heapq.heappush(self._free, slot)

    def places(self, width: int, first: int) -> tuple[Array, Array, int]:
        """Return word and shift of every slot of so many bits from a word on, and the words."""
        each = WORD_BITS // width
        at = np.arange(max(self.count, 1), dtype=np.int64)
        return first + at // each, at % each * width, -(-self.count // each)


@dataclass
class _Columns:
    """The arrays of a plan while they grow."""

    row_entries: int  # entries that the end of a row counts as
    # Of each name: where its rows end, and their entries.
    ptr: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0]))
    flat: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    work: int = 0  # of rows, and entries in them, so far

    def add(self, name: str, value: int) -> None:
        """Add an entry to the row at hand."""
        self.flat[name].append(value)

    def end(self, name: str) -> None:
        """End a row."""
        row, end = self.ptr[name], len(self.flat[name])
        self.work += self.row_entries + end - row[-1]
        row.append(end)

    def add_row(self, name: str, values: Iterable[int]) -> None:
        """Add entries, and end their row."""
        self.flat[name].extend(values)
        self.end(name)

    def arrays(self, *names: str) -> list[Array]:
        """Return columns without rows."""
        return [np.array(self.flat[name], dtype=np.int64) for name in names]

    def csr(self, name: str, *more: str) -> list[Array]:
        """Return where the rows of a column end, its entries, and those of others of as many."""
        return [np.array(self.ptr[name], dtype=np.int64), *self.arrays(name, *more)]


class _Sweep:
    """A pass over an order that takes down what labels will need; asks `pause` at every step."""

    def __init__(
        self,
        network: Network,
        order: Sequence[int],
        pause: Callable[[], object],
        tuning: NarrowOrderTuning,
    ) -> None:
        n = len(order)
        self.tuning = tuning
        self.network, self.order, self._pause, self._looked = network, order, pause, 0
        self.position = [0] * n
        for i, v in enumerate(order):
            self.position[v] = i
        self.latest = [max((self.position[u] for u in row), default=-1) for row in network.before]
        self.nets_of: Rows = [[] for _ in range(n)]
        for t, members in enumerate(network.members):
            for x in members:
                self.nets_of[x].append(t)
        self.nets, self.anchors = _Slots(), _Slots()
        self.net_slot: dict[int, int] = {}
        self.anchor_slot: dict[int, int] = {}
        self.remaining = [len(row) for row in network.after]
        self.columns = _Columns(tuning.row_entries)
        self.live: list[dict[int, int]] = []
        self.known: dict[tuple[bool, int], tuple[tuple[int, tuple[int, ...]], ...]] = {}

    def bounds(self, x: int) -> tuple[tuple[int, ...], set[int]]:
        """Return the swept blocks that bound a remaining one, and the remaining ones between."""
        found: set[int] = set()
        stack, seen = [x], {x}
        while stack:
            near = self.network.before[stack.pop()]
            self._looked += 1 + len(near)
            for u in near:
                if u in self.anchor_slot:
                    found.add(u)
                elif u not in seen and len(seen) < self.tuning.ahead:
                    seen.add(u)
                    stack.append(u)
        return tuple(sorted(found)), seen - {x}

    def behind(self, x: int, i: int) -> bool:
        """Whether a predecessor of x remains after step i."""
        return self.latest[x] > i

    def known_producer(self, t: int, i: int) -> int:
        """Return the flag that says whether the producer of net t is swept after step i."""
        return KNOWN if self.position[self.network.members[t][0]] <= i else 0

    def cross(self, other: _Sweep) -> None:
        """Take down the edges over every cut, with what the other direction calls them."""
        for i, here in enumerate(self.live):
            j = len(self.order) - 2 - i
            there = other.live[j] if j >= 0 else {}
            for u, slot in here.items():
                self._looked += len(self.network.after[u])
                for x in self.network.after[u]:
                    if x in there:
                        self.columns.add("edge_own", slot)
                        self.columns.add("edge_other", there[x])
                        self.columns.add("edge_low", -1 if self.behind(x, i) else x)
                        self.columns.add("edge_high", -1 if other.behind(u, j) else u)
            self.columns.end("edge_own")
            self._look()

    def _look(self) -> None:
        """Count what was looked at, and pause."""
        tuning = self.tuning
        effort.spend(tuning.look_price * self._looked + tuning.entry_price * self.columns.work)
        self._looked = self.columns.work = 0
        self._pause()

    def step(self, i: int) -> None:
        """Take down step i."""
        v, columns = self.order[i], self.columns
        columns.add_row("pred", [self.anchor_slot[u] for u in self.network.before[v]])
        self._touch(i)
        for u in self.network.before[v]:
            self.remaining[u] -= 1
            if self.remaining[u] == 0:
                slot = self.anchor_slot.pop(u)
                self.known.pop((False, u), None)
                self.anchors.give(slot)
                columns.add("clear", slot)
        columns.end("clear")
        own = -1
        if self.network.after[v]:
            own = self.anchor_slot[v] = self.anchors.take()
        columns.add("own", own)
        self._items(i)
        live = sorted(self.net_slot)
        columns.add_row("net_cost", [self.network.cost[t] for t in live])
        columns.add_row("net_flags", [self.known_producer(t, i) for t in live])
        columns.add_row("net", [self.net_slot[t] for t in live])
        columns.add_row("anchor", self.anchor_slot.values())
        self.live.append(dict(self.anchor_slot))
        self._look()

    def _touch(self, i: int) -> None:
        """Take down the nets of the block of step i."""
        done = []
        for t in self.nets_of[self.order[i]]:
            places = [self.position[x] for x in self.network.members[t]]
            self._looked += len(places)
            flags = PRODUCER if places[0] == i else self.known_producer(t, i)
            if min(places) == i:
                flags |= FIRST
                self.net_slot[t] = self.nets.take()
            if max(places) == i:
                flags |= LAST
                done.append(t)
            self.columns.add("touch", self.net_slot[t])
            self.columns.add("touch_cost", self.network.cost[t])
            self.columns.add("touch_flags", flags)
        self.columns.end("touch")
        for t in done:
            self.nets.give(self.net_slot.pop(t))
            self.known.pop((True, t), None)

    def _items(self, i: int) -> None:
        """Take down the fields whose remaining blocks changed, or what bounds these."""
        bounds: dict[int, tuple[tuple[int, ...], set[int]]] = {}
        live = [(True, t) for t in self.net_slot] + [(False, u) for u in self.anchor_slot]
        for key in live:
            is_net, which = key
            blocks = (self.network.members if is_net else self.network.after)[which]
            rest = [x for x in blocks if self.position[x] > i]
            self._looked += len(blocks) + len(rest)
            for x in rest:
                if x not in bounds:
                    bounds[x] = self.bounds(x)
            # What comes after another one of them is bounded no less.
            every = set(rest)
            terms = tuple((x, bounds[x][0]) for x in rest if bounds[x][1].isdisjoint(every))
            if self.known.get(key) == terms:
                continue
            self.known[key] = terms
            self.columns.add("item", (self.net_slot if is_net else self.anchor_slot)[which])
            self.columns.add("item_cost", self.network.cost[which] if is_net else -1)
            self.columns.add("item_flags", self.known_producer(which, i) if is_net else 0)
            for x, anchors in terms:
                self.columns.add("term", x)
                self.columns.add_row("bound", [self.anchor_slot[u] for u in anchors])
            self.columns.end("term")
        self.columns.end("item")


class Passes:
    """Both passes over a network, of which plans for any number of stages are made.

    `order` is a topological one; `pause` is called at every step, and what it raises ends the pass.
    """

    def __init__(
        self,
        network: Network,
        order: Sequence[int],
        pause: Callable[[], object],
        tuning: NarrowOrderTuning = TUNING.labels.order,
    ) -> None:
        self._along = _Sweep(network, order, pause, tuning)
        self._against = _Sweep(network.mirrored(), order[::-1], pause, tuning)
        for one in (self._along, self._against):
            for i in range(len(order)):
                one.step(i)
        self._along.cross(self._against)
        self._against.cross(self._along)

    def plans(self, stages: int, kinds: int, apart: bool) -> tuple[Plan, Plan]:
        """Return what sweeps along the order, and against it, do.

        `stages` are at most `WORD_BITS` - 1, `kinds` those of load; `apart`: times, what is
        received and what is sent are kinds of their own.
        """
        along = _finished(self._along, stages, kinds, apart)
        return along, _finished(self._against, stages, kinds, apart)


def _finished(pass_: _Sweep, stages: int, kinds: int, apart: bool) -> Plan:
    """Return the arrays of a pass."""
    width = max(1, (stages - 1).bit_length())
    net_word, net_shift, net_words = pass_.nets.places(stages + 1, 0)
    anchor_word, anchor_shift, anchor_words = pass_.anchors.places(width, net_words)
    columns = pass_.columns
    return Plan(
        np.array(pass_.order, dtype=np.int64),
        stages,
        kinds,
        max(1, net_words + anchor_words),
        net_words,
        int(apart),
        net_word,
        net_shift,
        anchor_word,
        anchor_shift,
        (1 << width) - 1,
        *columns.csr("pred"),
        *columns.csr("touch", "touch_cost", "touch_flags"),
        *columns.csr("clear"),
        *columns.arrays("own"),
        *columns.csr("item", "item_cost", "item_flags"),
        *columns.csr("term"),
        *columns.csr("bound"),
        *columns.csr("net", "net_cost", "net_flags"),
        *columns.csr("anchor"),
        *columns.csr("edge_own", "edge_other", "edge_low", "edge_high"),
    )
