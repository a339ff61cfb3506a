"""Compiled kernels of pipeline partitioning: which tails of the chain can be placed within limits.

`placed[q, a]` says whether the layers [a, n) can be cut into stages along a path of the
:class:`~stagepack.instances.pipeline.ranges.StageOrder` automaton from state 0 to state q, every
stage within the compute limit C and the transfer limit T.  A stage [a, b) that computes for w
ticks, receives for r and sends for s, with the host's share h, is within the limits of a mode when

====================  ==========================================
BOTTLENECK            w <= C
TRANSFER_BOUNDED      w <= C and r + s + h <= T
SUM                   w + r + s + h <= C
OVERLAP               w <= C, r <= C, s <= C
====================  ==========================================
"""

from __future__ import annotations

from typing import NamedTuple

import numba

from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array

BOTTLENECK, TRANSFER_BOUNDED, SUM, OVERLAP = range(4)


class Chain(NamedTuple):
    """An instance as the kernels see it; int64 arrays, and ints, unless stated otherwise.

    Attributes
    ----------
    source, target, device_class, window : ndarray, shape (transitions,)
        The automaton; transitions into a state come before those out of it.  `window` is the row
        of `reach` or `fits` that holds for the transition.
    accepting : ndarray of bool, shape (states,)
    tabular : bool
        Whether `fits` and `compute` hold the costs; else `reach` and `prefix` do.  The arrays not
        used have one entry.
    reach : ndarray, shape (windows, n)
        Furthest end of a stage that begins at each layer.
    prefix : ndarray, shape (classes, n + 1)
        Running sums of compute.
    fits : ndarray of bool, shape (windows, n + 1, n + 1)
    compute : ndarray, shape (classes, n + 1, n + 1)
    recv, send : ndarray, shape (classes, n + 1)
    host : int
    allowed : ndarray of bool, shape (n + 1,)
        Cuts where stages may begin and end.
    mode : int
        One of the four modes above.
    """

    source: Array
    target: Array
    device_class: Array
    window: Array
    accepting: Array
    tabular: bool
    reach: Array
    prefix: Array
    fits: Array
    compute: Array
    recv: Array
    send: Array
    host: int
    allowed: Array
    mode: int


class Scratch(NamedTuple):
    """Where the kernels write.

    Attributes
    ----------
    placed : ndarray of bool, shape (states, n + 1)
    lowest, highest : ndarray of int64, shape (states,)
        Least and greatest placed position of each state (n + 1 and -1: none).
    queue : ndarray of int64, shape (n + 2,)
    ends, classes : ndarray of int64, shape (states,)
        End and device class of each stage of the partition last read.
    stages : ndarray of int64, shape (1,)
        How many stages it has.
    """

    placed: Array
    lowest: Array
    highest: Array
    queue: Array
    ends: Array
    classes: Array
    stages: Array


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


@compiled
def place_tails(
    begin: int,
    end: int,
    chain: Chain,
    compute_limit: int,
    transfer_limit: int,
    scratch: Scratch,
) -> None:  # pragma: no cover - compiled
    """Extend `placed` along the transitions [begin, end); begin = 0 begins anew.

    O(n) a transition, O(n^2) for tables.
    """
    placed = scratch.placed
    if begin == 0:
        n = placed.shape[1] - 1
        placed[:] = False
        scratch.lowest[:] = n + 1
        scratch.highest[:] = -1
        placed[0, n] = True
        scratch.lowest[0] = scratch.highest[0] = n
    for t in range(begin, end):
        if scratch.highest[chain.source[t]] >= 0:
            if chain.tabular:
                _place_by_table(t, chain, compute_limit, transfer_limit, scratch)
            else:
                _place_by_window(t, chain, compute_limit, transfer_limit, scratch)


@compiled
def _place_by_window(
    t: int, chain: Chain, compute_limit: int, transfer_limit: int, scratch: Scratch
) -> None:  # pragma: no cover - compiled
    """Follow one transition of a chain whose costs add up.

    Both ends of the window of feasible stage ends fall with the first layer, so a monotone queue
    gives the cheapest send (or compute plus send) in it.
    """
    q0, q, c, row = chain.source[t], chain.target[t], chain.device_class[t], chain.window[t]
    prefix, send, recv, queue = chain.prefix, chain.send, chain.recv, scratch.queue
    head, tail = 0, 0
    for a in range(scratch.highest[q0] - 1, -1, -1):
        b = a + 1
        if scratch.placed[q0, b]:
            key = send[c, b]
            if chain.mode == SUM:
                key += prefix[c, b]
            while head < tail:
                last = queue[tail - 1]
                if send[c, last] + (prefix[c, last] if chain.mode == SUM else 0) < key:
                    break
                tail -= 1
            queue[tail] = b
            tail += 1
        elif head == tail and b < scratch.lowest[q0]:
            break
        furthest = prefix[c, a] + compute_limit
        while head < tail and (
            queue[head] > chain.reach[row, a] or prefix[c, queue[head]] > furthest
        ):
            head += 1
        if head == tail or not chain.allowed[a] or scratch.placed[q, a]:
            continue
        b = queue[head]
        work = prefix[c, b] - prefix[c, a]
        if _within(
            chain.mode, work, recv[c, a], send[c, b], chain.host, compute_limit, transfer_limit
        ):
            scratch.placed[q, a] = True
            scratch.lowest[q] = min(scratch.lowest[q], a)
            scratch.highest[q] = max(scratch.highest[q], a)


@compiled
def _place_by_table(
    t: int, chain: Chain, compute_limit: int, transfer_limit: int, scratch: Scratch
) -> None:  # pragma: no cover - compiled
    """Follow one transition of a chain given by tables without structure."""
    q0, q, c, row = chain.source[t], chain.target[t], chain.device_class[t], chain.window[t]
    placed = scratch.placed
    for a in range(scratch.highest[q0]):
        for b in range(a + 1, scratch.highest[q0] + 1):
            if placed[q, a]:
                break
            placed[q, a] = (
                placed[q0, b]
                and chain.fits[row, a, b]
                and _within(
                    chain.mode,
                    chain.compute[c, a, b],
                    chain.recv[c, a],
                    chain.send[c, b],
                    chain.host,
                    compute_limit,
                    transfer_limit,
                )
            )
        if placed[q, a]:
            scratch.lowest[q] = min(scratch.lowest[q], a)
            scratch.highest[q] = max(scratch.highest[q], a)


@compiled
def read_partition(
    chain: Chain, compute_limit: int, transfer_limit: int, scratch: Scratch
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Read a partition off `placed`, from the first layer on, into `ends` and `classes`.

    Returns
    -------
    compute, transfer : int
        The limits that it needs; (-1, -1) when there is none.
    """
    placed, n = scratch.placed, scratch.placed.shape[1] - 1
    state = 0
    for q in range(1, placed.shape[0]):
        if chain.accepting[q] and placed[q, 0]:
            state = q
            break
    if state == 0:
        return -1, -1
    stages, a, most, most_transfer = 0, 0, 0, 0
    while state != 0:
        found = False
        for t in range(len(chain.source)):
            if found or chain.target[t] != state:
                continue
            q0, c, row = chain.source[t], chain.device_class[t], chain.window[t]
            for b in range(a + 1, n + 1):
                if not placed[q0, b]:
                    continue
                if chain.tabular:
                    fits, work = chain.fits[row, a, b], chain.compute[c, a, b]
                else:
                    fits, work = b <= chain.reach[row, a], chain.prefix[c, b] - chain.prefix[c, a]
                r, s = chain.recv[c, a], chain.send[c, b]
                if fits and _within(
                    chain.mode, work, r, s, chain.host, compute_limit, transfer_limit
                ):
                    if chain.mode == SUM:
                        work += r + s + chain.host
                    elif chain.mode == OVERLAP:
                        work = max(work, r, s)
                    most = max(most, work)
                    most_transfer = max(most_transfer, r + s + chain.host)
                    scratch.ends[stages], scratch.classes[stages] = b, c
                    stages += 1
                    state, a, found = q0, b, True
                    break
        if not found:  # cannot be: `placed` was reached by some stage
            return -1, -1
    scratch.stages[0] = stages
    return most, most_transfer


@compiled
def narrow(
    low: int,
    high: int,
    other: int,
    on_transfer: bool,
    probes: int,
    chain: Chain,
    scratch: Scratch,
) -> tuple[int, int]:  # pragma: no cover - compiled
    """Bisect on one limit, the other held at `other`, for at most `probes` steps.

    The least limit that can be met is in [low, high]; returns a shorter such interval.
    """
    while low < high and probes > 0:
        middle = (low + high) // 2
        compute_limit, transfer_limit = (other, middle) if on_transfer else (middle, other)
        place_tails(0, len(chain.source), chain, compute_limit, transfer_limit, scratch)
        compute, transfer = read_partition(chain, compute_limit, transfer_limit, scratch)
        if compute < 0:
            low = middle + 1
        else:
            high = max(low, transfer if on_transfer else compute)
        probes -= 1
    return low, high
