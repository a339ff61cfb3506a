"""What a group takes at least, wherever its transfers are and whatever is spilled.

A row takes at least its compute, and at least its transfers.  Before slice 0 comes to operator k
everything that it and those before it read is loaded, and compute from k on is still to do; after
the last slice has left operator l, everything that it and those behind it write is stored.
Cost: O(operators).  Source: ours.
"""

from __future__ import annotations

from stagepack.instances.groups.timesteps import Timetable


def least_cycles(table: Timetable) -> int:
    """Return the cycles below which no timesteps of a group can be.

    Parameters
    ----------
    table : Timetable
        The group in its cut, by any rule.
    """
    rows, rounds, compute = table.rows, table.rounds, table.compute
    ahead, behind = [0] * rows, [0] * rows
    moved = 0
    for move in table.moves:
        moved += move.cycles * (1 if move.resident else rounds)
        (ahead if move.load else behind)[move.operator] += move.cycles
    best = tail = 0
    tails = [0] * rows
    for k in reversed(range(rows)):  # stores from k on, less compute behind k
        tails[k] = max(tail + behind[k], 0)
        tail += behind[k] - compute[k]
    head = begun = 0
    for k in range(rows):
        head += ahead[k]
        begun = max(begun, head)
        best = max(best, begun + tails[k])
        head -= compute[k]
    return max(moved, rounds * sum(compute) + best)
