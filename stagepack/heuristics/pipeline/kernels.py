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

Two techniques make a search fast.  A tail is considered only if stages of at most C ticks could
cover the layers before it and those after it.  A probe near the optimum therefore examines few
layers, and stores cells for these windows only.  (In mode SUM, the transfers of the cheapest cuts
nearby are part of these ticks.)  And a probe that fails also returns the limits up to which no
further tail could be placed, so that bisection skips them.

Only :func:`search` is called from outside: every further way in would be compiled separately.

Cost: O(transitions * n) steps and bytes a probe at most, with tables O(transitions * n^2).  Source:
own work, after the recurrence of *Auto Pipeline* (:mod:`.reference`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import inlined, step, tiered

BOTTLENECK, TRANSFER_BOUNDED, SUM, OVERLAP = range(4)
UNLIMITED = 2**61
LOOKED = 100  # cuts next to one, that may be cheaper, at which to look

# The fields of a search's state, an array of int64:
(
    PHASE,  # one of the phases below
    COMPUTE,  # the limits of the probe under way,
    TRANSFER,
    TRANSITION,  # and the transition with which it goes on
    PROBES,  # how many probes to make on this chain
    FLOOR,  # no partition needs less compute than this,
    LEAST_FLOOR,  # and this was known of it before
    KNOWN,  # what some partition known before needs
    BEST,  # what the best partition met needs,
    STAGES,  # and how many stages it has
    CELLS,  # cells that the probe under way needs
) = range(11)
# Looking for any partition and for the least compute; one probe, or only what it needs; and ends.
FIRST, LEAST, ONE_PROBE, MEASURE, DONE, INFEASIBLE = range(6)


def first_state(floor: int, known: int) -> Array:
    """Return the state of a search not yet begun.

    No partition needs less compute than `floor`, and some one `known`, `UNLIMITED` without any.
    """
    # Seldom far above the bound; without one (tables) there is nothing to start from.
    near = floor + max(1, floor >> 5) if floor > 0 else UNLIMITED
    state = probe_state(FIRST, min(near, known), UNLIMITED)
    state[[PROBES, FLOOR, LEAST_FLOOR, KNOWN]] = 0, floor, floor, known
    return state


def probe_state(phase: int, compute_limit: int, transfer_limit: int) -> Array:
    """Return the state of a single probe not yet begun.

    The `phase` is `ONE_PROBE`, or `MEASURE` to know only what it needs; `compute_limit` and
    `transfer_limit` are in ticks, `UNLIMITED` without one.
    """
    state = np.zeros(11, dtype=np.int64)
    state[[PHASE, COMPUTE, TRANSFER, PROBES]] = phase, compute_limit, transfer_limit, 1
    state[BEST] = 2 * UNLIMITED
    return state


class Chain(NamedTuple):
    """An instance as the kernels see it; int64 arrays, and ints, unless stated otherwise."""

    # (transitions,): the automaton; transitions into a state come before those out of it.  `window`
    # is the row of `reach` or `fits` that holds for the transition.
    source: Array
    target: Array
    device_class: Array
    window: Array
    # (states + 1,): transitions into state q are those from arrivals[q] up to arrivals[q + 1].
    arrivals: Array
    accepting: Array  # bool (states,): whether the chain may begin in a state
    # (states,): the fewest stages, of a layer or more each, before a tail of this state, and in it.
    before: Array
    after: Array
    # Whether `fits`, `compute` and `extra` hold the costs; else `reach` and `prefix` do.  The
    # arrays not used have one entry, and so has `extra` outside of mode TRANSFER_BOUNDED.
    tabular: bool
    reach: Array  # (windows, n): furthest end of a stage that begins at each layer
    prefix: Array  # (classes, n + 1): running sums of compute
    fits: Array  # bool (windows, n + 1, n + 1): whether [a, b) fits, by window
    # (classes, n + 1, n + 1): ticks of [a, b), by class, and those of its transfers beside the ones
    # at cuts.
    compute: Array
    extra: Array
    # (classes, n + 1): ticks to receive and to send at each cut.
    recv: Array
    send: Array
    host: int  # ticks of its exchange, of every stage
    allowed: Array  # bool (n + 1,): cuts where stages may begin and end
    mode: int  # one of the four modes above
    omitted: int  # cuts that the chain leaves out are of no use below this limit on compute


class Scratch(NamedTuple):
    """Where the kernels write; int64 arrays unless stated otherwise."""

    # bool: placed[q, a] is cells[offset[q] + a], kept for behind[q] <= a <= ahead[q]; a shortage is
    # mended by whoever calls (see `search`).
    cells: Array
    queue: Array  # (n + 2,): ends of stages in a window, the cheapest first: each enters once
    # (2,): at which compute limit, the transfer limit held, and at which transfer limit, the
    # compute limit held, the last probe could have placed more: not below these.
    next_limits: Array
    # (states,): least and greatest placed position of each state (n + 1 and -1: none).
    lowest: Array
    highest: Array
    # (states,): tails of this state that begin later are of no use: the layers before them would
    # not fit into the stages left for them.  None begins earlier: its own stages could not hold it.
    ahead: Array
    behind: Array
    # (2, transitions): where the probe before this one found the furthest end and the first layer
    # of each stage; 0 before the first probe.  Limits move little: the next is near.
    hints: Array
    offset: Array  # (states,): where the cells of each state begin, less `behind`
    # (5,): where `_read_partition` is: state (-1 before it begins, 0 at the end, -2 without one),
    # layer, stages so far, and the largest compute and transfer of these.
    reading: Array
    # (states,): end and device class of each stage of the partition last read.
    ends: Array
    classes: Array
    # (states,): the same of the best partition that a search met.
    best_ends: Array
    best_classes: Array


@inlined
def _within(
    mode: int, work: int, recv: int, send: int, host: int, compute_limit: int, transfer_limit: int
) -> bool:
    """Return whether a stage of these costs is within the limits of the mode."""
    if mode == SUM:
        return work + recv + send + host <= compute_limit
    if work > compute_limit:
        return False
    if mode == TRANSFER_BOUNDED:
        return recv + send + host <= transfer_limit
    return mode == BOTTLENECK or (recv <= compute_limit and send <= compute_limit)


@step
def _measure(chain: Chain, compute_limit: int, scratch: Scratch) -> int:
    """Prepare a probe: set the windows of all states, and return how many cells they need.

    O(transitions * log n).
    """
    n, total = len(chain.allowed) - 1, 0
    scratch.next_limits[0] = 0 if chain.tabular else chain.omitted
    scratch.next_limits[1] = 0 if chain.tabular else UNLIMITED
    _look_ahead(chain, compute_limit, scratch)
    _look_behind(chain, compute_limit, scratch)
    for q in range(len(scratch.ahead)):
        scratch.lowest[q], scratch.highest[q] = n + 1, -1
        scratch.offset[q] = total - scratch.behind[q]
        total += max(0, scratch.ahead[q] - scratch.behind[q] + 1)
    return total


@step
def _place_tails(state: Array, budget: int, chain: Chain, scratch: Scratch) -> int:
    """Place tails along the transitions from state[TRANSITION] on.

    O(window of the target) a transition, O(n^2) for tables.  Goes on for about `budget` elementary
    steps, and returns what is left of them.
    """
    cells, ahead, behind, offset = scratch.cells, scratch.ahead, scratch.behind, scratch.offset
    n, t = len(chain.allowed) - 1, state[TRANSITION]
    if t == 0 and ahead[0] == n and behind[0] <= n:
        cells[offset[0] + n] = True
        scratch.lowest[0] = scratch.highest[0] = n
    while t < len(chain.source):
        q = chain.target[t]
        width = max(0, ahead[q] - behind[q] + 1)
        if t == chain.arrivals[q]:
            for cell in range(offset[q] + behind[q], offset[q] + behind[q] + width):
                cells[cell] = False
        if scratch.highest[chain.source[t]] >= 0:  # empty windows, too: for `next_limits`
            if chain.tabular:
                _place_by_table(t, chain, state[COMPUTE], state[TRANSFER], scratch)
                width = n * n // 2
            else:
                _place_by_window(t, chain, state[COMPUTE], state[TRANSFER], scratch)
                q0 = chain.source[t]
                width += ahead[q0] - behind[q0]
        t += 1
        budget -= width + 50
        if budget <= 0:
            break
    state[TRANSITION] = t
    return budget


@step
def _look_ahead(chain: Chain, compute_limit: int, scratch: Scratch) -> None:
    """Set `ahead`: how far the stages before a tail reach, each as long as compute and reach allow.

    No further than its own stages leave room.  One bisection a transition, from the head of the
    chain on; tables have no such order.
    """
    ahead, n = scratch.ahead, len(chain.allowed) - 1
    for q in range(len(ahead)):
        if chain.tabular:
            ahead[q] = n - chain.after[q]
        else:
            ahead[q] = 0 if chain.accepting[q] else -1
    if chain.tabular:
        return
    # Backwards: what is before a tail is known before what is before longer ones.
    for t in range(len(chain.source) - 1, -1, -1):
        a, c = ahead[chain.target[t]], chain.device_class[t]
        if a < 0:
            continue
        end, last = n, n - chain.after[chain.source[t]]
        if a < n:
            end, beyond = a, chain.reach[chain.window[t], a] + 1
            begun = _begun(chain, c, a)
            middle = scratch.hints[0, t]
            step = 1 if end < middle < beyond else n
            while beyond - end > 1:
                if not end < middle < beyond:
                    middle = (end + beyond) // 2
                if chain.prefix[c, middle] - begun <= compute_limit:
                    end = middle
                    middle += step
                else:
                    beyond = middle
                    middle -= step
                step *= 2  # beyond the other end as soon as that is known
            # Kept by transition: the next probe's limit is near, and so is its end.
            scratch.hints[0, t] = end
            if beyond <= min(last, chain.reach[chain.window[t], a]):
                needed = chain.prefix[c, beyond] - begun
                scratch.next_limits[0] = min(scratch.next_limits[0], needed)
            for _ in range(LOOKED if chain.mode == SUM else 0):
                needed = chain.prefix[c, end] + chain.send[c, end] - begun
                if end == a or needed <= compute_limit:
                    break
                scratch.next_limits[0] = min(scratch.next_limits[0], needed)
                end -= 1
        ahead[chain.source[t]] = max(ahead[chain.source[t]], min(end, last))


@step
def _begun(chain: Chain, c: int, a: int) -> int:
    """Return what the compute up to the end of a stage counts from: it begins at `a` or before.

    Where what it receives counts, too, it may rather begin a little earlier.
    """
    most: int = chain.prefix[c, a]
    if chain.mode != SUM:
        return most
    most -= chain.recv[c, a]
    # Running sums fall going back: once one is no more than `most`, no earlier cut raises it.
    for back in range(1, LOOKED):
        if back > a or chain.prefix[c, a - back] <= most:
            return most - chain.host
        most = max(most, chain.prefix[c, a - back] - chain.recv[c, a - back])
    most = max(most, chain.prefix[c, a - LOOKED + 1])
    return most - chain.host


@step
def _ended(chain: Chain, c: int, b: int) -> int:
    """Return what the compute up to the beginning of a stage counts to: it ends at `b` or later.

    Where what it sends counts, too, it may rather end a little later.
    """
    least: int = chain.prefix[c, b]
    if chain.mode != SUM:
        return least
    least += chain.send[c, b]
    # They rise going on: once one is no less than `least`, no later cut lowers it.
    for on in range(1, LOOKED):
        if b + on == len(chain.allowed) or chain.prefix[c, b + on] >= least:
            return least + chain.host
        least = min(least, chain.prefix[c, b + on] + chain.send[c, b + on])
    least = min(least, chain.prefix[c, b + LOOKED - 1])
    return least + chain.host


@step
def _look_behind(chain: Chain, compute_limit: int, scratch: Scratch) -> None:
    """Set `behind`: how far back the stages of a tail reach, each as far as it may.

    No further than leaves room for the stages before it.
    """
    behind, n = scratch.behind, len(chain.allowed) - 1
    for q in range(len(behind)):
        behind[q] = chain.before[q] if chain.tabular else n + 1
    if chain.tabular:
        return
    # Nothing is placed at first: the only tail of state 0 is the empty one.
    behind[0] = n
    for t in range(len(chain.source)):
        b, c, row = behind[chain.source[t]], chain.device_class[t], chain.window[t]
        if b > n:
            continue
        first, low, q = 0, b, chain.target[t]
        ended = _ended(chain, c, b)
        middle = scratch.hints[1, t]
        step = 1 if first < middle < low else n
        while first < low:  # the first layer from which a stage reaches b
            if not first <= middle < low:
                middle = (first + low) // 2
            if ended - chain.prefix[c, middle] <= compute_limit and chain.reach[row, middle] >= b:
                low = middle
                middle -= step
            else:
                first = middle + 1
                middle += step
            step *= 2
        scratch.hints[1, t] = first
        for _ in range(LOOKED if chain.mode == SUM else 0):
            if first == b or ended - chain.prefix[c, first] + chain.recv[c, first] <= compute_limit:
                break
            first += 1
        behind[q] = min(behind[q], max(first, chain.before[q]))


@step
def _place_by_window(
    t: int, chain: Chain, compute_limit: int, transfer_limit: int, scratch: Scratch
) -> None:
    """Follow one transition of a chain whose costs add up.

    Both ends of the window of feasible stage ends fall with the first layer, so a monotone queue
    gives the cheapest send (or compute plus send) in it.  Every end enters the queue once, n + 1 at
    most.  Nothing is placed before `behind`, where a state's cells begin.
    """
    q0, q, c, row = chain.source[t], chain.target[t], chain.device_class[t], chain.window[t]
    prefix, send, recv, queue = chain.prefix, chain.send, chain.recv, scratch.queue
    cells, at, at0 = scratch.cells, scratch.offset[q], scratch.offset[q0]
    next_compute, next_transfer = scratch.next_limits[0], scratch.next_limits[1]
    head, tail, b = 0, 0, scratch.highest[q0]
    beyond = len(queue)  # the nearest end that left the queue for being too far
    for a in range(min(scratch.ahead[q], b - 1), chain.before[q] - 1, -1):
        while b > a and b >= scratch.lowest[q0]:
            if cells[at0 + b]:
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
            b -= 1
        furthest = prefix[c, a] + compute_limit
        while head < tail and (
            queue[head] > chain.reach[row, a] or prefix[c, queue[head]] > furthest
        ):
            beyond = queue[head]
            head += 1
        if head < tail:
            # Placed by another transition already, or no cut: nothing to find here.
            if not chain.allowed[a] or (a >= scratch.behind[q] and cells[at + a]):
                continue
            end = queue[head]
            work, r, s = prefix[c, end] - prefix[c, a], recv[c, a], send[c, end]
            if _within(chain.mode, work, r, s, chain.host, compute_limit, transfer_limit):
                cells[at + a] = True
                scratch.lowest[q] = min(scratch.lowest[q], a)
                scratch.highest[q] = max(scratch.highest[q], a)
                continue
            if chain.mode == TRANSFER_BOUNDED:
                next_transfer = min(next_transfer, r + s + chain.host)
            elif chain.mode == SUM:
                next_compute = min(next_compute, work + r + s + chain.host)
            else:
                next_compute = min(next_compute, max(r, s))
        if beyond <= chain.reach[row, a]:
            next_compute = min(next_compute, prefix[c, beyond] - prefix[c, a])
        if head == tail and b < scratch.lowest[q0]:
            break  # what is too far from here is so from all layers before
    scratch.next_limits[0], scratch.next_limits[1] = next_compute, next_transfer


@step
def _place_by_table(
    t: int, chain: Chain, compute_limit: int, transfer_limit: int, scratch: Scratch
) -> None:
    """Follow one transition of a chain given by tables without structure."""
    q0, q, c, row = chain.source[t], chain.target[t], chain.device_class[t], chain.window[t]
    cells, at, at0 = scratch.cells, scratch.offset[q], scratch.offset[q0]
    mode, host = chain.mode, chain.host
    for a in range(chain.before[q], scratch.highest[q0]):
        # Costs of tables neither rise nor fall: every end is tried until one will do.
        for b in range(max(a + 1, scratch.lowest[q0]), scratch.highest[q0] + 1):
            if cells[at + a]:
                break
            if not (cells[at0 + b] and chain.fits[row, a, b]):
                continue
            work, r, s = chain.compute[c, a, b], chain.recv[c, a], chain.send[c, b]
            if mode == TRANSFER_BOUNDED:
                r += chain.extra[c, a, b]
            cells[at + a] = _within(mode, work, r, s, host, compute_limit, transfer_limit)
        if cells[at + a]:
            scratch.lowest[q] = min(scratch.lowest[q], a)
            scratch.highest[q] = max(scratch.highest[q], a)


@step
def _read_partition(state: Array, budget: int, chain: Chain, scratch: Scratch) -> int:
    """Read a partition off the cells, from the first layer on, into `ends` and `classes`.

    Goes on from `reading`, which says in the end what limits the partition needs, for about
    `budget` elementary steps, and returns what is left of them.  A path has fewer stages than there
    are states, of which it meets none twice: `ends` has room for them.
    """
    reading, cells = scratch.reading, scratch.cells
    compute_limit, transfer_limit = state[COMPUTE], state[TRANSFER]
    if reading[0] == -1:
        reading[0] = -2
        for at in range(1, len(reading)):
            reading[at] = 0
        for q in range(1, len(scratch.ahead)):
            if chain.accepting[q] and scratch.lowest[q] == 0:
                reading[0] = q
                break
    while reading[0] > 0 and budget > 0:
        q, a, stages = reading[0], reading[1], reading[2]
        found = False
        for t in range(chain.arrivals[q], chain.arrivals[q + 1]):
            if found:
                break
            q0, c, row = chain.source[t], chain.device_class[t], chain.window[t]
            for b in range(max(a + 1, scratch.lowest[q0]), scratch.highest[q0] + 1):
                budget -= 1
                if chain.tabular:
                    fits, work = chain.fits[row, a, b], chain.compute[c, a, b]
                else:
                    fits, work = b <= chain.reach[row, a], chain.prefix[c, b] - chain.prefix[c, a]
                    if not fits or work > compute_limit:
                        break  # the further the worse
                r, s = chain.recv[c, a], chain.send[c, b]
                if chain.tabular and chain.mode == TRANSFER_BOUNDED:
                    r += chain.extra[c, a, b]
                if (
                    cells[scratch.offset[q0] + b]
                    and fits
                    and _within(chain.mode, work, r, s, chain.host, compute_limit, transfer_limit)
                ):
                    if chain.mode == SUM:
                        work += r + s + chain.host
                    elif chain.mode == OVERLAP:
                        work = max(work, r, s)
                    reading[3] = max(reading[3], work)
                    reading[4] = max(reading[4], r + s + chain.host)
                    scratch.ends[stages], scratch.classes[stages] = b, c
                    reading[0], reading[1], reading[2] = q0, b, stages + 1
                    found = True
                    break
        if not found:  # cannot be: the cell was reached by some stage
            reading[0] = -2
        budget -= 20
    return budget


def _steps(state: Array, budget: int, chain: Chain, scratch: Scratch) -> int:
    """Return the most steps of :func:`search`, which looks at all ends of a stage at once."""
    del state, scratch
    n = len(chain.allowed)
    return budget + n * (n if chain.tabular else 1) + 50 * len(chain.source)


@tiered(_steps)
def search(state: Array, budget: int, chain: Chain, scratch: Scratch) -> int:
    """Go on with probes from where `state` left them; return what is left of the budget.

    Bisects on the limit on compute, unless a single probe is wanted.  Returns early, with more
    CELLS than there are, when the next probe needs them.

    The `state`, int64 of shape (11,), is that of :func:`first_state` or :func:`probe_state` at
    first; the `budget` is about so many elementary steps.
    """
    reading = scratch.reading
    while state[PHASE] < DONE and state[PROBES] > 0 and budget > 0:
        if state[TRANSITION] == 0:
            state[CELLS] = _measure(chain, state[COMPUTE], scratch)
            budget -= 50 * len(scratch.ahead)
            if state[CELLS] > len(scratch.cells) or state[PHASE] == MEASURE:
                return budget
            reading[0] = -1
        if state[TRANSITION] < len(chain.source):
            budget = _place_tails(state, budget, chain, scratch)
            if state[TRANSITION] < len(chain.source):
                continue
        budget = _read_partition(state, budget, chain, scratch)
        if reading[0] > 0 or reading[0] == -1:
            continue
        state[TRANSITION] = 0
        state[PROBES] -= 1
        if state[PHASE] == ONE_PROBE:
            state[PHASE] = DONE if reading[0] == 0 else INFEASIBLE
            continue
        # Kept aside: the next probe may find none, and overwrites `ends`.
        if reading[0] == 0:
            for stage in range(reading[2]):
                scratch.best_ends[stage] = scratch.ends[stage]
                scratch.best_classes[stage] = scratch.classes[stage]
            state[BEST], state[STAGES] = max(reading[3], state[FLOOR]), reading[2]
        _conclude(state, reading[0] == 0, max(state[COMPUTE] + 1, scratch.next_limits[0]))
    return budget


@step
def _conclude(state: Array, found: bool, next_compute: int) -> None:
    """Draw the conclusion from a probe and set the limit of the next.

    Below `next_compute` nothing more could be placed than was.
    """
    if found:
        state[PHASE] = LEAST
    elif state[PHASE] == LEAST:
        state[FLOOR] = min(next_compute, state[BEST])
    elif state[COMPUTE] == UNLIMITED:
        state[PHASE] = INFEASIBLE
        return
    else:
        # Seldom far above the bound; when it is, come down from the other end, which is the nearer
        # the more is known of it.
        step = 8 * (state[COMPUTE] - state[LEAST_FLOOR])
        state[FLOOR] = next_compute
        further = max(next_compute, state[LEAST_FLOOR] + step)
        if state[COMPUTE] < state[KNOWN] < UNLIMITED:
            state[COMPUTE] = min(further, state[KNOWN])
        else:
            state[COMPUTE] = UNLIMITED if step > 8 * state[LEAST_FLOOR] else further
        return
    if state[FLOOR] < state[BEST]:
        state[COMPUTE] = (state[FLOOR] + state[BEST]) // 2
    else:
        state[PHASE] = DONE
