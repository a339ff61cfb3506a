"""The state of the frontier sweep, shared by the compiled kernels and Python."""

from __future__ import annotations

from typing import NamedTuple

from stagepack.instances.profile import Array

RUNNING, DONE, EMPTY, FULL, OVERFLOW, WIDE, PAUSED = range(7)
"""Why :func:`sweep` returned: work done, all blocks swept, no label left, labels or log full, more
labels than the beam is wide, the end of a step that `pause` marks."""

STATUS, STEP, LABEL, STAGE, SIDE, NEW, COUNT, TOTAL, COARSER, LOGGED, RESUMED, MASK, WORK = range(
    13
)
"""Entries of `control`: why it returned; the step, label and stage at work; the side that is read,
labels made on the other, labels read, all labels so far; how often `delta` was doubled in this
step; rows of the log; whether a pause is over; stages that the new label stands for; what labels
took beyond being tried."""

FIRST, LAST, PRODUCER, KNOWN = 1, 2, 4, 8
"""Flags of a net at a step: the block is its first, its last to be swept, its producer; the
producer was swept before."""

RECEIVED, SENT = 1, 2
"""Kinds of load where what is received, what is sent and times count apart."""

UNREACHED = 2**31 - 1
"""Entry of a table where the rest cannot be done."""


class Plan(NamedTuple):
    """What a sweep in one direction does at every step; int64 arrays unless stated otherwise.

    Rows as CSR: `x_ptr[i] : x_ptr[i + 1]` are the entries of step i.
    """

    order: Array  # (n,): blocks as they are swept
    # Stages; kinds of load; words of a label; those with nets.
    stages: int
    rows: int
    words: int
    net_words: int
    # 1 where times, what is received and what is sent are loads of their own (the first three
    # kinds), 0 where they are added (one kind); memory comes last.
    apart: int
    # (slots,): where the fields of slots are.
    net_word: Array
    net_shift: Array
    anchor_word: Array
    anchor_shift: Array
    anchor_mask: int  # that of an anchor's field
    # Anchors of the predecessors of the block.
    pred_ptr: Array
    pred: Array
    # Nets of the block: slot, ticks, flags.
    touch_ptr: Array
    touch: Array
    touch_cost: Array
    touch_flags: Array
    # Anchors that nobody needs any more.
    clear_ptr: Array
    clear: Array
    own: Array  # (n,): the anchor of the block itself, -1: none
    # Fields to be brought up to date: slot, ticks, flags; cost -1: an anchor.
    item_ptr: Array
    item: Array
    item_cost: Array
    item_flags: Array
    # Remaining members or successors of each item.
    term_ptr: Array
    term: Array
    # Anchors that bound each of these from below.
    bound_ptr: Array
    bound: Array
    # Live nets after the step: slot, ticks, flags.
    net_ptr: Array
    net: Array
    net_cost: Array
    net_flags: Array
    # Live anchors after the step.
    anchor_ptr: Array
    anchor: Array
    # Edges from swept to remaining blocks: the anchor here, and in a sweep the other way; the
    # remaining block, and the swept one, or -1 where blocks between them bound them, too.
    edge_ptr: Array
    edge_own: Array
    edge_other: Array
    edge_low: Array
    edge_high: Array


class Question(NamedTuple):
    """What is asked: whether all loads can stay within `limit`; int64 arrays."""

    work: Array  # (rows, stages, blocks): load of every block by stage
    pays: Array  # (stages,): 1 where traffic counts, else 0
    all_pay: int  # 1 where it counts everywhere
    limit: Array  # (rows * stages,): the most of every kind of load on every stage
    # (blocks,): stages that a block can take.
    low: Array
    high: Array
    # (n + 1, rows * stages): load of the blocks after i steps that must be at most, at least at
    # this stage.
    need_upto: Array
    need_from: Array
    source_low: Array  # (n + 1,): lowest stage of a block to come without predecessors
    delta: Array  # (rows,): loads that differ by no more are merged
    # int32, shape (n + 1, stages, buckets, buckets), or 1s: for every number of steps left, lowest
    # stage j used by the blocks of these steps, and load on j and j + 1 at most, the least load on
    # the stages beyond: that of sweeps the other way, to be asked, and that of this one, to be
    # made, stages counted from its end.
    table: Array
    made: Array
    # Whether `table` is asked, and `made` is made.
    asks: bool
    makes: bool
    # (blocks,): stages that each block took in a label, to be noted.
    lowest: Array
    highest: Array
    pause: Array  # int8 (n,): steps at whose end to return
    bucket: int  # loads are shifted by so many bits to be buckets
    unit: int  # ticks of one in a table
    # Labels kept a step, 0: all.  With a beam labels are real, and what led to them is logged.
    beam: int
    compared: int  # labels of equal anchors that a new one is compared with at most


class Labels(NamedTuple):
    """Labels before and after a step; int64 arrays unless stated otherwise.

    A label is added, to the side that is written, where there is room for it, else the kernel
    returns FULL before it tries the stage; a step is logged where the log has room for all alive,
    else it returns OVERFLOW, and the step is closed by the next call.
    """

    words: Array  # (2, capacity, words): fields of nets and anchors, packed; of both sides
    loads: Array  # (2, capacity, rows * stages): loads of open stages; 0 of closed ones
    # (capacity, rows * stages): loads that a label had when it was made: what is merged into it
    # differs little from these.
    marks: Array
    keys: Array  # (capacity,): hashes of the words
    head: Array  # int32 (a power of two,): the first label of each hash; -1 where there is none
    next: Array  # int32 (capacity,): labels of equal hash as lists; -1 ends one
    alive: Array  # int8 (2, capacity): 1 until another label stands for it, or nothing completes it
    value: Array  # (capacity,): how promising a label is
    entry: Array  # int32 (2, capacity): its row of the log; of a new label that of the one before
    chosen: Array  # (capacity,): stages, as bits, of the block in all that a new label stands for
    # int32, int8 (rows of the log,): the row before, and the stage of the block of that step.
    log_entry: Array
    log_stage: Array
    # (words,), (rows * stages,), (rows * stages,): scratch: the new label, and what nets may cost
    # it more than another, by kind and stage.
    word: Array
    load: Array
    extra: Array
