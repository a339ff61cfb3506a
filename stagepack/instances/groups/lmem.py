"""Local memory of a group: its buffers as an instance of LMEM packing.

Lanes are alike, so one of them stands for all; addresses are bytes within a lane.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from stagepack.instances.groups.timesteps import Buffer, Role, Timetable
from stagepack.instances.packing import LmemPacking


class Copy(NamedTuple):
    """One of the places that a buffer needs: alive for some rows from one on, around the circle."""

    buffer: Buffer
    name: str
    start: int
    rows: int

    def alive(self, row: int, period: int) -> bool:
        """Whether it is alive in a row; without a period rows are a line."""
        since = (row - self.start) % period if period else row - self.start
        return 0 <= since < self.rows


def copies(table: Timetable) -> tuple[Copy, ...]:
    """Return a place for each slice of a buffer that is alive at once, in the order of buffers."""
    period, found = table.period, []
    for buffer in table.buffers:
        turns, rest = table.turns(buffer)
        whole = [Copy(buffer, f"{buffer.name}#{at}", 0, period) for at in range(turns)]
        if rest:
            start = buffer.first % period if period else buffer.first
            found.append(Copy(buffer, buffer.name, start, rest))
        found += [copy._replace(name=buffer.name) for copy in whole] if turns == 1 else whole
    return tuple(found)


def in_place(table: Timetable) -> tuple[tuple[int, int], ...]:
    """Return pairs of copies of which the second may be written over the first.

    An operator that computes in place may write over its first input where nobody reads that
    afterwards, where it is neither stored nor spilled, and where both are alike and take as much
    room.
    """
    instance, places = table.regions.instance, copies(table)
    times = Counter(copy.buffer for copy in places)
    single = {
        (copy.buffer.role, copy.buffer.of): at
        for at, copy in enumerate(places)
        if times[copy.buffer] == 1
    }
    away = {move.tensor for move in table.moves if not move.load}
    away |= {spill.tensor for spill in table.spills}
    found = []
    for k, at in enumerate(table.operators):
        if not instance.overwrites(at):
            continue
        first = instance.reads[at][0]
        before = single.get((Role.LOADED, first), single.get((Role.COMPUTED, first)))
        after = single.get((Role.COMPUTED, at))
        if before is None or after is None:
            continue
        old, new = places[before].buffer, places[after].buffer
        dies = old.last == table.rows + k and not old.resident and first not in away
        once = not table.period or new.last - old.first < table.period
        if dies and once and old.lane_bytes == new.lane_bytes:
            found.append((before, after))
    return tuple(found)


def packing(table: Timetable, name: str = "group") -> LmemPacking:
    """Return the buffers of a group as an instance of packing, one for each of :func:`copies`.

    Buffers of no bytes take one.  Lifetimes are circular where there are several slices.
    """
    chip, places = table.regions.instance.chip, copies(table)
    return LmemPacking.from_arrays(
        [max(copy.buffer.lane_bytes, 1) for copy in places],
        [copy.start for copy in places],
        [copy.start + copy.rows for copy in places],
        ids=[f"{at} {copy.name}" for at, copy in enumerate(places)],
        period=table.period or None,
        capacity=chip.memory,
        alignment=[chip.eu_bytes] * len(places),
        in_place=in_place(table),
        objective="fit",
        name=name,
    )
