"""Compiled kernels on the rows of a conflict graph; see :mod:`.conflicts`.

Each call does a part of the work, so that the clock can be checked in between.  Cost: as each
says.  Source: see :mod:`.conflicts`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.packing.constructive.greedy_kernels import pop_interval, push_interval
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

ROW = 8
"""Steps that a buffer is worth, beside its neighbours."""


class Graph(NamedTuple):
    """Buffers and whom each conflicts with."""

    ptr: Array  # int64 (n + 1,): where rows begin
    other: Array  # int32 (2 m,): neighbours of i: other[ptr[i] : ptr[i + 1]]
    # int64 (n,): of each buffer.
    size: Array
    alignment: Array


class Cliques(NamedTuple):
    """What a search for a heavy clique writes."""

    # int32 (most neighbours + 1,): who may join the clique at hand, and who has: the first one and
    # neighbours of it, each once, as who joins is no candidate any more.
    candidate: Array
    chosen: Array
    # int32 (n,): who meets the last one chosen: those with the number of the look at hand.
    mark: Array
    within: Array  # int64 (n,): size of the candidates that each candidate meets, its own included
    best: Array  # int32 (most neighbours + 1,): the heaviest clique so far
    state: Array  # int64 (3,): weight and length of the best one, and the number of looks


@compiled
def weigh(graph: Graph, begin: int, around: Array, most: int) -> int:
    """Enter the size of all neighbours of each buffer from `begin` on; return the next one.

    `around`, int64 (n + 3,), is written; the last entries become the size of the heaviest pair, and
    its members.  It stops after `most` steps.
    """
    size, n, i = graph.size, len(graph.size), begin
    while i < n and most > 0:
        total, largest, with_it = 0, 0, i
        for r in range(graph.ptr[i], graph.ptr[i + 1]):
            j = graph.other[r]
            total += size[j]
            if size[j] > largest:
                largest, with_it = size[j], j
        around[i] = total
        # The heaviest pair is a clique of two: a bound before any clique is sought.
        if size[i] + largest > around[n]:
            around[n], around[n + 1], around[n + 2] = size[i] + largest, i, with_it
        most -= ROW + graph.ptr[i + 1] - graph.ptr[i]
        i += 1
    return i


@compiled
def part_sides(graph: Graph, side: Array, queue: Array, state: Array, most: int) -> bool:
    """Part buffers into two sides; return whether none conflicts with one of its own, so far.

    `side`, int8 (n,), is 0 or 1, -1 where not known.  `queue`, int32 (n,), has buffers in the order
    in which they were reached: each once, when it gets its side.  `state`, int64 (3,), is how many
    of the queue are done, how many are in it, and the next buffer to begin with; zero at first.
    Calls end between two buffers, after `most` steps.
    """
    n = len(side)
    while state[0] < n and most > 0:
        if state[0] == state[1]:
            # The next connected part begins with any buffer that was not reached.
            while side[state[2]] >= 0:
                state[2] += 1
            # Parts are independent: either side will do.
            side[state[2]] = 0
            queue[state[1]] = state[2]
            state[1] += 1
        i = queue[state[0]]
        state[0] += 1
        for r in range(graph.ptr[i], graph.ptr[i + 1]):
            j = graph.other[r]
            if side[j] < 0:
                side[j] = 1 - side[i]
                queue[state[1]] = j
                state[1] += 1
            # A circle of odd length.
            elif side[j] == side[i]:
                return False
        most -= ROW + graph.ptr[i + 1] - graph.ptr[i]
    return True


@compiled
def fill(
    order: Array, begin: int, graph: Graph, offsets: Array, heap: tuple[Array, Array], most: int
) -> int:
    """Place the buffers order[begin], .. each at the lowest offset; return where it stopped.

    O(d log d) for a buffer of d neighbours; it stops after `most` steps.  `begin` buffers of
    `order`, int64 (n,), are placed; `offsets`, int64 (n,), are -1 for those not placed, and
    written.  `heap` is two arrays int64 (most neighbours + 1,): one interval for each entry of the
    row of the buffer at hand.
    """
    heap_low, heap_high = heap
    at = begin
    while at < len(order) and most > 0:
        i = order[at]
        size, grain, filled, lowest = graph.size[i], graph.alignment[i], 0, 0
        for r in range(graph.ptr[i], graph.ptr[i + 1]):
            low = offsets[graph.other[r]]
            # Neighbours without a place are in nobody's way yet.
            if low >= 0:
                high = low + graph.size[graph.other[r]]
                filled = push_interval(low, high, filled, heap_low, heap_high)
        # Intervals come from the lowest up: the first gap that is wide enough ends it.
        while filled > 0 and heap_low[0] - lowest < size:
            if heap_high[0] > lowest:
                lowest = (heap_high[0] + grain - 1) // grain * grain
            filled = pop_interval(filled, heap_low, heap_high)
        offsets[i] = lowest
        most -= ROW + graph.ptr[i + 1] - graph.ptr[i]
        at += 1
    return at


@compiled
def dive(
    order: Array,
    left: int,
    graph: Graph,
    offsets: Array,
    floor: Array,
    heap: tuple[Array, Array],
    most: int,
) -> int:
    """Place the buffer with the lowest place, above all placed neighbours; return how many wait.

    Of equal places the first in the `order`, int64 (n,).  `left` buffers wait, all at first; it
    stops after `most` steps.  `offsets`, int64 (n,), are -1 for those, and written; `floor`, int64
    (n,), zeros at first, is above the neighbours of each.  `heap` is (n,) each: positions in the
    order, int64, ascending at first, and by position the place that the heap knows, zeros at first.
    """
    waiting, known = heap
    while left > 0 and most > 0:
        at = waiting[0]
        i = order[at]
        grain = graph.alignment[i]
        low = (floor[i] + grain - 1) // grain * grain
        if low > known[at]:
            # Places only rise: it sinks to where it belongs by now.
            known[at] = low
        else:
            offsets[i] = low
            top = low + graph.size[i]
            for r in range(graph.ptr[i], graph.ptr[i + 1]):
                j = graph.other[r]
                if floor[j] < top:
                    floor[j] = top
            most -= graph.ptr[i + 1] - graph.ptr[i]
            left -= 1
            at = waiting[left]
        k = 0
        while 2 * k + 1 < left:
            child = 2 * k + 1
            one = waiting[child]
            if child + 1 < left:
                other = waiting[child + 1]
                if known[other] < known[one] or (known[other] == known[one] and other < one):
                    child, one = child + 1, other
            if known[at] < known[one] or (known[at] == known[one] and at < one):
                break
            waiting[k] = one
            k = child
        waiting[k] = at
        most -= ROW
    return left


@compiled
def fill_listed(
    pairs: Array,
    size: Array,
    alignment: Array,
    state: Array,
    offsets: Array,
    heap: tuple[Array, Array],
    most: int,
) -> None:
    """Place buffers at the lowest offset, the last one first, straight from the list of conflicts.

    O(d log d) for a buffer that conflicts with d later ones; it stops after `most` steps.  `pairs`,
    int64 (m, 2), are rising, the first buffer of each before the second; `size` and `alignment`,
    int64 (n,), are those of each buffer.  `state`, int64 (2,), is the last pair and the last buffer
    that are not done yet, and changes; `offsets`, int64 (n,), are written.  `heap` is two arrays
    int64 (n,): one interval for each later buffer with which the one at hand conflicts: pairs
    differ.
    """
    heap_low, heap_high = heap
    e, i = state[0], state[1]
    while i >= 0 and most > 0:
        filled, lowest, before, grain = 0, 0, e, alignment[i]
        # Pairs rise by their first buffer: those of i are the last ones that are left.
        while e >= 0 and pairs[e, 0] == i:
            low = offsets[pairs[e, 1]]
            filled = push_interval(low, low + size[pairs[e, 1]], filled, heap_low, heap_high)
            e -= 1
        while filled > 0 and heap_low[0] - lowest < size[i]:
            if heap_high[0] > lowest:
                lowest = (heap_high[0] + grain - 1) // grain * grain
            filled = pop_interval(filled, heap_low, heap_high)
        offsets[i] = lowest
        most -= ROW + before - e
        i -= 1
    state[0], state[1] = e, i


@step
def _clique(i: int, graph: Graph, key: Array, found: Cliques) -> int:
    """Let a clique grow from buffer i by who has the greatest key; return the steps that took.

    `candidate`, `chosen` and `best` have an entry a neighbour of the buffer that has most, and one
    more: members are i and neighbours of it, each once.
    """
    size, state, candidate = graph.size, found.state, found.candidate
    left, rest, length, held = 0, 0, 1, size[i]
    found.chosen[0] = i
    for r in range(graph.ptr[i], graph.ptr[i + 1]):
        candidate[left] = graph.other[r]
        rest += size[candidate[left]]
        left += 1
    steps = ROW + left
    # `rest` bounds what may still join: given up where that is no heavier than the best clique.
    while left > 0 and held + rest > state[0]:
        top = candidate[0]
        for r in range(1, left):
            if key[candidate[r]] > key[top]:
                top = candidate[r]
        held += size[top]
        found.chosen[length] = top
        length += 1
        # A number for each look: marks of those before need not be cleared.
        state[2] += 1
        for r in range(graph.ptr[top], graph.ptr[top + 1]):
            found.mark[graph.other[r]] = state[2]
        steps += 2 * left + graph.ptr[top + 1] - graph.ptr[top]
        kept = rest = 0
        for r in range(left):
            c = candidate[r]
            # Who meets the last one chosen as well stays a candidate.
            if c != top and found.mark[c] == state[2]:
                candidate[kept] = c
                rest += size[c]
                kept += 1
        left = kept
    if held > state[0]:
        state[0], state[1] = held, length
        for r in range(length):
            found.best[r] = found.chosen[r]
    return steps


@step
def _peel(i: int, graph: Graph, found: Cliques, widest: int) -> int:
    """Take neighbours of buffer i away until a clique is left; return the steps that took.

    First those who miss most of the others, less what they hold themselves.  Neighbours of more
    than `widest` neighbours are not looked at: this is not parted into several calls.
    """
    size, state, candidate, within = graph.size, found.state, found.candidate, found.within
    left, held, reach = 0, size[i], ROW
    state[2] += 1
    for r in range(graph.ptr[i], graph.ptr[i + 1]):
        c = candidate[left] = graph.other[r]
        found.mark[c] = state[2]
        held += size[c]
        left += 1
        reach += graph.ptr[c + 1] - graph.ptr[c]
    steps = ROW + left
    if reach + left * left > widest:
        return steps
    for r in range(left):
        c = candidate[r]
        # The one it began with meets all.
        within[c] = size[c] + size[i]
        for e in range(graph.ptr[c], graph.ptr[c + 1]):
            if found.mark[graph.other[e]] == state[2]:
                within[c] += size[graph.other[e]]
    steps += reach
    while held > state[0]:
        worst, most = -1, 0
        for r in range(left):
            c = candidate[r]
            if within[c] < held and (worst < 0 or held - within[c] - size[c] > most):
                worst, most = r, held - within[c] - size[c]
        steps += left
        if worst < 0:
            state[0], state[1] = held, left + 1
            found.best[left] = i
            for r in range(left):
                found.best[r] = candidate[r]
            break
        c = candidate[worst]
        left -= 1
        candidate[worst] = candidate[left]
        found.mark[c] = 0
        held -= size[c]
        for e in range(graph.ptr[c], graph.ptr[c + 1]):
            if found.mark[graph.other[e]] == state[2]:
                within[graph.other[e]] -= size[c]
        steps += graph.ptr[c + 1] - graph.ptr[c]
    return steps


@compiled
def peel_cliques(
    order: Array, begin: int, graph: Graph, around: Array, found: Cliques, widest: int, most: int
) -> int:
    """Peel a clique out of the neighbours of each of order[begin], ..; return where it stopped.

    `order`, `begin`, `graph`, `around`, `found` and `most` are those of :func:`grow_cliques`; a
    look at one takes at most about twice `widest` steps.
    """
    at = begin
    while at < len(order) and most > 0:
        i = order[at]
        most -= 1
        if graph.size[i] + around[i] > found.state[0]:
            most -= _peel(i, graph, found, widest)
        at += 1
    return at


@compiled
def grow_cliques(
    order: Array, begin: int, graph: Graph, around: Array, key: Array, found: Cliques, most: int
) -> int:
    """Let a clique grow from each of order[begin], ..; return where it stopped.

    `begin` entries of `order`, int64, were looked at; it stops after `most` steps.  `around`, int64
    (n + 1,), is that of :func:`weigh`: who with all neighbours is no heavier than the best clique
    is left out.  `key`, int64 of n entries or more, says who joins first; `found` changes.
    """
    at = begin
    while at < len(order) and most > 0:
        i = order[at]
        most -= 1
        # Even with all of its neighbours it would be no heavier.
        if graph.size[i] + around[i] > found.state[0]:
            most -= _clique(i, graph, key, found)
        at += 1
    return at
