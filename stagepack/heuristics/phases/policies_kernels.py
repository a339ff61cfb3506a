"""Compiled kernels that find all non-dominated policies of the groups of a chain.

Labels run along the layers of a group.  A label holds the costs of the policies chosen so far
(stashed bytes, recomputed cycles, kept bytes, memory) and the current run of dropped layers.
Labels that are dominated by another one, or exceed the memory, are dropped.
Source: own work; label setting as for shortest paths with resources.  Cost: O(labels * policies) a
layer, and O(labels^2) at worst to drop dominated ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.phases.liveness_kernels import (
    KEEP,
    RECOMPUTE,
    RETAIN,
    STASH,
    Layers,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, inner, step, tiered

STASHED, AGAIN, KEPT, HELD, PEAK, FIRST_PEAK, RUN, RERUN, PASSING, RETURNING, RETAINED = range(11)
"""Columns of a label, all of which are better when smaller:

- bytes stashed, cycles computed again, bytes kept by a group of two phases;
- bytes of products so far that stay in memory;
- most bytes live so far in the phase with the backward part, and in the forward phase;
- bytes of the open run of dropped layers (its input included, where that is paged), and most while
  it is computed again;
- bytes of the layer's input that are live beside all this while it runs forward, and backward;
- bytes of outputs retained for the backward part, in the last group.
"""
SLOT, SLOTS = 11, 6
"""Columns, in the last group, for bytes of tensors that are not kept and that skips read later in
the forward part."""
COLUMNS = SLOT + SLOTS


class Visit(NamedTuple):
    """A layer that labels run through."""

    # The first layer of the group, and this one.
    first: int
    layer: int
    inside: bool  # whether a layer of the group reads what this one writes
    together: bool  # whether forward and backward run in one phase
    # Count a dropped layer once, and nothing of what else computing it again takes: a bound.
    relaxed: bool
    written: int  # bytes that stashing the layer's output stores
    beside: int  # bytes of further tensors live during its backward pass
    earlier: int  # bytes of gradients live while a run that ends at the layer is computed again
    # int64 (SLOTS,): 0 for slots not in use; 2 for tensors that the layer or a later one reads, but
    # for its own input, which the chain itself counts: 1.
    waiting: Array
    slot: int  # that of what the layer writes; -1: none
    # Bytes held throughout, and besides these in the epilogue.
    base: int
    state: int
    # Entries of what is kept; bytes on chip.
    steps: int
    capacity: int
    longest: int  # cycles that may be computed again, at most


@step
def _skipped(label: Array, found: Array, policy: int, output: int, visit: Visit) -> int:
    """Return bytes that skips keep live in the forward part, and note those of the layer."""
    live = 0
    for k in range(SLOTS):
        if visit.waiting[k] == 0:
            found[SLOT + k] = 0
        # Its own input is counted by the chain: 1.
        elif visit.waiting[k] == 2:
            live += label[SLOT + k]
    if visit.slot >= 0:
        # What is kept or retained is in other columns.
        goes = policy not in (KEEP, RETAIN) and visit.inside
        found[SLOT + visit.slot] = output if goes else 0
    return live


@step
def _drop(label: Array, found: Array, run: int, temporary: int, output: int, visit: Visit) -> int:
    """Go on with the run of dropped layers; return the most bytes live if it ends here."""
    if visit.inside:
        found[PASSING] = output
    # For bounds: computed again it takes its cycles, and its run no memory.
    if visit.relaxed:
        if visit.inside:
            found[RETURNING] = output
        return 0
    # The run is computed again as a whole, when its last layer's product is wanted.
    most = max(label[RERUN], run + temporary)
    if not visit.inside:
        return int(most)
    found[RUN] = run
    found[RERUN] = most
    return 0


@step
def _save(label: Array, found: Array, policy: int, tape: int, output: int, visit: Visit) -> int:
    """End the run of dropped layers; return the most bytes live while it is computed again.

    The layer is kept or stashed; one without products that is dropped stashes nothing.
    """
    product = tape + (output if visit.inside else 0)
    if policy == KEEP:
        # In two phases it is kept for every step, else within the step.
        found[HELD if visit.together else KEPT] += product
        return int(label[RERUN] + (tape if visit.together else 0))
    if product > 0 and policy == STASH:
        found[STASHED] += tape + (visit.written if visit.inside else 0)
    if not visit.together:
        found[HELD] += product
        return int(label[RERUN] + tape)
    if visit.inside:
        found[PASSING] = output
        found[RETURNING] = output
    return int(label[RERUN])


@inner
def _extend(label: Array, policy: int, layers: Layers, visit: Visit) -> Array:
    """Return the label after one more layer, whose policy is given.

    The policy RETAIN is for bounds: with skips the last group may drop a layer's tape but retain
    its output from the forward part, and compute the layer again for the tape alone.
    """
    layer, together = visit.layer, visit.together
    tape, output = layers.tape[layer], layers.nbytes[layer + 1]
    source, temporary = layers.nbytes[visit.first], layers.temporary[layer]
    # The network's own input and result have no gradient here.
    gradients = output if layer + 1 < len(layers.tape) else 0
    gradients += layers.nbytes[layer] if layer > 0 else 0
    # The run before it is there while it runs backward.
    open_run = label[RUN] + label[RETURNING]
    run = open_run + tape + output
    found = label.copy()
    found[RUN] = 0
    found[RERUN] = 0
    found[PASSING] = 0
    found[RETURNING] = 0
    forward = label[PASSING] + temporary + label[HELD]
    if together or layer == visit.first:
        forward += source
    backward = source + gradients + temporary + label[HELD] + open_run + visit.beside
    if together:
        forward += label[RETAINED] + _skipped(label, found, policy, output, visit)
        backward += label[RETAINED]  # the layer after each reads it, and runs backward later
    if policy == KEEP and not together:
        forward += 0 if visit.inside else output  # else counted with what is kept of every step
    else:
        forward += tape + output
        backward += tape
    dropped = policy == RECOMPUTE and (tape > 0 or (visit.inside and output > 0))
    if policy == RETAIN or dropped:
        found[AGAIN] += layers.forward[layer]
    if policy == RETAIN:
        found[RETAINED] += output
        rerun = max(label[RERUN], run + temporary)
    elif dropped:
        rerun = _drop(label, found, run, temporary, output, visit)
    else:
        rerun = _save(label, found, policy, tape, output, visit)
    # The run ends here: it was computed again just before this backward pass.
    if label[RERUN] > 0 or rerun > 0:
        beside = label[HELD] + (label[RETAINED] if together else 0)
        backward = max(backward, source + visit.earlier + beside + rerun)
    found[FIRST_PEAK] = max(label[FIRST_PEAK], forward)
    found[PEAK] = max(label[PEAK], backward)
    if together:
        found[PEAK] = max(found[PEAK], forward)
    return found


def _steps_of_growth(labels: Array, allowed: Array, layers: Layers, visit: Visit) -> int:
    """Return about how many steps :func:`grow` takes."""
    del layers, visit
    return len(labels) * len(allowed) * 5 * COLUMNS


@tiered(_steps_of_growth)
def grow(labels: Array, allowed: Array, layers: Layers, visit: Visit) -> tuple[Array, Array, Array]:
    """Return all labels after one more layer that fit.  O(labels * policies * columns).

    `labels`, int64 (l, COLUMNS), are those before the layer; `allowed`, int64, policies to try.
    With the new ones come, int64 (r,), the label before and the policy taken.
    """
    # A row for every label and policy, whether it fits or not.
    new = np.empty((len(labels) * len(allowed), COLUMNS), np.int64)
    came = np.empty(len(new), np.int64)
    chose = np.empty(len(new), np.int64)
    size = 0
    for i in range(len(labels)):
        for policy in allowed:
            label = _extend(labels[i], policy, layers, visit)
            need = visit.base + visit.steps * label[KEPT] + max(label[PEAK], visit.state)
            if need <= visit.capacity and label[AGAIN] <= visit.longest:
                for column in range(COLUMNS):  # a slice takes four seconds to compile
                    new[size, column] = label[column]
                came[size] = i
                chose[size] = policy
                size += 1
    return new[:size], came[:size], chose[:size]


def _steps_of_comparing(
    rows: Array, front: Array, kept: Array, count: int, low: int, high: int
) -> int:
    """Return the most steps of :func:`unbeaten`."""
    del front, kept
    return int((high - low) * (count + high - low) * rows.shape[1])


@tiered(_steps_of_comparing)
def unbeaten(rows: Array, front: Array, kept: Array, count: int, low: int, high: int) -> int:
    """Go on from row `low` up to `high`: keep those that no kept one matches or beats everywhere.

    Return how many are kept now.  O((high - low) * kept).  `rows`, int64 (r, columns), are by
    rising sum, so that none beats an earlier one.  `front`, int64 (r, columns), has the `count`
    rows kept so far and grows by one at most for each row; so does `kept`, int64 (r,), their
    numbers.
    """
    columns = rows.shape[1]
    for i in range(low, high):
        beaten = False
        # `front` has the smallest sums first: those beat most.
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


def _steps_of_unrolling(parents: Array, choices: Array, nodes: Array, ends: Array) -> int:
    """Return the steps of :func:`unroll`: the policies that it returns."""
    del parents, choices, nodes
    return 2 * int(ends[-1]) if len(ends) else 0


@tiered(_steps_of_unrolling)
def unroll(parents: Array, choices: Array, nodes: Array, ends: Array) -> Array:
    """Return the policies that lead to `nodes`, one after the other.

    `parents` are the node before each node, -1 for none; `choices` the policy with which each was
    entered; int64.  `ends`, int64 (nodes,), is where the policies of each node end in the answer:
    as far behind those of the node before as nodes lead to it.
    """
    found = np.zeros(ends[-1] if len(ends) else 0, np.int64)
    for k in range(len(nodes)):
        node, at = nodes[k], ends[k] - 1
        while node >= 0:
            found[at] = choices[node]
            at -= 1
            node = parents[node]
    return found


@tiered(entries)
def beside_chain(layers: Layers, a: int, layer: int, skipping: Array) -> int:
    """Return bytes that skips keep live during a backward pass, at least, whatever the policies.

    Inputs of the group that it or an earlier layer of the group reads, and gradients that it or a
    later one adds to.  `a` is the first layer of the group, `layer` whose backward pass it is, and
    `skipping` the tensors that more than the next layer reads.
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


@tiered(entries)
def gradients_ahead(layers: Layers, a: int, reach: int, skipping: Array) -> Array:
    """Return gradients live, at least, while a run that ends at each layer is computed again.

    Bytes, int64 (n,), 0 outside of the layers from `a` on, before `reach`.  That of the layer's
    output, but where skips pass the layer: those that read them may want the run earlier, when
    other gradients are live.  `skipping` are the tensors that more than the next layer reads.
    """
    n = len(layers.tape)
    found = np.zeros(n, np.int64)
    passing = np.zeros(n + 1, np.int64)  # differences of how many skips pass each layer
    for t in skipping:
        if t <= a:
            continue
        last = t
        for k in range(layers.readers_from[t], layers.readers_from[t + 1]):
            if layers.readers[k] < reach:
                last = max(last, layers.readers[k])
        passing[t] += 1
        passing[last] -= 1
    for layer in range(n):
        passing[layer + 1] += passing[layer]
    least = 0
    for layer in range(reach - 1, a - 1, -1):
        gradient = layers.nbytes[layer + 1] if layer + 1 < n else 0
        least = gradient if layer + 1 == reach else min(least, gradient)
        found[layer] = least if passing[layer] > 0 else gradient
    return found
