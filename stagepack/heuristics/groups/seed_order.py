"""Addresses of the buffers of a group by the seed's rule alone (TPU-MLIR's), as a baseline.

Buffers are placed one by one: longest lifetime first, then largest size.  Each gets the lowest
address at which it lies within one bank or, if there is none, the lowest address at which it fits.
Placed buffers are never moved, and no output is written over an input.

Cost: O(n^2 log n) for n buffers.  Source: the seed, section on the allocation of LMEM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stagepack.heuristics.effort import spend
from stagepack.heuristics.groups.tuning import TUNING, PlacementTuning
from stagepack.instances.groups.chip import aligned
from stagepack.instances.groups.lmem import Copy, copies
from stagepack.instances.groups.timesteps import Timetable
from stagepack.result import Status


def place_in_order(
    table: Timetable,
    keep_going: Callable[[], bool],
    tuning: PlacementTuning = TUNING.placement,
) -> tuple[Status, tuple[int, ...]]:
    """Return whether the order places the buffers of a group, and where, as :func:`.place`.

    INFEASIBLE means that this order finds no place.  `keep_going` is asked for every buffer.
    """
    chip, places = table.regions.instance.chip, copies(table)
    order = sorted(range(len(places)), key=lambda at: _rank(places[at]))
    found: dict[int, int] = {}
    for at in order:
        spend(tuning.pair_price * len(found))
        if not keep_going():
            return Status.UNKNOWN, ()
        nbytes = places[at].buffer.lane_bytes
        taken = sorted(
            (offset, offset + places[other].buffer.lane_bytes)
            for other, offset in found.items()
            if _meet(places[at], places[other], table.period)
        )
        address = _lowest(taken, nbytes, chip.memory, chip.bank_bytes, chip.eu_bytes)
        if address is None:
            return Status.INFEASIBLE, ()
        found[at] = address
    return Status.FEASIBLE, tuple(found[at] for at in range(len(places)))


def _rank(copy: Copy) -> tuple[int, int]:
    """Return what the rule sorts by: the longest lifetime first, then the largest size."""
    return -copy.rows, -copy.buffer.lane_bytes


def _meet(one: Copy, other: Copy, period: int) -> bool:
    """Whether two buffers are alive in the same row."""
    return one.alive(other.start, period) or other.alive(one.start, period)


def _lowest(
    taken: Sequence[tuple[int, int]], nbytes: int, memory: int, bank: int, alignment: int
) -> int | None:
    """Return the lowest address within one bank that is free, else the lowest that is free.

    `taken` are ranges [from, to), by their beginning.
    """
    across = None
    free, gaps = 0, []
    for first, end in taken:
        gaps.append((free, first))
        free = max(free, end)
    for start, end in (*gaps, (free, memory)):
        address = aligned(start, alignment)
        if address + nbytes <= end and across is None:
            across = address
        begin = address if address % bank + nbytes <= bank else aligned(address, bank)
        begin = aligned(begin, alignment)
        if begin % bank + nbytes <= bank and begin + nbytes <= end:
            return begin
    return across
