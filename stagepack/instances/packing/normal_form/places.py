"""Where blocks may lie on their own: alignments, address ranges and segments.

Buffers that have one place together make one block, each so many bytes above the block's offset.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.packing import relations
from stagepack.instances.packing.instance import LmemPacking
from stagepack.instances.packing.problem import Objective
from stagepack.instances.profile import Array

Span = tuple[int, int]

FAR = 2**62
"""Where address ranges without an end do end."""

MOST_RANGES = 50_000_000
"""Ranges of all blocks together beyond which segments are refused: 0.8 GB."""
SLOWER = 50
"""By so many times a range of a block that is limited by itself takes longer."""


def grouping(instance: LmemPacking) -> tuple[Array, Array, Array]:
    """Return block and shift of each buffer, shape (n,), and what blocks are aligned to, (b,).

    A buffer lies so many bytes, its shift, above its block's offset, which is a multiple of all
    alignments of members.  Where views are not, the lowest member lies above the block's offset.
    """
    if not (instance.colocated or instance.views):
        return np.arange(instance.n), np.zeros(instance.n, dtype=np.int64), instance.alignment
    if instance.views:
        block, shift = relations.tied(instance)
    else:
        leader = np.arange(instance.n)
        for group in instance.colocated:
            leader[list(group)] = group[0]
        block = np.unique(leader, return_inverse=True)[1].astype(np.int64)
        shift = np.zeros(instance.n, dtype=np.int64)
    alignment = np.ones(int(block.max()) + 1, dtype=np.int64)
    np.lcm.at(alignment, block, instance.alignment)
    for at in np.unique(block[shift % instance.alignment != 0]).tolist():
        members = np.flatnonzero(block == at)
        shift[members] += lift(instance, members, shift[members]) or 0
    return block, shift, alignment


def lift(instance: LmemPacking, members: Array, shift: Array) -> int | None:
    """Return the least lift of members with these shifts such that all are aligned.

    That is above a common multiple of their alignments; None where no lift is.  `members` are
    buffers with one place together, `shift` how far each lies above the lowest one.
    """
    rest, step = 0, 1  # rest modulo step is what those before ask for
    for i, above in zip(members.tolist(), shift.tolist(), strict=True):
        each = int(instance.alignment[i])
        common = math.gcd(step, each)
        if (-above - rest) % common:
            return None
        turns = (-above - rest) // common * pow(step // common, -1, each // common)
        rest += turns % (each // common) * step
        step *= each // common
    return rest


def unit_of(instance: LmemPacking, shift: Array, alignment: Array, low: Array) -> int:
    """Return the gcd of all lengths an offset can be made of.

    `shift` is of the buffers of the `instance`, `alignment` of its blocks, and `low` are the begins
    of their ranges.

    A block slides down until it meets another, the begin of a range or a multiple of its alignment;
    for bank conflicts also the begin of a bank, for moves its previous offset.
    """
    lengths = [instance.size, shift, low, instance.fixed[instance.fixed >= 0]]
    lengths += [np.array([x for gap in instance.gaps for x in (gap.low, gap.high)], dtype=np.int64)]
    if instance.objective is Objective.BANK_CONFLICTS and instance.banks is not None:
        lengths.append(np.array([instance.banks.nbytes]))
    if instance.objective is Objective.MOVES:
        lengths.append(instance.previous[instance.previous >= 0])
    unit = math.gcd(*(int(np.gcd.reduce(part)) for part in lengths if len(part)))
    return aligned_unit(unit, alignment)


def aligned_unit(unit: int, alignment: Array) -> int:
    """Return the unit of offsets made of multiples of `unit`, rounded up to alignments.

    It divides `unit` (0: is 1), and each alignment divides it or is a multiple of it.
    """
    unit = unit or 1  # of no bytes at all
    while True:  # an alignment that divided the unit may not divide a smaller one
        finer = alignment[(unit % alignment != 0) & (alignment % unit != 0)]
        if not len(finer):
            return unit
        unit = math.gcd(unit, int(np.gcd.reduce(finer)))


def ranges(
    instance: LmemPacking,
    block: Array,
    shift: Array,
    size: Array,
    alignment: Array,
    looks: Callable[[], object],
) -> tuple[Array, Array, Array, Array]:
    """Return the ranges of every block (ptr, low, high), then fixed offsets, shape (b,).

    Allowed less reserved ranges, within segments, or the fixed place.  `block` and `shift`, shape
    (n,), are of each buffer, as those of :func:`grouping`, `size` and `alignment`, shape (b,), of
    each block; `looks` is asked now and then.
    """
    b = len(size)
    given: dict[int, list[Span]] = {}
    for item in instance.allowed:
        given.setdefault(item.buffer, []).append((item.low, item.high))
    alone = np.bincount(block, minlength=b)[block] == 1
    walls = instance.segment is not None
    free_to_go = alone & (instance.fixed < 0) & (instance.size > 0)
    free_to_go &= bool(instance.reserved) or walls
    free_to_go[list(given)] = False
    top = _sufficient(instance, block, size, alignment) if walls else FAR
    everywhere = np.flatnonzero(~free_to_go).tolist()
    if not (instance.reserved or walls):
        everywhere = sorted(given)
    if walls and instance.segment is not None:
        many = top // instance.segment
        _require_few(instance, max(many * len(size), SLOWER * many * len(everywhere)))
    places: dict[int, list[Span]] = {}
    for buffer in everywhere:
        nbytes, at = int(instance.size[buffer]), int(block[buffer])
        spans = sorted(given.get(buffer, [(0, FAR)]))
        free = _without(spans, instance.reserved, points=not nbytes)
        if nbytes:
            free = _within_segments(free, instance.segment, top)
        starts = joined([(low, high - nbytes) for low, high in free if high - nbytes >= low])
        above = int(shift[buffer])
        starts = [(max(0, low - above), last - above) for low, last in starts if last >= above]
        places[at] = _common(places[at], starts) if at in places else starts
    fixed = np.full(b, -1, dtype=np.int64)
    for buffer in np.flatnonzero(instance.fixed >= 0).tolist():
        at, where = int(block[buffer]), int(instance.fixed[buffer] - shift[buffer])
        fixed[at] = max(0, where)
        spans = [(where, where)] if where >= 0 else []
        places[at] = _common(places.get(at, [(0, FAR)]), spans)
    for at in np.unique(block[shift % instance.alignment != 0]).tolist():
        places[at] = []  # no offset suits all members
    count = np.zeros(b, dtype=np.int64)
    rows: dict[int, list[Span]] = {}
    for at, found in places.items():
        span = found or [(0, -int(size[at]) - 1)]  # nowhere: a range of less than no bytes
        rows[at] = [(begin, min(last + int(size[at]), FAR)) for begin, last in span]
        count[at] = len(span)
    holes = _within_segments(_without([(0, FAR)], instance.reserved), instance.segment, top)
    free = block[free_to_go]
    for begin, end in holes:
        looks()  # of thousands of reserved ranges, each is compared with all blocks
        count[free] += size[free] <= end - begin
    for at in free[count[free] == 0].tolist():  # larger than any segment
        rows[at], count[at] = [(0, -1)], 1
        free = free[free != at]
    ptr = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    low, high = np.empty((2, int(ptr[-1])), dtype=np.int64)
    for at, row in rows.items():
        low[ptr[at] : ptr[at + 1]], high[ptr[at] : ptr[at + 1]] = zip(*row, strict=True)
    cursor = ptr[free]
    for begin, end in holes:
        looks()
        fits = size[free] <= end - begin
        low[cursor[fits]], high[cursor[fits]] = begin, end
        cursor += fits
    return ptr, low, high, fixed


def walls(instance: LmemPacking, block: Array, shift: Array, size: Array, alignment: Array) -> int:
    """Return the segment, where it says all about where blocks may lie, and each is one buffer.

    Else 0.  Of buffers with one place one must have all of the block; segments begin at multiples
    of all alignments.  `instance`, `block`, `shift`, `size` and `alignment` are those of
    :func:`ranges`.
    """
    held = instance.allowed or instance.reserved or (instance.fixed >= 0).any()
    held = held or (shift % instance.alignment).any()  # then some block has no place at all
    if instance.segment is None or held or instance.segment % int(np.lcm.reduce(alignment)):
        return 0
    whole = np.zeros(len(size), dtype=bool)
    whole[block[(shift == 0) & (instance.size == size[block])]] = True
    return instance.segment if whole.all() else 0


def _within_segments(free: list[Span], segment: int | None, top: int) -> list[Span]:
    """Return ranges cut at the multiples of `segment` below `top`, where there are any."""
    if segment is None:
        return free
    return [
        (max(low, at), min(high, at + segment))
        for low, high in free
        for at in range(low // segment * segment, min(high, top), segment)
    ]


def _require_few(instance: LmemPacking, count: int) -> None:
    """Refuse segments of which, below the highest address that counts, there are too many."""
    if count > MOST_RANGES:
        raise InputError(
            f"{count:,} places in segments of {instance.segment:,} bytes lie below the highest "
            "fixed, allowed or reserved address",
            field="segment",
            remedy="give lower addresses, or leave out the segment for them",
        )


def _sufficient(instance: LmemPacking, block: Array, size: Array, alignment: Array) -> int:
    """Return a multiple of the segment below which there is a best packing, if there is any.

    One block after the other, each where it is allowed to be, on top of any support.
    """
    segment, ceiling = instance.segment or 1, instance.ceiling
    support = [0, *(high for _, high in instance.reserved), *instance.fixed.tolist()]
    support += [item.low for item in instance.allowed]
    if instance.objective is Objective.MOVES:
        support += instance.previous.tolist()
    support += [high for memory in instance.memories for _, high in memory.reserved]
    step = int(np.lcm.reduce(alignment))
    turn = math.lcm(segment, step)
    if turn == segment and size.max() <= segment:
        # Each segment but the last holds, with what begins the next one, more than it has room for.
        wide = -(-size // step) * step
        turns = min(len(size), 2 * int(wide.sum()) // segment) + 1
        if instance.conflicts is None and instance.period is None:
            turns = min(turns, _slots(instance, block, wide, step, segment))
    else:
        turns = sum((int(nbytes) + segment) // turn + 2 for nbytes in size)
    top = (max(support) // turn + 1 + turns) * turn
    return int(top if ceiling is None else min(top, -(-ceiling // segment) * segment))


def _slots(instance: LmemPacking, block: Array, wide: Array, step: int, segment: int) -> int:
    """Return how many segments hold all blocks in slots of sizes that double.

    Of those of about one size as many need a slot at once as are alive together; whoever is kept
    apart from another has a slot of its own.  `wide` are sizes as multiples of the `step`.
    """
    b, start, end = len(wide), instance.start, instance.end
    always = np.zeros(b, dtype=bool)
    always[block[list(instance.exclusive)]] = True
    always[block[np.array(instance.apart, dtype=np.int64).ravel()]] = True
    begin, stop = np.full(b, int(end.max())), np.full(b, int(start.min()))
    np.minimum.at(begin, block, start)
    np.maximum.at(stop, block, end)
    begin[always], stop[always] = int(start.min()), int(end.max())
    kind, turns = np.ceil(np.log2(np.maximum(wide, 1))).astype(np.int64), 1
    for each in np.unique(kind[wide > 0]).tolist():
        members = np.flatnonzero((kind == each) & (wide > 0))
        slot = int(wide[members].max())
        times = np.concatenate([stop[members], begin[members]])
        change = np.repeat([-1, 1], len(members))[np.argsort(times, kind="stable")]
        turns += -(-int(np.cumsum(change).max()) // (segment // slot))
    return turns


def _without(
    spans: list[tuple[int, int]], reserved: tuple[tuple[int, int], ...], *, points: bool = False
) -> list[tuple[int, int]]:
    """Return ranges less the `reserved` ones, which ascend; with `points` empty ones, too."""
    free = []
    for low, high in spans:
        for begin, end in reserved:
            if begin < high and end > low:
                if begin + points > low:
                    free.append((low, begin))
                low = end
        if low < high + points:
            free.append((low, high))
    return free


def joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return inclusive spans in order, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for low, last in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((low, last))
    return found


def _common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where two lists of inclusive spans agree."""
    return [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d)]
