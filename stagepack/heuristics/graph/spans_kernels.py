"""Compiled kernels that compute the cost of a stage from the two ideals between which it lies.

The work of the stage between an *inner* and an *outer* ideal is the difference of their work.
Under `sum` the stage pays for the nets that cross one of the two cuts; a net that crosses both is
paid for once if it has a member in between, and otherwise not at all.  A row of numbers and bits
for each ideal is therefore sufficient to compute the cost, without growing the stage block by
block.  If there are many ideals in between but only few that can end a stage, this is much faster.

Cost: O(words of bits) steps for each pair of cells whose states follow one another, and whose work
differs by what a stage may take; O(nets of a block + words) for the row of an ideal.  Source: ours.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.graph.ideals_kernels import (
    IDEAL,
    LIMIT,
    LIVE,
    SWEPT,
    Ahead,
    Cells,
    Ideals,
    find_live,
    look_ahead,
)
from stagepack.heuristics.graph.stage_kernels import FORBIDDEN, Blocks, Rooms, Ways
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

BITS = 63
"""Of a word: none is below 0."""


class Spans(NamedTuple):
    """Ideals that have cells, each a row, and the cells of each state.

    The row after the last is that of the ideal at hand while rows are written.

    Attributes
    ----------
    row : ndarray of int32, shape (cells,)
        Of the ideal of each cell.
    layer_first : ndarray of int64, shape (states + 1,)
        Where the cells of each state begin in `layer`.
    layer : ndarray of int64, shape (classes, cells)
        Cells of state q, by rising work on class c: layer[c, layer_first[q]:layer_first[q + 1]].
    member, crossing : ndarray of int64, shape (rows + 1, words)
        Bits of the blocks of the ideal; of the nets between these and others.
    work, barred : ndarray of int64, shape (classes, rows + 1)
        Ticks of its blocks on a device of each class, and how many must not be there.
    size, stash, traffic : ndarray of int64, shape (rows + 1,)
        Bytes of its blocks; ticks of the nets that cross.
    inside : ndarray of int32, shape (nets,)
        Members of each net in the ideal at hand.
    net_first, net : ndarray of int32
        Members of each net, as CSR.
    """

    row: Array
    layer_first: Array
    layer: Array
    member: Array
    crossing: Array
    work: Array
    barred: Array
    size: Array
    stash: Array
    traffic: Array
    inside: Array
    net_first: Array
    net: Array


# The fields of the state of writing rows, an array of int64:
(
    NEXT,  # the ideal to look at next
    PATH,  # blocks of the one at hand
    ROW,  # rows written
) = range(3)


@step
def _change(blocks: Blocks, spans: Spans, v: int, by: int) -> None:
    """Let block v join the ideal at hand (1), or leave it (-1)."""
    at = len(spans.size) - 1
    spans.member[at, v // BITS] ^= 1 << (v % BITS)
    for c in range(len(spans.work)):
        # Counted apart: added up, they would drown the others and overflow.
        if blocks.work[0, c, v] >= FORBIDDEN:
            spans.barred[c, at] += by
        else:
            spans.work[c, at] += by * blocks.work[0, c, v]
    spans.size[at] += by * blocks.size[v]
    spans.stash[at] += by * blocks.stash[v]
    for place in range(blocks.of_first[v], blocks.of_first[v + 1]):
        t = blocks.of[place]
        # A net crosses where some but not all members are inside; its bit turns only where that
        # changes.
        before = 0 < spans.inside[t] < blocks.members[t]
        spans.inside[t] += by
        if before != (0 < spans.inside[t] < blocks.members[t]):
            spans.crossing[at, t // BITS] ^= 1 << (t % BITS)


@compiled
def write_rows(
    state: Array,
    budget: int,
    count: int,
    blocks: Blocks,
    ideals: Ideals,
    cells: Cells,
    spans: Spans,
    path: Array,
) -> bool:
    """Go on writing the rows of ideals with cells; return whether all is done, else call again.

    Parameters
    ----------
    state : ndarray of int64
        See above; zero at first.  A call ends between two ideals.
    budget, count : int
        Elementary steps after which to return; number of ideals.
    blocks, ideals, cells
        Shapes and meaning of their arrays are said in their classes.
    spans : Spans
        Where the kernel writes: each ideal with cells has a row, and the last row is not one.
    path : ndarray of int64, shape (n + 1,)
        Ideals on the way from the empty one to the one at hand, each a block larger.
    """
    at = len(spans.size) - 1
    while state[NEXT] < count and budget > 0:
        i, length = state[NEXT], state[PATH]
        # From one ideal to the next in the tree's order only a few blocks leave, and one joins.
        while length > 0 and path[length - 1] != ideals.parent[i]:
            length -= 1
            _change(blocks, spans, ideals.last[path[length]], -1)
            budget -= 10
        if i > 0:
            _change(blocks, spans, ideals.last[i], 1)
        path[length] = i
        state[PATH], state[NEXT] = length + 1, i + 1
        budget -= 10
        # Only where a stage may end, or begin, a row is needed.
        if cells.first[i] < cells.first[i + 1]:
            row = state[ROW]
            for word in range(spans.member.shape[1]):
                spans.member[row, word] = spans.member[at, word]
            for word in range(spans.crossing.shape[1]):
                spans.crossing[row, word] = spans.crossing[at, word]
            for c in range(len(spans.work)):
                spans.work[c, row], spans.barred[c, row] = spans.work[c, at], spans.barred[c, at]
            spans.size[row], spans.stash[row] = spans.size[at], spans.stash[at]
            spans.traffic[row] = ideals.crossing[0, i]
            state[ROW] = row + 1
            budget -= spans.member.shape[1] + spans.crossing.shape[1]
    return bool(state[NEXT] == count)


@step
def _where(spans: Spans, c: int, low: int, high: int, work: int) -> int:
    """Return the first place of a layer from which on ideals work at least so much on class c."""
    while low < high:
        middle = (low + high) // 2
        if spans.work[c, spans.row[spans.layer[c, middle]]] < work:
            low = middle + 1
        else:
            high = middle
    return low


@step
def _within(spans: Spans, inner: int, outer: int) -> bool:
    """Return whether the outer ideal has all blocks of the inner one."""
    for word in range(spans.member.shape[1]):
        if spans.member[inner, word] & ~spans.member[outer, word] != 0:
            return False
    return True


@step
def _traffic(blocks: Blocks, spans: Spans, inner: int, outer: int) -> int:
    """Return what the stage between two ideals pays for nets."""
    # Every net over either cut, once for each; those over both are put right below.
    paid: int = spans.traffic[inner] + spans.traffic[outer]
    for word in range(spans.crossing.shape[1]):
        # Over both cuts: paid once if the stage has a member of it, else not at all.
        both = spans.crossing[inner, word] & spans.crossing[outer, word]
        t = word * BITS
        while both != 0:
            if both & 1:
                between = False
                for place in range(spans.net_first[t], spans.net_first[t + 1]):
                    v = spans.net[place]
                    beyond = spans.member[outer, v // BITS] & ~spans.member[inner, v // BITS]
                    between |= (beyond >> (v % BITS)) & 1 == 1
                paid -= blocks.cost[t] if between else 2 * blocks.cost[t]
            both >>= 1
            t += 1
    return paid


@step
def _place_all(
    state: Array,
    count: int,
    cell: int,
    way: int,
    blocks: Blocks,
    ways: Ways,
    cells: Cells,
    spans: Spans,
    least_work: int,
) -> int:
    """Place every stage that a transition allows after a cell; return elementary steps."""
    reached, c, stashes = ways.target[way], ways.device_class[way], ways.stashes[way]
    known, inner = cells.value[cell], spans.row[cell]
    low, high = spans.layer_first[reached], spans.layer_first[reached + 1]
    # Cells of a state rise by work: those whose stage does too little, or too much, are skipped by
    # bisection.
    begin = _where(spans, c, low, high, spans.work[c, inner] + least_work)
    end = _where(spans, c, begin, high, spans.work[c, inner] + state[LIMIT])
    for place in range(begin, end):
        there = spans.layer[c, place]
        outer, better = spans.row[there], min(state[LIMIT], cells.value[there])
        work = spans.work[c, outer] - spans.work[c, inner]
        if known >= better or work >= better or outer <= inner:
            continue
        traffic = 0
        if blocks.pays[c]:
            # A net over only one of the cuts is paid for in any case: the difference is a safe
            # least.
            traffic = abs(spans.traffic[outer] - spans.traffic[inner])  # at least
        held = spans.size[outer] - spans.size[inner]
        held += stashes * (spans.stash[outer] - spans.stash[inner])
        if work + traffic >= better or held > blocks.memory[c]:
            continue
        # Dearer tests last: as many forbidden blocks inside as before, and all of the inner ideal
        # within.
        if spans.barred[c, outer] != spans.barred[c, inner] or not _within(spans, inner, outer):
            continue
        last = there >= cells.first[count - 1]
        if last and not ways.accepting[reached]:
            continue
        if blocks.pays[c]:
            traffic = _traffic(blocks, spans, inner, outer)
        cost = max(work + traffic, known)
        if cost < better:
            cells.value[there], cells.origin[there], cells.way[there] = cost, state[IDEAL], way
            if last:
                state[LIMIT] = cost
    steps: int = end - begin + 10
    return steps


@compiled
def sweep_spans(
    state: Array,
    budget: int,
    count: int,
    blocks: Blocks,
    ways: Ways,
    rooms: Rooms,
    ideals: Ideals,
    cells: Cells,
    spans: Spans,
    ahead: Ahead,
) -> bool:
    """Go on adding stages to ideals; return whether all is done, else call again.

    Parameters
    ----------
    state : ndarray of int64
        That of :func:`.ideals_kernels.sweep`; `IDEAL` is the last one that is done with: a call
        ends between two.
    budget, count : int
        Elementary steps after which to return; number of ideals.
    blocks, ways, rooms, ideals, cells, spans
        Shapes and meaning of their arrays are said in their classes; `cells` changes.
    ahead : Ahead
        Where the kernel writes.
    """
    whole = budget
    while state[IDEAL] + 1 < count and budget > 0:
        state[IDEAL] += 1
        budget -= 10
        # Ideals come after their subsets, so cells of this one are final.
        find_live(state, cells, ahead.live)
        if state[LIVE] == 0:
            continue
        look_ahead(state, count, blocks, ways, rooms, ideals, cells, ahead)
        for index in range(state[LIVE]):
            cell = ahead.live[index]
            q = cells.state[cell]
            for way in range(ways.first[q], ways.first[q + 1]):
                budget -= _place_all(
                    state,
                    count,
                    cell,
                    way,
                    blocks,
                    ways,
                    cells,
                    spans,
                    ahead.least_work[ways.device_class[way]],
                )
    state[SWEPT] = whole - budget
    return bool(state[IDEAL] + 1 == count)
