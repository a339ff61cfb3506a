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
    weight: Array,
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
        Transitions to follow; those that lead to a state come before those that leave it.
    source, target, device_class, window : ndarray of int64, shape (transitions,)
        `window` is the row of `reach` that holds for the transition.
    reach : ndarray of int64, shape (windows, n)
    prefix : ndarray of int64, shape (n + 1,)
    weight : ndarray of int64, shape (classes,)
    recv, send : ndarray of int64, shape (classes, n + 1)
    host, mode, compute_limit, transfer_limit : int
    allowed : ndarray of bool, shape (n + 1,)
    placed : ndarray of bool, shape (states, n + 1)
        Extended in place.
    lowest, highest : ndarray of int64, shape (states,)
        Least and greatest placed position of each state (n + 1 and -1: none); kept in step.
    queue : ndarray of int64, shape (n + 2,)
        Scratch.
    """
    for t in range(begin, end):
        q0, q, c, row = source[t], target[t], device_class[t], window[t]
        if highest[q0] < 0:
            continue
        w = weight[c]
        slack = compute_limit // w
        head, tail = 0, 0
        for a in range(highest[q0] - 1, -1, -1):
            b = a + 1
            if placed[q0, b]:
                if mode == SUM:
                    key = w * prefix[b] + send[c, b]
                    while head < tail and (
                        w * prefix[queue[tail - 1]] + send[c, queue[tail - 1]] >= key
                    ):
                        tail -= 1
                else:
                    key = send[c, b]
                    while head < tail and send[c, queue[tail - 1]] >= key:
                        tail -= 1
                queue[tail] = b
                tail += 1
            elif head == tail and b < lowest[q0]:
                break
            furthest = prefix[a] + slack
            while head < tail and (queue[head] > reach[row, a] or prefix[queue[head]] > furthest):
                head += 1
            if head == tail or not allowed[a] or placed[q, a]:
                continue
            b = queue[head]
            if mode == BOTTLENECK:
                fits = True
            elif mode == TRANSFER_BOUNDED:
                fits = recv[c, a] + send[c, b] + host <= transfer_limit
            elif mode == SUM:
                cost = w * (prefix[b] - prefix[a]) + recv[c, a] + send[c, b] + host
                fits = cost <= compute_limit
            else:
                fits = recv[c, a] <= compute_limit and send[c, b] <= compute_limit
            if fits:
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
    for t in range(begin, end):
        q0, q, c, row = source[t], target[t], device_class[t], window[t]
        for a in range(n):
            for b in range(a + 1, n + 1):
                if placed[q, a]:
                    break
                if not placed[q0, b] or not fits[row, a, b]:
                    continue
                work = compute[c, a, b]
                if mode == SUM:
                    work += recv[c, a] + send[c, b] + host
                if work > compute_limit:
                    continue
                if mode == TRANSFER_BOUNDED:
                    if recv[c, a] + send[c, b] + host > transfer_limit:
                        continue
                elif mode == OVERLAP and (recv[c, a] > compute_limit or send[c, b] > compute_limit):
                    continue
                placed[q, a] = True
