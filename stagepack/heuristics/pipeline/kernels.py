"""Compiled kernels of pipeline partitioning: which tails of the chain can be placed within limits.

`placed[q, a]` says whether the layers [a, n) can be cut into stages along a path of the
:class:`~stagepack.instances.pipeline.ranges.StageOrder` automaton from state 0 to state q, every
stage within the compute limit and the transfer limit.  A stage [a, b) of a device class with
weight w, receive r, send s and host share h is within the limits C and T of a mode when

====================  ==========================================
BOTTLENECK            w (P[b] - P[a]) <= C
TRANSFER_BOUNDED      the same, and r[a] + s[b] + h <= T
SUM                   w (P[b] - P[a]) + r[a] + s[b] + h <= C
OVERLAP               w (P[b] - P[a]) <= C, r[a] <= C, s[b] <= C
====================  ==========================================
"""

from __future__ import annotations

import numba

from stagepack.instances.profile import Array

BOTTLENECK, TRANSFER_BOUNDED, SUM, OVERLAP = range(4)


@numba.njit(inline="always")
def _within(
    mode: int, work: int, recv: int, send: int, host: int, compute_limit: int, transfer_limit: int
) -> bool:  # pragma: no cover - compiled
    """Return whether a stage of these costs is within the limits of the mode."""
    if mode == SUM:
        return work + recv + send + host <= compute_limit
    if work > compute_limit:
        return False
    if mode == TRANSFER_BOUNDED:
        return recv + send + host <= transfer_limit
    return mode == BOTTLENECK or (recv <= compute_limit and send <= compute_limit)


@numba.njit(cache=True, nogil=True)
def place_tails(
    begin: int,
    end: int,
    source: Array,
    target: Array,
    device_class: Array,
    window: Array,
    reach: Array,
    prefix: Array,
    recv: Array,
    send: Array,
    host: int,
    allowed: Array,
    mode: int,
    compute_limit: int,
    transfer_limit: int,
    placed: Array,
    lowest: Array,
    highest: Array,
    queue: Array,
) -> None:  # pragma: no cover - compiled
    """Extend `placed` along the transitions [begin, end); O(n) a transition.

    Both ends of the window of feasible stage ends fall with the first layer, so a monotone queue
    gives the cheapest send (or compute plus send) in it.

    Parameters
    ----------
    begin, end : int
        Transitions to follow; those that lead to a state come before those that leave it.  0
        begins anew.
    source, target, device_class, window : ndarray of int64, shape (transitions,)
        `window` is the row of `reach` that holds for the transition.
    reach : ndarray of int64, shape (windows, n)
    prefix, recv, send : ndarray of int64, shape (classes, n + 1)
    host, mode, compute_limit, transfer_limit : int
    allowed : ndarray of bool, shape (n + 1,)
    placed : ndarray of bool, shape (states, n + 1)
        Extended in place.
    lowest, highest : ndarray of int64, shape (states,)
        Least and greatest placed position of each state (n + 1 and -1: none); kept in step.
    queue : ndarray of int64, shape (n + 2,)
        Scratch.
    """
    if begin == 0:
        n = placed.shape[1] - 1
        placed[:] = False
        lowest[:] = n + 1
        highest[:] = -1
        placed[0, n] = True
        lowest[0] = highest[0] = n
    for t in range(begin, end):
        q0, q, c, row = source[t], target[t], device_class[t], window[t]
        head, tail = 0, 0
        for a in range(highest[q0] - 1, -1, -1):
            b = a + 1
            if placed[q0, b]:
                key = send[c, b]
                if mode == SUM:
                    key += prefix[c, b]
                while head < tail:
                    last = queue[tail - 1]
                    if send[c, last] + (prefix[c, last] if mode == SUM else 0) < key:
                        break
                    tail -= 1
                queue[tail] = b
                tail += 1
            elif head == tail and b < lowest[q0]:
                break
            furthest = prefix[c, a] + compute_limit
            while head < tail and (
                queue[head] > reach[row, a] or prefix[c, queue[head]] > furthest
            ):
                head += 1
            if head == tail or not allowed[a] or placed[q, a]:
                continue
            b = queue[head]
            work = prefix[c, b] - prefix[c, a]
            if _within(mode, work, recv[c, a], send[c, b], host, compute_limit, transfer_limit):
                placed[q, a] = True
                lowest[q] = min(lowest[q], a)
                highest[q] = max(highest[q], a)


@numba.njit(cache=True, nogil=True)
def place_tails_tabular(
    begin: int,
    end: int,
    source: Array,
    target: Array,
    device_class: Array,
    window: Array,
    fits: Array,
    compute: Array,
    recv: Array,
    send: Array,
    host: int,
    mode: int,
    compute_limit: int,
    transfer_limit: int,
    placed: Array,
) -> None:  # pragma: no cover - compiled
    """Extend `placed` like :func:`place_tails`, for tables without structure; O(n^2) a transition.

    Parameters
    ----------
    fits : ndarray of bool, shape (windows, n + 1, n + 1)
    compute : ndarray of int64, shape (classes, n + 1, n + 1)
    """
    n = placed.shape[1] - 1
    if begin == 0:
        placed[:] = False
        placed[0, n] = True
    for t in range(begin, end):
        q0, q, c, row = source[t], target[t], device_class[t], window[t]
        for a in range(n):
            for b in range(a + 1, n + 1):
                if placed[q, a]:
                    break
                placed[q, a] = (
                    placed[q0, b]
                    and fits[row, a, b]
                    and _within(
                        mode,
                        compute[c, a, b],
                        recv[c, a],
                        send[c, b],
                        host,
                        compute_limit,
                        transfer_limit,
                    )
                )


@numba.njit(cache=True, nogil=True)
def trace_back(
    state: int,
    source: Array,
    target: Array,
    device_class: Array,
    window: Array,
    tabular: bool,
    reach: Array,
    prefix: Array,
    fits: Array,
    compute: Array,
    recv: Array,
    send: Array,
    host: int,
    mode: int,
    compute_limit: int,
    transfer_limit: int,
    placed: Array,
    ends: Array,
    classes: Array,
) -> tuple[int, int, int]:  # pragma: no cover - compiled
    """Read a partition off `placed`, from the first layer on.

    Parameters
    ----------
    state : int
        Where `placed[state, 0]` holds.
    tabular : bool
        Whether `fits` and `compute` hold the costs; else `reach` and `prefix` do.
    ends, classes : ndarray of int64, shape (states,)
        Filled with the end and the device class of each stage.

    Returns
    -------
    stages, compute, transfer : int
        Number of stages, and the limits that they need (see :meth:`.Prober.probe`).
    """
    n = placed.shape[1] - 1
    stages, a, most, most_transfer = 0, 0, 0, 0
    while state != 0:
        found = False
        for t in range(len(source)):
            if found or target[t] != state:
                continue
            q0, c, row = source[t], device_class[t], window[t]
            for b in range(a + 1, n + 1):
                if not placed[q0, b] or not (fits[row, a, b] if tabular else b <= reach[row, a]):
                    continue
                work = compute[c, a, b] if tabular else prefix[c, b] - prefix[c, a]
                r, s = recv[c, a], send[c, b]
                if _within(mode, work, r, s, host, compute_limit, transfer_limit):
                    if mode == SUM:
                        work += r + s + host
                    elif mode == OVERLAP:
                        work = max(work, r, s)
                    most = max(most, work)
                    most_transfer = max(most_transfer, r + s + host)
                    ends[stages], classes[stages] = b, c
                    stages += 1
                    state, a, found = q0, b, True
                    break
        if not found:
            return 0, 0, 0
    return stages, most, most_transfer
