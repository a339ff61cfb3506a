"""Compiled labels of chains, from one device to the next; see :mod:`.trips`.

A label is a row of numbers.  For each stage: the F's it has done, the W's it has done, and when it
is free.  Then, for microbatches i, i + 1, ...: when their last completed F ended (-1: none, or all
of them), where microbatch i is the one whose B is being scheduled.  W's that may be interrupted are
divided into pieces of one cycle each; statements on W's then apply to these pieces.

Cost and source: see there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

HOP, COUNT = 0, 1
"""Columns after a label on the stack: the stage where its next F runs (-1: none), and its moves."""


class Chain(NamedTuple):
    """A chain of stages with a device each, first stage first."""

    # Microbatches; those whose F's can be done when B of a microbatch is not, itself included.
    m: int
    ahead: int
    # int64 (p,): cycles; 0 for W where B is the whole backward pass.
    forward: Array
    backward: Array
    weight: Array
    # int64 (p,): how many W's a microbatch has: 1, or one for each cycle where it may be
    # interrupted.
    pieces: Array
    split: bool  # whether there are W's
    lag: Array  # int64 (p,): cycles from a stage to the next one; the last is 0
    # int64 (p,): bytes that F takes, B and W give back, and that there are.
    taken: Array
    given: Array
    later: Array
    limit: Array
    # int64 (p,): what the value has after the last end of a stage, and after its last B, at least.
    after: Array
    path: Array
    # int64 (m + 1,): by number of microbatches, cycles from the first F's start to the end, at
    # least.
    rest: Array


@step
def _copy(one: Array, other: Array) -> None:
    """Write one label into the place of another, as far as both go."""
    for x in range(min(len(one), len(other))):  # a slice takes two seconds to compile
        other[x] = one[x]


@step
def _pending(chain: Chain, label: Array, i: int, t: int) -> int:
    """Return how many W's stage t can do while B of microbatch i is on its way to it."""
    done: int = label[len(chain.lag) + t]
    # B's of the i microbatches before have run: no other W can.
    return chain.pieces[t] * i - done if chain.split else 0


@step
def _over(chain: Chain, label: Array, i: int, t: int) -> int:
    """Return by how many bytes the next F of stage t exceeds the limit before B of i is done."""
    done = label[len(chain.lag) + t]
    taken, given = chain.taken[t] * (label[t] + 1), chain.given[t] * i + chain.later[t] * done
    over: int = taken - given - chain.limit[t]
    return over


@step
def _fitting(free: int, arrival: int, length: int, pending: int) -> int:
    """Return how many W's end before something arrives."""
    if arrival <= free:
        return 0
    # W's of no cycles all fit into any gap.
    return pending if length == 0 else min(pending, (arrival - free) // length)


@step
def _forward(
    chain: Chain, i: int, s: int, arrival: int, label: Array, stack: Array, top: int
) -> int:
    """Push what becomes of a label whose next F runs on a stage; return the new top."""
    p = len(chain.lag)
    hop = 3 * p + chain.ahead
    t = label[hop + HOP]
    j, free, length = label[t], label[2 * p + t], chain.weight[t]
    pending, over, need = _pending(chain, label, i, t), _over(chain, label, i, t), 0
    if over > 0:  # only W's can make room before this B
        if chain.later[t] <= 0 or not chain.split:
            return top
        need = -(-over // chain.later[t])
        if need > pending:
            return top
    here = label[3 * p + j - i] + chain.lag[t - 1] if t > 0 else 0
    # W's that fit into the gap delay nothing; one more may pay, two never: it could wait.
    least = max(need, _fitting(free, here, length, pending))
    for w in range(least, min(least + 1, pending) + 1):
        if w > least and free + least * length >= here:
            break  # there is no gap that one more would use
        start = max(here, free + w * length)
        if t == s and j > i:
            before = min(w, _fitting(free, arrival, length, w))
            end = max(arrival, free + before * length) + chain.backward[t]
            if end + (w - before) * length <= start:
                continue  # B can be first, and nothing is later
        made = stack[top]
        _copy(label, made)
        made[t] = j + 1
        made[p + t] += w
        made[2 * p + t] = made[3 * p + j - i] = start + chain.forward[t]
        made[hop + HOP] = t + 1 if t < s else -1  # the same F goes on to the stage of the B
        _note(made, hop, t, w)
        top += 1
    return top  # higher by two at most


@step
def _note(label: Array, hop: int, t: int, w: int) -> None:
    """Note, where there is room, that stage t runs so many W's, and then an F or a B."""
    place = hop + 2 + 2 * label[hop + COUNT]
    if place + 1 < len(label):
        label[place], label[place + 1] = t, w
        label[hop + COUNT] += 1


@step
def _promising(chain: Chain, i: int, s: int, label: Array, upper: int) -> bool:
    """Whether a label after B of microbatch i on stage s may lead to less than `upper`."""
    p, m = len(chain.lag), chain.m
    free = label[2 * p + s]
    # All F's and B's that the stage still has, one after another, and then the way to the end.
    end: int = free + chain.forward[s] * (m - label[s]) + chain.backward[s] * (m - 1 - i)
    weights = chain.weight[s] * (chain.pieces[s] * m - label[p + s]) if chain.split else 0
    if max(end + chain.path[s], end + weights + chain.after[s]) >= upper:
        return False
    # What has not entered needs what is proved of so many microbatches alone.
    if label[0] < m:
        end = _entering(chain, i, s, label) + chain.rest[m - label[0]]
    return end < upper


@step
def _entering(chain: Chain, i: int, s: int, label: Array) -> int:
    """Return when the next microbatch can enter at the earliest, after B of i on stage s.

    Where memory is full, it waits for W's of the first stage, and for the next B there.
    """
    p = len(chain.lag)
    free: int = label[2 * p]
    back: int = label[2 * p + s]
    if s == 0:  # the next B comes from the end
        i, s, back = i + 1, p, 0
    over, pending = _over(chain, label, i, 0), _pending(chain, label, i, 0)
    # All W's together do not make room: it takes the B that is on its way.
    returns = over > chain.later[0] * pending
    if returns:
        over -= chain.given[0]
        free += chain.backward[0]
    if over > 0 and chain.later[0] > 0:
        free += -(-over // chain.later[0]) * chain.weight[0]
    for t in range(s - 1 if returns else -1, -1, -1):
        back = max(back + chain.lag[t], label[2 * p + t]) + chain.backward[t]
    return max(back, free) if returns else free


@step
def _arriving(chain: Chain, i: int, s: int, label: Array) -> int:
    """Return from when on the next F of a stage can run; `FAR` where W's may be in its way.

    Those that may be interrupted are not.
    """
    p, j = len(chain.lag), label[s]
    # The next F of this stage stands before stage t: those before have done it.
    t = s
    while t > 0 and label[t - 1] <= j:
        t -= 1
    end = label[3 * p + j - i] + chain.lag[t - 1] if t > 0 else 0
    while t < s:
        if _over(chain, label, i, t) > 0 or (chain.split and chain.pieces[t] == 1):
            return FAR
        end = max(end, label[2 * p + t]) + chain.forward[t] + chain.lag[t]
        t += 1
    return end


@step
def _backward(
    chain: Chain, i: int, s: int, arrival: int, upper: int, label: Array, out: Array, made: int
) -> int:
    """Write what becomes of a label when B of microbatch i runs on stage s; return how many.

    Two rows at most: B comes after the fewest W's or after one more.
    """
    p = len(chain.lag)
    j, free, length = label[s], label[2 * p + s], chain.weight[s]
    pending = _pending(chain, label, i, s)
    least = _fitting(free, arrival, length, pending)
    for w in range(least, min(least + 1, pending) + 1):
        if w > least and free + least * length >= arrival:
            break
        start = max(arrival, free + w * length)
        # An F that would end in the gap before B could have run: that label is made as well.
        if j < chain.m and j - i < chain.ahead:
            ends = max(_arriving(chain, i, s, label), free + w * length) + chain.forward[s]
            if ends <= start and _over(chain, label, i, s) <= chain.later[s] * w:
                continue  # the next F can be before, and nothing is later
        row = out[made]
        _copy(label, row)
        row[p + s] += w
        row[2 * p + s] = start + chain.backward[s]
        if not _promising(chain, i, s, row, upper):
            continue  # its row is written over
        if len(row) > 3 * p + chain.ahead:
            _note(row, 3 * p + chain.ahead, s, w)
        _settle(chain, i, row)
        made += 1
    return made


@step
def _settle(chain: Chain, i: int, label: Array) -> None:
    """Let F's end as late as the next stage is free for them; forget those that are done."""
    p = len(chain.lag)
    for q in range(chain.ahead):
        last = -1
        while last + 1 < p and label[last + 1] > i + q:
            last += 1
        if last < 0 or last == p - 1:  # not begun, or through: no later F waits for it
            label[3 * p + q] = -1
        else:
            # Labels that differ only in an end that nobody waits for become equal.
            label[3 * p + q] = max(label[3 * p + q], label[2 * p + last + 1] - chain.lag[last])


@step
def _expand(
    chain: Chain,
    i: int,
    s: int,
    upper: int,
    least: int,
    most: int,
    label: Array,
    stack: Array,
    out: Array,
    made: int,
) -> tuple[int, int]:
    """Write what becomes of a label that has B of i on all stages after s; and how many steps.

    The first is -1 where `out` is full, which is asked before two rows are written.  What is taken
    from the stack leaves two on it at most, each with one more of the up to `ahead` F's of a stage:
    it needs a row for each F, one to begin with, and its last row for what was taken.
    """
    p = len(chain.lag)
    hop = 3 * p + chain.ahead
    arrival = label[2 * p + s + 1] + chain.lag[s] if s < p - 1 else 0
    _copy(label, stack[0])
    stack[0, hop + HOP], stack[0, hop + COUNT] = -1, 0  # no F is on its way yet
    top, steps = 1, 0
    while top > 0:
        top -= 1
        now = stack[len(stack) - 1]
        _copy(stack[top], now)
        steps += 1
        if now[hop + HOP] >= 0:  # in the middle of an F's way: nothing else is decided
            top = _forward(chain, i, s, arrival, now, stack, top)
            continue
        if made + 2 > len(out):  # what this label has made is made again with more room
            return -1, steps
        if now[s] > i and now[s] >= least:  # B needs its own F
            made = _backward(chain, i, s, arrival, upper, now, out, made)
        if now[s] < min(chain.m, most) and now[s] - i < chain.ahead:
            # Another F before the B: it comes from the nearest stage that has done it.
            t = s
            while t > 0 and now[t - 1] <= now[s]:
                t -= 1
            _copy(now, stack[top])
            stack[top, hop + HOP] = t
            top += 1
    return made, steps


@compiled
def expand(
    chain: Chain,
    i: int,
    s: int,
    upper: int,
    near: tuple[int, int],
    labels: Array,
    state: Array,
    most: int,
    stack: Array,
    out: Array,
    parent: Array,
    child: Array,
) -> bool:
    """Write what becomes of labels when B of microbatch `i` runs on stage `s`; True: `out` is full.

    `labels`, int64 (n, 3 * p + ahead), are those of the step before, and stay as they are; what
    cannot lead to less than `upper` is left out.  The stage runs `near` many F's before B, at least
    and at most.  `state`, int64 (3,), is labels looked at, rows of `out` written, and steps, of
    which a call takes `most`: where to go on.  `stack`, int64 (places, columns), is scratch: ``p *
    ahead + 2`` places are enough, see :func:`_expand`.  `out`, int64 (room, columns), is never
    filled beyond its room, which must be for two rows: it is said to be full before.  `parent` and
    `child`, int32 (room,), are whose child each row of `out` is, and which of them.
    """
    at, made, total = state
    full = False
    while at < len(labels) and total < most:
        end, steps = _expand(chain, i, s, upper, near[0], near[1], labels[at], stack, out, made)
        total += steps * len(out[0])
        if end < 0:
            full = True
            break
        for row in range(made, end):
            parent[row], child[row] = at, row - made
        at, made = at + 1, end
    state[0], state[1], state[2] = at, made, total
    return full


@step
def _above(p: int, one: Array, other: Array, weight: Array, most: int) -> int:
    """Return by how much one label is later than another at most, 0: nowhere; or more than `most`.

    Where it has fewer W's done, it runs them first.
    """
    above: int = 0
    for s in range(p):
        late = one[2 * p + s] - other[2 * p + s]
        missing = other[p + s] - one[p + s]
        if missing > 0:  # it can run them, and is later by as much
            late += missing * weight[s]
        above = max(above, late)
        if above > most:
            return above  # no less is known, and no more is asked
    for x in range(3 * p, len(one)):
        above = max(above, one[x] - other[x])
        if above > most:
            return above
    return above


@compiled
def undominated(
    p: int,
    labels: Array,
    weight: Array,
    order: Array,
    key: Array,
    keep: Array,
    kept: Array,
    state: Array,
    most: int,
) -> None:
    """Say which labels to keep: of no other of the same key the same comes, as early.

    `labels`, int64 (n, columns), are all that a step made, in any order, and `order`, int64 (n,),
    those by key, those that may make others needless first.  `weight`, int64 (p,), are the cycles
    of W of the `p` stages.  `key`, int64 (n,), is equal for labels with as many F's done
    everywhere.  `keep`, bool (n,), is written; `kept`, int64 (n,), is scratch, a place for each
    label, and stays as it is from call to call.  `state`, int64 (3,): labels looked at, those kept
    of the key at hand, and steps, of which a call takes `most`.
    """
    at, count, steps = state
    while at < len(order) and steps < most:
        v = order[at]
        if at > 0 and key[order[at - 1]] != key[v]:
            count = 0  # labels of other keys say nothing of each other
        good = True
        for place in range(count):
            steps += p
            if _above(p, labels[kept[place]], labels[v], weight, 0) <= 0:
                good = False
                break
        keep[v] = good
        if good:
            kept[count] = v
            count += 1
        at += 1
    state[0], state[1], state[2] = at, count, steps


@compiled
def nearest(
    p: int,
    labels: Array,
    weight: Array,
    key: Array,
    window: int,
    whose: Array,
    least: Array,
    state: Array,
    most: int,
) -> None:
    """Find for labels which other of the same key has to be earlier by least to be in their place.

    That other label goes to `whose`, -1: none, and by how much to `least`, both int64 (n,) and
    updated.  `p`, `weight` and `key` are as for :func:`undominated`, `labels` by key; each is
    compared with `window` labels after it.  `state`, int64 (2,): labels looked at, and steps, of
    which a call takes `most`.
    """
    u, steps = state
    while u < len(labels) and steps < most:
        for v in range(u + 1, min(u + 1 + window, len(labels))):
            if key[u] != key[v]:
                break
            # Both ways: which of the two may stand for the other, and at what price.
            steps += 2 * p
            above = _above(p, labels[u], labels[v], weight, least[v])
            if above < least[v]:
                whose[v], least[v] = u, above
            above = _above(p, labels[v], labels[u], weight, least[u])
            if above < least[u]:
                whose[u], least[u] = v, above
        u += 1
    state[0], state[1] = u, steps


@step
def _merge(p: int, one: Array, other: Array, weight: Array) -> None:
    """Make one label as early as another, too: neither may be needed any more.

    It has only the W's done that it could not run until the other label is free.
    """
    for s in range(p):
        free = min(one[2 * p + s], other[2 * p + s])
        # W's that one ran while the other was free already may be undone: they could wait.
        done: int = 0
        for label in (one, other):
            time = label[2 * p + s] - free
            done = max(done, label[p + s] - (time // weight[s] if weight[s] > 0 else 0))
        one[p + s], one[2 * p + s] = done, free
    for x in range(3 * p, len(one)):
        one[x] = min(one[x], other[x])


@compiled
def absorb(
    p: int,
    labels: Array,
    weight: Array,
    order: Array,
    whose: Array,
    gone: Array,
    most: int,
    merge: bool,
) -> int:
    """Let labels stand for others, too, in turn: of two, one is kept; return how many are gone.

    `p` and `weight` are as for :func:`undominated`; `labels`, int64 (n, columns), are updated.
    `order` has the labels for which another may stand, `whose` which one, -1: none, both int64
    (n,).  `gone`, bool (n,), False at first, becomes True for those for which another stands, at
    most `most` of them.  With `merge` labels that stand for others become as early; else they stay
    as they are.
    """
    stays = np.zeros(len(labels), dtype=np.bool_)
    count = 0
    for v in order:
        u = whose[v]
        if count == most:
            break
        # What stands for another stays itself, or a chain of small steps would lead far.
        if u < 0 or gone[u] or stays[v]:
            continue
        if merge:
            _merge(p, labels[u], labels[v], weight)
        gone[v] = stays[u] = True
        count += 1
    return count
