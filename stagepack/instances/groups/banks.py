"""Bank conflicts: buffers of a group that are accessed at the same time and share a bank.

A bank serves one access at a time.  Two buffers that one operator reads or writes should therefore
not share a bank; nor should such a buffer and one that is transferred in the same row.  Plans with
conflicts are valid; of plans with equal cycles the one with fewer conflicts is preferred.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations, product

from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.lmem import copies, in_place
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.groups.timesteps import Buffer, Role, Timetable

Pairs = Sequence[tuple[int, int]]


def bank_pairs(table: Timetable) -> list[tuple[int, int]]:
    """Return pairs of copies, by index, that should not share a bank, each once."""
    used, moved = _used(table), _moved(table)
    empty: set[int] = set()
    alike: dict[Buffer, list[int]] = defaultdict(list)
    for at, copy in enumerate(copies(table)):
        alike[copy.buffer].append(at)
        if not copy.buffer.lane_bytes:
            empty.add(at)
    pairs: set[tuple[int, int]] = set()
    for row, operands in used.items():
        here, there = sorted(operands - empty), moved[row] - empty
        pairs.update(combinations(here, 2))
        pairs.update((min(pair), max(pair)) for pair in product(here, there))
    for own in alike.values():
        pairs.difference_update(product(own, own))
    pairs.difference_update((min(pair), max(pair)) for pair in in_place(table))
    return sorted(pairs)


def bank_conflicts(instance: GroupingData, solution: GroupingSolution) -> int:
    """Return how many pairs of all groups share a bank."""
    return sum(
        group_conflicts(table, solution.offsets[group])
        for group, table in solution.timetables(instance)
        if table is not None
    )


def group_conflicts(table: Timetable, offsets: tuple[int, ...]) -> int:
    """Return how many pairs of a group share a bank."""
    return shared_pairs(table, bank_pairs(table), offsets)


def shared_pairs(table: Timetable, pairs: Pairs, offsets: tuple[int, ...]) -> int:
    """Return how many of some pairs of a group share a bank; `offsets` of copies are in bytes."""
    bank = table.regions.instance.chip.bank_bytes
    spans = [
        (offset // bank, (offset + copy.buffer.lane_bytes - 1) // bank)
        for copy, offset in zip(copies(table), offsets, strict=True)
    ]
    return sum(
        spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
        for one, other in pairs
    )


def group_crossings(table: Timetable, offsets: tuple[int, ...]) -> int:
    """Return how many buffers of a group cross a bank that they would fit in."""
    bank = table.regions.instance.chip.bank_bytes
    return sum(
        offset % bank + copy.buffer.lane_bytes > bank >= copy.buffer.lane_bytes
        for copy, offset in zip(copies(table), offsets, strict=True)
    )


class _Places:
    """Copies of a group by what lies there."""

    def __init__(self, table: Timetable) -> None:
        self._copies: dict[Buffer, list[int]] = defaultdict(list)
        self._tensors: dict[int, list[Buffer]] = defaultdict(list)
        self._others: dict[int, list[Buffer]] = defaultdict(list)
        for at, copy in enumerate(copies(table)):
            self._copies[copy.buffer].append(at)
        for buffer in table.buffers:
            own = self._others if buffer.role in (Role.WEIGHTS, Role.WORKING) else self._tensors
            own[buffer.of].append(buffer)

    def of(self, buffer: Buffer) -> list[int]:
        """Return the copies of a buffer."""
        return self._copies[buffer]

    def tensor(self, tensor: int, position: int) -> list[int]:
        """Return the copies of a tensor, or of what came back of it, that live at a position."""
        return [
            at
            for buffer in self._tensors[tensor]
            if buffer.first <= position <= buffer.last
            for at in self._copies[buffer]
        ]

    def operands(self, operator: int, reads: Sequence[int], position: int) -> set[int]:
        """Return the copies that an operator reaches at its position."""
        found = {at for tensor in (operator, *reads) for at in self.tensor(tensor, position)}
        return found | {at for buffer in self._others[operator] for at in self._copies[buffer]}


def _row(table: Timetable, position: int) -> int:
    return position % table.period if table.period else position


def _used(table: Timetable) -> dict[int, set[int]]:
    """Return the copies that the operator of every row reads and writes."""
    reads, places = table.regions.instance.reads, _Places(table)
    return {
        _row(table, table.rows + k): places.operands(at, reads[at], table.rows + k)
        for k, at in enumerate(table.operators)
    }


def _moved(table: Timetable) -> dict[int, set[int]]:
    """Return the copies that are loaded or stored in every row."""
    places = _Places(table)
    found: dict[int, set[int]] = defaultdict(set)
    # Loads come first among moves and among buffers.
    for number, (move, at) in enumerate(zip(table.moves, table.positions, strict=True)):
        moved = places.of(table.buffers[number]) if move.load else places.tensor(move.tensor, at)
        found[_row(table, at)].update(moved)
    for tensor, store, load in table.spills:
        for at in (store, load):
            found[_row(table, at)].update(places.tensor(tensor, at))
    return found
