"""Compiled kernels of the dynamic program over ideals.

An *ideal* is a set of blocks that contains all predecessors of its blocks.  Ideals are the leaves
of a search tree that includes or excludes one block after another in topological numbering,
"exclude" first, so that each comes after its subsets.  The *parent* of an ideal is what it is
without its highest, *last* block.  :func:`enumerate_ideals` lists them with their possible next
blocks, and where these lead: adding a block below the last one leads where the parent with that
block and the last one leads: no ideal is looked up, and none is stored as a set.

:func:`sweep` processes the ideals.  From each one that some stages can hold it grows the next
stage, again by including and excluding blocks, so that each larger ideal is visited at most once.
An excluded block stays outside; the traffic of nets between it and the stage is then certain.  A
branch ends when work and certain traffic reach the limit.

Cost: O(possible next blocks) steps and bytes for each ideal, O(nets of a block + ways of devices)
steps for each pair of ideals with a stage under the limit between them.  Source: :mod:`.ideals`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.graph.stage_kernels import (
    TRAFFIC,
    Blocks,
    Cut,
    Rooms,
    Ways,
    join,
    least_price,
    leave,
    price,
    set_least_work,
    shift,
    stay_out,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import inlined, tiered


class Ideals(NamedTuple):
    """The ideals of a graph, with room for more.

    An ideal is only begun where there is room for it, for where the next one would begin, and for n
    blocks that may come next: else :func:`enumerate_ideals` returns `FULL`.
    """

    # int32 (room,): of each ideal; -1 of the empty one, which is ideal 0.
    parent: Array
    last: Array
    # int64 (room + 1,): blocks that may come next are next_block[first[i]:first[i + 1]], rising.
    first: Array
    # int32 (more room,): and the ideals where they lead.
    next_block: Array
    target: Array
    sums: Array  # float64 (rooms, room): weights of the blocks of each ideal
    crossing: Array  # int64 (2, room): traffic between these and the others


# The fields of an enumeration's state, an array of int64:
(
    COUNT,  # ideals so far
    DEPTH,  # of the branch under way: blocks of its ideal
    STEPS,  # elementary ones in the last call
    LINKED,  # ideals, but the first, of which is known where all blocks lead
    TOLD,  # ideals of which the parent knows
) = range(5)
DONE, GO_ON, FULL = range(3)


@inlined
def _position(ideals: Ideals, i: int, v: int) -> int:
    """Return where block v stands among those that may follow ideal i, or the next higher one."""
    low: int = ideals.first[i]
    high: int = ideals.first[i + 1]
    while low < high:
        middle = (low + high) // 2
        if ideals.next_block[middle] < v:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _link(state: Array, budget: int, ideals: Ideals) -> int:
    """Go on writing where blocks lead; return what is left of `budget`.

    Those higher than the last one lead to children, which come first: others are found by them.
    """
    i = state[TOLD]
    while i < state[COUNT] and budget > 0:
        # A child is its parent with a block that is higher than all of it: the only way down the
        # tree.
        ideals.target[_position(ideals, ideals.parent[i], ideals.last[i])] = i
        budget -= 10 + (ideals.first[i + 1] - ideals.first[i]) // 2
        i += 1
    state[TOLD] = i
    if i < state[COUNT]:
        return budget
    i = state[LINKED]
    while i < state[COUNT] and budget > 0:
        parent, last = ideals.parent[i], ideals.last[i]
        above = ideals.first[parent]
        for at in range(ideals.first[i], ideals.first[i + 1]):
            v = ideals.next_block[at]
            if v > last:
                break
            # v may follow the parent, too: both lists rise, so one pass over the parent's finds
            # all.
            while ideals.next_block[above] != v:
                above += 1
            # `last` is higher than all of the parent with v: it leads to a child, which is known.
            beside = ideals.target[above]
            ideals.target[at] = ideals.target[_position(ideals, beside, last)]
            budget -= 10
        budget -= 10
        i += 1
    state[LINKED] = i
    return budget


def _steps_of_listing(state: Array, budget: int, after_first: Array, *rest: object) -> int:
    """Return the most steps of :func:`enumerate_ideals`."""
    del state, rest
    return budget + len(after_first)


@tiered(_steps_of_listing)
def enumerate_ideals(
    state: Array,
    budget: int,
    after_first: Array,
    after: Array,
    missing: Array,
    blocks: Blocks,
    rooms: Rooms,
    cut: Cut,
    rows: Array,
    branch: Array,
    cursor: Array,
    ideals: Ideals,
) -> int:
    """Go on listing ideals, then linking them.

    Returns `DONE`, or `GO_ON` after `budget` elementary steps, or `FULL` without room in `ideals`,
    where the kernel writes.  `state`, int64, see above, is 0 at first: the empty ideal is set up if
    there is none (`COUNT`).  A call ends before an ideal is begun, or between two that are linked.

    `after_first` and `after`, int32, list the blocks to be placed after each; `missing`, int32
    (n,), has how many have to come before each that are not in the ideal of the branch.  `blocks`
    prices stages, `rooms` tells that devices cannot hold an ideal.  `cut` and `rows`, of n + 1
    rows, are those of the ideal of the branch, as if it were a stage.  `branch` and `cursor`, int64
    (n + 1,), are the ideals of the branch, each a block larger than the one before, and which block
    to look at next in each.
    """
    n, whole = len(missing), budget
    if state[COUNT] == 0:
        ideals.parent[0] = ideals.last[0] = -1
        ideals.first[0] = 0
        for v in range(n):
            if missing[v] == 0:
                ideals.next_block[ideals.first[0] + state[STEPS]] = v
                state[STEPS] += 1
        ideals.first[1] = state[STEPS]
        for r in range(len(rooms.limit)):
            ideals.sums[r, 0] = 0
        ideals.crossing[0, 0] = ideals.crossing[1, 0] = 0
        for column in range(rows.shape[1]):
            rows[0, column] = 0
        branch[0], cursor[0], state[COUNT] = 0, state[STEPS] - 1, 1
        state[LINKED] = state[TOLD] = 1
    while state[DEPTH] >= 0:
        depth, count = state[DEPTH], state[COUNT]
        i = branch[depth]
        at = cursor[depth]
        # Nothing higher than the last block is left to include: the branch goes back by one block.
        if at < ideals.first[i] or ideals.next_block[at] < ideals.last[i]:
            v = ideals.last[i]
            if v >= 0:
                for place in range(after_first[v], after_first[v + 1]):
                    missing[after[place]] += 1
                leave(blocks, cut, v)
            state[DEPTH] = depth - 1
            continue
        if count + 1 >= len(ideals.parent) or ideals.first[count] + n >= len(ideals.next_block):
            state[STEPS] = whole - budget
            return FULL
        v = ideals.next_block[at]
        # From the highest block down: "exclude" is numbered before "include".
        cursor[depth] = at - 1
        for column in range(rows.shape[1]):
            rows[depth + 1, column] = rows[depth, column]
        join(blocks, cut, rows, depth + 1, v)
        _add(count, i, v, after_first, after, missing, rooms, rows, depth + 1, ideals)
        branch[depth + 1], cursor[depth + 1] = count, ideals.first[count + 1] - 1
        state[DEPTH], state[COUNT] = depth + 1, count + 1
        budget -= 10 + ideals.first[count + 1] - ideals.first[count]
        budget -= blocks.of_first[v + 1] - blocks.of_first[v]
        if budget <= 0:
            state[STEPS] = whole - budget
            return GO_ON
    budget = _link(state, budget, ideals)
    state[STEPS] = whole - budget
    return DONE if state[LINKED] == state[COUNT] else GO_ON


@inlined
def _add(
    count: int,
    parent: int,
    v: int,
    after_first: Array,
    after: Array,
    missing: Array,
    rooms: Rooms,
    rows: Array,
    depth: int,
    ideals: Ideals,
) -> None:
    """Write ideal number `count`: its parent and block v.

    There is room, as :class:`Ideals` says: for it, and for n blocks that may come next.
    """
    ideals.parent[count], ideals.last[count] = parent, v
    end = ideals.first[count]
    # What may follow the parent may follow this one, too, and what v was the last to hold back.
    for at in range(ideals.first[parent], ideals.first[parent + 1]):
        if ideals.next_block[at] != v:
            ideals.next_block[end] = ideals.next_block[at]
            end += 1
    for place in range(after_first[v], after_first[v + 1]):
        w = after[place]
        missing[w] -= 1
        if missing[w] == 0:
            at = end
            while at > ideals.first[count] and ideals.next_block[at - 1] > w:
                ideals.next_block[at] = ideals.next_block[at - 1]
                at -= 1
            ideals.next_block[at] = w
            end += 1
    ideals.first[count + 1] = end
    for r in range(len(rooms.limit)):
        ideals.sums[r, count] = ideals.sums[r, parent] + rooms.weight[r, v]
    for kind in range(2):
        ideals.crossing[kind, count] = rows[depth, TRAFFIC + kind]


class Cells(NamedTuple):
    """What is known of the ideals, where devices of a state of the automaton can hold one."""

    first: Array  # int64 (ideals + 1,): cells of ideal i are those from first[i] up to first[i + 1]
    state: Array  # int16: of the automaton
    value: Array  # int64: the least bottleneck
    origin: Array  # int32: the ideal to which the last stage was added,
    way: Array  # int32: and the transition that placed it
    # int64 (ideals,): states, as bits modulo 64, of cells of the ideals that have the blocks of
    # this one and higher ones.
    beyond: Array


class Branch(NamedTuple):
    """The stage that is grown, block by block, and the ideal that it is added to.

    Ideals of a branch, and of a path, are each a block larger than the one before: n + 1 at most.
    """

    # int64 (n + 2,): ideals of the branch under way, the block that led to each, from where on in
    # `next_block` blocks were looked at in each, the next to look at, and where to end.
    ideal: Array
    joined: Array
    begin: Array
    cursor: Array
    end: Array
    # int64 (n + 2,): ideals on the way from the empty one to the one that stages are added to.
    path: Array


class Ahead(NamedTuple):
    """What a stage that is added to an ideal can lead to; the kernel writes it."""

    # int64 (states,): cells of the ideal that stages are added to, and their states, which differ.
    live: Array
    reached: Array
    limits: Array  # int64 (3,): of the loads
    least_work: Array  # int64 (columns,): what the next stage has to compute


# The fields of a sweep's state, an array of int64:
(
    IDEAL,  # the one that stages are added to
    BRANCH,  # length of the branch under way; -1: none is
    LIMIT,  # partitions must be better
    FIRST_LIMIT,  # and their first loads at most this
    MOST_DEVICES,  # that a stage is replicated on
    LIVE,  # cells of the ideal that stages are added to
    SWEPT,  # elementary steps in the last call
    PATH,  # blocks of the ideal that are outside
    WANTED,  # states that stages may lead to, as bits
) = range(9)


@inlined
def _look_beyond(count: int, ideals: Ideals, cells: Cells) -> None:
    """Write the states of cells beyond each ideal."""
    for i in range(count):
        cells.beyond[i] = 0
        for cell in range(cells.first[i], cells.first[i + 1]):
            # States modulo 64: two may share a bit, which only looks at more than needed.
            cells.beyond[i] |= np.int64(1) << (cells.state[cell] & 63)
    # A parent has a lower number, so all of its descendants are gathered when it is passed on.
    for i in range(count - 1, 0, -1):
        cells.beyond[ideals.parent[i]] |= cells.beyond[i]


@inlined
def _next_ideal(
    state: Array,
    blocks: Blocks,
    ideals: Ideals,
    cells: Cells,
    cut: Cut,
    branch: Branch,
    live: Array,
) -> None:
    """Let the next ideal be the one that stages are added to, its blocks outside of them."""
    s, length = state[IDEAL] + 1, state[PATH]
    # Back to the parent in the tree; what is on the path is outside of every stage that is added.
    while length > 0 and branch.path[length - 1] != ideals.parent[s]:
        length -= 1
        shift(blocks, cut, ideals.last[branch.path[length]], -1)
    if s > 0:
        shift(blocks, cut, ideals.last[s], 1)
    branch.path[length] = s
    state[IDEAL], state[PATH] = s, length + 1
    state[LIVE] = 0
    # Cells that are no better than the best partition begin none that is.
    for cell in range(cells.first[s], cells.first[s + 1]):
        if cells.value[cell] < state[LIMIT]:
            live[state[LIVE]] = cell
            state[LIVE] += 1


@inlined
def _look_ahead(
    state: Array,
    count: int,
    blocks: Blocks,
    ways: Ways,
    rooms: Rooms,
    ideals: Ideals,
    cells: Cells,
    ahead: Ahead,
) -> None:
    """Write where the next stage can lead, and how much it has to compute for that."""
    live, reached, limits = ahead.live, ahead.reached, ahead.limits
    limits[0], limits[1], limits[2] = state[LIMIT] - 1, state[FIRST_LIMIT], 1
    state[WANTED] = 0
    for index in range(state[LIVE]):
        q = cells.state[live[index]]
        reached[index] = q
        for t in range(ways.first[q], ways.first[q + 1]):
            state[WANTED] |= np.int64(1) << (ways.target[t] & 63)
    s = state[IDEAL]
    set_least_work(
        blocks, ways, rooms, ideals.sums, s, count - 1, reached, state[LIVE], limits,
        ahead.least_work,
    )  # fmt: skip


@inlined
def _place(
    state: Array,
    count: int,
    j: int,
    depth: int,
    blocks: Blocks,
    ways: Ways,
    cells: Cells,
    rows: Array,
    live: Array,
) -> int:
    """End the stage under way at ideal j; return elementary steps."""
    steps = 0
    for index in range(state[LIVE]):
        cell = live[index]
        known, q = cells.value[cell], cells.state[cell]
        for t in range(ways.first[q], ways.first[q + 1]):
            reached = ways.target[t]
            if j == count - 1 and not ways.accepting[reached]:
                continue
            steps += 5
            there = cells.first[j]
            # Cells of an ideal rise by state, and are few.
            while there < cells.first[j + 1] and cells.state[there] < reached:
                there += 1
            if there == cells.first[j + 1] or cells.state[there] != reached:
                continue
            better = min(state[LIMIT], cells.value[there])
            if known >= better:
                continue
            cost = price(
                blocks,
                rows,
                depth,
                ways.device_class[t],
                ways.devices[t],
                ways.stashes[t],
                state[FIRST_LIMIT],
            )
            cost = max(cost, known)
            if cost < better:
                # All stages of s are added before the next ideal: cells of s no longer change,
                # those beyond do.
                cells.value[there], cells.origin[there] = cost, state[IDEAL]
                cells.way[there] = t
                if j == count - 1:
                    state[LIMIT] = cost
    return steps


QUICK = 5
"""Steps of :func:`sweep` that the interpreter takes a microsecond for."""


def _steps_of_sweep(state: Array, budget: int, count: int, *rest: object) -> int:
    """Return the most steps of :func:`sweep`, of which some are as quick as one elsewhere."""
    del rest
    return (budget + (2 * count if state[IDEAL] < 0 else 0)) // QUICK


@tiered(_steps_of_sweep)
def sweep(
    state: Array,
    budget: int,
    count: int,
    blocks: Blocks,
    ways: Ways,
    rooms: Rooms,
    ideals: Ideals,
    cells: Cells,
    cut: Cut,
    rows: Array,
    branch: Branch,
    ahead: Ahead,
) -> bool:
    """Go on adding stages to the `count` ideals; return whether all is done, else call again.

    Shapes and meaning of arrays are said in the classes; `cells`, `branch` and `ahead` are
    written.  `state`, int64 (9,), has its entries named above: `IDEAL` and `BRANCH` are -1 at
    first, when it is written what is beyond ideals: the same call goes on to ideal 0.  A call ends
    after `budget` elementary steps, between two blocks that are looked at; stage and branch are as
    they were when the next one begins.  `cut` is that of the stage under way, `rows`, int64 (n + 1,
    columns), the stage after each block of the branch, with the columns of :mod:`.stage_kernels`.
    """
    whole = budget
    live, least_work, cursor = ahead.live, ahead.least_work, branch.cursor
    begin, end, joined = branch.begin, branch.end, branch.joined
    if state[IDEAL] < 0:
        _look_beyond(count, ideals, cells)
    while True:
        if state[BRANCH] < 0:
            if state[IDEAL] + 1 >= count:
                state[SWEPT] = whole - budget
                return True
            _next_ideal(state, blocks, ideals, cells, cut, branch, live)
            budget -= 10
            if state[LIVE] > 0:
                _look_ahead(state, count, blocks, ways, rooms, ideals, cells, ahead)
                for column in range(rows.shape[1]):
                    rows[0, column] = 0
                s = state[IDEAL]
                branch.ideal[0], joined[0], state[BRANCH] = s, -1, 0
                begin[0] = cursor[0] = ideals.first[s]
                end[0] = ideals.first[s + 1]
        else:
            depth, out = state[BRANCH], -1
            at = cursor[depth]
            least = least_price(
                blocks, rows, depth, least_work, state[MOST_DEVICES], state[FIRST_LIMIT]
            )
            if at < end[depth] and least < state[LIMIT]:
                v, j = ideals.next_block[at], ideals.target[at]
                cursor[depth] = at + 1
                # Neither this ideal nor any that grows from it has a state that is wanted: v stays
                # out.
                if v == ideals.last[j] and cells.beyond[j] & state[WANTED] == 0:
                    out = v
                else:
                    depth += 1
                    for column in range(rows.shape[1]):
                        rows[depth, column] = rows[depth - 1, column]
                    join(blocks, cut, rows, depth, v)
                    if cells.first[j] < cells.first[j + 1]:
                        budget -= _place(state, count, j, depth, blocks, ways, cells, rows, live)
                    state[BRANCH], branch.ideal[depth], joined[depth] = depth, j, v
                    begin[depth] = cursor[depth] = _position(ideals, j, v)
                    end[depth] = ideals.first[j + 1]
            else:
                # Blocks that were excluded at this depth may join again one level up.
                for place in range(begin[depth], at):
                    shift(blocks, cut, ideals.next_block[place], -1)
                depth -= 1
                state[BRANCH] = depth
                if depth >= 0:
                    # The block that was included is excluded next: the other half of the search
                    # tree.
                    out = joined[depth + 1]
                    leave(blocks, cut, out)
            if out >= 0:
                stay_out(blocks, cut, rows, depth, out)
            budget -= 10
        if budget <= 0:
            state[SWEPT] = whole - budget
            return False
