"""Compiled kernels that find all policies worth having for the groups of a chain.

Labels run along the layers of a group: what the policies chosen so far cost in stashed bytes,
recomputed cycles, kept bytes and memory, and which run of dropped layers is open.  A label that is
no better than another one in any of these is dropped; so is one that needs more than there is.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.phases.liveness_kernels import (
    KEEP,
    NONE,
    RECOMPUTE,
    RETAIN,
    STASH,
    Layers,
)
from stagepack.instances.compiled import compiled
from stagepack.instances.profile import Array

# Columns of a label, all of which are better when smaller.
STASHED, AGAIN, KEPT, HELD, PEAK, FIRST_PEAK, RUN, RERUN, PASSING, RETURNING, RETAINED = range(11)
SLOT, SLOTS = 11, 6
"""Columns for tensors that skips read later: a label knows whether they were kept."""
COLUMNS = SLOT + SLOTS


@compiled
def extend(
    label: Array,
    policy: int,
    layers: Layers,
    a: int,
    layer: int,
    inside: bool,
    together: bool,
    relaxed: bool,
    written: int,
    beside: int,
    earlier: int,
    waiting: Array,
    slot: int,
) -> Array:  # pragma: no cover - compiled
    """Return the label after one more layer.

    Columns: bytes stashed, cycles recomputed, bytes kept by a group of two phases; bytes of
    products so far that stay in memory; most bytes live so far in the phase with the backward
    part and in the forward phase; bytes of the open run of dropped layers (its input included,
    where that is paged), and most while it is computed again; bytes of the layer's input that
    are live beside all this while it runs forward, and backward; bytes of outputs retained for
    the backward part; then, by slot, bytes of tensors that are not kept and that skips read later
    in the forward part (the last two in the last group only).

    Parameters
    ----------
    inside : bool
        Whether a layer of the group reads what this one writes.
    together : bool
        Whether forward and backward run in one phase.
    relaxed : bool
        Count a dropped layer once, and nothing of what else computing it again takes: a bound.
        The policies NONE, for products that cost nothing at all, and RETAIN are for bounds, too.
        With skips the last group may drop a layer's tape but retain its output from the forward
        part, and compute the layer again for the tape alone.
    written : int
        What stashing the layer's output stores.
    beside : int
        Bytes of further tensors live during its backward pass.
    earlier : int
        Bytes of gradients live while a run that ends at the layer is computed again.
    waiting : ndarray of int64, shape (slots,)
        0 for slots not in use; 2 for tensors that the layer or a later one reads, but for its own
        input, which the chain itself counts: 1.
    slot : int
        That of what the layer writes; -1: none.
    """
    n = len(layers.tape)
    tape = layers.tape[layer]
    output = layers.nbytes[layer + 1]
    product = tape + (output if inside else 0)
    source = layers.nbytes[a]
    gradients = (output if layer + 1 < n else 0) + (layers.nbytes[layer] if layer > 0 else 0)
    temporary = layers.temporary[layer]
    open_run = label[RUN] + label[RETURNING]
    found = label.copy()
    found[RUN] = 0
    found[RERUN] = 0
    found[PASSING] = 0
    found[RETURNING] = 0
    forward = label[PASSING] + temporary + label[HELD]
    if together or layer == a:
        forward += source
    backward = source + gradients + temporary + label[HELD] + open_run + beside
    rerun = 0
    if together:
        forward += label[RETAINED]
        for k in range(SLOTS):
            if waiting[k] == 0:
                found[SLOT + k] = 0
            elif waiting[k] == 2:
                forward += label[SLOT + k]
        if slot >= 0:
            found[SLOT + slot] = output if policy not in (KEEP, RETAIN) and inside else 0
    if policy == RETAIN:
        forward += tape + output
        backward += tape
        found[AGAIN] += layers.forward[layer]
        found[RETAINED] += output
        rerun = max(label[RERUN], open_run + tape + output + temporary)
    elif policy == NONE or (policy == RECOMPUTE and product > 0):
        forward += tape + output
        backward += tape
        if policy == RECOMPUTE:
            found[AGAIN] += layers.forward[layer]
        if not relaxed:
            computed = open_run + tape + output
            most = max(label[RERUN], computed + temporary)
            if inside:
                found[RUN] = computed
                found[RERUN] = most
            else:
                rerun = most
        if inside:
            found[PASSING] = output
            if relaxed:
                found[RETURNING] = output
    elif policy == KEEP:
        if together:
            forward += tape + output
            backward += tape
            found[HELD] += product
        else:
            forward += 0 if inside else output
            found[KEPT] += product
        rerun = label[RERUN] + (tape if together else 0)
    else:
        # Stashed; a dropped layer without products is like one that stashes nothing.
        if product > 0 and policy == STASH:
            found[STASHED] += tape + (written if inside else 0)
        if together:
            forward += tape + output
            backward += tape
            rerun = label[RERUN]
            if inside:
                found[PASSING] = output
                found[RETURNING] = output
        else:
            forward += tape + output
            backward += tape
            rerun = label[RERUN] + tape
            found[HELD] += product
    if label[RERUN] > 0 or rerun > 0:
        backward = max(backward, source + earlier + label[HELD] + rerun)
    found[FIRST_PEAK] = max(label[FIRST_PEAK], forward)
    found[PEAK] = max(label[PEAK], backward)
    if together:
        found[PEAK] = max(found[PEAK], forward)
    return found


@compiled
def unbeaten(
    rows: Array, front: Array, kept: Array, count: int, low: int, high: int
) -> int:  # pragma: no cover - compiled
    """Go on with the rows [low, high): keep those that no kept one matches or beats everywhere.

    Parameters
    ----------
    rows : ndarray of int64, shape (r, columns)
        By rising sum, so that none beats an earlier one.
    front : ndarray of int64, shape (r, columns)
        The rows kept so far, `count` of them; grows.
    kept : ndarray of int64, shape (r,)
        Their numbers; grows.

    Returns
    -------
    int
        How many are kept now.  O((high - low) * kept).
    """
    columns = rows.shape[1]
    for i in range(low, high):
        beaten = False
        for k in range(count):
            beaten = True
            for c in range(columns):
                if front[k, c] > rows[i, c]:
                    beaten = False
                    break
            if beaten:
                break
        if not beaten:
            for c in range(columns):
                front[count, c] = rows[i, c]
            kept[count] = i
            count += 1
    return count


@compiled
def unroll(
    parents: Array, choices: Array, nodes: Array, ends: Array
) -> Array:  # pragma: no cover - compiled
    """Return the policies that lead to nodes, one after the other.

    Parameters
    ----------
    ends : ndarray of int64, shape (nodes,)
        Where the policies of each node end in the answer.
    """
    found = np.zeros(ends[-1] if len(ends) else 0, np.int64)
    for k in range(len(nodes)):
        node, at = nodes[k], ends[k] - 1
        while node >= 0:
            found[at] = choices[node]
            at -= 1
            node = parents[node]
    return found


@compiled
def beside_chain(
    layers: Layers, a: int, layer: int, skipping: Array
) -> int:  # pragma: no cover - compiled
    """Return bytes that skips keep live during a backward pass, at least, whatever the policies.

    Inputs of the group that it or an earlier layer of the group reads, and gradients that it or a
    later one adds to.  `skipping` are the tensors that more than the next layer reads.
    """
    found = 0
    for t in skipping:
        low, high = layers.readers_from[t], layers.readers_from[t + 1]
        if t > layer - 1 and t != a:
            continue
        first = high
        for k in range(low, high):
            if layers.readers[k] >= a:
                first = k
                break
        if first == high:
            continue
        if t < a and layers.readers[first] <= layer:
            found += layers.nbytes[t]
        # The chain itself counts the gradients of the layer's input and output.
        open_gradient = layers.readers[high - 1] >= layer and layers.readers[first] <= layer
        if t > 0 and t != layer and open_gradient:
            found += layers.nbytes[t]
    return found


@compiled
def gradients_ahead(
    layers: Layers, a: int, reach: int, skipping: Array
) -> Array:  # pragma: no cover - compiled
    """Return gradients live, at least, while a run that ends at each layer is computed again.

    In a chain that of the layer's output; with skips a run may be computed earlier than need be.
    """
    n = len(layers.tape)
    found = np.zeros(n, np.int64)
    for layer in range(reach - 1, a - 1, -1):
        if layer + 1 < n:
            found[layer] = layers.nbytes[layer + 1]
        if len(skipping) > 0 and layer + 1 < reach:
            found[layer] = min(found[layer], found[layer + 1])
    return found


@compiled
def grow(
    labels: Array,
    allowed: Array,
    layers: Layers,
    a: int,
    layer: int,
    inside: bool,
    together: bool,
    relaxed: bool,
    written: int,
    beside: int,
    earlier: int,
    waiting: Array,
    slot: int,
    base: int,
    state: int,
    steps: int,
    capacity: int,
    longest: int,
) -> tuple[Array, Array, Array]:  # pragma: no cover - compiled
    """Return all labels after one more layer that fit; see :func:`extend`.

    Parameters
    ----------
    labels : ndarray of int64, shape (l, columns)
    allowed : ndarray of int64
        The policies to try.
    base, state : int
        Bytes held throughout, and besides these in the epilogue.
    longest : int
        Cycles that may be computed again, at most.

    Returns
    -------
    labels : ndarray of int64, shape (r, columns)
    came, chose : ndarray of int64, shape (r,)
        The label before and the policy taken.
    """
    new = np.empty((len(labels) * len(allowed), COLUMNS), np.int64)
    came = np.empty(len(new), np.int64)
    chose = np.empty(len(new), np.int64)
    size = 0
    for i in range(len(labels)):
        for policy in allowed:
            label = extend(
                labels[i],
                policy,
                layers,
                a,
                layer,
                inside,
                together,
                relaxed,
                written,
                beside,
                earlier,
                waiting,
                slot,
            )
            need = base + steps * label[KEPT] + max(label[PEAK], state)
            if need <= capacity and label[AGAIN] <= longest:
                new[size] = label
                came[size] = i
                chose[size] = policy
                size += 1
    return new[:size], came[:size], chose[:size]
