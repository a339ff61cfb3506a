"""Compiled kernels of the memory of a group's phases, for one policy a layer.

The twin of the instance's liveness, for all groups at once: what is live at each moment is summed
with one difference array a phase, dropped products being computed again as late as possible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array

NONE, STASH, KEEP, RECOMPUTE, RETAIN = range(5)
STORED, RELOADED, KEPT, AGAIN, FIRST_PEAK, LAST_PEAK, REPEATED = range(7)


class Layers(NamedTuple):
    """Figures of one step; int64 arrays.

    Attributes
    ----------
    nbytes : ndarray, shape (n + 1,)
        Bytes of x_0 ... x_n.
    tape, temporary, forward : ndarray, shape (n,)
    reads_from, reads : ndarray
        Layer l reads the tensors reads[reads_from[l]:reads_from[l + 1]].
    readers_from, readers : ndarray
        Tensor t is read by the layers readers[readers_from[t]:readers_from[t + 1]], rising.
    """

    nbytes: Array
    tape: Array
    temporary: Array
    forward: Array
    reads_from: Array
    reads: Array
    readers_from: Array
    readers: Array


@compiled
def recomputations(
    layers: Layers, a: int, b: int, policy: Array
) -> Array:  # pragma: no cover - compiled
    """Return before whose backward pass each layer of [a, b) is computed again; -1: never.

    As late as possible: before the first backward pass that needs what was dropped.  A layer whose
    output is retained is computed again for its tape, before its own.
    """
    trigger = np.full(b - a, -1, np.int64)
    stack = np.empty(2 * len(layers.reads) + 2, np.int64)
    for layer in range(b - 1, a - 1, -1):
        high = 0
        for k in range(layers.reads_from[layer], layers.reads_from[layer + 1]):
            maker = layers.reads[k] - 1
            retained = maker >= a and policy[maker - a] == RETAIN
            if layers.nbytes[maker + 1] > 0 and not retained:
                stack[high] = maker
                high += 1
        if layers.tape[layer] > 0 or policy[layer - a] == RETAIN:
            stack[high] = layer
            high += 1
        while high > 0:
            high -= 1
            dropped = stack[high]
            if dropped < a or trigger[dropped - a] >= 0:
                continue
            if policy[dropped - a] != RECOMPUTE and policy[dropped - a] != RETAIN:
                continue
            trigger[dropped - a] = layer
            for k in range(layers.reads_from[dropped], layers.reads_from[dropped + 1]):
                maker = layers.reads[k] - 1
                retained = maker >= a and policy[maker - a] == RETAIN
                if layers.nbytes[maker + 1] > 0 and not retained:
                    stack[high] = maker
                    high += 1
    return trigger


@compiled
def touched(layers: Layers, a: int, b: int) -> Array:  # pragma: no cover - compiled
    """Return the tensors that the layers [a, b) read or write, each once; O(reads log(readers))."""
    most = layers.reads_from[b] - layers.reads_from[a]
    found = np.empty(most + b - a, np.int64)
    count = 0
    for layer in range(a, b):
        for k in range(layers.reads_from[layer], layers.reads_from[layer + 1]):
            t = layers.reads[k]
            if t > a:
                continue
            # Its first reader within the group enters it.
            low, high = layers.readers_from[t], layers.readers_from[t + 1]
            while low < high:
                middle = (low + high) // 2
                if layers.readers[middle] < a:
                    low = middle + 1
                else:
                    high = middle
            if layers.readers[low] == layer:
                found[count] = t
                count += 1
    for t in range(a + 1, b + 1):
        found[count] = t
        count += 1
    return found[:count]


@compiled
def examine(
    layers: Layers, a: int, b: int, training: bool, policy: Array
) -> Array:  # pragma: no cover - compiled
    """Return what the policies of the layers [a, b) cost.

    Parameters
    ----------
    policy : ndarray of int64, shape (b - a,)
        NONE in inference.

    Returns
    -------
    ndarray of int64, shape (7,)
        Bytes stashed in a step, and those of them to load again; bytes kept in a step by a group
        of two phases; cycles of layers computed again; the most bytes live at any moment of the
        first phase and of the last one (base excluded); how many layers are computed again.
        O(layers and readers of the group).
    """
    n = len(layers.tape)
    m = b - a
    together = training and b == n
    found = np.zeros(7, np.int64)
    trigger = np.full(m, -1, np.int64)
    if training:
        trigger = recomputations(layers, a, b, policy)
    for i in range(m):
        layer = a + i
        outside = layers.readers_from[layer + 2] > layers.readers_from[layer + 1] and (
            layers.readers[layers.readers_from[layer + 2] - 1] >= b
        )
        written = layers.nbytes[layer + 1] if layer + 1 < b else 0
        if policy[i] == STASH:
            found[STORED] += layers.tape[layer] + (0 if outside else written)
            found[RELOADED] += layers.tape[layer] + written
        elif policy[i] == KEEP and not together:
            found[KEPT] += layers.tape[layer] + written
        if trigger[i] >= 0:
            found[REPEATED] += 1
            found[AGAIN] += layers.forward[layer]
    tensors = touched(layers, a, b)
    parts = 1 if together or not training else 2
    for part in range(parts):
        runs_forward = part == 0
        runs_backward = training and part == parts - 1
        # Moments: where each layer runs, -1 for not at all.
        forward = np.full(m, -1, np.int64)
        again = np.full(m, -1, np.int64)
        backward = np.full(m, -1, np.int64)
        at_moment = np.empty(3 * m, np.int64)
        moments = 0
        if runs_forward:
            for i in range(m):
                forward[i] = moments
                at_moment[moments] = a + i
                moments += 1
        if runs_backward:
            for i in range(m - 1, -1, -1):
                for j in range(m if found[REPEATED] else 0):
                    if trigger[j] == a + i:
                        again[j] = moments
                        at_moment[moments] = a + j
                        moments += 1
                backward[i] = moments
                at_moment[moments] = a + i
                moments += 1
        final = moments - 1
        change = np.zeros(moments + 1, np.int64)
        for t in tensors:
            low, high = layers.readers_from[t], layers.readers_from[t + 1]
            size = layers.nbytes[t]
            inside = 0
            most = -1  # last use
            ahead = -1  # last use before the layer runs again, or before the backward part
            back = -1  # first use of the backward part
            begun = moments  # first backward pass that reads it
            writer = t - 1 - a
            limit = m
            if writer >= 0 and again[writer] >= 0:
                limit = again[writer]
            for k in range(low, high):
                v = layers.readers[k] - a
                if v < 0 or v >= m:
                    continue
                inside += 1
                for at in (forward[v], again[v], backward[v]):
                    if at < 0:
                        continue
                    most = max(most, at)
                    if at < limit:
                        ahead = max(ahead, at)
                    elif at >= m and (back < 0 or at < back):
                        back = at
                if backward[v] >= 0:
                    begun = min(begun, backward[v])
            outside = high > low and layers.readers[high - 1] >= b
            if t <= a:
                if inside:
                    change[0] += size
                    change[most + 1] -= size
            else:
                kept = policy[writer]
                needed = inside > 0
                first = forward[writer]
                if first >= 0:
                    if needed and kept == KEEP and training:
                        if together:
                            change[first] += size
                            change[most + 1] -= size
                    elif not runs_backward and (outside or (needed and kept == STASH)):
                        change[first] += size
                        change[final + 1] -= size
                    elif needed and kept == STASH:
                        change[first] += size
                        change[max(first, ahead) + 1] -= size
                        if back >= 0:
                            change[back] += size
                            change[most + 1] -= size
                    else:
                        change[first] += size
                        until = ahead if again[writer] >= 0 else most
                        change[max(first, until) + 1] -= size
                elif needed and kept == STASH:
                    change[0] += size
                    change[most + 1] -= size
                if again[writer] >= 0:
                    change[again[writer]] += size
                    change[max(again[writer], most) + 1] -= size
            if runs_backward and t > 0:
                loaded = outside
                if inside or (t > a and loaded):
                    start = 0 if loaded else begun
                    end = final if t <= a else backward[writer]
                    change[start] += size
                    change[end + 1] -= size
        if training:
            for i in range(m):
                size = layers.tape[a + i]
                kept = policy[i]
                if kept == KEEP:
                    if together:
                        change[forward[i]] += size
                        change[backward[i] + 1] -= size
                    continue
                if runs_forward:
                    change[forward[i]] += size
                    if kept == STASH and not runs_backward:
                        change[final + 1] -= size
                    else:
                        change[forward[i] + 1] -= size
                if runs_backward:
                    if kept == STASH:
                        start = backward[i] if together else 0
                        change[start] += size
                        change[backward[i] + 1] -= size
                    elif again[i] >= 0:
                        change[again[i]] += size
                        change[backward[i] + 1] -= size
        live = 0
        peak = 0
        for at in range(moments):
            live += change[at]
            peak = max(peak, live + layers.temporary[at_moment[at]])
        found[FIRST_PEAK if runs_forward else LAST_PEAK] = peak
        if parts == 1:
            found[LAST_PEAK] = peak
    return found


@compiled
def examine_all(
    layers: Layers, first: Array, end: Array, training: bool, policies: Array, ends: Array
) -> Array:  # pragma: no cover - compiled
    """Return what policies cost groups, shape (7, rows).

    Parameters
    ----------
    first, end : ndarray of int64, shape (rows,)
        The layers.
    policies, ends : ndarray of int64
        Policies of the layers of one row after the other; those of a row end at its `ends`.
    """
    found = np.zeros((7, len(first)), np.int64)
    for row in range(len(first)):
        given = policies[ends[row] - (end[row] - first[row]) : ends[row]]
        found[:, row] = examine(layers, first[row], end[row], training, given)
    return found


@compiled
def heads(
    layers: Layers,
    weights: Array,
    states: Array,
    reach: Array,
    given: Array,
    limits: tuple[int, int, int],
    at: int,
    kept: int,
) -> tuple[Array, int, int]:  # pragma: no cover - compiled
    """Return where groups end that hold as many layers as fit, from layer `at` on.

    Sizes double up to the first that does not fit and are halved from there: a group of more
    layers than one that does not fit is not looked for beyond.

    Parameters
    ----------
    weights, states : ndarray of int64, shape (n + 1,)
        Sums of bytes of variables, and of state in shards, of the layers before.
    reach : ndarray of int64, shape (n,)
        Where groups from each layer end, at most.
    given : ndarray of int64, shape (n,)
        The policy of each layer; NONE, of all, in inference.
    limits : tuple of int
        Bytes on chip, steps, and layers to look at before returning.
    at, kept : int
        The first layer; bytes that groups before it keep.

    Returns
    -------
    tuple
        The ends, the layer to go on from (n: done; -1: none fits) and the bytes kept so far.
        O(m log m) for groups of m layers.
    """
    n = len(layers.tape)
    capacity, steps, budget = limits
    training = given[0] != NONE
    ends = np.empty(n - at, np.int64)
    count = 0
    while at < n and budget > 0:
        low, high, size, held = at, reach[at] + 1, 1, 0
        while high - low > 1:
            b = min(at + size, high - 1) if size else (low + high) // 2
            found = examine(layers, at, b, training, given[at:b])
            budget -= b - at
            own = steps * found[KEPT]
            bytes_of = weights[b] - weights[at]
            need = bytes_of + own + found[FIRST_PEAK]
            if training:
                last = 2 * bytes_of + own
                last += max(found[LAST_PEAK], states[b] - states[at])
                need = last if b == n else max(need, last)
            if kept + need <= capacity:
                low, held = b, own
                size *= 2
            else:
                high, size = b, 0
        if low == at:
            return ends[:count], -1, kept
        ends[count] = low
        count += 1
        kept += held
        at = low
    return ends[:count], at, kept
