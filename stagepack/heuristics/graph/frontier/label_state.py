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

    Attributes
    ----------
    order : ndarray, shape (n,)
        Blocks as they are swept.
    stages, rows, words, net_words : int
        Stages; kinds of load; words of a label; those with nets.
    apart : int
        1 where times, what is received and what is sent are loads of their own (the first three
        kinds), 0 where they are added (one kind); memory comes last.
    net_word, net_shift, anchor_word, anchor_shift : ndarray, shape (slots,)
        Where the fields of slots are.
    anchor_mask : int
        That of an anchor's field.
    pred_ptr, pred : ndarray
        Anchors of the predecessors of the block.
    touch_ptr, touch, touch_cost, touch_flags : ndarray
        Nets of the block: slot, ticks, flags.
    clear_ptr, clear : ndarray
        Anchors that nobody needs any more.
    own : ndarray, shape (n,)
        The anchor of the block itself, -1: none.
    item_ptr, item, item_cost, item_flags : ndarray
        Fields to be brought up to date: slot, ticks, flags; cost -1: an anchor.
    term_ptr, term : ndarray
        Remaining members or successors of each item.
    bound_ptr, bound : ndarray
        Anchors that bound each of these from below.
    net_ptr, net, net_cost, net_flags : ndarray
        Live nets after the step: slot, ticks, flags.
    anchor_ptr, anchor : ndarray
        Live anchors after the step.
    edge_ptr, edge_own, edge_other, edge_low, edge_high : ndarray
        Edges from swept to remaining blocks: the anchor here, and in a sweep the other way; the
        remaining block, and the swept one, or -1 where blocks between them bound them, too.
    """

    order: Array
    stages: int
    rows: int
    words: int
    net_words: int
    apart: int
    net_word: Array
    net_shift: Array
    anchor_word: Array
    anchor_shift: Array
    anchor_mask: int
    pred_ptr: Array
    pred: Array
    touch_ptr: Array
    touch: Array
    touch_cost: Array
    touch_flags: Array
    clear_ptr: Array
    clear: Array
    own: Array
    item_ptr: Array
    item: Array
    item_cost: Array
    item_flags: Array
    term_ptr: Array
    term: Array
    bound_ptr: Array
    bound: Array
    net_ptr: Array
    net: Array
    net_cost: Array
    net_flags: Array
    anchor_ptr: Array
    anchor: Array
    edge_ptr: Array
    edge_own: Array
    edge_other: Array
    edge_low: Array
    edge_high: Array


class Question(NamedTuple):
    """What is asked: whether all loads can stay within `limit`; int64 arrays.

    Attributes
    ----------
    work : ndarray, shape (rows, stages, blocks)
        Load of every block by stage.
    pays : ndarray, shape (stages,)
        1 where traffic counts, else 0.
    all_pay : int
        1 where it counts everywhere.
    limit : ndarray, shape (rows * stages,)
        The most of every kind of load on every stage.
    low, high : ndarray, shape (blocks,)
        Stages that a block can take.
    need_upto, need_from : ndarray, shape (n + 1, rows * stages)
        Load of the blocks after i steps that must be at most, at least at this stage.
    source_low : ndarray, shape (n + 1,)
        Lowest stage of a block to come without predecessors.
    delta : ndarray, shape (rows,)
        Loads that differ by no more are merged.
    table, made : ndarray of int32, shape (n + 1, stages, buckets, buckets), or 1s
        For every number of steps left, lowest stage j used by the blocks of these steps, and load
        on j and j + 1 at most, the least load on the stages beyond: that of sweeps the other way,
        to be asked, and that of this one, to be made, stages counted from its end.
    asks, makes : bool
        Whether `table` is asked, and `made` is made.
    lowest, highest : ndarray, shape (blocks,)
        Stages that each block took in a label, to be noted.
    pause : ndarray of int8, shape (n,)
        Steps at whose end to return.
    bucket : int
        Loads are shifted by so many bits to be buckets.
    unit : int
        Ticks of one in a table.
    beam : int
        Labels kept a step, 0: all.  With a beam labels are real, and what led to them is logged.
    compared : int
        Labels of equal anchors that a new one is compared with at most.
    """

    work: Array
    pays: Array
    all_pay: int
    limit: Array
    low: Array
    high: Array
    need_upto: Array
    need_from: Array
    source_low: Array
    delta: Array
    table: Array
    made: Array
    asks: bool
    makes: bool
    lowest: Array
    highest: Array
    pause: Array
    bucket: int
    unit: int
    beam: int
    compared: int


class Labels(NamedTuple):
    """Labels before and after a step; int64 arrays unless stated otherwise.

    A label is added, to the side that is written, where there is room for it, else the kernel
    returns FULL before it tries the stage; a step is logged where the log has room for all alive,
    else it returns OVERFLOW, and the step is closed by the next call.

    Attributes
    ----------
    words : ndarray, shape (2, capacity, words)
        Fields of nets and anchors, packed; of both sides.
    loads : ndarray, shape (2, capacity, rows * stages)
        Loads of open stages; 0 of closed ones.
    marks : ndarray, shape (capacity, rows * stages)
        Loads that a label had when it was made: what is merged into it differs little from these.
    keys : ndarray, shape (capacity,)
        Hashes of the words.
    head : ndarray of int32, shape (a power of two,)
        The first label of each hash; -1 where there is none.
    next : ndarray of int32, shape (capacity,)
        Labels of equal hash as lists; -1 ends one.
    alive : ndarray of int8, shape (2, capacity)
        1 until another label stands for it, or nothing completes it.
    value : ndarray, shape (capacity,)
        How promising a label is.
    entry : ndarray of int32, shape (2, capacity)
        Its row of the log; of a new label that of the one before.
    chosen : ndarray, shape (capacity,)
        Stages, as bits, of the block in all that a new label stands for.
    log_entry, log_stage : ndarray of int32, int8, shape (rows of the log,)
        The row before, and the stage of the block of that step.
    word, load, extra : ndarray, shape (words,), (rows * stages,), (rows * stages,)
        Scratch: the new label, and what nets may cost it more than another, by kind and stage.
    """

    words: Array
    loads: Array
    marks: Array
    keys: Array
    head: Array
    next: Array
    alive: Array
    value: Array
    entry: Array
    chosen: Array
    log_entry: Array
    log_stage: Array
    word: Array
    load: Array
    extra: Array
