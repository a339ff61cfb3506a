"""Compiled longest paths through the operations of a schedule.

Cost: O(n + arcs) a pass.  Source: see :mod:`.timing`.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, entries, step, tiered

FAR = 1 << 62
"""Later than any time, more than any memory."""


class Graph(NamedTuple):
    """Operations and what must come before what; arrays of int64 where nothing else is said."""

    row: Array  # int32 (n,): the row of each operation; see :class:`.operations.Operations`
    # (rows,): cycles, change of memory and device of the operations of each row, and the arcs that
    # enter them: one less for the first, which follows no other of its row.
    duration: Array
    delta: Array
    device: Array
    waits: Array
    # The operations of rows and the arcs between them; see :class:`.operations.Operations`
    origin: Array
    first: Array
    after: Array
    lag: Array
    limit: Array  # (d,): memory of the devices; FAR: no limit
    rest: Array  # (d,): what the objective adds to the last end of each device
    arcs: int  # arcs between operations


@step
def target(graph: Graph, v: int, row: int, arc: int) -> int:
    """Return where an arc of operation `v` leads; -1: nowhere.

    `arc` is one of the `row` of v; that to the next microbatch leads nowhere from the last.
    """
    other = graph.after[arc]
    if other == row:  # rows run in order: the next microbatch follows
        return v + 1 if v + 1 < graph.origin[row + 1] else -1
    then: int = graph.origin[other] + v - graph.origin[row]
    return then


@tiered(entries)
def begin(
    graph: Graph,
    order: Array,
    follower: Array,
    start: Array,
    visit: Array,
    waits: Array,
    low: int,
    high: int,
    write: int,
) -> int:
    """Prepare :func:`advance` for order[low:high], after what comes before; return `write`.

    All arrays are int64 (n,).  `order` is what each device runs, one device after another, and the
    part is from `low` to `high`.  `follower` becomes what the device of v runs after v, -1 after
    its last operation, `start` 0, where :func:`advance` begins, and `waits` the number of
    operations that v waits for.  `visit` gets operations that wait for none from `write` on, 0 at
    first, then what the last call returned: each once at most, here where it waits for none, or in
    :func:`advance` when it no longer does.
    """
    for at in range(low, high):
        v = order[at]
        row = graph.row[v]
        device = graph.device[row]
        # Devices stand one after another in `order`: a change of device ends one.
        last = at + 1 == len(order) or graph.device[graph.row[order[at + 1]]] != device
        follower[v] = -1 if last else order[at + 1]
        start[v] = 0
        waits[v] = graph.waits[row] - (v == graph.origin[row])  # the first follows no other
        if at > 0 and graph.device[graph.row[order[at - 1]]] == device:
            waits[v] += 1
        elif waits[v] == 0:  # whatever waits for nothing comes first on its device
            visit[write] = v
            write += 1
    return write


@tiered(entries)
def advance(
    graph: Graph,
    follower: Array,
    start: Array,
    visit: Array,
    waits: Array,
    read: int,
    write: int,
    stop: int,
) -> int:
    """Follow visit[read:write], and what then waits for nothing, up to visit[stop]; return `write`.

    Where that is no more than could be read the orders wait for one another.  `follower`, `visit`
    and `waits` are as :func:`begin` leaves them; `visit`, whose places are `read`, `write` and
    `stop`, becomes a topological order, and `start`, int64 (n,), is raised to the earliest starts.
    """
    while read < write and read < stop:
        v = visit[read]  # a queue: written behind, read in front
        read += 1
        row = graph.row[v]
        end = start[v] + graph.duration[row]
        then = follower[v]  # on its device, without a lag
        if then >= 0:
            start[then] = max(start[then], end)
            waits[then] -= 1
            if waits[then] == 0:
                visit[write] = then
                write += 1
        for arc in range(graph.first[row], graph.first[row + 1]):
            then = target(graph, v, row, arc)
            if then < 0:
                continue
            # Its start is final once it waits for nothing: all that it waits for has been read.
            start[then] = max(start[then], end + graph.lag[arc])
            waits[then] -= 1
            if waits[then] == 0:
                visit[write] = then
                write += 1
    return write


@step
def forward(
    graph: Graph, order: Array, follower: Array, start: Array, visit: Array, waits: Array
) -> bool:
    """Set `start` to the earliest starts; return False when the orders wait for one another.

    O(n + arcs).  `order`, `follower`, `start`, `visit` and `waits` are as for :func:`begin`; all
    but `order` are set.
    """
    n = len(start)
    write = begin(graph, order, follower, start, visit, waits, 0, n, 0)
    return advance(graph, follower, start, visit, waits, 0, write, n) == n


@tiered(entries)
def backward(
    graph: Graph,
    follower: Array,
    visit: Array,
    deadline: Array,
    start: Array,
    low: int,
    high: int,
) -> None:
    """Set `start` of visit[low:high] to the latest at which device d is done by deadline[d].

    Later parts, `low` to `high`, come first, so that `start`, int64 (n,), is known for what comes
    later.  `follower` and `visit`, int64 (n,), are those of :func:`forward`: what runs next, a
    topological order; `deadline`, int64 (d,), is in cycles.
    """
    for at in range(high - 1, low - 1, -1):
        v = visit[at]
        row = graph.row[v]
        end = deadline[graph.device[row]]  # what comes later in `visit` is known
        then = follower[v]
        if then >= 0:
            end = min(end, start[then])
        for arc in range(graph.first[row], graph.first[row + 1]):
            then = target(graph, v, row, arc)
            if then >= 0:
                end = min(end, start[then] - graph.lag[arc])
        start[v] = end - graph.duration[row]


@tiered(entries)
def peaks(graph: Graph, order: Array, held: Array, peak: Array, low: int, high: int) -> None:
    """Raise peak[d] to the most memory device d holds in order[low:high], after `held`.

    Earlier parts, `low` to `high`, come first.  `order`, int64 (n,), is what each device runs, one
    device after another; `held` and `peak`, int64 (d,), are bytes held so far, and at most so far.
    """
    for at in range(low, high):
        row = graph.row[order[at]]
        d, change = graph.device[row], graph.delta[row]
        held[d] += change
        # What is given back is held until the end, what is taken is from the start.
        peak[d] = max(peak[d], held[d], held[d] - change)


@tiered(entries)
def heads(
    graph: Graph, first: Array, after: Array, visit: Array, head: Array, low: int, high: int
) -> None:
    """Raise head[v] to the longest path to the start of v from whatever has a head > -FAR.

    More arcs, without a lag, lead from operation v to after[first[v] : first[v + 1]]: `first`,
    int64 (n + 1,), and `after`.  `visit`, int32 (n,), has the operations in topological order; the
    part from `low` to `high` comes after all that is before in it.  `head`, int64 (n,), is -FAR
    where no path leads.
    """
    for at in range(low, high):
        v = visit[at]
        if head[v] == -FAR:  # no path leads here, and none on
            continue
        end = _passed_on(graph, v, head)
        for arc in range(first[v], first[v + 1]):
            head[after[arc]] = max(head[after[arc]], end)


@tiered(entries)
def heads_in_turn(
    graph: Graph, follower: Array, visit: Array, head: Array, low: int, high: int
) -> None:
    """Do as :func:`heads`, with arcs from every operation to what its device runs next.

    `follower`, int32 (n,), is what the device of v runs after v; -1: nothing.  `visit`, `head`,
    `low` and `high` are as there.
    """
    for at in range(low, high):
        v = visit[at]
        if head[v] == -FAR:
            continue
        end = _passed_on(graph, v, head)
        then = follower[v]
        if then >= 0:
            head[then] = max(head[then], end)


@step
def _passed_on(graph: Graph, v: int, head: Array) -> int:
    """Raise the heads of what waits for operation v; return when v ends."""
    row = graph.row[v]
    end: int = head[v] + graph.duration[row]
    for arc in range(graph.first[row], graph.first[row + 1]):
        then = target(graph, v, row, arc)
        if then >= 0:
            head[then] = max(head[then], end + graph.lag[arc])
    return end


@compiled
def least_period(length: Array, walk: Array) -> int:
    """Return the greatest mean weight of a cycle, rounded up; in O(d**3).

    Howard would do; the graph has one node a device, so Karp's recursion is short.  Source: Karp
    1978, A characterization of the minimum cycle mean in a digraph.  `length`, int64 (d, d), is
    that of the arc from d to e, -FAR: there is none; `walk`, int64 (d + 1, d), is scratch.
    """
    d = len(length)
    for e in range(d):
        walk[0, e] = 0  # as from a node in front of all, which lies on no cycle
    for steps in range(1, d + 1):
        for e in range(d):
            best = -FAR  # of walks of so many arcs that end in e
            for a in range(d):
                if walk[steps - 1, a] > -FAR and length[a, e] > -FAR:
                    best = max(best, walk[steps - 1, a] + length[a, e])
            walk[steps, e] = best
    greatest = -FAR
    for e in range(d):
        if walk[d, e] == -FAR:
            continue
        # Karp: the walk of d arcs holds a cycle; against the best shorter one it has the mean.
        least = FAR
        for steps in range(d):
            if walk[steps, e] > -FAR:
                rise = walk[d, e] - walk[steps, e]
                least = min(least, -((-rise) // (d - steps)))  # rounded up: spans are whole
        greatest = max(greatest, least)
    return greatest
