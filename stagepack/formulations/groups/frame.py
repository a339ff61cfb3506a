"""Normal form of a group for models: possible positions of transfers, and lifetimes of buffers.

Positions that cannot be better than others are left out:

- With one slice, nothing else runs in the rows of stages 0 and 2.  Loads before all compute are
  placed in the last row of stage 0, stores after it in the first row of stage 2.
- A resident buffer is in memory all the time, so only its row beside compute matters.
- A tensor is spilled only between two of its uses: before the first use it could be loaded later
  instead, and after the last use it could be stored earlier.

Cost: O(moves * rows + readers) a group.  Source: ours.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from stagepack.instances.groups.timesteps import STAGES, Move, Timetable


class Iteration(NamedTuple):
    """Iterations in which the same stages run: which, where the first slice is, how many.

    `first` is -1 where nothing that is resident may be loaded.
    """

    stages: tuple[int, ...]
    first: int
    times: int


class Life(NamedTuple):
    """A buffer that may leave for a while."""

    nbytes: int  # in every lane
    # The moves that bring it and store it.
    load: int | None
    store: int | None
    first: int  # where it begins to live, unless it is loaded
    used: int  # the last position where it is read, or written
    resident: bool = False  # whether it lives all the time
    tensor: int = -1  # which, or -1 for weights and working buffers
    # Positions [first, end) between two uses: it may be stored and loaded again in each.
    gaps: tuple[tuple[int, int], ...] = ()


class Frame:
    """A group that is cut in a certain way, by a table of the rule ``nearest``.

    It has so many `rows`, and `rounds` of its slices.  If `circular`, time is a circle of rows,
    else a line of all positions.  Each move may be where it is `allowed`; `lives` are in the order
    of the buffers of a timetable without spills.
    """

    def __init__(self, table: Timetable) -> None:
        self.table = table
        self.rows, self.rounds, self.circular = table.rows, table.rounds, table.period > 0
        self.allowed = [self._allowed(move) for move in table.moves]
        self.lives = self._lives()

    @property
    def signature(self) -> object:
        """What is equal where one group's timesteps and addresses do for another."""
        moves = [
            (move.load, move.operator, move.cycles, move.resident) for move in self.table.moves
        ]
        lives = tuple(life._replace(tensor=-1) for life in self.lives)
        return tuple(self.table.compute), tuple(moves), lives, tuple(self.over()), self.rounds

    def iterations(self) -> list[Iteration]:
        """Return the iterations with compute, alike ones together."""
        found = Counter(
            (tuple(s for s in range(STAGES) if 0 <= j - s < self.rounds), j if j < 2 else -1)
            for j in range(1, self.rounds + 1)
        )
        return [Iteration(*key, times) for key, times in found.items()]

    def settled(self, move: Move, position: int) -> int:
        """Return the position that stands for one that is no better."""
        early, late = self.rows - 1, (STAGES - 1) * self.rows
        if not self.circular or move.resident:
            return max(early, min(position, late))
        return position

    def _allowed(self, move: Move) -> list[int]:
        own = self.rows + move.operator
        reach = range(own) if move.load else range(own + 1, STAGES * self.rows)
        return sorted({self.settled(move, position) for position in reach})

    def _lives(self) -> list[Life]:
        table, rows = self.table, self.rows
        tensors = table.regions.instance.tensors
        sizes = iter([buffer.lane_bytes for buffer in table.buffers])
        place = {at: rows + k for k, at in enumerate(table.operators)}
        stores = {move.tensor: at for at, move in enumerate(table.moves) if not move.load}
        found = []
        for at, move in enumerate(table.moves):
            if not move.load:
                continue
            if move.tensor < 0:
                own = rows + move.operator
                found.append(Life(next(sizes), at, None, 0, own, move.resident))
                continue
            uses = [place[reader] for reader in tensors[move.tensor].readers if reader in place]
            uses.sort()
            gaps = () if move.resident else _gaps(uses, uses[0])
            found.append(Life(next(sizes), at, None, 0, uses[-1], move.resident, move.tensor, gaps))
        for at in table.operators:
            uses = sorted([place[at], *(place[r] for r in tensors[at].readers if r in place)])
            gaps = _gaps(uses, place[at] + 1)
            found.append(
                Life(next(sizes), None, stores.get(at), place[at], uses[-1], False, at, gaps)
            )
        works = [at for at in table.operators if table.regions.instance.operators[at].buffer]
        return found + [Life(next(sizes), None, None, place[at], place[at]) for at in works]

    def over(self) -> list[tuple[int, int]]:
        """Return lives of which the second may be written over the first, if that ends there.

        As :func:`.lmem.in_place`, apart from what depends on positions.
        """
        instance = self.table.regions.instance
        place = {life.tensor: at for at, life in enumerate(self.lives) if life.tensor >= 0}
        found = []
        for k, at in enumerate(self.table.operators):
            if not instance.overwrites(at):
                continue
            old, new = place[instance.reads[at][0]], place[at]
            one, other = self.lives[old], self.lives[new]
            dies = one.used == self.rows + k and one.store is None and not one.resident
            if dies and one.nbytes == other.nbytes:
                found.append((old, new))
        return found


def _gaps(uses: list[int], least: int) -> tuple[tuple[int, int], ...]:
    """Return where a tensor may leave and come back: between two uses, from `least` on."""
    spans = [(max(one, least), other) for one, other in pairwise(uses)]
    return tuple(span for span in spans if span[1] - span[0] >= 2)
