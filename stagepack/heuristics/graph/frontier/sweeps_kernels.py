"""Compiled sweep of the frontier method: labels of partial partitions, block by block.

A label stands for all partitions of the blocks swept so far that are equivalent for the remaining
blocks.  It is a row of `words` and a row of `loads`.  The words hold packed fields: one for each
live net (the stages of its members that a remaining member may still join, and whether it is cut),
and one for each live anchor, which is a swept block with remaining successors (the lowest stage
that one of them can be in).  The loads are those of open stages; those of closed stages are 0.

Cost: labels * stages * (nets and anchors of a block) a step.  Source: see
:mod:`.sweeps`.
"""

from __future__ import annotations

from stagepack.heuristics.graph.frontier.field_kernels import (
    anchor,
    lowest,
    net,
    set_anchor,
    set_net,
)
from stagepack.heuristics.graph.frontier.label_state import (
    COARSER,
    COUNT,
    DONE,
    EMPTY,
    FIRST,
    FULL,
    KNOWN,
    LABEL,
    LAST,
    LOGGED,
    MASK,
    NEW,
    OVERFLOW,
    PAUSED,
    PRODUCER,
    RECEIVED,
    RESUMED,
    RUNNING,
    SENT,
    SIDE,
    STAGE,
    STATUS,
    STEP,
    TOTAL,
    WIDE,
    WORK,
    Labels,
    Plan,
    Question,
)
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

TOUCHED, COMPARED, EACH = 2, 4, 128
"""Work, of which a live net is one: a net or block whose field may change, a label that a new one
is compared with, and what trying a label takes beside these."""


@step
def _receive(plan: Plan, ask: Question, stages: int, cost: int, load: Array) -> None:
    """Add what a net costs stages, as bits, that receive it."""
    # Where loads are added, `apart` is 0 and so is the offset.
    begin = RECEIVED * plan.stages * plan.apart
    for y in range(plan.stages):
        if (stages >> y) & 1:
            load[begin + y] += cost * ask.pays[y]


@step
def _send(plan: Plan, ask: Question, field: int, cost: int, load: Array) -> None:
    """Add what a net costs the stage that sends it, the lowest of its field."""
    s = lowest(field)
    load[SENT * plan.stages * plan.apart + s] += cost * ask.pays[s]


@step
def _touch(plan: Plan, ask: Question, i: int, s: int, word: Array, load: Array) -> None:
    """Let the nets of block i touch stage s.

    Where loads count apart, stages pay for what they receive once the producer is known not to be
    with them.
    """
    cut, here = 1 << plan.stages, 1 << s
    for q in range(plan.touch_ptr[i], plan.touch_ptr[i + 1]):
        slot, cost, flags = plan.touch[q], plan.touch_cost[q], plan.touch_flags[q]
        # A slot holds what its last net left there until the first member of the next one.
        field = 0 if flags & FIRST else net(plan, word, slot)
        # The producer is here: stages with readers so far receive, unless they are this one.
        if plan.apart and flags & PRODUCER:
            _receive(plan, ask, field & ~(cut | here), cost, load)
            if field & ~here:
                _send(plan, ask, here, cost, load)
                field |= cut
        # Another stage than those known: the net is cut, and the sender pays once for that.
        elif field and not field & here and (not plan.apart or flags & KNOWN):
            _receive(plan, ask, here, cost, load)
            if not field & cut:
                _send(plan, ask, field, cost, load)
                field |= cut
        set_net(plan, word, slot, 0 if flags & LAST else field | here)


@step
def _refresh(plan: Plan, ask: Question, i: int, word: Array, load: Array) -> bool:
    """Forget what no remaining block can meet; cut what must be; False: a block has no stage."""
    cut = 1 << plan.stages
    for q in range(plan.item_ptr[i], plan.item_ptr[i + 1]):
        least = plan.stages
        for z in range(plan.term_ptr[q], plan.term_ptr[q + 1]):
            x = plan.term[z]
            # A remaining block goes no lower than what comes before it.
            low = ask.low[x]
            for y in range(plan.bound_ptr[z], plan.bound_ptr[z + 1]):
                low = max(low, anchor(plan, word, plan.bound[y]))
            if low > ask.high[x]:
                return False
            least = min(least, low)
        slot, cost = plan.item[q], plan.item_cost[q]
        # An item without a cost is an anchor: raised to the least stage that a successor can have.
        if cost < 0:
            set_anchor(plan, word, slot, least)
            continue
        field = net(plan, word, slot)
        # Stages below are closed to all remaining members, and need not be told apart any more.
        left = field & ((1 << least) - 1)
        if plan.apart and not plan.item_flags[q] & KNOWN:
            # The producer is on none of the stages that are left behind.
            _receive(plan, ask, left, cost, load)
            field |= cut if left else 0
        # No remaining member can meet those placed: cut in any case.
        elif left == field:
            _send(plan, ask, field, cost, load)
            field |= cut
        set_net(plan, word, slot, field & ~left)
    return True


@step
def _lowest_open(plan: Plan, ask: Question, i: int, word: Array) -> int:
    """Return the lowest stage that a block after step i can take."""
    low: int = ask.source_low[i + 1]
    for q in range(plan.anchor_ptr[i], plan.anchor_ptr[i + 1]):
        low = min(low, anchor(plan, word, plan.anchor[q]))
    return low


@step
def _owed(plan: Plan, ask: Question, i: int, word: Array) -> int:
    """Return what nets cost at least that are cut and touch no open stage yet."""
    owed = 0
    if plan.apart:
        return owed
    for q in range(plan.net_ptr[i], plan.net_ptr[i + 1]):
        # Only the mark of being cut: some open stage will receive it.
        if net(plan, word, plan.net[q]) == 1 << plan.stages:
            owed += plan.net_cost[q] * ask.all_pay
    return owed


@step
def _has_room(plan: Plan, ask: Question, i: int, low: int, load: Array, owed: int) -> bool:
    """Whether loads are within limits, and what remains fits into the stages it can take."""
    for row in range(plan.rows):
        begin = row * plan.stages
        room = 0
        for y in range(begin, begin + plan.stages):
            if load[y] > ask.limit[y]:
                return False
            if y >= begin + low:
                room += ask.limit[y] - load[y]
            # Hall's condition for intervals that begin at the lowest stage, then for those that end
            # at the last one.
            if room < ask.need_upto[i + 1, y]:
                return False
        # What nets owe is time, which is the first row.
        if row == 0 and room < ask.need_upto[i + 1, plan.stages - 1] + owed:
            return False
        room = 0
        for y in range(begin + plan.stages - 1, begin + low - 1, -1):
            room += ask.limit[y] - load[y]
            if room < ask.need_from[i + 1, y]:
                return False
    return True


@step
def _slack(plan: Plan, ask: Question, steps: int, low: int, load: Array) -> int:
    """Return the room that the rest leaves on the stages beyond; negative: it does not fit."""
    best, beyond = -1, 0
    k = plan.stages
    # j: the lowest stage that the rest uses. Room on j and j + 1 is asked for in buckets.
    for j in range(k - 1, low - 1, -1):
        if j + 2 < k:
            beyond += ask.limit[j + 2] - load[j + 2]
        # Merged labels may owe less than nothing.
        a = (ask.limit[j] - max(load[j], 0)) >> ask.bucket
        b = (ask.limit[j + 1] - max(load[j + 1], 0)) >> ask.bucket if j + 1 < k else 0
        best = max(best, beyond - ask.table[steps, j, a, b] * ask.unit)
    return best


@step
def _promise(
    plan: Plan, ask: Question, i: int, low: int, word: Array, load: Array, slack: int
) -> int:
    """Return how promising a label is: the room that is left, less what nets will take."""
    value = slack
    if not ask.asks:
        value = 0
        for y in range(low, plan.stages):
            value += ask.limit[y] - load[y]
    for q in range(plan.net_ptr[i], plan.net_ptr[i + 1]):
        field = net(plan, word, plan.net[q])
        if field == 1 << plan.stages:
            value -= plan.net_cost[q]
        # A net that is not cut yet may be: a quarter of its cost.
        elif not field >> plan.stages:
            value -= plan.net_cost[q] // 4
    return value


@step
def _hash(plan: Plan, word: Array) -> int:
    """Return a hash of the anchors."""
    key = 0
    for y in range(plan.net_words, plan.words):
        w = word[y]
        # Anchors only: labels that differ in nets alone may stand for one another.
        key = (key ^ (key >> 29)) * 0x2545F4914F6CDD1D + (w ^ (w >> 31)) * 0x1B54A32D192ED03
    return key ^ (key >> 32)


@step
def _surcharge(plan: Plan, ask: Question, field: int, other: int, q: int, extra: Array) -> None:
    """Add what net q may cost more with `field` than with `other`, whatever comes."""
    cut, cost = 1 << plan.stages, plan.net_cost[q]
    receives, sends = other & ~field, 0
    # Before its producer is known, stages owe what they may have to receive.
    if plan.apart and not plan.net_flags[q] & KNOWN:
        receives = field & ~other
        if not other & cut and other == 1 << lowest(other):
            sends = other
    elif not field & cut:
        sends = field
    if not plan.apart:
        receives |= sends
        sends = 0
    for y in range(plan.stages):
        more = cost * ask.pays[y]
        if (receives >> y) & 1:
            extra[RECEIVED * plan.stages * plan.apart + y] += more
        if (sends >> y) & 1:
            extra[SENT * plan.stages + y] += more


@step
def _differences(
    plan: Plan, ask: Question, labels: Labels, control: Array, p: int, turned: bool
) -> None:
    """Let `extra` be what nets may cost more in label p than in that in scratch, or `turned`."""
    i, side, k = control[STEP], 1 - control[SIDE], plan.stages
    mask, alike = (2 << k) - 1, True
    for y in range(plan.rows * k):
        labels.extra[y] = 0
    # Most pairs agree in all nets, and need no look at each.
    for w in range(plan.net_words):
        alike &= labels.words[side, p, w] == labels.word[w]
    if alike:
        return
    for q in range(plan.net_ptr[i], plan.net_ptr[i + 1]):
        at, shift = plan.net_word[plan.net[q]], plan.net_shift[plan.net[q]]
        old, new = (labels.words[side, p, at] >> shift) & mask, (labels.word[at] >> shift) & mask
        if old != new and turned:
            _surcharge(plan, ask, new, old, q, labels.extra)
        elif old != new:
            _surcharge(plan, ask, old, new, q, labels.extra)


@step
def _covers(plan: Plan, ask: Question, labels: Labels, control: Array, p: int) -> bool:
    """Whether label p stands for that in scratch once its loads are lower by delta at most."""
    _differences(plan, ask, labels, control, p, False)
    k = plan.stages
    for y in range(plan.rows * k):
        # By marks, not by loads: those sink with each label that is merged, and would drift.
        delta = ask.delta[y // k] << control[COARSER]
        if labels.marks[p, y] + labels.extra[y] - labels.load[y] > delta:
            return False
    return True


@step
def _beats(plan: Plan, ask: Question, labels: Labels, control: Array, p: int) -> bool:
    """Whether the label in scratch stands for label p as it is."""
    _differences(plan, ask, labels, control, p, True)
    side, k = 1 - control[SIDE], plan.stages
    for y in range(plan.rows * k):
        if labels.load[y] + labels.extra[y] > labels.loads[side, p, y]:
            return False
    return True


@step
def _like(plan: Plan, labels: Labels, side: int, p: int) -> bool:
    """Whether label p has the anchors of that in scratch."""
    for w in range(plan.net_words, plan.words):
        if labels.words[side, p, w] != labels.word[w]:
            return False
    return True


@step
def _absorbed(plan: Plan, ask: Question, labels: Labels, control: Array, key: int) -> bool:
    """Whether a label of equal anchors stands for the one in scratch, too, merged or not.

    Labels that the new one stands for die.  What stands for others has all their stages in its
    mask, so that windows lose nothing.
    """
    side, k, looked = 1 - control[SIDE], plan.stages, 0
    at = labels.head[key & (len(labels.head) - 1)]
    while at >= 0 and looked < ask.compared:
        p, at = at, labels.next[at]
        if labels.keys[p] != key or labels.alive[side, p] == 0:
            continue
        looked += 1
        control[WORK] += COMPARED
        # Loads first, without nets: cheap, and refutes most pairs.
        may_cover, may_beat = True, True
        for y in range(plan.rows * k):
            delta = ask.delta[y // k] << control[COARSER]
            may_cover &= labels.marks[p, y] - labels.load[y] <= delta
            may_beat &= labels.load[y] <= labels.loads[side, p, y]
            if not (may_cover or may_beat):
                break
        if not (may_cover or may_beat) or not _like(plan, labels, side, p):
            continue
        if may_cover and _covers(plan, ask, labels, control, p):
            # Merged: loads as low as either needs. Labels of a beam are real and stay as they are.
            if ask.beam == 0:
                labels.chosen[p] |= control[MASK]
                for y in range(plan.rows * k):
                    less = labels.load[y] - labels.extra[y]
                    labels.loads[side, p, y] = min(labels.loads[side, p, y], less)
            return True
        if may_beat and _beats(plan, ask, labels, control, p):
            # The old one dies; its stages must still be noted as possible.
            labels.alive[side, p] = 0
            if ask.beam == 0:
                control[MASK] |= labels.chosen[p]
    return False


@step
def _insert(plan: Plan, labels: Labels, control: Array, key: int, value: int) -> None:
    """Append the label in scratch, for which :func:`sweep` has seen that there is room."""
    side, new = 1 - control[SIDE], control[NEW]
    for y in range(plan.words):
        labels.words[side, new, y] = labels.word[y]
    for y in range(plan.rows * plan.stages):
        labels.loads[side, new, y] = labels.load[y]
        labels.marks[new, y] = labels.load[y]
    at = key & (len(labels.head) - 1)
    labels.keys[new] = key
    labels.next[new] = labels.head[at]
    labels.head[at] = new
    labels.alive[side, new] = 1
    labels.value[new] = value
    labels.entry[side, new] = labels.entry[control[SIDE], control[LABEL]]
    labels.chosen[new] = control[MASK]
    control[NEW] = new + 1


@step
def _try(plan: Plan, ask: Question, labels: Labels, control: Array, s: int) -> None:
    """Put the block of this step into stage s, and keep the label that comes of it."""
    i, side, x = control[STEP], control[SIDE], control[LABEL]
    v, k = plan.order[i], plan.stages
    word, load = labels.word, labels.load
    for y in range(plan.rows * k):
        load[y] = labels.loads[side, x, y]
    # The block's own work first: most tries end here.
    for row in range(plan.rows):
        load[row * k + s] += ask.work[row, s, v]
        if load[row * k + s] > ask.limit[row * k + s]:
            return
    for y in range(plan.words):
        word[y] = labels.words[side, x, y]
    changed = plan.touch_ptr[i + 1] - plan.touch_ptr[i]
    changed += plan.term_ptr[plan.item_ptr[i + 1]] - plan.term_ptr[plan.item_ptr[i]]
    control[WORK] += TOUCHED * changed + plan.net_ptr[i + 1] - plan.net_ptr[i]
    _touch(plan, ask, i, s, word, load)
    for q in range(plan.clear_ptr[i], plan.clear_ptr[i + 1]):
        # Cleared, so that equal labels have equal words.
        set_anchor(plan, word, plan.clear[q], 0)
    if plan.own[i] >= 0:
        set_anchor(plan, word, plan.own[i], s)
    if not _refresh(plan, ask, i, word, load):
        return
    low = _lowest_open(plan, ask, i, word)
    if not _has_room(plan, ask, i, low, load, _owed(plan, ask, i, word)):
        return
    # The highest stage in use stays open: tables need to know which it is.
    highest = k - 1
    while highest > 0 and load[highest] <= 0:
        highest -= 1
    low = min(low, highest)
    for row in range(plan.rows):
        for y in range(row * k, row * k + low):
            # Closed stages are within the limit, which is all that matters of them.
            load[y] = 0
    slack, value = 0, 0
    if ask.asks:
        slack = _slack(plan, ask, len(plan.order) - i - 1, low, load)
        # The rest needs more than is left, by the sweep the other way.
        if slack < 0:
            return
    if ask.beam > 0:
        value = _promise(plan, ask, i, low, word, load, slack)
    key = _hash(plan, word)
    control[MASK] = 1 << s
    if not _absorbed(plan, ask, labels, control, key):
        _insert(plan, labels, control, key, value)


@step
def _note(plan: Plan, ask: Question, labels: Labels, control: Array) -> None:
    """Write into the table what the labels of this step leave to sweeps the other way."""
    i, side, k = control[STEP], 1 - control[SIDE], plan.stages
    steps = i + 1
    made = ask.made
    least = labels.load
    for x in range(control[NEW]):
        if labels.alive[side, x] == 0:
            continue
        word = labels.words[side, x]
        low = _lowest_open(plan, ask, i, word)
        highest = 0
        for y in range(k):
            least[y] = labels.loads[side, x, y]
            if least[y] > 0:
                highest = y
        # Both ways of counting may have charged nets that are live here.
        for q in range(plan.net_ptr[i], plan.net_ptr[i + 1]):
            field = net(plan, word, plan.net[q])
            if field >> k and not plan.apart:
                for y in range(k):
                    if (field >> y) & 1:
                        least[y] -= plan.net_cost[q]
        # Closed stages take nothing more of the other side: they count as full.
        for y in range(k):
            least[y] = ask.limit[y] if y < low else max(least[y], 0)
        beyond = 0
        for y in range(highest - 1):
            beyond += least[y]
        a = least[highest] >> ask.bucket
        b = least[highest - 1] >> ask.bucket if highest > 0 else 0
        j = k - 1 - highest
        # Rounded down as room is by `_slack`: whatever fits is in a bucket that it asks.
        made[steps, j, a, b] = min(made[steps, j, a, b], beyond // ask.unit)
    # More load on the two stages allows all that less does.
    buckets = made.shape[2]
    for j in range(k):
        for a in range(buckets):
            for b in range(buckets):
                if a > 0:
                    made[steps, j, a, b] = min(made[steps, j, a, b], made[steps, j, a - 1, b])
                if b > 0:
                    made[steps, j, a, b] = min(made[steps, j, a, b], made[steps, j, a, b - 1])


@step
def _log(labels: Labels, control: Array) -> None:
    """Write down where the labels of this step come from: the log has room for those alive."""
    side = 1 - control[SIDE]
    for x in range(control[NEW]):
        if labels.alive[side, x] == 1:
            row = control[LOGGED]
            labels.log_entry[row] = labels.entry[side, x]
            labels.log_stage[row] = lowest(labels.chosen[x])
            labels.entry[side, x] = row
            control[LOGGED] = row + 1


@step
def _close(plan: Plan, ask: Question, labels: Labels, control: Array) -> None:
    """End a step: what was made is read from now on."""
    side, alive, taken = 1 - control[SIDE], 0, 0
    # Python looks at labels here, once: the next call finds RESUMED and goes on.
    if ask.pause[control[STEP]] == 1 and control[RESUMED] == 0:
        control[STATUS] = PAUSED
        control[RESUMED] = 1
        return
    for x in range(control[NEW]):
        if labels.alive[side, x] == 1:
            alive += 1
            taken |= labels.chosen[x]
    v = plan.order[control[STEP]]
    for s in range(plan.stages):
        if (taken >> s) & 1:
            ask.lowest[v] = min(ask.lowest[v], s)
            ask.highest[v] = max(ask.highest[v], s)
    if ask.beam > 0:
        if alive > ask.beam:
            control[STATUS] = WIDE
            return
        if control[LOGGED] + alive > len(labels.log_entry):
            control[STATUS] = OVERFLOW
            return
        _log(labels, control)
    if ask.makes:
        _note(plan, ask, labels, control)
    control[TOTAL] += alive
    # Sides change places: what was written is read from now on.
    control[SIDE], control[COUNT], control[NEW] = side, control[NEW], 0
    control[LABEL], control[STAGE], control[COARSER], control[RESUMED] = 0, -1, 0, 0
    control[STEP] += 1
    if alive == 0:
        control[STATUS] = EMPTY
    elif control[STEP] == len(plan.order):
        control[STATUS] = DONE
    for y in range(len(labels.head)):
        labels.head[y] = -1


@compiled
def sweep(plan: Plan, ask: Question, labels: Labels, control: Array, most: int) -> int:
    """Go on with a sweep for the work of about `most` labels; return of how many it was.

    `control`, int64 (13,), says where the sweep is, and `control[STATUS]` why the kernel returned:
    between two labels, before a stage of one that has no room, or before a step is closed, which
    PAUSED, WIDE and OVERFLOW leave to the next call; `RESUMED` tells that one that it need not
    pause again.  After FULL labels need more room (more `labels` and `head`, lists linked anew),
    after OVERFLOW the log; after WIDE some must die.  The `plan` says what is done at every step,
    `ask` the limits, windows and tables.
    """
    tried, control[WORK] = 0, 0
    control[STATUS] = RUNNING
    while control[STATUS] == RUNNING and tried + control[WORK] // EACH < most:
        side = control[SIDE]
        if control[LABEL] == control[COUNT]:
            # Closing a step passes over all new labels, which counts.
            tried += control[NEW] // 4 + 1
            _close(plan, ask, labels, control)
            continue
        x, v = control[LABEL], plan.order[control[STEP]]
        if labels.alive[side, x] == 0:
            control[LABEL] += 1
            continue
        if control[STAGE] < 0:
            low = ask.low[v]
            for q in range(plan.pred_ptr[control[STEP]], plan.pred_ptr[control[STEP] + 1]):
                low = max(low, anchor(plan, labels.words[side, x], plan.pred[q]))
            control[STAGE] = low
        while control[STAGE] <= ask.high[v]:
            # Before the stage is tried, so that the call that goes on tries it again.
            if control[NEW] == len(labels.next):
                control[STATUS] = FULL
                break
            _try(plan, ask, labels, control, control[STAGE])
            control[STAGE] += 1
            tried += 1
        if control[STATUS] == RUNNING:
            control[LABEL] += 1
            control[STAGE] = -1
    return int(tried + control[WORK] // EACH)


@compiled
def link(labels: Labels, count: int) -> None:
    """Build the lists of equal hash of the first `count` new labels anew."""
    for y in range(len(labels.head)):
        labels.head[y] = -1
    for x in range(count):
        at = labels.keys[x] & (len(labels.head) - 1)
        labels.next[x] = labels.head[at]
        labels.head[at] = x
