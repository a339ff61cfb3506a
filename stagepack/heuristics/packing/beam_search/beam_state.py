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
    """What is to be packed, and how states are judged.

    Attributes
    ----------
    blocks : ndarray of BLOCK, shape (b,)
        For the steps and spans of their offsets.
    odd : bool
        Some block may not lie anywhere.
    size, rank : ndarray of int64, shape (b,)
        In units; of several at one offset the block of least rank comes first.
    before : ndarray of int64, shape (b,)
        An identical block that is to be placed before, or -1.
    run_ptr : ndarray of int64, shape (b + 1,)
        Block i is alive in the runs of sections run_ptr[i] .. run_ptr[i + 1] - 1.
    run_first, run_end : ndarray of int64, shape (runs,)
        Its sections, end excluded.
    neighbour_ptr, neighbours : ndarray of int64, shape (b + 1,), (2 * pairs,)
        Blocks that share a section with each, as rows.
    member_ptr, members : ndarray of int64, shape (k + 1,), (incidences,)
        Blocks of every section as rows.
    area, worth : ndarray of float64, shape (b,)
        Size times sections, in parts of the whole; what placing a block takes off the guide.
    sections : ndarray of SECTION, shape (k,)
        For their holes.
    spans, holes : ndarray of int64, shape (., 2)
        Legal offsets of blocks, ends included; addresses [low, high) that no block of a section may
        use.  Both ascending.
    total : ndarray of int64, shape (k,)
        What each section has to hold.
    weight : ndarray of float64, shape (k,)
        What wasted units count there.
    square : bool
        The guide sums the squares of what is wasted.
    made : int
        States made for each that is kept.
    passes : int
        Passes in which the effective offsets of excluded blocks are raised.
    """

    blocks: Array
    odd: bool
    size: Array
    rank: Array
    before: Array
    run_ptr: Array
    run_first: Array
    run_end: Array
    neighbour_ptr: Array
    neighbours: Array
    member_ptr: Array
    members: Array
    area: Array
    worth: Array
    sections: Array
    spans: Array
    holes: Array
    total: Array
    weight: Array
    square: bool
    made: int
    passes: int


class Pool(NamedTuple):
    """States of the search, one a slot.

    Attributes
    ----------
    base : ndarray of int64, shape (slots, b)
        The lowest place of every block above all that are placed; NOWHERE: it is placed.
    effective : ndarray of int64, shape (slots, b)
        What is proved so far about its offset; NOWHERE: it is placed.
    under : ndarray of int32, shape (slots, b)
        A neighbour that kept an excluded block from its base when this was last looked at; itself
        where none was.
    floor : ndarray of int64, shape (slots, k)
        The least effective offset of what is left in each section, NOWHERE where nothing is.
    lowest : ndarray of int32, shape (slots, k)
        A block of that offset.
    left : ndarray of int64, shape (slots, k)
        What each section has still to hold.
    facts : ndarray of FACTS, shape (slots,)
        What else is known of the state in each slot.
    free : ndarray of int64, shape (slots,)
        Slots that are free, the first ``control[FREE]``: each once, as it is added when the count
        `used` of what needs it falls to 0, and taken out before that is 1 again.
    """

    base: Array
    effective: Array
    under: Array
    floor: Array
    lowest: Array
    left: Array
    facts: Array
    free: Array


class Beam(NamedTuple):
    """A beam search under way.

    A call ends between two steps of a phase, all that it goes on with is in `control`.  The first
    state is made by whoever begins the search, and judged in the phase `BEGIN`, which comes once.

    Attributes
    ----------
    given : Given
        The component and how states are judged.
    pool : Pool
        The states.
    proposals : ndarray of PROPOSAL, shape (rows, most)
        Of each level to come, in turn, a heap with the worst at its top, which makes room for
        another one where the heap is full.  A placement takes a state up to `rows` - 1 levels on.
    waiting : ndarray of int64, shape (rows,)
        How many each holds.
    kept : ndarray of PROPOSAL, shape (1, width)
        The states of the level, a heap as above.
    seen : ndarray of int64, shape (a power of two,)
        Codes of the states of the level; 0: none.  More than twice `most`, so that places stay
        empty: every proposal of a level enters one at most.
    nodes : ndarray of NODE, shape (2 * (b + 1) * width + 2,)
        The tree of placements: its root, `width` at most for each level, and the last placement of
        a packing.  A state of j blocks is at level b + j - 1 at most (levels are those of its area,
        up to b, or the next one), so that there are fewer than 2 * b with states.
    excluded : ndarray of int64, shape (b,)
        Scratch: each block once.
    candidates, met : ndarray of int64, shape (b,)
        Blocks that may come next, and the look at which a block was met.
    barred : ndarray of bool, shape (b,)
        Scratch of what may be placed next, each block once.
    control : ndarray of int64, shape (16,)
        Counters, by the names above.
    """

    given: Given
    pool: Pool
    proposals: Array
    waiting: Array
    kept: Array
    seen: Array
    nodes: Array
    excluded: Array
    candidates: Array
    met: Array
    barred: Array
    control: Array
