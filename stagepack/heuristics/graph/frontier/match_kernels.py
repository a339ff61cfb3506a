"""Compiled matching of labels with those of a sweep in the opposite direction at the same cut.

A label can be completed only if a label from the other side is compatible: no edge points
backwards, and the sums of their loads, with the cost of the nets that are cut between them, are
within the limits.  Labels without a partner are dropped.  Cost: O(pairs * (stages + edges + nets))
at worst, usually O(labels).

Source: see :mod:`.sweeps`.
"""

from __future__ import annotations

from stagepack.heuristics.graph.frontier.label_state import (
    KNOWN,
    NEW,
    RECEIVED,
    SENT,
    SIDE,
    STEP,
    Labels,
    Plan,
    Question,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step


@step
def _ordered(
    plan: Plan,
    ask: Question,
    labels: Labels,
    control: Array,
    x: int,
    other: Plan,
    words: Array,
    r: int,
) -> bool:
    """Whether no edge must go back between label x and row r of the other side.

    An anchor says where its block is only as long as it was not raised by windows, or by blocks
    between.
    """
    i, side, last = control[STEP], 1 - control[SIDE], plan.stages - 1
    for q in range(plan.edge_ptr[i], plan.edge_ptr[i + 1]):
        a, b = plan.edge_own[q], plan.edge_other[q]
        here = labels.words[side, x, plan.anchor_word[a]] >> plan.anchor_shift[a]
        there = words[r, other.anchor_word[b]] >> other.anchor_shift[b]
        # The other side counts stages from its own end.
        low, high = here & plan.anchor_mask, last - (there & other.anchor_mask)
        # A clash of anchors proves nothing where one of them was only raised by what lies between.
        if low > high:
            v, u = plan.edge_low[q], plan.edge_high[q]
            if (v >= 0 and low > ask.low[v]) or (u >= 0 and high < ask.high[u]):
                return False
    return True


@step
def _mirrored(field: int, k: int) -> int:
    """Return a net's field with its stages counted from the other end."""
    found = field & (1 << k)
    for y in range(k):
        found |= ((field >> y) & 1) << (k - 1 - y)
    return found


@step
def _join(plan: Plan, ask: Question, cost: int, here: int, beyond: int, total: Array) -> None:
    """Add what a net costs both sides together more than each for itself."""
    cut = 1 << plan.stages
    for y in range(plan.stages):
        # Each side charged the net for itself as far as it knew it to be cut.
        mine, its = (here >> y) & 1, (beyond >> y) & 1
        if mine and its:
            if here & cut and beyond & cut:
                total[y] -= cost * ask.pays[y]  # both counted it
        elif (mine and not here & cut) or (its and not beyond & cut):
            total[y] += cost * ask.pays[y]  # only now it is cut


@step
def _join_apart(plan: Plan, ask: Question, cost: int, known: int, other: int, total: Array) -> None:
    """Do so where loads count apart; `known` is the field of the side that has the producer."""
    k, cut = plan.stages, 1 << plan.stages
    for y in range(k):
        # Stages of readers alone receive; those with the producer do not.
        if ((other & ~known) >> y) & 1:
            total[RECEIVED * k + y] += cost * ask.pays[y]
        if (known >> y) & 1 and not known & cut and other & ~(1 << y):
            total[SENT * k + y] += cost * ask.pays[y]


@step
def _within(
    plan: Plan,
    ask: Question,
    labels: Labels,
    control: Array,
    x: int,
    other: Plan,
    words: Array,
    loads: Array,
    r: int,
) -> bool:
    """Whether the loads of label x and row r, taken together, are within limits."""
    i, side, k = control[STEP], 1 - control[SIDE], plan.stages
    # Both plans list the live nets of a cut in the same order, so one offset pairs them.
    there = other.net_ptr[len(plan.order) - 2 - i] - plan.net_ptr[i]
    mask, total = (2 << k) - 1, labels.extra
    for row in range(plan.rows):
        for y in range(k):
            at = row * k + y
            total[at] = labels.loads[side, x, at] + loads[r, row * k + k - 1 - y]
    for q in range(plan.net_ptr[i], plan.net_ptr[i + 1]):
        a, b = plan.net[q], other.net[there + q]
        here = (labels.words[side, x, plan.net_word[a]] >> plan.net_shift[a]) & mask
        beyond = (words[r, other.net_word[b]] >> other.net_shift[b]) & mask
        beyond = _mirrored(beyond, k)
        if not plan.apart:
            _join(plan, ask, plan.net_cost[q], here, beyond, total)
        elif plan.net_flags[q] & KNOWN:
            _join_apart(plan, ask, plan.net_cost[q], here, beyond, total)
        else:
            _join_apart(plan, ask, plan.net_cost[q], beyond, here, total)
    over = 0
    for y in range(plan.rows * k):
        over += total[y] > ask.limit[y]
    return over == 0


@compiled
def match(
    plan: Plan,
    ask: Question,
    labels: Labels,
    control: Array,
    other: Plan,
    words: Array,
    loads: Array,
    begin: int,
    most: int,
) -> int:
    """Let new labels die that nothing of the other side completes; return where to go on.

    The sweep of `plan`, `ask`, `labels` and `control` pauses at the end of a step; `other` is the
    plan of the other direction, `words` and `loads` are int64 rows of the labels that it kept
    here.  `begin` is the first label to look at; after about `most` pairs the kernel returns.
    """
    i, side, k = control[STEP], 1 - control[SIDE], plan.stages
    count, room = len(words), labels.load
    tried, last, x = 0, 0, begin
    while x < control[NEW] and tried < most:
        if labels.alive[side, x] == 0:
            x += 1
            continue
        for y in range(plan.rows * k):
            # A quick test first: loads alone, with the charge that both sides may have made given
            # back.
            room[y] = ask.limit[y] - labels.loads[side, x, y]
        for q in range(plan.net_ptr[i], plan.net_ptr[i + 1]):
            a = plan.net[q]
            field = labels.words[side, x, plan.net_word[a]] >> plan.net_shift[a]
            for y in range(k):
                if (field >> k) & (field >> y) & 1 and not plan.apart:
                    room[y] += plan.net_cost[q]
        found = False
        for z in range(count):
            # The partner of the last label is likely to complete this one, too.
            r = last + z - count if last + z >= count else last + z
            tried += 1
            fine = True
            for y in range(plan.rows * k):
                if loads[r, y // k * k + k - 1 - y % k] > room[y]:
                    fine = False
                    break
            if not fine or not _ordered(plan, ask, labels, control, x, other, words, r):
                continue
            if _within(plan, ask, labels, control, x, other, words, loads, r):
                found, last = True, r
                break
        if not found:
            labels.alive[side, x] = 0
        x += 1
    return x
