"""Compiled longest paths that are updated incrementally when orders change.

After a change of the order on a device, the starts of its operations are recomputed, and then those
of all operations that depend on them, earliest first, as far as any start changes: in schedules
with gaps some percent of all.  Old values are recorded, so that a change can be undone.

Cost: about O(changes * log(changes)) a move; updates that take far more are abandoned.  Source:
own work; Katriel, Michel and Van Hentenryck 2005, Maintaining longest paths incrementally.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.schedule.timing_kernels import FAR, Graph
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import step

EARLY, LATE = 0, 1
MOVE, HEAPED = 2, 3
"""Places of :attr:`Paths.counts`; the first two are numbers of notes."""

MAYBE, SURELY = 1, 2

LOOK, SETTLE = 6, 2
"""Steps of looking at an operation, and of finding its excess."""


class Paths(NamedTuple):
    """Orders of devices with their longest paths; int64 arrays unless stated otherwise."""

    # (n,), (d + 1,), (n,): what each device runs, and where each operation is in `order`.
    order: Array
    ptr: Array
    position: Array
    # (rows + 1,), (arcs,), (arcs,): what the operations of row r wait for, beside those of the row:
    # into_first[r] .. .
    into_first: Array
    into_row: Array
    into_lag: Array
    # (n,): earliest starts, and latest ones of ends that are no later; of makespans from their end
    # on.
    early: Array
    late: Array
    # (d,): by when each device is done in `late`, without what the objective adds; and what counts
    # beside `early` and `late` of its operations: 0 for makespans.
    ends: Array
    span: Array
    excess: Array  # (n,): by how much longest paths through operations exceed a bound
    total: Array  # (1,): the sum of these
    # (2, n): operations whose `early`, or `late`, has changed in a move, what it was, and the last
    # move in which it has: none is noted twice in a move, so that there is a place for each.
    noted: Array
    before: Array
    stamp: Array
    # (n,): operations to be looked at, a heap, and what it goes by: `inside` lets none in twice.
    heap: Array
    key: Array
    inside: Array  # int8 (n,): 0: not in the heap; `MAYBE` or `SURELY` their starts have changed
    counts: Array  # (4,): notes on `early` and on `late`, moves, operations in the heap
    spans: int  # 1: the objective is the longest span, 0: the makespan
    patience: int  # operations looked at in a move after which it is given up
    work: Array  # (1,): steps of all loops so far


class Limits(NamedTuple):
    """What is not to be exceeded on the way: no more is looked at then."""

    least: int  # the bound of :attr:`Paths.excess`
    # The longest path through an operation, and the sum of all excess.
    longest: int
    total: int


# ---------------------------------------------------------------------- what is to be looked at


@step
def _push(paths: Paths, side: int, v: int, why: int) -> None:
    """Add an operation to the heap, unless it is there."""
    # Twice in the heap would be twice looked at; the key may be old, which costs time, no truth.
    if paths.inside[v] != 0:
        return
    paths.inside[v] = why
    # Latest starts change from the last to the first: the same heap, with keys turned over.
    key = paths.early[v] if side == EARLY else -paths.late[v]
    place = paths.counts[HEAPED]
    paths.counts[HEAPED] += 1
    while place > 0:  # those above move down until there is room for v
        above = (place - 1) >> 1
        if paths.key[above] <= key:
            break
        paths.heap[place], paths.key[place] = paths.heap[above], paths.key[above]
        place = above
    paths.heap[place], paths.key[place] = v, key


@step
def _pop(paths: Paths) -> int:
    """Return the operation of least key, whose place in the heap is another's then."""
    found: int = paths.heap[0]
    paths.counts[HEAPED] -= 1
    size = paths.counts[HEAPED]
    # The last entry looks for a place from the root on.
    v, key, place = paths.heap[size], paths.key[size], 0
    while 2 * place + 1 < size:
        below = 2 * place + 1  # the lesser one of two
        if below + 1 < size and paths.key[below + 1] < paths.key[below]:
            below += 1
        if paths.key[below] >= key:
            break
        paths.heap[place], paths.key[place] = paths.heap[below], paths.key[below]
        place = below
        paths.work[0] += 1
    paths.heap[place], paths.key[place] = v, key
    return found


@step
def _empty(paths: Paths) -> None:
    """Take everything from the heap."""
    for place in range(paths.counts[HEAPED]):
        paths.inside[paths.heap[place]] = 0
    paths.counts[HEAPED] = 0


# ---------------------------------------------------------------------- starts of one operation


@step
def arrival(graph: Graph, paths: Paths, v: int) -> int:
    """Return when all is there that operation `v` waits for beside its device.

    Of all other operations `paths.early` says so.
    """
    row = graph.row[v]
    # Arcs join rows: operation u of the other row is that of the same microbatch.
    found = 0
    for arc in range(paths.into_first[row], paths.into_first[row + 1]):
        before = paths.into_row[arc]
        u = graph.origin[before] + v - graph.origin[row]
        found = max(found, paths.early[u] + graph.duration[before] + paths.into_lag[arc])
    return found


@step
def due(graph: Graph, paths: Paths, v: int) -> int:
    """Return when operation `v` must have ended for what waits for it beside its device.

    Of all other operations `paths.late` says so.
    """
    row = graph.row[v]
    found = FAR
    for arc in range(graph.first[row], graph.first[row + 1]):
        after = graph.after[arc]
        if after != row:  # the next of its row is on the same device, and comes by its order
            u = graph.origin[after] + v - graph.origin[row]
            found = min(found, paths.late[u] - graph.lag[arc])
    return found


@step
def _write(paths: Paths, side: int, v: int, start: int) -> bool:
    """Note what a start was and change it; whether it does change."""
    starts = paths.early if side == EARLY else paths.late
    if starts[v] == start:
        return False
    # Only what was there before the move is noted, however often a start changes in it.
    if paths.stamp[side, v] != paths.counts[MOVE]:
        paths.stamp[side, v] = paths.counts[MOVE]
        place = paths.counts[side]
        paths.noted[side, place], paths.before[side, place] = v, starts[v]
        paths.counts[side] += 1
    starts[v] = start
    return True


@step
def _earliest(graph: Graph, paths: Paths, v: int) -> bool:
    """Find the earliest start of an operation; whether it changes."""
    place, found = paths.position[v], arrival(graph, paths, v)
    if place > paths.ptr[graph.device[graph.row[v]]]:  # not the first on its device
        u = paths.order[place - 1]
        found = max(found, paths.early[u] + graph.duration[graph.row[u]])
    return _write(paths, EARLY, v, found)


@step
def _latest(graph: Graph, paths: Paths, v: int) -> bool:
    """Find the latest start of an operation; whether it changes."""
    row = graph.row[v]
    place, d = paths.position[v], graph.device[row]
    # `ends` keeps what nothing waits for from running for ever late.
    found = min(due(graph, paths, v), paths.ends[d])
    if place + 1 < paths.ptr[d + 1]:
        found = min(found, paths.late[paths.order[place + 1]])
    return _write(paths, LATE, v, found - graph.duration[row])


@step
def _wake(graph: Graph, paths: Paths, side: int, v: int) -> None:
    """Let what waits for an operation be looked at; or, for `LATE`, what it waits for."""
    row = graph.row[v]
    d = graph.device[row]
    beside = paths.position[v] + (1 if side == EARLY else -1)
    if paths.ptr[d] <= beside < paths.ptr[d + 1]:
        _push(paths, side, paths.order[beside], MAYBE)
    # Earliest starts are passed on along arcs, latest ones against them.
    arcs = graph.first if side == EARLY else paths.into_first
    rows = graph.after if side == EARLY else paths.into_row
    for arc in range(arcs[row], arcs[row + 1]):
        if rows[arc] != row:  # its own row is beside it on the device
            _push(paths, side, graph.origin[rows[arc]] + v - graph.origin[row], MAYBE)


# ---------------------------------------------------------------------- all that changes


@step
def begin(paths: Paths) -> None:
    """Begin a move, of which nothing is noted."""
    paths.counts[MOVE] += 1  # older stamps are void: nothing need be cleared
    paths.counts[EARLY] = paths.counts[LATE] = 0


@step
def there(graph: Graph, paths: Paths, side: int, low: int, high: int) -> int:
    """Find starts of order[low:high], whose places have changed; the earliest come first.

    Starts of a `side`, `EARLY` or `LATE`, are written, and noted where they change.  For `LATE` the
    longest path through any operation from place `low` to `high` is returned.
    """
    longest = 0
    paths.work[0] += LOOK * (high - low) // 2
    for turn in range(high - low):
        v = paths.order[low + turn if side == EARLY else high - 1 - turn]
        if side == EARLY:
            _earliest(graph, paths, v)
        else:
            _latest(graph, paths, v)
            length = paths.span[graph.device[graph.row[v]]] + paths.early[v] - paths.late[v]
            longest = max(longest, length)
    return longest


@step
def wake(paths: Paths, side: int, low: int, high: int) -> None:
    """Let all that is beside order[low:high] be looked at, as starts have changed there.

    The heap grows by it; `side` is `EARLY` or `LATE`, `low` and `high` are places in the order.
    """
    for at in range(low, high):
        # Found already, they look unchanged: what waits for them must be looked at nevertheless.
        _push(paths, side, paths.order[at], SURELY)


@step
def _exceed(graph: Graph, paths: Paths, v: int, least: int) -> None:
    """Find by how much the longest path through an operation exceeds a bound."""
    length = paths.span[graph.device[graph.row[v]]] + paths.early[v] - paths.late[v]
    found = max(0, length - least)
    paths.total[0] += found - paths.excess[v]  # integers: the sum stays exact
    paths.excess[v] = found


@step
def follow(graph: Graph, paths: Paths, side: int, limits: Limits) -> bool:
    """Look at all that is to be looked at, and what changes with it.

    Return whether it has an end, and is within limits, which end it early.  Starts of a `side`,
    `EARLY` or `LATE`, are written, and noted where they change; the heap is empty after it.
    """
    looked = 0
    while paths.counts[HEAPED] > 0 and looked < paths.patience:
        v = _pop(paths)
        looked += 1
        changed = _earliest(graph, paths, v) if side == EARLY else _latest(graph, paths, v)
        # Where nothing changes nothing behind it does: that is what keeps updates short.
        changed = changed or paths.inside[v] == SURELY
        paths.inside[v] = 0
        if not changed:
            continue
        length = paths.span[graph.device[graph.row[v]]] + paths.early[v] - paths.late[v]
        if length > limits.longest:  # a path through v alone makes the move no good
            break
        _exceed(graph, paths, v, limits.least)
        if paths.total[0] > limits.total:
            break
        _wake(graph, paths, side, v)
    paths.work[0] += LOOK * looked
    if paths.counts[HEAPED] == 0:
        return True
    # Given up: some starts are not those of the orders, and must be restored.
    _empty(paths)
    return False


@step
def finish(graph: Graph, paths: Paths) -> None:
    """Let latest starts follow earliest ends, for spans."""
    if paths.spans == 0:
        return
    paths.work[0] += len(paths.ends)
    for d in range(len(paths.ends)):
        v = paths.order[paths.ptr[d + 1] - 1]
        end = paths.early[v] + graph.duration[graph.row[v]]
        if end != paths.ends[d]:
            paths.ends[d] = end  # of the last operation; those before follow from it
            _push(paths, LATE, v, MAYBE)


@step
def settle(graph: Graph, paths: Paths, least: int) -> int:
    """Return the value of the objective, once starts are found; find what exceeds a bound.

    Spans are those of the earliest ends with the latest first starts, which is no less than what
    the orders allow.  Spans, excess beyond `least`, the bound, and their sum are written.
    """
    most = 0
    for d in range(len(paths.ends)):
        low, high = paths.ptr[d], paths.ptr[d + 1]
        v = paths.order[high - 1]
        value = paths.early[v] + graph.duration[graph.row[v]] + graph.rest[d]
        if paths.spans == 1:
            value -= paths.late[paths.order[low]]
            # The span counts in the paths of all its operations, changed or not.
            if value != paths.span[d]:
                paths.span[d] = value
                paths.work[0] += SETTLE * (high - low)
                for at in range(low, high):
                    _exceed(graph, paths, paths.order[at], least)
        most = max(most, value)
    for side in range(2):
        for place in range(paths.counts[side]):
            _exceed(graph, paths, paths.noted[side, place], least)
    changes = paths.counts[EARLY] + paths.counts[LATE]
    paths.work[0] += (1 + paths.spans) * len(paths.ends) + SETTLE * changes
    return most


@step
def restore(graph: Graph, paths: Paths) -> None:
    """Have the starts back that were before a move."""
    for side in range(2):
        starts = paths.early if side == EARLY else paths.late
        for place in range(paths.counts[side]):
            starts[paths.noted[side, place]] = paths.before[side, place]
    if paths.spans == 1:
        paths.work[0] += len(paths.ends)
        for d in range(len(paths.ends)):
            v = paths.order[paths.ptr[d + 1] - 1]
            paths.ends[d] = paths.early[v] + graph.duration[graph.row[v]]
