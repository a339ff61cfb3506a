"""Addresses of the buffers of a group: first by a rule, then by exact search.

The rule is that of the seed, which is TPU-MLIR's: what is alive longest first, of those the
largest.  Where it finds no place below the capacity the exact search of LMEM packing decides.
"""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.exact_search import exact
from stagepack.instances.groups.lmem import packing
from stagepack.instances.groups.timesteps import Timetable
from stagepack.instances.packing.blocks import Blocks
from stagepack.result import Status

RULE = RULES["first-fit-lifetime-size"]
STEPS = 20_000_000
"""Elementary steps of the search, about 0.2 s, after which a group is left undecided."""

Offsets = tuple[int, ...]


def place(
    table: Timetable,
    keep_going: Callable[[], bool],
    before_search: Callable[[bool], None] = lambda _: None,
) -> tuple[Status, Offsets]:
    """Return whether the buffers of a group can be placed, and where.

    Parameters
    ----------
    table : Timetable
    keep_going : callable
        Asked several times a second.
    before_search : callable
        Called where the rule does not do, to load what the search needs: told whether all buffers
        are of one size at all times and none may lie over another.

    Returns
    -------
    (Status, tuple of int)
        FEASIBLE and offsets in the order of :func:`.lmem.copies`; INFEASIBLE; or UNKNOWN, where
        the search took too long.
    """
    instance = packing(table)
    capacity = table.regions.instance.chip.memory
    blocks = Blocks.of(instance)
    found = greedy.place(blocks, RULE, ceiling=capacity, keep_going=keep_going)
    if found is None and keep_going():
        before_search(blocks.rigid)
        decision = exact.decide(blocks, capacity, keep_going=keep_going, step_limit=STEPS)
        if decision.status is not Status.FEASIBLE:
            return decision.status, ()
        found = decision.offsets
    if found is None:
        return Status.UNKNOWN, ()
    return Status.FEASIBLE, tuple(blocks.expand(found).tolist())
