"""Compiled kernels of the memory of a group's phases, for given policies of its layers.

They compute the same as :mod:`stagepack.instances.phases.liveness`, for all groups at once: the
live bytes at each moment, summed with one difference array per phase, where dropped outputs are
recomputed as late as possible.  O(layers and readers) a group; O(layers^2) with recomputation.
Source: own work, after the rules of the instance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, inner, step, tiered

NONE, STASH, KEEP, RECOMPUTE, RETAIN = range(5)
STORED, RELOADED, KEPT, AGAIN, FIRST_PEAK, LAST_PEAK, REPEATED = range(7)

INSIDE, OUTSIDE, LAST, AHEAD, BACK, BEGUN = range(6)
"""What a phase tells of a tensor: whether layers of the group read it, and later ones; its last
use (-1 for none, as below); the last one before the layer that writes it runs again, or, without
that, before the backward part; the first one of the backward part; the first backward pass that
reads it (the end of the phase for none)."""


class Layers(NamedTuple):
    """Figures of one step of a chain of n layers; int64 arrays."""

    nbytes: Array  # (n + 1,): bytes of x_0 ... x_n
    # (n,): bytes of tapes and of working memory; cycles of the forward pass.
    tape: Array
    temporary: Array
    forward: Array
    # Layer l reads the tensors reads[reads_from[l]:reads_from[l + 1]].
    reads_from: Array
    reads: Array
    # Tensor t is read by the layers readers[readers_from[t]:readers_from[t + 1]], rising.
    readers_from: Array
    readers: Array


class Group(NamedTuple):
    """The layers [first, end) and what becomes of their products; int64 arrays, shape (layers,)."""

    first: int
    end: int
    # Together: forward and backward part are one phase.
    training: bool
    together: bool
    policy: Array  # NONE in inference
    trigger: Array  # the layer before whose backward pass each is computed again; -1: never


class Phase(NamedTuple):
    """The moments of one phase of a group: a layer runs in each; int64 arrays."""

    # The parts of the group's step that belong to it.
    runs_forward: bool
    runs_backward: bool
    # (layers,): when each layer of the group runs; -1: not in this phase.
    forward: Array
    again: Array
    backward: Array
    layer_at: Array  # (moments,): which layer runs at each moment
    # (moments + 1,): bytes that are live from each moment on, less those that are not any more.
    change: Array


# ---------------------------------------------------------------------- a group


@inner
def _never(m: int) -> Array:
    """Return -1 for each of `m` layers."""
    found = np.empty(m, np.int64)
    for i in range(m):
        found[i] = -1
    return found


@step
def _push_needs(
    layers: Layers, first: int, policy: Array, layer: int, stack: Array, high: int
) -> int:
    """Push the makers of what a layer reads, but where that is retained; return the new height.

    Why `stack` has room: see :func:`_triggers`, which owns it.
    """
    for k in range(layers.reads_from[layer], layers.reads_from[layer + 1]):
        maker = layers.reads[k] - 1
        retained = maker >= first and policy[maker - first] == RETAIN
        if layers.nbytes[maker + 1] > 0 and not retained:
            stack[high] = maker
            high += 1
    return high


@inner
def _triggers(layers: Layers, a: int, b: int, policy: Array) -> Array:
    """Return before whose backward pass each layer of [a, b) is computed again; -1: never.

    As late as possible: before the first backward pass that needs what was dropped.  A layer whose
    output is retained is computed again for its tape, before its own.

    The stack is empty before each layer.  Then come what it reads and itself, and what each layer
    reads that is given its trigger, which happens once: twice all reads, and one, at most.
    """
    tape = layers.tape
    trigger = _never(b - a)
    stack = np.empty(2 * len(layers.reads) + 2, np.int64)
    for layer in range(b - 1, a - 1, -1):
        high = _push_needs(layers, a, policy, layer, stack, 0)
        if tape[layer] > 0 or policy[layer - a] == RETAIN:
            stack[high] = layer
            high += 1
        while high > 0:
            high -= 1
            dropped = stack[high]
            if dropped < a or trigger[dropped - a] >= 0:
                continue
            if policy[dropped - a] != RECOMPUTE and policy[dropped - a] != RETAIN:
                continue
            # From the last backward pass down: the first that needs it comes first.
            trigger[dropped - a] = layer
            high = _push_needs(layers, a, policy, dropped, stack, high)
    return trigger


@inner
def touched(layers: Layers, a: int, b: int) -> Array:
    """Return the tensors that layers from `a` on, before `b`, read or write, each once.

    O(reads log(readers)); room for all that they read and for what each of them writes.
    """
    reads_from, reads = layers.reads_from, layers.reads
    readers_from, readers = layers.readers_from, layers.readers
    found = np.empty(reads_from[b] - reads_from[a] + b - a, np.int64)
    count = 0
    for layer in range(a, b):
        for k in range(reads_from[layer], reads_from[layer + 1]):
            t = reads[k]
            # Written within the group: entered below, whoever reads it.
            if t > a:
                continue
            # Its first reader within the group enters it.
            # Readers rise: halve for the first that is not before the group.
            low, high = readers_from[t], readers_from[t + 1]
            while low < high:
                middle = (low + high) // 2
                if readers[middle] < a:
                    low = middle + 1
                else:
                    high = middle
            if readers[low] == layer:
                found[count] = t
                count += 1
    for t in range(a + 1, b + 1):
        found[count] = t
        count += 1
    return found[:count]


@step
def _count(layers: Layers, group: Group, found: Array) -> None:
    """Add up what a step stashes, loads again, keeps and computes again."""
    nbytes, tape, forward = layers.nbytes, layers.tape, layers.forward
    readers_from, readers = layers.readers_from, layers.readers
    policy, trigger = group.policy, group.trigger
    for i in range(group.end - group.first):
        layer = group.first + i
        written = nbytes[layer + 1] if layer + 1 < group.end else 0
        low, high = readers_from[layer + 1], readers_from[layer + 2]
        if policy[i] == STASH:
            # What later groups read is stored in any case.
            outside = high > low and readers[high - 1] >= group.end
            found[STORED] += tape[layer] + (0 if outside else written)
            found[RELOADED] += tape[layer] + written
        elif policy[i] == KEEP and not group.together:
            found[KEPT] += tape[layer] + written
        if trigger[i] >= 0:
            found[REPEATED] += 1
            found[AGAIN] += forward[layer]


# ---------------------------------------------------------------------- a phase


@inner
def _phase(group: Group, runs_forward: bool, runs_backward: bool, repeated: bool) -> Phase:
    """Return the moments of a phase, nothing being live yet.

    Each layer runs forward once, again once at most, and backward once: 3 moments for each.
    """
    a, m, trigger = group.first, group.end - group.first, group.trigger
    forward, again, backward = _never(m), _never(m), _never(m)
    layer_at = np.empty(3 * m, np.int64)
    moments = 0
    if runs_forward:
        for i in range(m):
            forward[i] = moments
            layer_at[moments] = a + i
            moments += 1
    if runs_backward:
        for i in range(m - 1, -1, -1):
            for j in range(m if repeated else 0):
                if trigger[j] == a + i:
                    again[j] = moments
                    layer_at[moments] = a + j
                    moments += 1
            backward[i] = moments
            layer_at[moments] = a + i
            moments += 1
    change = np.zeros(moments + 1, np.int64)
    return Phase(runs_forward, runs_backward, forward, again, backward, layer_at[:moments], change)


@inner
def _uses(layers: Layers, group: Group, phase: Phase, tensors: Array) -> Array:
    """Return when tensors are read, shape (tensors, 6)."""
    first, m, moments = group.first, group.end - group.first, len(phase.layer_at)
    forward, again, backward = phase.forward, phase.again, phase.backward
    readers_from, readers = layers.readers_from, layers.readers
    uses = np.empty((len(tensors), 6), np.int64)
    for number in range(len(tensors)):
        t = tensors[number]
        low, high = readers_from[t], readers_from[t + 1]
        writer = t - 1 - first
        # Uses before it is computed again are of the first copy.
        limit = again[writer] if writer >= 0 and again[writer] >= 0 else m
        inside, last, ahead, back, begun = 0, -1, -1, -1, moments
        for k in range(low, high):
            v = readers[k] - first
            if v < 0 or v >= m:
                continue
            inside = 1
            # A reader reads whenever it runs; -1: not in this phase.
            for at in (forward[v], again[v], backward[v]):
                if at < 0:
                    continue
                last = max(last, at)
                if at < limit:
                    ahead = max(ahead, at)
                elif at >= m and (back < 0 or at < back):
                    back = at
            if backward[v] >= 0:
                begun = min(begun, backward[v])
        uses[number, INSIDE] = inside
        uses[number, OUTSIDE] = high > low and readers[high - 1] >= group.end
        uses[number, LAST] = last
        uses[number, AHEAD] = ahead
        uses[number, BACK] = back
        uses[number, BEGUN] = begun
    return uses


@step
def _hold(change: Array, size: int, first: int, last: int) -> None:
    """Count bytes that are live from one moment to another, both included."""
    change[first] += size
    change[last + 1] -= size


@step
def _hold_tensors(layers: Layers, group: Group, phase: Phase, tensors: Array, uses: Array) -> None:
    """Count inputs, and outputs as the policies of the layers that write them say."""
    nbytes, change, policies = layers.nbytes, phase.change, group.policy
    # Moments are inclusive on both sides, see :func:`_hold`
    forward, again_at, final = phase.forward, phase.again, len(phase.layer_at) - 1
    for number in range(len(tensors)):
        t = tensors[number]
        size, writer = nbytes[t], t - 1 - group.first
        inside, last = uses[number, INSIDE], uses[number, LAST]
        if writer < 0:
            if inside:
                _hold(change, size, 0, last)
            continue
        first, again, policy = forward[writer], again_at[writer], policies[writer]
        stashed = inside and policy == STASH
        # A backward phase of its own: only what was stashed comes back, at its beginning.
        if first < 0:
            if stashed:
                _hold(change, size, 0, last)
        elif inside and policy == KEEP and group.training:
            # Between two phases it is kept for every step, and counted with these.
            if group.together:
                _hold(change, size, first, last)
        # It is written at the end of the phase, whoever reads it within.
        elif not phase.runs_backward and (uses[number, OUTSIDE] or stashed):
            _hold(change, size, first, final)
        elif stashed:
            _hold(change, size, first, max(first, uses[number, AHEAD]))
            if uses[number, BACK] >= 0:
                _hold(change, size, uses[number, BACK], last)
        else:
            # Dropped: alive to its last reader before it is computed again.
            until = uses[number, AHEAD] if again >= 0 else last
            _hold(change, size, first, max(first, until))
        if again >= 0:
            _hold(change, size, again, max(again, last))


@step
def _hold_gradients(
    layers: Layers, group: Group, phase: Phase, tensors: Array, uses: Array
) -> None:
    """Count gradients: from the first layer that adds to one to the layer that takes it."""
    nbytes, change, backward = layers.nbytes, phase.change, phase.backward
    final = len(phase.layer_at) - 1
    for number in range(len(tensors)):
        t, writer = tensors[number], tensors[number] - 1 - group.first
        loaded = uses[number, OUTSIDE]
        if t > 0 and (uses[number, INSIDE] or (writer >= 0 and loaded)):
            # Later groups began it: it is loaded at once.
            start = 0 if loaded else uses[number, BEGUN]
            _hold(change, nbytes[t], start, final if writer < 0 else backward[writer])


@step
def _hold_tapes(layers: Layers, group: Group, phase: Phase) -> None:
    """Count the tapes of the layers."""
    change, policies, tape = phase.change, group.policy, layers.tape
    forward_at, again, backward_at = phase.forward, phase.again, phase.backward
    final = len(phase.layer_at) - 1
    for i in range(group.end - group.first):
        size, policy = tape[group.first + i], policies[i]
        forward, backward = forward_at[i], backward_at[i]
        if policy == KEEP:
            if group.together:
                _hold(change, size, forward, backward)
            continue
        # The tape of a layer that is not kept leaves at once, or at the end of the phase.
        if phase.runs_forward:
            stored = policy == STASH and not phase.runs_backward
            _hold(change, size, forward, final if stored else forward)
        if phase.runs_backward:
            if policy == STASH:
                _hold(change, size, backward if group.together else 0, backward)
            elif again[i] >= 0:
                _hold(change, size, again[i], backward)


@step
def _peak(layers: Layers, phase: Phase) -> int:
    """Return the most bytes live at any moment of a phase."""
    change, layer_at, temporary = phase.change, phase.layer_at, layers.temporary
    live, peak = 0, 0
    for at in range(len(layer_at)):
        live += change[at]
        peak = max(peak, live + temporary[layer_at[at]])
    return peak


@inner
def _examine(layers: Layers, a: int, b: int, training: bool, policy: Array) -> Array:
    """Return what the policies of the layers [a, b) cost, int64 (7,).

    These are bytes stashed in a step, and those of them to load again; bytes kept in a step by a
    group of two phases; cycles of layers computed again; the most bytes live at any moment of the
    first phase and of the last one (base excluded); how many layers are computed again.  `policy`,
    int64 (b - a,), is NONE in inference; `training`: there is a backward part.
    """
    found = np.zeros(7, np.int64)
    trigger = _triggers(layers, a, b, policy) if training else _never(b - a)
    group = Group(a, b, training, training and b == len(layers.tape), policy, trigger)
    _count(layers, group, found)
    tensors = touched(layers, a, b)
    # The last group runs forward and backward in one phase.
    parts = 1 if group.together or not training else 2
    for part in range(parts):
        phase = _phase(group, part == 0, training and part == parts - 1, found[REPEATED] > 0)
        uses = _uses(layers, group, phase, tensors)
        _hold_tensors(layers, group, phase, tensors, uses)
        if phase.runs_backward:
            _hold_gradients(layers, group, phase, tensors, uses)
        if training:
            _hold_tapes(layers, group, phase)
        peak = _peak(layers, phase)
        if part == 0:
            found[FIRST_PEAK] = peak
        if part == parts - 1:
            found[LAST_PEAK] = peak
    return found


# ---------------------------------------------------------------------- groups


def _steps(
    layers: Layers, first: Array, end: Array, training: bool, policies: Array, *_: Array
) -> int:
    """Return about how many steps :func:`examine_all` takes."""
    del layers
    again = int(((end - first) ** 2).sum()) if training else 0
    return 30 * len(policies) + again


@tiered(_steps)
def examine_all(
    layers: Layers,
    first: Array,
    end: Array,
    training: bool,
    policies: Array,
    ends: Array,
    found: Array,
) -> None:
    """Find what policies cost groups; see :func:`_examine`.

    `first` and `end`, int64 (rows,), are the layers.  `policies`, int64, has those of the layers of
    one row after the other; those of a row end at its `ends`.  `found`, int64 (7, rows), gets what
    :func:`_examine` returns, a column a row.  `training`: there are backward parts.
    """
    for row in range(len(first)):
        given = policies[ends[row] - (end[row] - first[row]) : ends[row]]
        costs = _examine(layers, first[row], end[row], training, given)
        for what in range(7):  # a slice takes four seconds to compile
            found[what, row] = costs[what]


@inner
def _need(
    layers: Layers, weights: Array, states: Array, a: int, b: int, steps: int, policy: Array
) -> tuple[int, int]:
    """Return the bytes that the layers [a, b) need on chip, and those kept between phases."""
    training = policy[0] != NONE
    found = _examine(layers, a, b, training, policy)
    held, kept = weights[b] - weights[a], steps * found[KEPT]
    first = held + kept + found[FIRST_PEAK]
    if not training:
        return first, kept
    last = 2 * held + kept + max(found[LAST_PEAK], states[b] - states[a])
    return last if b == len(layers.tape) else max(first, last), kept


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
) -> tuple[Array, int, int]:
    """Return where groups end that hold as many layers as fit, from layer `at` on.

    Then the layer to go on from (n: done; -1: none fits), and the bytes kept so far.  Sizes double
    up to the first that does not fit and are halved from there: a group of more layers than one
    that does not fit is not looked for beyond.  O(m log m) for groups of m layers.

    `weights` and `states`, int64 (n + 1,), are sums of bytes of variables, and of state in shards,
    of the layers before; `reach`, int64 (n,), where groups from each layer end, at most; `given`,
    int64 (n,), the policy of each layer, NONE, of all, in inference.  `limits` are bytes on chip,
    steps, and layers to look at before returning.  Groups before `at` keep `kept` bytes.
    """
    n = len(layers.tape)
    capacity, steps, budget = limits
    ends = np.empty(n - at, np.int64)  # a group has one layer at least
    count = 0
    while at < n and budget > 0:
        low, high, size, held = at, reach[at] + 1, 1, 0
        while high - low > 1:
            b = min(at + size, high - 1) if size else (low + high) // 2
            budget -= b - at
            need, own = _need(layers, weights, states, at, b, steps, given[at:b])
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
