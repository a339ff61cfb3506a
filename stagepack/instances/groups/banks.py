"""Banks of a lane: which buffers of a group are reached at the same time.

A bank is reached by one at a time.  So two buffers that one operator reads or writes should not lie
in one bank, nor one of them and one that is transferred in the same row.  Plans that do so are
valid all the same: of equal plans the one with the fewest such pairs is preferred.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, product

from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.lmem import copies, in_place
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.groups.timesteps import Timetable


def bank_bytes(instance: GroupingData) -> int:
    """Return the bytes of a bank in every lane."""
    return max(1, instance.chip.memory // instance.chip.banks)


def bank_pairs(table: Timetable) -> list[tuple[int, int]]:
    """Return pairs of copies, by index, that should not share a bank, each once."""
    used, moved = _used(table), _moved(table)
    pairs = {pair for row in used.values() for pair in combinations(sorted(row), 2)}
    for row, operands in used.items():
        pairs |= {(min(p), max(p)) for p in product(operands, moved[row]) if p[0] != p[1]}
    own = [copy.buffer for copy in copies(table)]
    pairs -= {(min(pair), max(pair)) for pair in in_place(table)}
    return sorted(
        (one, other)
        for one, other in pairs
        if own[one] is not own[other] and own[one].lane_bytes and own[other].lane_bytes
    )


def bank_conflicts(instance: GroupingData, solution: GroupingSolution) -> int:
    """Return how many pairs of all groups share a bank."""
    return sum(
        group_conflicts(table, solution.offsets[group])
        for group, table in solution.timetables(instance)
        if table is not None
    )


def group_conflicts(table: Timetable, offsets: tuple[int, ...]) -> int:
    """Return how many pairs of a group share a bank."""
    bank = bank_bytes(table.regions.instance)
    spans = [
        (offset // bank, (offset + copy.buffer.lane_bytes - 1) // bank)
        for copy, offset in zip(copies(table), offsets, strict=True)
    ]
    return sum(
        spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
        for one, other in bank_pairs(table)
    )


def group_crossings(table: Timetable, offsets: tuple[int, ...]) -> int:
    """Return how many buffers of a group cross a bank that they would fit in."""
    bank = bank_bytes(table.regions.instance)
    return sum(
        offset % bank + copy.buffer.lane_bytes > bank >= copy.buffer.lane_bytes
        for copy, offset in zip(copies(table), offsets, strict=True)
    )


class _Places:
    """Copies of a group by the name of what lies there."""

    def __init__(self, table: Timetable) -> None:
        self._copies = copies(table)
        self._named: dict[str, list[int]] = defaultdict(list)
        for at, copy in enumerate(self._copies):
            self._named[copy.buffer.name].append(at)

    def at(self, name: str, position: int) -> list[int]:
        """Return the copies of a buffer, or of what came back of it, that live at a position."""
        known = self._named[name] + self._named[f"{name}'"]
        buffers = [(at, self._copies[at].buffer) for at in known]
        return [at for at, buffer in buffers if buffer.first <= position <= buffer.last]


def _row(table: Timetable, position: int) -> int:
    return position % table.period if table.period else position


def _used(table: Timetable) -> dict[int, set[int]]:
    """Return the copies that the operator of every row reads and writes."""
    instance, places = table.regions.instance, _Places(table)
    found = {}
    for k, at in enumerate(table.operators):
        operator, position = instance.operators[at], table.rows + k
        names = [instance.tensors[tensor].name for tensor in (at, *instance.reads[at])]
        names += [f"{operator.name}.w{number}" for number in range(len(operator.weights))]
        names.append(f"{operator.name}.buffer")
        found[_row(table, position)] = {
            copy for name in names for copy in places.at(name, position)
        }
    return found


def _moved(table: Timetable) -> dict[int, set[int]]:
    """Return the copies that are loaded or stored in every row."""
    instance, places = table.regions.instance, _Places(table)
    found: dict[int, set[int]] = defaultdict(set)
    moving = [(move.name, at) for move, at in zip(table.moves, table.positions, strict=True)]
    for tensor, store, load in table.spills:
        moving += [(instance.tensors[tensor].name, at) for at in (store, load)]
    for name, position in moving:
        found[_row(table, position)].update(places.at(name, position))
    return found
