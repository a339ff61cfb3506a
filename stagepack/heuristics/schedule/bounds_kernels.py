"""Compiled longest paths and preemptive one-machine schedules for bounds."""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array


@compiled
def topological(first: Array, after: Array, waits: Array, visit: Array) -> bool:  # pragma: no cover
    """Set `visit` to a topological order; False when there is none.  `waits` is used up."""
    n = len(waits)
    write = 0
    for v in range(n):
        if waits[v] == 0:
            visit[write] = v
            write += 1
    read = 0
    while read < write:
        v = visit[read]
        read += 1
        for arc in range(first[v], first[v + 1]):
            then = after[arc]
            waits[then] -= 1
            if waits[then] == 0:
                visit[write] = then
                write += 1
    return write == n


@compiled
def heads(
    first: Array, after: Array, lag: Array, duration: Array, visit: Array, head: Array
) -> None:  # pragma: no cover - compiled
    """Raise head[v] to the longest path to the start of v from whatever has a head > -FAR."""
    for v in visit:
        if head[v] == -FAR:
            continue
        end = head[v] + duration[v]
        for arc in range(first[v], first[v + 1]):
            head[after[arc]] = max(head[after[arc]], end + lag[arc])


@compiled
def tails(
    first: Array, after: Array, lag: Array, duration: Array, visit: Array, tail: Array
) -> None:  # pragma: no cover - compiled
    """Raise tail[v] to the longest path from the end of v to whatever has a tail > -FAR."""
    for at in range(len(visit) - 1, -1, -1):
        v = visit[at]
        for arc in range(first[v], first[v + 1]):
            then = after[arc]
            if tail[then] > -FAR:
                tail[v] = max(tail[v], lag[arc] + duration[then] + tail[then])


@compiled
def one_machine(
    by_head: Array, head: Array, duration: Array, tail: Array
) -> int:  # pragma: no cover - compiled
    """Return the least makespan on one machine, with preemption, of jobs with heads and tails.

    `by_head` are the jobs in the order of their heads (sorting takes long to compile).  Among the
    jobs that are there the one of longest tail runs.  Jobs whose head or tail is -FAR
    do not count; -FAR when none counts.  O(n log n).

    Source: Jackson's preemptive schedule; Carlier 1982, The one-machine sequencing problem.
    """
    heap = np.empty(len(head), dtype=np.int64)  # of the jobs that are there, by tail
    rest = duration.copy()
    size, at, now, latest = 0, 0, -FAR, -FAR
    while True:
        while at < len(by_head) and (head[by_head[at]] == -FAR or tail[by_head[at]] == -FAR):
            at += 1
        if size == 0:
            if at == len(by_head):
                return latest
            now = max(now, head[by_head[at]])
        if at < len(by_head) and head[by_head[at]] <= now:
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
            heap[child] = v
            continue
        top = heap[0]
        run = rest[top]
        if at < len(by_head):
            run = min(run, head[by_head[at]] - now)
        now += run
        rest[top] -= run
        if rest[top] > 0:
            continue
        latest = max(latest, now + tail[top])
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
        heap[parent] = v
