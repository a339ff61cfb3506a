"""Compiled search for a refutation, which records its steps; see :mod:`.refuting`.

Cost and source: see there.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, step

PLACE, LIFT, QUEUE, FULL, DROP, SWAP = range(6)
"""What a step does, as in the checker's file: step = 6 * number + one of these."""

RUNNING, FITS, REFUTED, LIMIT, LONG = range(5)
"""Why :func:`refute` returned: work done, a packing, a proof, too many nodes, arrays too short."""

DEPTH, PAST, STEPS, NODES, ANSWER, SPENT, LOWEST_SECTION = range(7)
"""Entries of `control`: the frame at work, rows of the past and of the steps in use, nodes, the
last answer, steps of work of the last call, whether to branch in the section of least floor."""

NOWHERE = 2**60

SELECT, PARTS = range(2)
"""What a frame does: choose a block, or hear how its parts went."""

PHASE, CHOICE, ROWS, WRITTEN, PART, COUNT, INSIDE = range(7)
"""Columns of `frames`: the phase; what was chosen; rows of the past and of the steps before; the
part at work, how many there are, and the steps before it."""


class Tree(NamedTuple):
    """A refutation under way."""

    capacity: int  # in units
    rounds: int  # how often raises are passed on at a node
    # int64 (n,): of blocks; those of equal `life` are of the same sections; `before` is the
    # identical block before each, or -1.
    size: Array
    rank: Array
    life: Array
    before: Array
    # int64: blocks that share a section with each, as rows.
    near_ptr: Array
    near: Array
    # int64: blocks of each section, as rows.
    member_ptr: Array
    members: Array
    # int64 (n,): least offsets, highest tops of placed neighbours, offsets of placed blocks (else
    # -1).
    low: Array
    base: Array
    at: Array
    past: Array  # int64 (., 3): blocks that were changed, with what they had
    # int64: what is proved so far.  Of either there is room for a node (`most` in :func:`refute`)
    # before it begins: in each of `rounds` a block is queued and lifted at most once, which takes
    # two rows and steps; then come fewer than n + 8 rows, of neighbours and the choice, and 3
    # steps.
    steps: Array
    # int64 (n + 2, 7): one for each block placed on the way to a node, and the one at work.
    frames: Array
    part: Array  # int64 (n + 2, n): in which part of its frame each block is; -1: in none
    active: Array  # bool (n + 2, n): the blocks of a frame
    queue: Array  # int64 (n,): scratch: each block once, when it gets its part
    control: Array  # int64 (7,): counters, by the names above


@step
def _write(rule: int, which: int, tree: Tree) -> None:
    """Write a step of the proof."""
    tree.steps[tree.control[STEPS]] = 6 * which + rule
    tree.control[STEPS] += 1


@step
def _change(i: int, low: int, base: int, tree: Tree) -> None:
    """Change what is known of a block, and note what it was."""
    row = tree.control[PAST]
    tree.past[row, 0], tree.past[row, 1], tree.past[row, 2] = i, tree.low[i], tree.base[i]
    tree.control[PAST] = row + 1
    tree.low[i], tree.base[i] = low, base


@step
def _undo(rows: int, tree: Tree) -> None:
    """Take back all changes since the past had `rows` rows."""
    for row in range(tree.control[PAST] - 1, rows - 1, -1):
        i = tree.past[row, 0]
        tree.low[i], tree.base[i] = tree.past[row, 1], tree.past[row, 2]
    tree.control[PAST] = rows


@step
def _raise_all(depth: int, tree: Tree) -> None:
    """Lift and queue blocks of a frame until nothing changes, or one is too high."""
    low, base, size, at, active = tree.low, tree.base, tree.size, tree.at, tree.active
    for _ in range(tree.rounds):
        changed = False
        for i in range(len(size)):
            # Of another part, or placed.
            if not active[depth, i] or at[i] >= 0:
                continue
            k = tree.before[i]
            # Identical blocks are placed in order of index: each lies above the one before.
            if k >= 0 and at[k] < 0 and low[k] + size[k] > low[i]:
                _change(i, low[k] + size[k], base[i], tree)
                _write(QUEUE, i, tree)
                changed = True
            # `_ends` writes down which section that overfills.
            if low[i] + size[i] > tree.capacity:
                return
            # Only what is kept above its base must lie on something unplaced.
            if low[i] <= base[i]:
                continue
            least = tree.capacity + 1
            for r in range(tree.near_ptr[i], tree.near_ptr[i + 1]):
                k = tree.near[r]
                # What is placed ends at the base or below.
                if at[k] >= 0 or low[k] + size[k] >= least:
                    continue
                alike = tree.life[k] == tree.life[i]
                if alike and (size[k] < size[i] or (size[k] == size[i] and k > i)):
                    continue  # never directly below
                least = low[k] + size[k]
            tree.control[SPENT] += tree.near_ptr[i + 1] - tree.near_ptr[i]
            if least > low[i]:
                _change(i, least, base[i], tree)
                _write(LIFT, i, tree)
                changed = True
        tree.control[SPENT] += len(size)
        if not changed:
            return


@step
def _ends(depth: int, tree: Tree) -> bool:
    """Write down why a frame has no packing, if it is plain to see."""
    low, size, at, active = tree.low, tree.size, tree.at, tree.active
    tree.control[SPENT] += len(tree.members)
    for t in range(len(tree.member_ptr) - 1):
        floor, total, high = NOWHERE, 0, 0
        for r in range(tree.member_ptr[t], tree.member_ptr[t + 1]):
            i = tree.members[r]
            if active[depth, i] and at[i] < 0:
                floor = min(floor, low[i])
                total += size[i]
                high = max(high, low[i] + size[i])
        # The checker adds up what is unplaced above the least of its floors.
        if total > 0 and max(floor + total, high) > tree.capacity:
            _write(FULL, t, tree)
            return True
    for i in range(len(size)):
        if not active[depth, i] or at[i] >= 0 or low[i] <= tree.base[i]:
            continue
        free = True
        for r in range(tree.near_ptr[i], tree.near_ptr[i + 1]):
            k = tree.near[r]
            # It may come in the way of the base after all.
            if at[k] < 0 and low[k] < tree.base[i] + size[i]:
                free = False
                break
        # Nothing will ever keep the block from its base, which it was excluded from.
        if free:
            _write(DROP, i, tree)
            return True
    return False


@step
def _settled(i: int, tree: Tree) -> bool:
    """Return whether no unplaced neighbour fits below a block."""
    tree.control[SPENT] += tree.near_ptr[i + 1] - tree.near_ptr[i]
    for r in range(tree.near_ptr[i], tree.near_ptr[i + 1]):
        k = tree.near[r]
        if tree.at[k] < 0 and tree.low[k] + tree.size[k] <= tree.low[i]:
            return False
    return True


@step
def _chosen(depth: int, tree: Tree) -> int:
    """Return the block to branch on: of least offset, in the section of least floor if so told."""
    low, at, active = tree.low, tree.at, tree.active
    begin, end = 0, len(tree.size)
    if tree.control[LOWEST_SECTION]:
        least, most = NOWHERE, 0
        for t in range(len(tree.member_ptr) - 1):
            floor, total = NOWHERE, 0
            for r in range(tree.member_ptr[t], tree.member_ptr[t + 1]):
                i = tree.members[r]
                if active[depth, i] and at[i] < 0:
                    floor = min(floor, low[i])
                    total += tree.size[i]
            # As in the exact search; of equal floors the section that has most to hold.
            if floor < least or (floor == least and total > most):
                least, most = floor, total
                begin, end = tree.member_ptr[t], tree.member_ptr[t + 1]
        tree.control[SPENT] += len(tree.members)
    inside = tree.control[LOWEST_SECTION] == 1
    while True:
        best = -1
        for r in range(begin, end):
            i = tree.members[r] if inside else r
            # Excluded blocks wait for what they are to lie on.
            if not active[depth, i] or at[i] >= 0 or low[i] > tree.base[i]:
                continue
            if best >= 0 and (low[i], tree.rank[i]) >= (low[best], tree.rank[best]):
                continue
            if _settled(i, tree):
                best = i
        if best >= 0 or not inside:
            return best
        # No member may come next: any block of the part, then.
        inside, begin, end = False, 0, len(tree.size)


@step
def _place(i: int, tree: Tree) -> bool:
    """Place a block at its base; return whether it lies on a smaller one of the same sections."""
    low, base, size, at = tree.low, tree.base, tree.size, tree.at
    at[i] = low[i]
    top, swapped = low[i] + size[i], False
    for r in range(tree.near_ptr[i], tree.near_ptr[i + 1]):
        k = tree.near[r]
        if at[k] < 0:
            # Base and least offset rise together; how much of it was proved is not asked again.
            if base[k] < top:
                _change(k, max(low[k], top), top, tree)
        # Swapping the two would come before this packing: the checker knows the rule.
        elif at[k] + size[k] == low[i] and tree.life[k] == tree.life[i] and size[k] < size[i]:
            swapped = True
    return swapped


@step
def _divide(depth: int, tree: Tree) -> int:
    """Find the parts of what is left of a frame; return how many there are.

    Each of n blocks enters `queue`, of n + 1 places, at most once a part, which begins it anew.
    """
    part, queue = tree.part, tree.queue
    parts = 0
    for i in range(len(tree.size)):
        part[depth, i] = -1
    for first in range(len(tree.size)):
        if not tree.active[depth, first] or tree.at[first] >= 0 or part[depth, first] >= 0:
            continue
        part[depth, first] = parts
        queue[0] = first
        head, tail = 0, 1
        while head < tail:
            i = queue[head]
            head += 1
            for r in range(tree.near_ptr[i], tree.near_ptr[i + 1]):
                k = tree.near[r]
                if tree.at[k] < 0 and part[depth, k] < 0:
                    part[depth, k] = parts
                    queue[tail] = k
                    tail += 1
        parts += 1
    tree.control[SPENT] += len(tree.size)
    return parts


@step
def _enter(depth: int, tree: Tree) -> None:
    """Begin the next part of a frame."""
    frames = tree.frames
    frames[depth, INSIDE] = tree.control[STEPS]
    for i in range(len(tree.size)):
        # A frame looks at its part only; the others are as they were.
        tree.active[depth + 1, i] = tree.part[depth, i] == frames[depth, PART]
    frames[depth + 1, PHASE] = SELECT
    tree.control[DEPTH] = depth + 1


@step
def _exclude(depth: int, tree: Tree) -> None:
    """Take back what was placed, now that it is refuted: the block lies higher."""
    i = tree.frames[depth, CHOICE]
    for k in range(len(tree.size)):
        # All that parts of this frame had placed.
        if tree.part[depth, k] >= 0:
            tree.at[k] = -1
    tree.at[i] = -1
    _undo(tree.frames[depth, ROWS], tree)
    # Above its base by a unit; `_raise_all` finds out how much higher.
    _change(i, tree.low[i] + 1, tree.base[i], tree)
    tree.frames[depth, PHASE] = SELECT


@compiled
def refute(node_limit: int, work: int, tree: Tree) -> int:
    """Go on until it ends, `work` elementary steps are done or an array is too short.

    Return RUNNING, FITS, REFUTED, LIMIT, after `node_limit` nodes, or LONG. A call ends between two
    nodes; one that has no room for the next does not count it.  All arrays of the tree from `low`
    on change.
    """
    control, n = tree.control, len(tree.size)
    control[SPENT] = 0
    while control[SPENT] < work:
        depth = control[DEPTH]
        if depth < 0:
            return int(control[ANSWER])
        frame = tree.frames[depth]
        if frame[PHASE] == PARTS:
            if control[ANSWER] == REFUTED:
                # Of the parts only this one is needed; what was written of those before goes.
                kept = control[STEPS] - frame[INSIDE]
                # Steps of parts that fit prove nothing: those of the one that does not move up.
                if frame[INSIDE] > frame[WRITTEN]:
                    for s in range(kept):
                        tree.steps[frame[WRITTEN] + s] = tree.steps[frame[INSIDE] + s]
                    control[STEPS] = frame[WRITTEN] + kept
                _exclude(depth, tree)
                continue
            frame[PART] += 1
            if frame[PART] < frame[COUNT]:
                _enter(depth, tree)
                continue
            control[DEPTH] -= 1  # all parts fit
            continue
        if control[NODES] >= node_limit:
            return LIMIT
        # Why so much is enough is said at `Tree`.
        most = (2 * tree.rounds + 1) * n + 8
        if control[STEPS] + most > len(tree.steps) or control[PAST] + most > len(tree.past):
            return LONG
        control[NODES] += 1
        _raise_all(depth, tree)
        if _ends(depth, tree):
            control[ANSWER] = REFUTED
            control[DEPTH] -= 1
            continue
        i = _chosen(depth, tree)
        if i < 0:  # nothing is unplaced
            control[ANSWER] = FITS
            control[DEPTH] -= 1
            continue
        frame[CHOICE], frame[ROWS] = i, control[PAST]
        _write(PLACE, i, tree)
        # The placement itself stays written: the checker undoes it once it is refuted.
        frame[WRITTEN] = control[STEPS]
        swapped = _place(i, tree)
        # Before a swap is looked at, as excluding takes back by parts.
        frame[COUNT] = _divide(depth, tree)
        if swapped:
            _write(SWAP, i, tree)
            _exclude(depth, tree)
            continue
        frame[PHASE], frame[PART] = PARTS, 0
        if frame[COUNT] > 0:
            _enter(depth, tree)
        else:
            control[ANSWER] = FITS
            control[DEPTH] -= 1
    return RUNNING
