"""Compiled longest paths to the end, and preemptive one-machine schedules, for bounds.

Cost: O(operations + arcs) for paths, O(k log k) for a machine of k operations.  Source: see
:mod:`.bounds`.
"""

from __future__ import annotations

from stagepack.heuristics.schedule.timing_kernels import FAR, Graph, target
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered


@tiered(entries)
def count_by_source(before: Array, count: Array, low: int, high: int) -> None:
    """Count in count[v] how many of the arcs from `low` up to `high` leave operation v.

    `before`, int64 (arcs,), is the operation that each arc leaves; `count`, int64 (n,), is 0 at
    first.
    """
    for arc in range(low, high):  # sorting by counting: the operations are few beside the arcs
        count[before[arc]] += 1


@tiered(entries)
def by_source(before: Array, place: Array, by: Array, low: int, high: int) -> None:
    """Put the arcs from `low` up to `high` where `place` says for the operation they leave.

    `before`, int64 (arcs,), is the operation that each arc leaves, and `by`, of that shape, gets
    the arcs by it.  `place`, int64 (n,), is where the next arc of each operation goes, and moves
    on: at first it is how many leave the operations before.
    """
    for arc in range(low, high):
        v = before[arc]  # arcs of one operation stay in their order
        by[place[v]] = arc
        place[v] += 1


@tiered(entries)
def tails(
    graph: Graph, first: Array, after: Array, visit: Array, tail: Array, low: int, high: int
) -> None:
    """Raise tail[v] to the longest path from the end of v to whatever has a tail > -FAR.

    `first`, `after` and `visit` are as for :func:`.timing_kernels.heads`.  `tail`, int64 (n,), is
    -FAR where no path leads on.  The parts visit[low:high], by `low` and `high`, come backward,
    each after all that is later in `visit`.
    """
    for at in range(high - 1, low - 1, -1):
        v = visit[at]
        row, best = graph.row[v], tail[v]
        for arc in range(graph.first[row], graph.first[row + 1]):
            then = target(graph, v, row, arc)
            # A path leads on only through what has one itself.
            if then >= 0 and tail[then] > -FAR:
                best = max(best, graph.lag[arc] + graph.duration[graph.after[arc]] + tail[then])
        for arc in range(first[v], first[v + 1]):
            then = after[arc]
            if tail[then] > -FAR:
                best = max(best, graph.duration[graph.row[then]] + tail[then])
        tail[v] = best


@tiered(entries)
def machines(
    first: Array,
    by_head: Array,
    head: Array,
    rest: Array,
    tail: Array,
    heap: Array,
    state: Array,
    most: int,
) -> bool:
    """Schedule jobs with heads and tails on machines, with preemption; True: all are done.

    Among the jobs of a machine that are there the one of longest tail runs.  Jobs whose head or
    tail is -FAR do not count.  A call ends after `most` steps, events and levels of the heap that
    jobs pass, and the next goes on there.  O(events log n), in all O(n log n).

    Source: Jackson's preemptive schedule; Carlier 1982, The one-machine sequencing problem.

    All arrays are int64. by_head[first[e] : first[e + 1]] are the jobs of machine e, by rising
    head: `first` has shape (machines + 1,), `by_head` (n,) (sorting takes long to compile).  `head`
    and `tail`, (n,), are the cycles before and after each, `rest`, (n,), durations at first, then
    what is left of them.  `heap`, (n,), is of the jobs that are there, by tail: each comes once.
    `state`, (6,): the machine, jobs in the heap, jobs looked at, the time, the longest of the least
    makespans, -FAR when no job counts, and the steps of the last call; 0, 0, 0, -FAR, -FAR, 0 at
    first.
    """
    machine, size, at, now, latest = state[0], state[1], state[2], state[3], state[4]
    last, steps = first[machine + 1], 0
    while steps < most:
        steps += 1
        # What lies on no path between both ends takes no time of this machine.
        while at < last and (head[by_head[at]] == -FAR or tail[by_head[at]] == -FAR):
            at += 1
        if size == 0 and at == last:
            machine += 1
            if machine + 1 == len(first):
                state[4], state[5] = latest, steps
                return True
            last, now = first[machine + 1], -FAR
            continue
        if size == 0:  # idle until a job is there
            now = max(now, head[by_head[at]])
        # All that are there must be in the heap before one runs.
        if at < last and head[by_head[at]] <= now:
            v = by_head[at]
            at += 1
            child = size
            size += 1
            while child > 0:
                parent = (child - 1) // 2
                if tail[heap[parent]] >= tail[v]:
                    break
                heap[child] = heap[parent]
                child = parent
                steps += 1
            heap[child] = v
            continue
        top = heap[0]
        run = rest[top]
        if at < last:  # the next one may have a longer tail, and then interrupts
            run = min(run, head[by_head[at]] - now)
        now += run
        rest[top] -= run
        if rest[top] > 0:
            continue
        latest = max(latest, now + tail[top])  # a job ends once, and its tail follows
        size -= 1
        v = heap[size]
        parent = 0
        while True:
            child = 2 * parent + 1
            if child >= size:
                break
            if child + 1 < size and tail[heap[child + 1]] > tail[heap[child]]:
                child += 1
            if tail[heap[child]] <= tail[v]:
                break
            heap[parent] = heap[child]
            parent = child
            steps += 1
        heap[parent] = v
    state[0], state[1], state[2], state[3], state[4] = machine, size, at, now, latest
    state[5] = steps
    return False
