"""Compiled kernel of the beam search: evaluates the states of a level and expands them.

A state is a packing of some blocks.  Blocks are placed in order of offset (ties by rank), so each
canonical packing is reached in one order only.  For each unplaced block, its lowest possible offset
is known.  It is its *base* on the placed blocks; or, if the base is below the block placed last or
an identical block comes first, the top of a neighbour that is still unplaced.  The resulting lower
bound, after propagation, is its *effective* offset.  A state is dead if an unplaced block fits
below one that was kept from its base without reason, or if a section cannot hold its remaining
blocks above their least effective offset.

The *guide* of a state is the wasted area below these offsets, weighted by section, minus a reward
for placing long-lived blocks.  Levels are fractions of the placed area.  At each level the
proposals with the least estimated guide become states, four times as many as are kept; of states
with the same remaining problem only one is kept.  Data on what keeps a block from its base, and on
what is lowest in a section, are recomputed only where something changed.  A state costs O(b + k +
neighbours of placed and newly excluded blocks).

Source: see :mod:`.beam`.
"""

from __future__ import annotations

from stagepack.heuristics.packing.beam_search.beam_state import (
    AT,
    BEGIN,
    CHOOSE,
    CHOSEN,
    DEAD,
    EXPAND,
    FOUND,
    FREE,
    KEPT,
    LEVEL,
    MADE,
    MAKE,
    NODES,
    PHASE,
    REACHED,
    RUNNING,
    SPENT,
    STAMP,
    TOLD,
    WAITING,
    Beam,
    Given,
)
from stagepack.heuristics.packing.exact_search.exact_kernels import settle
from stagepack.heuristics.packing.exact_search.exact_state import NOWHERE
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import compiled, inlined, step

WIDE = 4
"""Entries cleared in a step."""

STATE, SECTION, PROPOSED, PIECE, IN_ORDER = 60, 4, 10, 9, 3
"""Steps of a new state apart from its size, of each of its sections, of a proposal, of each piece
of time that it takes, and of four neighbours that are read one after the other: measured."""

# ---------------------------------------------------------------------- heaps of proposals


@step
def _swap(heaps: Array, row: int, i: int, j: int) -> None:
    # Field by field: a record is a view, so that assigning one would lose the other.
    """Exchange two proposals of a heap."""
    one, other = heaps[row, i], heaps[row, j]
    guide, state, block = one.guide, one.state, one.block
    one.guide, one.state, one.block = other.guide, other.state, other.block
    other.guide, other.state, other.block = guide, state, block


@step
def _sink(heaps: Array, row: int, count: int) -> None:
    """Let the top of a heap sink to where it belongs."""
    i = 0
    while 2 * i + 1 < count:
        worse = 2 * i + 1
        if worse + 1 < count and heaps[row, worse + 1].guide > heaps[row, worse].guide:
            worse += 1
        # The worst is at the top: it is what makes room.
        if heaps[row, worse].guide <= heaps[row, i].guide:
            return
        _swap(heaps, row, i, worse)
        i = worse


@step
def _push(heaps: Array, row: int, count: int, guide: float, state: int, block: int) -> int:
    """Add to a heap of `count`; return the state that falls out, the worst, where it is full."""
    if count == heaps.shape[1]:
        top = heaps[row, 0]
        # No better than the worst of a full heap: it is what falls out.
        if guide >= top.guide:
            return state
        falling = top.state
        top.guide, top.state, top.block = guide, state, block
        _sink(heaps, row, count)
        return int(falling)
    last = heaps[row, count]
    last.guide, last.state, last.block = guide, state, block
    i = count
    while i > 0 and heaps[row, (i - 1) // 2].guide < heaps[row, i].guide:
        _swap(heaps, row, i, (i - 1) // 2)
        i = (i - 1) // 2
    return -1


@step
def _sort(heaps: Array, row: int, count: int) -> None:
    """Sort a heap: the best comes first."""
    # Heap sort: the worst goes to the end, again and again.
    for last in range(count - 1, 0, -1):
        _swap(heaps, row, 0, last)
        _sink(heaps, row, last)


# ---------------------------------------------------------------------- states


@step
def _release(slot: int, beam: Beam) -> None:
    """Note that one thing less needs a state; its slot may be free then."""
    facts = beam.pool.facts[slot]
    # It is needed by the level that it belongs to and by each proposal that waits.
    facts.used -= 1
    if facts.used == 0:
        beam.pool.free[beam.control[FREE]] = slot
        beam.control[FREE] += 1


@step
def _legal(i: int, at: int, given: Given) -> int:
    """Return the lowest legal offset of a block from `at` up, or NOWHERE."""
    return settle(given.blocks[i], at, given.spans) if given.odd else at


@inlined
def _mixed(i: int, base: int) -> int:
    """Return a number in which blocks and bases are well mixed."""
    # The finaliser of SplitMix64: sums of such numbers tell sets of (block, base) apart.
    x = (base * 1_000_003 + i + 1) * -7046029254386353131
    x ^= x >> 29
    x *= -4658895280553007687
    return x ^ (x >> 32)


@step
def _is_new(code: int, seen: Array) -> bool:
    """Note a code; return whether it was not known."""
    # The length is a power of two, and twice what enters: there is always an empty place.
    mask = len(seen) - 1
    at = code & mask
    while seen[at] != 0:
        if seen[at] == code:
            return False
        at = (at + 1) & mask
    seen[at] = code
    return True


@step
def _place(parent: int, i: int, slot: int, capacity: int, beam: Beam) -> bool:
    """Make the state in which a block lies at its base as well; False: that leads nowhere new."""
    given, pool = beam.given, beam.pool
    base, effective, left, size = pool.base, pool.effective, pool.left, given.size
    offset = base[parent, i]
    top = offset + size[i]
    known, facts = pool.facts[parent], pool.facts[slot]
    # The code is of what is left: two orders of the same placements come to the same one.
    code = known.code - _mixed(i, offset)
    for r in range(given.neighbour_ptr[i], given.neighbour_ptr[i + 1]):
        j = given.neighbours[r]
        before = base[parent, j]
        # Counted before anything is copied: most proposals end here, or as known.
        if before < top:
            at = _legal(j, top, given)
            # A neighbour would end too high.
            if at + size[j] > capacity:
                return False
            code += _mixed(j, at) - _mixed(j, before)
    if top > capacity or not _is_new(code, beam.seen):
        return False
    for j in range(base.shape[1]):
        base[slot, j] = base[parent, j]
        effective[slot, j] = effective[parent, j]
        pool.under[slot, j] = pool.under[parent, j]
    # So that minima pass over what is placed.
    base[slot, i] = effective[slot, i] = NOWHERE
    for r in range(given.neighbour_ptr[i], given.neighbour_ptr[i + 1]):
        j = given.neighbours[r]
        if base[slot, j] < top:
            at = _legal(j, top, given)
            base[slot, j] = at
            # What was proved of the parent holds for the child as well.
            effective[slot, j] = max(effective[slot, j], at)
    for t in range(left.shape[1]):
        left[slot, t] = left[parent, t]
        pool.floor[slot, t] = pool.floor[parent, t]
        pool.lowest[slot, t] = pool.lowest[parent, t]
    for r in range(given.run_ptr[i], given.run_ptr[i + 1]):
        for t in range(given.run_first[r], given.run_end[r]):
            left[slot, t] -= size[i]
    facts.area = known.area + given.area[i]
    facts.worth = known.worth - given.worth[i]
    facts.offset, facts.rank, facts.left = offset, given.rank[i], known.left - 1
    # The node of the parent: its own is made once it is kept (`_note`).
    facts.code, facts.node, facts.used = code, known.node, 1
    return True


@step
def _bound(slot: int, beam: Beam) -> int:
    """Note which blocks cannot lie at their bases any more; return how many they are.

    `beam.excluded` has an entry a block, each of which is entered once at most.
    """
    given, pool = beam.given, beam.pool
    base, effective, facts = pool.base, pool.effective, pool.facts[slot]
    offset, rank, count = facts.offset, facts.rank, 0
    for i in range(base.shape[1]):
        at = base[slot, i]
        if at == NOWHERE:
            continue
        low = effective[slot, i]
        # Blocks come in order of offset and rank, so that it cannot be placed there any more.
        if at < offset or (at == offset and given.rank[i] < rank):
            low = max(low, offset + 1)
        twin = given.before[i]
        # An identical block that comes first lies below it.
        if twin >= 0 and base[slot, twin] != NOWHERE:
            low = max(low, effective[slot, twin] + given.size[twin])
        if low > effective[slot, i]:
            low = _legal(i, low, given)
            effective[slot, i] = low
        if low > at:
            beam.excluded[count] = i
            count += 1
    return count


@step
def _raise(slot: int, count: int, capacity: int, beam: Beam) -> bool:
    """Raise what is excluded onto unplaced neighbours; False: for one there is no reason."""
    given, base, effective = beam.given, beam.pool.base, beam.pool.effective
    under = beam.pool.under
    for _ in range(given.passes):
        raised = False
        for e in range(count):
            i = beam.excluded[e]
            ceiling, j = base[slot, i] + given.size[i], under[slot, i]
            # The support that was found last still explains the offset: nothing to raise.
            low = effective[slot, j]  # it may still be what keeps i where it is
            if j != i and low < ceiling and low + given.size[j] <= effective[slot, i]:
                continue
            begin, end = given.neighbour_ptr[i], given.neighbour_ptr[i + 1]
            lowest, least = NOWHERE, NOWHERE
            for r in range(begin, end):
                j = given.neighbours[r]
                low = effective[slot, j]
                lowest = min(lowest, low)
                if low + given.size[j] < least:
                    least = low + given.size[j]
                    under[slot, i] = j
            # Rows are read one after the other, four entries at a time.
            beam.control[SPENT] += IN_ORDER * (end - begin) // 4
            # Nobody can come between the block and its base: a packing like that is not canonical.
            if lowest >= ceiling:
                return False
            if least > effective[slot, i]:
                least = _legal(i, least, given)
                effective[slot, i] = least
                raised = True
                if least + given.size[i] > capacity:
                    return False
        beam.control[SPENT] += count
        if not raised:
            break
    return True


@step
def _level(slot: int, beam: Beam) -> None:
    """Find the floors of what is left: those that rise have lost what lay lowest there."""
    given, effective = beam.given, beam.pool.effective
    floor, lowest, left = beam.pool.floor, beam.pool.lowest, beam.pool.left
    for t in range(floor.shape[1]):
        # Floors only rise, and this one has not.
        if effective[slot, lowest[slot, t]] == floor[slot, t]:
            continue
        least = NOWHERE
        if left[slot, t] > 0:
            for r in range(given.member_ptr[t], given.member_ptr[t + 1]):
                i = given.members[r]
                if effective[slot, i] < least:
                    least = effective[slot, i]
                    lowest[slot, t] = i
            beam.control[SPENT] += given.member_ptr[t + 1] - given.member_ptr[t]
        floor[slot, t] = least


@step
def _judge(slot: int, capacity: int, beam: Beam) -> bool:
    """Find the guide of a state; False: it is dead."""
    given, pool = beam.given, beam.pool
    floor, left = pool.floor, pool.left
    if not _raise(slot, _bound(slot, beam), capacity, beam):
        return False
    _level(slot, beam)
    guide = pool.facts[slot].worth
    for t in range(left.shape[1]):
        held = left[slot, t]
        if held == 0:
            continue
        # All below the floor that nothing holds is lost for good.
        low = floor[slot, t]
        top, lost = low + held, given.total[t] - held
        # Holes below the floor are no waste; those above take room from what is left.
        if given.odd:
            section = given.sections[t]
            beam.control[SPENT] += section.hole_end - section.hole
            for h in range(section.hole, section.hole_end):
                begin, end = given.holes[h, 0], given.holes[h, 1]
                lost += max(0, min(end, low) - begin)
                # `top` grows by each hole that it comes to, in ascending order.
                if end > low and begin < top:
                    top += end - max(low, begin)
        if top > capacity:
            return False
        wasted = (low - lost) * given.weight[t]
        guide += wasted * wasted if given.square else wasted
    pool.facts[slot].guide = guide
    return True


# ---------------------------------------------------------------------- what may follow


@step
def _estimate(slot: int, i: int, at: int, capacity: int, beam: Beam) -> float:
    """Return the guide as it will be, about, with a block at its base; below 0: it cannot be."""
    given, pool = beam.given, beam.pool
    guide = pool.facts[slot].guide
    for r in range(given.run_ptr[i], given.run_ptr[i + 1]):
        beam.control[SPENT] += PIECE + (given.run_end[r] - given.run_first[r]) // 2
        for t in range(given.run_first[r], given.run_end[r]):
            low = pool.floor[slot, t]
            if at > low:
                # The block is among what is left, so that its own top is counted here.
                held = pool.left[slot, t]
                if at + held > capacity:
                    return -1.0
                more = (at - low) * given.weight[t]
                if given.square:
                    wasted = (low - given.total[t] + held) * given.weight[t]
                    # (wasted + more)^2 - wasted^2.
                    more *= 2.0 * wasted + more
                guide += more
    # Below 0 is what cannot be.
    return max(0.0, float(guide - given.worth[i]))


@step
def _candidates(slot: int, beam: Beam) -> int:
    """List blocks that no other fits below and that are not kept from their bases: how many.

    `beam.candidates` has an entry a block, each of which is entered once at most.
    """
    base, effective, size = beam.pool.base, beam.pool.effective, beam.given.size
    lowest, count = NOWHERE, 0
    for i in range(base.shape[1]):
        # Excluded blocks count as well: one of these may still fit below all others.
        lowest = min(lowest, base[slot, i] + size[i])
    for i in range(base.shape[1]):
        at = base[slot, i]
        if at < lowest and effective[slot, i] == at:
            beam.candidates[count] = i
            count += 1
    return count


@step
def _is_free(slot: int, i: int, beam: Beam) -> bool:
    """Return whether nothing unplaced can keep a block from its base."""
    given, effective = beam.given, beam.pool.effective
    ceiling, r = beam.pool.base[slot, i] + given.size[i], given.neighbour_ptr[i]
    end = given.neighbour_ptr[i + 1]
    beam.control[SPENT] += end - r
    while r < end and effective[slot, given.neighbours[r]] >= ceiling:
        r += 1
    # Only what was looked at counts.
    beam.control[SPENT] -= end - r
    return bool(r == end)


@step
def _bar(slot: int, count: int, beam: Beam) -> int:
    """Take out candidates that leave a block below which nothing will ever lie; return the rest.

    Such a block lies at its base, so that what comes after it may come next only if it meets it.
    What is left moves to the front of `beam.candidates`, never behind what was read.
    """
    given, base, control = beam.given, beam.pool.base, beam.control
    many = count
    for c in range(many):
        i = beam.candidates[c]
        beam.barred[i] = False
    for c in range(many):
        i = beam.candidates[c]
        # Something may still keep it from its base: then nothing follows from it.
        if not _is_free(slot, i, beam):
            continue
        control[STAMP] += 1
        begin, end = given.neighbour_ptr[i], given.neighbour_ptr[i + 1]
        control[SPENT] += end - begin + many
        for r in range(begin, end):
            beam.met[given.neighbours[r]] = control[STAMP]
        at, rank = base[slot, i], given.rank[i]
        for d in range(many):
            j = beam.candidates[d]
            later = base[slot, j] > at or (base[slot, j] == at and given.rank[j] > rank)
            # It can as well be placed after the free one, in whose way it never is.
            if later and beam.met[j] != control[STAMP]:
                beam.barred[j] = True
    count = 0
    for c in range(many):
        i = beam.candidates[c]
        if not beam.barred[i]:
            beam.candidates[count] = i
            count += 1
    return count


@step
def _expand(slot: int, capacity: int, beam: Beam) -> None:
    """Propose what may be placed next."""
    given, pool, control = beam.given, beam.pool, beam.control
    area, blocks, rows = pool.facts[slot].area, pool.base.shape[1], beam.proposals.shape[0]
    for c in range(_bar(slot, _candidates(slot, beam), beam)):
        i = beam.candidates[c]
        guide = _estimate(slot, i, pool.base[slot, i], capacity, beam)
        control[SPENT] += PROPOSED
        if guide < 0.0:
            continue
        # Areas are parts of the whole: the level is how much of it is placed, in `blocks` parts.
        reached = min(blocks, int((area + given.area[i]) * blocks))
        # Later at least by one: rows are used in turn, and this one's is not free yet.
        row = max(control[LEVEL] + 1, reached) % rows
        pool.facts[slot].used += 1
        falling = _push(beam.proposals, row, beam.waiting[row], guide, slot, i)
        # A state whose proposal fell out may be free: this one or any other.
        if falling >= 0:
            _release(falling, beam)
        else:
            beam.waiting[row] += 1
            control[WAITING] += 1


# ---------------------------------------------------------------------- the search


@step
def _choose(beam: Beam) -> None:
    """Begin a level: the most promising proposals first."""
    control, row = beam.control, beam.control[LEVEL] % beam.proposals.shape[0]
    _sort(beam.proposals, row, beam.waiting[row])
    # Sorting, about; a factor for the logarithm makes no difference for heaps of this size.
    control[SPENT] += 16 * beam.waiting[row]
    # An empty level leaves the table as it is.
    if beam.waiting[row] > 0:
        for at in range(len(beam.seen)):
            beam.seen[at] = 0
        control[SPENT] += len(beam.seen) // WIDE
        control[REACHED] = control[LEVEL]
    control[AT] = control[MADE] = control[KEPT] = 0
    control[PHASE] = MAKE


@step
def _make(capacity: int, work: int, beam: Beam) -> int:
    """Make states of the best proposals, and keep the best of these."""
    control, pool, given = beam.control, beam.pool, beam.given
    row = control[LEVEL] % beam.proposals.shape[0]
    count, most = beam.waiting[row], given.made * beam.kept.shape[1]
    # What copying and judging a state takes, in any case.
    each = STATE + 2 * pool.base.shape[1] + SECTION * pool.left.shape[1]
    while control[AT] < count and control[MADE] < most and control[FREE] > 0:
        if control[SPENT] >= work:
            return RUNNING
        proposal = beam.proposals[row, control[AT]]
        parent, block = proposal.state, proposal.block
        control[AT] += 1
        control[FREE] -= 1
        # Taken for the time being: it is given back where the state is dead or known.
        slot = pool.free[control[FREE]]
        control[SPENT] += each + given.neighbour_ptr[block + 1] - given.neighbour_ptr[block]
        if _place(parent, block, slot, capacity, beam) and _judge(slot, capacity, beam):
            control[MADE] += 1
            # All are placed, and fit: no other state of the level is of interest.
            if pool.facts[slot].left == 0:
                _note(slot, block, beam)
                return FOUND
            falling = _push(beam.kept, 0, control[KEPT], pool.facts[slot].guide, slot, block)
            if falling >= 0:
                _release(falling, beam)
            else:
                control[KEPT] += 1
        else:
            pool.free[control[FREE]] = slot
            control[FREE] += 1
        # This proposal needs it no more, whatever became of it.
        _release(parent, beam)
    # Proposals for which there was no room, or no need.
    for at in range(control[AT], count):
        _release(beam.proposals[row, at].state, beam)
    beam.waiting[row] = 0
    control[WAITING] -= count
    # Only what is kept becomes part of the tree: the others are made again from no one.
    for at in range(control[KEPT]):
        kept = beam.kept[0, at]
        _note(kept.state, kept.block, beam)
    control[AT] = 0
    control[PHASE] = EXPAND
    return RUNNING


@step
def _note(slot: int, block: int, beam: Beam) -> None:
    """Enter the last placement of a state into the tree."""
    facts = beam.pool.facts[slot]
    node = beam.nodes[beam.control[NODES]]
    node.parent, node.block, node.offset = facts.node, block, facts.offset
    facts.node = beam.control[NODES]
    beam.control[NODES] += 1


@compiled
def proceed(capacity: int, work: int, beam: Beam) -> int:
    """Go on with the search until it ends or about `work` elementary steps are done.

    Return RUNNING, FOUND (the last node of the tree is the packing), DEAD, or CHOSEN where `TOLD`
    is set.  `capacity` is in units.  The class of `beam` says how large its arrays are, and what
    calls go on with.
    """
    control = beam.control
    control[SPENT] = 0
    while control[SPENT] < work:
        if control[PHASE] == BEGIN:
            # The first state: whoever began the search has filled in all but what is judged.
            if not _judge(0, capacity, beam):
                return DEAD
            control[PHASE] = EXPAND
        elif control[PHASE] == CHOOSE:
            # No proposal at any level to come.
            if control[WAITING] == 0:
                return DEAD
            _choose(beam)
        elif control[PHASE] == MAKE:
            if _make(capacity, work, beam) == FOUND:
                return FOUND
            # The caller looks at what is kept, and calls again.
            if control[TOLD] and control[PHASE] == EXPAND and control[KEPT] > 0:
                return CHOSEN
        elif control[AT] < control[KEPT]:
            slot = beam.kept[0, control[AT]].state
            control[AT] += 1
            control[SPENT] += 2 * beam.pool.base.shape[1]
            _expand(slot, capacity, beam)
            _release(slot, beam)
        else:
            control[PHASE] = CHOOSE
            control[LEVEL] += 1
    return RUNNING
