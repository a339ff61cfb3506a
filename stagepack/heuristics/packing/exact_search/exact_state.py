"""What kernels of the exact packing search share with Python: places of blocks, and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import record

if TYPE_CHECKING:
    from stagepack.instances.packing.normal_form.blocks import Blocks

Record = Any
"""An entry of a structured array."""

NOWHERE = 2**60
"""Larger than every address: no place is left."""

RUNNING, FOUND, EXHAUSTED, LIMIT, FULL = range(5)
"""Why :func:`search` returned: work done, packed, proved, too many nodes, arrays too short."""

DEPTH, TRAIL, LISTS, PARTS, NODES, ANSWER, FOCUS, SPENT, REASONS, AGENDA, STAMP = range(11)
"""Entries of `control`: the frame at work, used rows of the arrays, nodes; the last answer, where
to branch, steps of the last call; used entries of `reasons` and `agenda`; how many failures were
explained."""

EXPLAINED, NOTED, ENTRIES = range(11, 14)
"""Entries of `control` that are given: steps that an explanation may take, placements that a reason
may name (`SearchTuning`); how many entries there are."""

LOWEST_BLOCK, LOWEST_SECTION = range(2)
"""Where to branch: at the block of least base, or in the section of least floor."""

SELECT, PLACED, EXCLUDE = range(3)
"""What a frame does next: choose a block, hear how its parts went, exclude it from its base."""

PART_BEGIN, PART_COUNT, PART_SECTION, PART_SECTION_END = range(4)
"""Columns of `parts`: where in `lists` a part's blocks begin, how many there are, and where its
sections begin and end."""

BLOCK = record(
    [
        # What the scans read comes first, on one cache line.
        ("offset", np.int64),  # -1: unplaced
        ("base", np.int64),
        ("effective", np.int64),
        ("size", np.int64),
        ("rank", np.int64),  # the lower is preferred among equal bases
        ("under", np.int32),  # the block that last raised the base, or -1
        ("twin", np.int32),  # the next identical block, or -1
        ("neighbour", np.int32),  # it conflicts with neighbours[neighbour : neighbour_end]
        ("neighbour_end", np.int32),
        ("section", np.int32),  # and is alive in section_of[section : section_end]
        ("section_end", np.int32),
        ("family", np.int32),  # blocks of the same sections that may swap places; -1: none
        ("label", np.int32),  # scratch: part of the block
        ("span", np.int32),  # its rows of `spans` are span .. span_end - 1
        ("span_end", np.int32),  # equal to span: may lie anywhere
        ("step", np.int64),  # offsets are multiples of this
        ("weight", np.float64),  # of the load when ranks are computed anew; 0: ranks stay
    ],
)

SECTION = record(
    [
        ("floor", np.int64),  # lower bound on the effective offset of unplaced members
        ("total", np.int64),  # sum of sizes of unplaced members
        ("crossing", np.int64),  # unplaced blocks alive here and in the next section
        ("witness", np.int64),  # a member that had the least effective offset
        ("hole", np.int64),  # its rows of `holes` are hole .. hole_end - 1
        ("hole_end", np.int64),
        ("member", np.int64),  # its blocks are members[member : member_end]
        ("member_end", np.int64),
        ("label", np.int64),  # scratch: part of the section
    ],
)

FRAME = record(
    [
        ("state", np.int64),
        ("begin", np.int64),  # the part's unplaced blocks are lists[begin : begin + count]
        ("count", np.int64),
        ("section", np.int64),  # the part's sections are lists[section : section_end]
        ("section_end", np.int64),
        ("level", np.int64),  # no unplaced block lies lower
        ("choice", np.int64),
        ("trail", np.int64),  # tops of the arrays when `choice` was chosen
        ("lists", np.int64),
        ("parts", np.int64),
        ("next", np.int64),  # the part to search next
    ],
)

CHANGE = record(
    [
        ("what", np.int64),  # one of the four kinds below
        ("index", np.int64),
        ("a", np.int64),
        ("b", np.int64),
        ("c", np.int64),
        # Of bounds:
        ("cause", np.int64),  # of a raised effective offset, see below
        ("earlier", np.int64),  # the row that raised it before, or -1
        ("stamp", np.int64),  # of the failure in whose explanation it was last
    ],
)
BOUNDS, OFFSET, PROFILE, RANK = range(4)
"""What a row of the trail takes back: base, effective and under of a block; its offset; floor,
total and crossing of a section; the rank of a block."""

NO_CAUSE, TWIN = 1 << 40, 1 << 41
"""Causes of a row of the trail: it raises no effective offset; the row before raised the block's
twin.  Others from 0 up: the block that was placed; below 0: an exclusion, whose reason begins at
-1 - cause."""


def too_large(blocks: Blocks) -> str:
    """Return why the numbers in `blocks` are beyond the exact search, or ''."""
    highest = int(max(blocks.range_low.max(initial=0), blocks.fixed.max(initial=0)))
    if highest + float(blocks.size.sum()) + float(blocks.alignment.sum()) >= NOWHERE:
        return "the exact search counts to 2**60 bytes; use a coarser unit"
    return ""


class Rules(NamedTuple):
    """What is said of where blocks may lie, shape (b,) unless said otherwise."""

    # `size`, `alignment`: int64: of each block.
    size: Array
    alignment: Array
    range_ptr: Array  # int64, shape (b + 1,): where the ranges of each begin
    # `range_low`, `range_high`: int64: rows of the addresses [low, high) in one of which a block
    # must lie, ascending.
    range_low: Array
    range_high: Array
    near_ptr: Array  # int64, shape (b + 1,): where the fixed neighbours of each begin
    # `near_low`, `near_high`: int64: rows of the addresses [low, high) of fixed blocks that it
    # meets, by ascending `low`.
    near_low: Array
    near_high: Array


class Spans(NamedTuple):
    """What blocks use of their places, and the groups of blocks that are looked at together."""

    # `begin`, `end`: int64, shape (b,): where each block may lie is spans[begin : end]; an empty
    # row: anywhere.
    begin: Array
    end: Array
    spans: Array  # int64, shape (., 2): offsets, ends included
    size: Array  # int64, shape (b,): units of each block
    # `member_ptr`, `members`: int64: rows of the blocks of each group.
    member_ptr: Array
    members: Array
    top: int  # beyond all addresses that count


class SearchState(NamedTuple):
    """A search under way: a component, which does not change, and what is known so far.

    A call of :func:`search` ends between two turns of its loop, each of which begins with enough
    room left in `trail`, `lists`, `parts` and `reasons` (else it returns FULL, with nothing
    changed).  A turn adds at most

    - to `trail` a row for each bound, twice for each section, for each base that is lifted and for
      each rank, and one for the block placed.  Of identical blocks the first, which comes first
      among neighbours, too, raises all others high enough, so that no bound is raised twice;
    - to `lists` each block and section of a part, to `parts` at most one for each of its blocks;
    - to `reasons` one reason: of the frames at work, of which there is one for each placed block.
    """

    linear: bool  # every block is alive in a run of sections
    section_of: Array  # int64, shape (incidences,): sections of every block as rows, ascending
    # int64, shape (2 * pairs,): blocks that share a section with each, as rows, ascending.
    neighbours: Array
    members: Array  # int64, shape (incidences,): blocks of every section as rows
    spans: Array  # int64, shape (., 2): legal offsets of blocks, ends included, ascending
    # int64, shape (., 2): addresses [low, high) that no block of a section may use, ascending.
    holes: Array
    blocks: Array  # BLOCK, shape (b,): facts about each block
    sections: Array  # SECTION, shape (sections,): facts about each section
    # FRAME, shape (b + 2,): the stack: a frame for every block that is placed on the way to this
    # node, and its own.
    frames: Array
    trail: Array  # CHANGE: what to take back when a frame is left
    lists: Array  # int64: blocks and sections of parts
    # int64, shape (., 4): where in `lists` the blocks and the sections of each part are.
    parts: Array
    queue: Array  # int64, shape (b + 1,): scratch: each block of a part once, when it is labelled
    # int64, shape (b,): the last row of the trail that raised the effective offset of each block,
    # or -1.
    latest: Array
    # `row`, `depth`: int64, shape (b,): of each placed block, the row of the trail and the frame in
    # which it was placed; row -1: before the search.
    row: Array
    depth: Array
    # bool, shape (b + 3,): whether the last failure rests on the placement in each frame.
    blamed: Array
    reasons: Array  # int64: what failed where an exclusion was made: see :mod:`.blame_kernels`
    # int64, as long as the trail: rows of the trail that are still to be explained: each once, as
    # its stamp tells.
    agenda: Array
    control: Array  # int64, shape (13,): counters, by the names above
