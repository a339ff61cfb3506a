"""The state of the beam search, shared by its compiled kernel and Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import record

RUNNING, FOUND, DEAD, CHOSEN = range(4)
"""Why :func:`proceed` returned: work done, packed, nothing left to go on with, or the states of a
level are chosen, where that is asked for."""

BEGIN, CHOOSE, MAKE, EXPAND = range(4)
"""What is done next: judge the empty state; at a level, sort its proposals, make states of the
best, expand the best of these."""

PHASE, LEVEL, AT, MADE, KEPT, WAITING, FREE, NODES, SPENT, REACHED, TOLD, STAMP = range(12)
"""Entries of `control`: the phase and its level; how far it is; states made and kept at the level;
proposals that wait at any level; slots that are free; nodes of the tree of placements; steps of the
last call; the last level that had a state; whether to return at each level; marks in `met`."""

FACTS = record(
    [
        ("guide", np.float64),  # the less, the more promising
        ("area", np.float64),  # of what is placed: size times sections
        ("worth", np.float64),  # what placing all that is left takes off the guide
        ("offset", np.int64),  # of the block placed last; nothing will lie lower
        ("rank", np.int64),  # of that block
        ("left", np.int64),  # blocks still to be placed
        ("code", np.int64),  # equal for states in which the same is left to do
        ("node", np.int64),  # of the tree of placements
        ("used", np.int64),  # proposals that would go on from here
    ],
)

PROPOSAL = record(
    [
        ("guide", np.float64),  # estimated
        ("state", np.int64),  # slot of the state that it goes on from
        ("block", np.int64),  # placed next, at its base
    ],
)

NODE = record([("parent", np.int64), ("block", np.int64), ("offset", np.int64)])


class Given(NamedTuple):
    """What is to be packed, and how states are judged."""

    blocks: Array  # BLOCK (b,): for the steps and spans of their offsets
    odd: bool  # some block may not lie anywhere
    # int64 (b,): in units; of several at one offset the block of least rank comes first.
    size: Array
    rank: Array
    before: Array  # int64 (b,): an identical block that is to be placed before, or -1
    # int64 (b + 1,): block i is alive in the runs of sections run_ptr[i] .. run_ptr[i + 1] - 1.
    run_ptr: Array
    # int64 (runs,): its sections, end excluded.
    run_first: Array
    run_end: Array
    # int64 (b + 1,), (2 * pairs,): blocks that share a section with each, as rows.
    neighbour_ptr: Array
    neighbours: Array
    # int64 (k + 1,), (incidences,): blocks of every section as rows.
    member_ptr: Array
    members: Array
    # float64 (b,): size times sections, in parts of the whole; what placing a block takes off the
    # guide.
    area: Array
    worth: Array
    sections: Array  # SECTION (k,): for their holes
    # int64 (., 2): legal offsets of blocks, ends included; addresses [low, high) that no block of a
    # section may use.  Both ascending.
    spans: Array
    holes: Array
    total: Array  # int64 (k,): what each section has to hold
    weight: Array  # float64 (k,): what wasted units count there
    square: bool  # the guide sums the squares of what is wasted
    made: int  # states made for each that is kept
    passes: int  # passes in which the effective offsets of excluded blocks are raised


class Pool(NamedTuple):
    """States of the search, one a slot."""

    # int64 (slots, b): the lowest place of every block above all that are placed; NOWHERE: it is
    # placed.
    base: Array
    # int64 (slots, b): what is proved so far about its offset; NOWHERE: it is placed.
    effective: Array
    # int32 (slots, b): a neighbour that kept an excluded block from its base when this was last
    # looked at; itself where none was.
    under: Array
    # int64 (slots, k): the least effective offset of what is left in each section, NOWHERE where
    # nothing is.
    floor: Array
    lowest: Array  # int32 (slots, k): a block of that offset
    left: Array  # int64 (slots, k): what each section has still to hold
    facts: Array  # FACTS (slots,): what else is known of the state in each slot
    # int64 (slots,): slots that are free, the first ``control[FREE]``: each once, as it is added
    # when the count `used` of what needs it falls to 0, and taken out before that is 1 again.
    free: Array


class Beam(NamedTuple):
    """A beam search under way.

    A call ends between two steps of a phase, all that it goes on with is in `control`.  The first
    state is made by whoever begins the search, and judged in the phase `BEGIN`, which comes once.
    """

    given: Given  # the component and how states are judged
    pool: Pool  # the states
    # PROPOSAL (rows, most): of each level to come, in turn, a heap with the worst at its top, which
    # makes room for another one where the heap is full.  A placement takes a state up to `rows` - 1
    # levels on.
    proposals: Array
    waiting: Array  # int64 (rows,): how many each holds
    kept: Array  # PROPOSAL (1, width): the states of the level, a heap as above
    # int64 (a power of two,): codes of the states of the level; 0: none.  More than twice `most`,
    # so that places stay empty: every proposal of a level enters one at most.
    seen: Array
    # NODE (2 * (b + 1) * width + 2,): the tree of placements: its root, `width` at most for each
    # level, and the last placement of a packing.  A state of j blocks is at level b + j - 1 at most
    # (levels are those of its area, up to b, or the next one), so that there are fewer than 2 * b
    # with states.
    nodes: Array
    excluded: Array  # int64 (b,): scratch: each block once
    # int64 (b,): blocks that may come next, and the look at which a block was met.
    candidates: Array
    met: Array
    barred: Array  # bool (b,): scratch of what may be placed next, each block once
    control: Array  # int64 (16,): counters, by the names above
