"""Compiled unrolling of what devices run in rounds.

Cost: O(operations).  Source: see :mod:`.rules`.
"""

from __future__ import annotations

from stagepack.instances.profile import Array
from stagepack.kernels.compiled import entries, tiered


@tiered(entries)
def unroll(
    rounds: Array,
    first: Array,
    line: Array,
    begin: Array,
    count: Array,
    order: Array,
    state: Array,
    most: int,
) -> bool:
    """Write down what runs repeat, about `most` columns; return whether that was all.

    All arrays are int64.  Run r repeats its columns first[r] .. first[r + 1] - 1 rounds[r] times:
    `rounds` has shape (runs,), `first` (runs + 1,).  `line`, `begin` and `count` have shape
    (columns,): round i of a column is operation ``line + begin + i``, and none where begin + i is
    not below count.  `order`, (n,), gets the operations: each once, as columns of a line begin
    where those before end.  `state`, (3,), is the run, round and place in `order` to go on from: 0,
    0, 0 at first.
    """
    run, turn, place = state[0], state[1], state[2]
    while run < len(rounds):
        if turn == rounds[run]:  # also a run of no rounds
            run += 1
            turn = 0
            continue
        if most <= 0:  # between two rounds, never within one
            state[0], state[1], state[2] = run, turn, place
            return False
        most -= 1 + first[run + 1] - first[run]
        for column in range(first[run], first[run + 1]):
            i = begin[column] + turn
            if i < count[column]:  # rules may ask for more than there are
                order[place] = line[column] + i
                place += 1
        turn += 1
    state[2] = place
    return True


@tiered(entries)
def grouped(
    base: Array, microbatches: Array, kinds: int, size: int, stages: Array, order: Array, place: int
) -> int:
    """Write from `place` on `size` F's, then B (and W) of each, and again, of stage after stage.

    Return the place behind: as much further as the stages have operations, each of which is written
    once.  `base`, `microbatches` and `kinds` are those of :class:`.operations.Operations`,
    `stages`, int64, the stages as they run, `order`, int64 (n,), what is written.
    """
    for s in stages:
        m = microbatches[s]
        for begin in range(0, m, size):
            end = min(m, begin + size)  # the last group may be smaller
            for i in range(begin, end):
                order[place] = base[s] + i
                place += 1
            for i in range(begin, end):
                for kind in range(1, kinds):
                    order[place] = base[s] + kind * m + i
                    place += 1
    return place
