"""The state of the exact search for blocks of any shape, shared by its kernels and Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.heuristics.packing.exact_search.exact_state import EXCLUDE
from stagepack.instances.profile import Array
from stagepack.kernels.compiled import record

DEPTH, TRAIL, LISTS, PARTS, NODES, ANSWER, LEAST, WORK, WAITING, TOUCHED, STAMP, FOCUS = range(12)
"""Entries of `control`: frames; used rows of the arrays; nodes; last answer; the least height at
which the tree was cut; steps; used rows of `queue` and `touched`; mark of the sections in it; where
to branch."""

RAISES, STEPS, SMALL, SOMETIMES, ENTRIES = range(12, 17)
"""Entries of `control` that are given (`GeneralTuning`): raises a block and steps of a deduction;
blocks above which parts are divided only sometimes, and how seldom; how many entries there are."""

STATE, BEGIN, COUNT, CHOICE, MARK, LISTED, PART, PART_END, NEXT = range(9)
"""Entries of a frame: what it does next; its unplaced blocks lists[begin : begin + count]; the
block chosen, and the tops of trail and lists before; its parts, and which is next."""

BEGUN = EXCLUDE + 1
"""The state of a frame of which nothing was deduced so far."""

LOWEST, OFFSET, HOLE = range(3)
"""What a change on the trail was of."""


BLOCK = record(
    [
        ("offset", np.int64),  # -1: unplaced
        ("lowest", np.int64),  # proved lower bound on the offset
        ("hole", np.int64),  # an excluded place that no placed block forbade then, or -1
        ("size", np.int64),
        ("step", np.int64),  # offsets are multiples of this
        ("rank", np.int64),  # the lower is preferred at equal places
        ("near", np.int64),  # its rows of `near` are near .. near_end - 1
        ("near_end", np.int64),
        ("range", np.int64),  # its rows of `ranges`; none: may lie anywhere
        ("range_end", np.int64),
        ("section", np.int64),  # its rows of `section_of`
        ("section_end", np.int64),
        ("before", np.int64),  # the identical block next below, or -1
        ("after", np.int64),  # the identical block next above, or -1
        ("apart", np.int64),  # least distance from the one below
        ("waiting", np.int64),  # whether it is in `queue`
        ("label", np.int64),  # scratch: seen
    ],
)

NEAR = record([("block", np.int64), ("run", np.int64), ("run_end", np.int64)])
"""A block alive together with another one, and which of `runs` are forbidden distances from it."""

SPAN = record([("low", np.int64), ("high", np.int64)])
"""A forbidden run of distances or an allowed range of offsets, low .. high."""

MEMBER = record(
    [
        ("block", np.int64),
        ("low", np.int64),  # it holds [low, high) above the offset
        ("high", np.int64),
        ("partner", np.int64),  # its rows of `partners`
        ("partner_end", np.int64),
    ],
)
"""A piece of a block in a section."""

SECTION = record(
    [
        ("member", np.int64),  # its rows of `members`
        ("member_end", np.int64),
        ("stamp", np.int64),  # tells whether it is in `touched`
        ("top", np.int64),  # how high it had to reach when last looked at; 0: nothing waits
    ],
)


class Shapes(NamedTuple):
    """Blocks of any shape over sections, in units.

    Calls of :func:`.exact_general_kernels.search` end between two turns of its loop, when `queue`
    and `touched` are empty, but for the first turn, which is given all.
    """

    # `blocks`, `near`, `members`, `sections`: BLOCK, NEAR, MEMBER, SECTION: records of blocks, of
    # those that meet, and of what is in a section.
    blocks: Array
    near: Array
    members: Array
    sections: Array
    # `runs`, `ranges`: SPAN: ascending in every row.
    runs: Array
    ranges: Array
    partners: Array  # int64: blocks of a member's section with which it may share its offset
    section_of: Array  # int64: sections of each block
    # int64, shape (members,): the members of each section, nearly ascending in address.
    order: Array
    # int64, shape (b,): blocks whose place is to be looked at: each once, as its `waiting` tells.
    queue: Array
    # int64, shape (sections,): sections to be looked at: each once, as its `stamp` tells.
    touched: Array
