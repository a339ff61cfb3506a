"""Moves the loads and stores of a group to rows in which computation hides them.

The start is the rule ``nearest``.  Then each transfer in turn, the longest first, is moved to the
row in which most of its cycles are hidden; among equal rows the one nearest to its use is chosen.
The bytes alive in a row stay within a capacity, and no lifetime becomes longer than one turn.
Rounds end when no transfer has moved.  The result must then be placed.  This is tried for several
capacities: with fewer bytes alive, a placement is more likely.  Spills are left to the model.

Cost: O(moves * rows) a round, a few rounds.  Source: coordinate descent, ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.placement import Offsets, place, place_by_rule
from stagepack.heuristics.groups.tuning import TUNING, GroupsTuning, MovingTuning
from stagepack.instances.groups.lmem import copies, in_place
from stagepack.instances.groups.timesteps import STAGES, Role, Timetable
from stagepack.instances.profile import Array

KeepGoing = Callable[[], bool]


def settled(
    table: Timetable, keep_going: KeepGoing, tuning: GroupsTuning = TUNING
) -> tuple[Timetable, Offsets] | None:
    """Return the quickest timesteps that were found, with addresses; None where none have any.

    `table` is by the rule ``nearest``; `keep_going` is asked several times a second.
    """
    memory, moving = table.regions.instance.chip.memory, tuning.moving
    tried = {table.positions: table}
    for part in range(moving.parts, moving.least_parts - 1, -1) if tuning.auto.moving else ():
        positions = hidden(table, memory * part // moving.parts, keep_going, moving)
        tried.setdefault(positions, Timetable(table.regions, positions))
    ranked = sorted(tried.values(), key=lambda one: one.cycles)
    for at, one in enumerate(ranked):
        offsets = place_by_rule(one, keep_going, tuning.placement)
        if offsets is not None:
            if at:
                _, exact = place(ranked[0], keep_going, tuning.placement)
                return (ranked[0], exact) if exact else (one, offsets)
            return one, offsets
    return None


def hidden(
    table: Timetable,
    capacity: int,
    keep_going: KeepGoing,
    tuning: MovingTuning = TUNING.moving,
) -> tuple[int, ...]:
    """Return positions of the transfers of a group in which more of them hide.

    They are in the order of :attr:`.Timetable.moves`.  `table` is where they are at first, without
    spills; `capacity` the bytes of a lane that may be alive in a row to which a transfer moves.
    `keep_going` is asked several times a second; once it says no, that is all.
    """
    rows = _Rows(table, capacity)
    longest = sorted(range(len(table.moves)), key=lambda at: -table.moves[at].cycles)
    for _ in range(tuning.rounds):
        if not keep_going():
            break
        spend(tuning.move_price * len(longest))
        if not sum([rows.settle(at) for at in longest]):
            break
    return tuple(rows.positions)


class _Rows:
    """What moves and what is free in the rows of a group; parameters as in :func:`hidden`."""

    def __init__(self, table: Timetable, capacity: int) -> None:
        self.table, self.positions = table, list(table.positions)
        self._turn = table.period or STAGES * table.rows
        self._free = capacity - np.array(table.load_bytes())
        places = copies(table)
        for _, after in in_place(table):
            life = places[after].buffer
            self._free[life.first % self._turn] += life.lane_bytes  # not twice
        self._compute = np.array(table.compute)
        self._runs = [run for run in table.iterations if 1 in run[0]]
        shape = STAGES, table.rows
        self._moving = np.array(table.transfers, dtype=np.int64).reshape(shape)
        self._once = np.array(table.once, dtype=np.int64).reshape(shape)
        self._bytes, self._needed = self._lives()

    def _lives(self) -> tuple[list[int], list[int]]:
        """Return the bytes of what every move brings or stores, and where it is used last."""
        table = self.table
        own = {buffer.of: buffer for buffer in table.buffers if buffer.role is Role.COMPUTED}
        place = {at: table.rows + k for k, at in enumerate(table.operators)}
        sizes, last = [], []
        for move, buffer in zip(table.moves, table.buffers, strict=False):
            brought = buffer if move.load else own[move.tensor]  # loads come first among both
            used = [table.rows + move.operator]
            if move.tensor >= 0:
                readers = table.regions.instance.tensors[move.tensor].readers
                used += [place[reader] for reader in readers if reader in place]
            sizes.append(brought.lane_bytes)
            last.append(max(used))
        return sizes, last

    def settle(self, at: int) -> bool:
        """Take a transfer up and put it down where most of it hides; return whether it moved."""
        move, old = self.table.moves[at], self.positions[at]
        self._put(at, old, -1)
        gains = self._gains(move.cycles, move.resident)
        reach = np.concatenate(([old], self._reach(at)))
        gained = gains[reach]
        best = np.flatnonzero(gained == gained.max())
        own = self.table.rows + move.operator
        new = int(reach[best[np.abs(reach[best] - own).argmin()]])
        self.positions[at] = new
        self._put(at, new, 1)
        return new != old

    def _reach(self, at: int) -> Array:
        """Return where a transfer may be put down."""
        move, rows, needed = self.table.moves[at], self.table.rows, self._needed[at]
        own = rows + move.operator
        if not move.load:
            reach = np.arange(own + 1, min(STAGES * rows, own + self._turn))
            alive = reach > needed
        else:
            staying = move.resident and self.table.period
            first = 0 if staying else max(0, needed - self._turn + 1)
            reach = np.arange(own - 1, first - 1, -1)
            alive = np.full(len(reach), not staying)
        full = np.flatnonzero(alive & (self._free[reach % self._turn] < self._bytes[at]))
        return reach[: full[0]] if len(full) else reach

    def _put(self, at: int, position: int, sign: int) -> None:
        """Put a transfer down at a position, or take it up (-1), and what is alive for it."""
        move, rows = self.table.moves[at], self.table.rows
        cycles = self._once if move.resident else self._moving
        cycles[divmod(position, rows)] += sign * move.cycles
        if move.resident and self.table.period:
            return
        first, last = position, rows + move.operator - 1
        if not move.load:
            first, last = self._needed[at] + 1, position
        if first <= last:
            np.subtract.at(
                self._free, np.arange(first, last + 1) % self._turn, sign * self._bytes[at]
            )

    def _gains(self, cycles: int, resident: bool) -> Array:
        """Return how many cycles of a transfer hide at every position."""
        found = np.zeros((STAGES, self.table.rows), np.int64)
        for stages, first, times in self._runs:
            moving = self._moving[list(stages)].sum(axis=0)
            if first >= 0:
                moving = moving + self._once[first]
            gain = np.clip(self._compute - moving, 0, cycles) * times
            for stage in [first] if resident else stages:
                if stage >= 0:
                    found[stage] += gain
        return found.ravel()
