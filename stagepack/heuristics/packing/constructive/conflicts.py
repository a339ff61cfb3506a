"""Placements computed from a conflict graph that is too large for a clique cover.

First fit puts each buffer at the lowest offset that its placed neighbours leave.  A dive places the
buffer whose place above all of its placed neighbours is the lowest of all.  A sweep in
descending order of tops is first fit on the inverted placement, in which the old place of each
buffer is free when its turn comes; without alignments the peak therefore never rises (iterated
greedy).  Such sweeps alternate with placements in which buffers that ended high are placed earlier
(squeaky wheel optimisation).  If the conflict graph is bipartite, one side is placed at the bottom,
and no buffer of the other side ends higher than the heaviest pair.  If there is no time to build
neighbour lists, first fit runs once over the list of conflicts itself, from its end, and buffers
that it does not reach are stacked on top.  Cost: O(m log d) a sweep over m conflicts of buffers
with d neighbours, in memory of 8 bytes a conflict.  Source: Culberson and Luo 1996, iterated
greedy; Joslin and Clements 1999, squeaky wheels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import conflicts_kernels as kernels
from stagepack.heuristics.packing.constructive.conflicts_kernels import Cliques, Graph
from stagepack.heuristics.packing.constructive.stack import pile
from stagepack.heuristics.packing.tuning import TUNING, PackingTuning
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.normal_form.intervals import neighbours
from stagepack.instances.profile import Array

KeepGoing = Callable[[], bool]

DIVE = "dive over conflicts"
"""Source of what a dive placed."""


def unsupported(instance: LmemPacking) -> str:
    """Return why no placement comes straight from the conflicts of an instance, or ''."""
    if instance.conflicts is None or not len(instance.conflicts):
        return "there is no conflict graph"
    held = instance.allowed or instance.reserved or instance.colocated or instance.in_place
    if held or instance.memories or instance.related or (instance.fixed >= 0).any():
        return "first fit over a conflict graph supports no fixed or shared offsets and no ranges"
    return ""


def rows(instance: LmemPacking, keep_going: KeepGoing, *, tuning: PackingTuning = TUNING) -> Graph:
    """Return the neighbours of each buffer of a supported instance; O(n + m).

    `keep_going` is asked several times a second, and not heeded: a placement needs them.
    """
    assert instance.conflicts is not None
    effort.spend(tuning.conflicts.entered * 2 * len(instance.conflicts))
    found = neighbours(instance.conflicts, instance.n, keep_going)
    return Graph(*found, np.array(instance.size), np.array(instance.alignment))


def weigh(
    graph: Graph, keep_going: KeepGoing, *, tuning: PackingTuning = TUNING
) -> tuple[Array, int, list[int]]:
    """Return the size of all neighbours of each buffer, and the heaviest pair; O(n + m).

    The pair is its size and its members; a single buffer may be heavier than any pair.
    `keep_going` is asked several times a second, and not heeded.
    """
    n, at = len(graph.size), 0
    around = np.zeros(n + 3, dtype=np.int64)
    while at < n:
        keep_going()
        at = kernels.weigh(graph, at, around, tuning.conflicts.budget)
    effort.spend(tuning.prices.call + tuning.conflicts.weighed * len(graph.other))
    return around[:n], int(around[n]), sorted({*around[n + 1 :].tolist()})


def sides(graph: Graph, keep_going: KeepGoing, *, tuning: PackingTuning = TUNING) -> Array | None:
    """Return an order in which first fit is no higher than the heaviest pair; None if it is not so.

    One side comes before the other, where conflicts part the buffers into two; O(n + m).  Once
    `keep_going` says no, the answer is None.
    """
    n = len(graph.size)
    side, queue = np.full(n, -1, dtype=np.int8), np.empty(n, dtype=np.int32)
    state = np.zeros(3, dtype=np.int64)
    while state[0] < n:
        effort.spend(tuning.prices.call)
        if not keep_going() or not kernels.part_sides(
            graph, side, queue, state, tuning.conflicts.budget
        ):
            return None
    effort.spend(tuning.conflicts.weighed * len(graph.other))
    return np.argsort(side, kind="stable")


def first_fit(
    graph: Graph, order: Array, keep_going: KeepGoing, *, tuning: PackingTuning = TUNING
) -> Array | None:
    """Place each buffer at the lowest offset, in the `order` given; O(n + m log d).

    Once `keep_going`, asked several times a second, says no, the answer is None.
    """
    n, at = len(order), 0
    offsets = np.full(n, -1, dtype=np.int64)
    # An interval for each neighbour of the buffer that has most.
    heap_low, heap_high = np.empty((2, int(np.diff(graph.ptr).max(initial=0)) + 1), dtype=np.int64)
    effort.spend(tuning.prices.call + tuning.conflicts.buffer * n)
    each = tuning.conflicts.placed * tuning.prices.scattered(n)
    while at < n:
        if not keep_going():
            return None
        before = at
        at = kernels.fill(order, at, graph, offsets, (heap_low, heap_high), tuning.conflicts.budget)
        effort.spend(tuning.prices.call + each * _ends(graph, order[before:at]))
    return offsets


def dive(
    graph: Graph, order: Array, keep_going: KeepGoing, *, tuning: PackingTuning = TUNING
) -> Array | None:
    """Place the buffer with the lowest place above its neighbours, again and again; O(m + n log n).

    Of equal places the first in the `order` given; as :func:`first_fit`.
    """
    left = n = len(order)
    offsets, floor, known = np.full(n, -1, dtype=np.int64), *np.zeros((2, n), dtype=np.int64)
    each = tuning.conflicts.weighed * tuning.prices.scattered(n)
    effort.spend(tuning.conflicts.dived * n + each * len(graph.other))
    heap = np.arange(n), known
    while left:
        if not keep_going():
            return None
        left = kernels.dive(order, left, graph, offsets, floor, heap, tuning.conflicts.budget)
    return offsets


def listed_fit(
    instance: LmemPacking, keep_going: KeepGoing, *, tuning: PackingTuning = TUNING
) -> Array | None:
    """Place each buffer at the lowest offset, the last one first, without rows; O(n + m log d).

    Conflicts are listed by their first buffer: when its turn comes, the others have their places.
    Once `keep_going` says no, those not placed go on top of the others; the answer is None where
    these have alignments of no small common multiple.
    """
    pairs, n = instance.conflicts, instance.n
    assert pairs is not None
    # An interval for each later buffer: fewer than n.
    offsets, (heap_low, heap_high) = np.zeros(n, dtype=np.int64), np.empty((2, n), dtype=np.int64)
    state = np.array([len(pairs) - 1, n - 1])
    each = (
        tuning.conflicts.listed * tuning.prices.scattered(n)
        + tuning.conflicts.listed_bit * (len(pairs) // n + 2).bit_length()
    )
    while state[1] >= 0 and keep_going():
        before = int(state.sum())
        kernels.fill_listed(
            pairs,
            instance.size,
            instance.alignment,
            state,
            offsets,
            (heap_low, heap_high),
            tuning.conflicts.budget,
        )
        effort.spend(tuning.prices.call + each * (before - int(state.sum())))
    over = int(state[1]) + 1
    if over:
        peak = int((offsets + instance.size)[over:].max(initial=0))
        above = pile(instance.size[:over], instance.alignment[:over], peak)
        if above is None:
            return None
        offsets[:over] = above
    return offsets


def _ends(graph: Graph, members: Array) -> int:
    """Return the number of conflicts of some buffers, those of two of them twice."""
    return int((graph.ptr[members + 1] - graph.ptr[members]).sum())


def heavy_clique(
    graph: Graph,
    around: Array,
    keep_going: KeepGoing,
    seconds: float = math.inf,
    *,
    tuning: PackingTuning = TUNING,
) -> tuple[int, Array]:
    """Return the weight and the members of the heaviest clique of many.

    They grow greedily, by size, then by who is met, for so long; O(m) in all.  Then those who miss
    most of the others are taken from the neighbours of buffers that hold much for their number, for
    at most so many `seconds`.
    `around`, int64 (n,), is the size of all neighbours of each buffer.  Once `keep_going` says no,
    the heaviest so far is returned.
    """
    n, degree = len(graph.size), np.diff(graph.ptr)
    candidate, chosen, best = np.empty((3, int(degree.max(initial=0)) + 1), dtype=np.int32)
    state, within = np.zeros(3, dtype=np.int64), np.zeros(n, dtype=np.int64)
    found = Cliques(candidate, chosen, np.zeros(n, dtype=np.int32), within, best, state)
    budget, widest = tuning.conflicts.budget, tuning.conflicts.widest
    each = tuning.conflicts.joined * tuning.prices.scattered(n)
    order = np.argsort(-around, kind="stable")
    dense = np.argsort(-(graph.size + around) / (degree + 1), kind="stable")
    for key in (graph.size, around, None):
        at, left = 0, tuning.conflicts.clique_passes * len(graph.other)
        if key is None:
            left = int(min(tuning.conflicts.peeled, seconds / each))
        while at < n and left > 0 and keep_going():
            now = min(left, budget)
            if key is None:
                at = kernels.peel_cliques(dense, at, graph, around, found, widest, now)
            else:
                at = kernels.grow_cliques(order, at, graph, around, key, found, now)
            left -= budget
            effort.spend(tuning.prices.call + each * budget)
    members = np.sort(best[: int(state[1])])
    # Peeling keeps those of no bytes, who may miss each other.
    return int(state[0]), members[graph.size[members] > 0]


def placements(
    graph: Graph,
    order: Array,
    offsets: Array,
    around: Array,
    keep_going: KeepGoing,
    *,
    tuning: PackingTuning = TUNING,
) -> Iterator[tuple[Array, str]]:
    """Yield placements that come of a first one, or of dives, and what made them.

    Classes are placed in the `order`, and `offsets` are first fit in it; `around` is the size of
    all neighbours of each buffer; all int64 (n,).  It ends once `keep_going`, asked several times a
    second, says no.
    """
    size, classes = graph.size, np.zeros(len(order), dtype=np.int64)
    placed = lowest = offsets

    def turned(found: Array) -> Iterator[tuple[Array, str]]:
        """Turn a placement upside down several times."""
        nonlocal lowest
        for _ in range(tuning.conflicts.sweeps):
            tops = np.argsort(-(found + size), kind="stable")
            anew = first_fit(graph, tops, keep_going, tuning=tuning)
            if anew is None:
                return
            found = anew
            yield found, "first fit, upside down"
        if (found + size).max() <= (lowest + size).max():
            lowest = found

    crowded = len(graph.other) >= tuning.conflicts.crowded * len(size)
    for key in (size.astype(float) * np.diff(graph.ptr), around) if crowded else ():
        dived = dive(graph, np.argsort(-key, kind="stable"), keep_going, tuning=tuning)
        if dived is None:
            return
        yield dived, DIVE
        yield from turned(dived)
    while True:
        yield from turned(lowest)
        for _ in range(tuning.conflicts.sweeps):
            tops = placed + size
            classes -= tops > tuning.conflicts.high * tops.max()
            anew = order[np.argsort(classes[order], kind="stable")]
            found = first_fit(graph, anew, keep_going, tuning=tuning)
            if found is None:
                return
            placed = found
            yield placed, "first fit, what was high before the rest"
