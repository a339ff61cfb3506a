"""Compiled ramps: the idle time of stages at both ends of a pipeline; see :mod:`.ramps`.

Cost: O(edges + microbatches of all stages) for each value tested.  Source: see there.
"""

from __future__ import annotations

from typing import NamedTuple

from stagepack.heuristics.schedule.timing_kernels import FAR
from stagepack.instances.profile import Array
from stagepack.instances.schedule.edges_state import Edges
from stagepack.kernels.compiled import step, tiered

ENTRY, FILLED, HEAD, TAIL, MIDDLE = range(5)
"""What is found for every stage, in this order: when it can start at first; the most cycles of
B's and W's between the last F and the last B; the three chains of :class:`.ramps.Ramps`."""

NONE = FAR
"""No length within the budget."""

STAGE, TRY = 10, 3
"""Steps of a stage, and of a number of operations that is tried."""


class Stages(NamedTuple):
    """Stages that have their device to themselves; int64 arrays, shape (p,)."""

    spans: int  # 1: the objective is the longest span, 0: the makespan
    order: Array  # producers before consumers
    # From producers, to consumers.
    into: Edges
    out: Edges
    # Cycles of F, B, W and the optimizer.
    f: Array
    b: Array
    w: Array
    after: Array
    microbatches: Array
    # F's that memory allows before the first B, W's that it allows after the last B.
    ahead: Array
    behind: Array
    queue: Array  # B's that may wait for the last F
    # Bytes beside that F, and of a microbatch that waits for B and for W; `held` is 0 where memory
    # limits no W's.
    room: Array
    taken: Array
    held: Array


@step
def _whole(length: int, each: int, most: int, head: int, budget: int) -> int:
    """Return the least sum, >= length, of k <= most times `each` and head <= idle <= budget."""
    if head > budget:
        return NONE
    # As many whole operations as do not exceed the length; idle cycles are the rest.
    count = most if each == 0 else min(most, max(0, length - head) // each)
    if length - count * each <= budget:
        return max(length, count * each + head)
    # Too much would be idle: another operation, and as little idle as there must be.
    return head + (count + 1) * each if count < most else NONE


@step
def _waiting(stages: Stages, s: int, n: int) -> int:
    """Return the most W's that can run between the last F and the last B of a stage.

    When that F starts, n other microbatches wait for B, and as many for W as still fit beside
    them; after its B any of the n may run its W too.
    """
    count: int = stages.microbatches[s] - 1 - n
    if stages.held[s] > 0:
        count = min(count, max(0, stages.room[s] - n * stages.taken[s]) // stages.held[s])
    return n + count


@step
def _mixed(stages: Stages, s: int, length: int, budget: int, state: Array) -> int:
    """Return the least sum, >= length, of some B's, W's beside them, and 0 <= idle <= budget."""
    # No more B's than fill the length and one that exceeds it; the rest is W's and idle.
    best, b, w = NONE, stages.b[s], stages.w[s]
    for n in range(min(stages.queue[s], length // b + 1), -1, -1):
        state[1] += TRY
        found = _whole(max(0, length - n * b), w, _waiting(stages, s, n), 0, budget)
        if found < NONE:
            best = min(best, n * b + found)
        if best == length:  # nothing is shorter
            break
    return best


@step
def _filled(stages: Stages, s: int, state: Array) -> int:
    """Return the most cycles of B's and W's between the last F and the last B of stage s."""
    most = 0
    # More B's that wait leave room for fewer W's: neither end need be the most.
    for n in range(stages.queue[s] + 1):
        most = max(most, n * stages.b[s] + stages.w[s] * _waiting(stages, s, n))
    state[1] += TRY * stages.queue[s]
    return most


@step
def _chained(part: int, stages: Stages, length: Array, s: int, edges: Edges) -> int:
    """Return the least length of a part of stage s, as far as the stages next to it decide."""
    least = 0
    if part == HEAD:
        least = length[ENTRY, s] + stages.f[s]
    elif part == TAIL:
        least = stages.w[s]
    for edge in range(edges.first[s], edges.first[s + 1]):
        t, lag = edges.stage[edge], edges.lag[edge]
        # For spans time counts from the stage's own start, an F and a link after t's.
        if part == ENTRY:
            hop = stages.f[t] + lag
        elif part == HEAD:
            hop = stages.b[t] + (stages.f[s] + 2 * lag if stages.spans == 1 else lag)
        elif part == TAIL:
            hop = stages.b[t] + lag + stages.after[t] - stages.after[s]
            hop += stages.f[t] + lag if stages.spans == 1 else 0
        else:
            hop = stages.f[t] + stages.b[t] + 2 * lag
        least = max(least, length[part, t] + hop)
    return least


def _steps(part: int, stages: Stages, *_: object) -> int:
    """Return about how many steps :func:`ramp` takes."""
    longest = int(stages.queue.sum()) if part in (FILLED, MIDDLE) else 0
    return (
        STAGE * len(stages.order)
        + 2 * (len(stages.into.stage) + len(stages.out.stage))
        + TRY * longest
    )


@tiered(_steps)
def ramp(
    part: int,
    stages: Stages,
    budget: Array,
    length: Array,
    idle: Array,
    state: Array,
    most: int,
) -> None:
    """Find `part` of every stage, one after the other along the edges or against them.

    `part` is `ENTRY`, `FILLED`, `HEAD`, `TAIL` or `MIDDLE`; those before are found.  All arrays are
    int64.  `budget`, (p,), are cycles that each stage may be idle.  Row `part` of `length` and
    `idle`, (5, p), becomes the least lengths and the least idle cycles in them.  `state`, (2,):
    stages that were looked at, p: all, -1: one has no length within its budget; and steps, of which
    a call takes about `most`.
    """
    p, until = len(stages.order), state[1] + most
    along = part in (ENTRY, TAIL)  # these grow along the edges, the others against them
    edges = stages.into if along else stages.out
    while state[0] < p and state[1] < until:
        s = stages.order[state[0] if along else p - 1 - state[0]]
        state[0] += 1
        if part == FILLED:  # of a stage alone
            length[part, s] = _filled(stages, s, state)
            continue
        state[1] += STAGE + 2 * (edges.first[s + 1] - edges.first[s])
        least = _chained(part, stages, length, s, edges)
        if part == ENTRY:
            length[part, s] = least
            continue
        if part == HEAD:
            head, each, many = length[ENTRY, s], stages.f[s], stages.ahead[s]
            idle[part, s] = max(head, least - many * each)  # if all F's that fit run in it
            found = _whole(least, each, many, head, budget[s])
        elif part == TAIL:
            idle[part, s] = max(0, least - stages.behind[s] * stages.w[s])
            found = _whole(least, stages.w[s], stages.behind[s], 0, budget[s])
        else:
            idle[part, s] = max(0, least - length[FILLED, s])
            found = _mixed(stages, s, least, budget[s], state)
        if found == NONE:  # lengths only grow from here on: no stage need be looked at
            state[0] = -1
            return
        length[part, s] = found
