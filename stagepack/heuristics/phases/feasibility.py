"""Feasibility: any plan that fits, and the least memory for which there is one.

Plans are searched as in :mod:`.enumerate` until the first is found; memory is bisected.  Cost:
O(log(memory)) searches for the least.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable

from stagepack.heuristics.phases import dp
from stagepack.heuristics.phases.cycles import UNLIMITED
from stagepack.heuristics.phases.options import OptionTable, assemble
from stagepack.heuristics.phases.policies import find_policies
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.heuristics.phases.tuning import TUNING, PhasesTuning
from stagepack.instances.phases.data import PhaseSolution
from stagepack.instances.phases.instance import PhaseSchedule

MOST = UNLIMITED // 2
"""Bytes of memory that are as good as no limit."""


def _some(instance: PhaseSchedule, few: int) -> list[int]:
    """Return numbers of I/O tiles to try: fewer leave more memory, more hold larger buffers."""
    counts = instance.io_tile_choices
    if len(counts) <= few:
        return list(counts)
    ranks = {0, len(counts) - 1, *(2**power for power in range(len(counts).bit_length() - 1))}
    return [counts[rank] for rank in sorted(ranks)]


def fitting(
    instance: PhaseSchedule, keep_going: Callable[[], bool], tuning: PhasesTuning = TUNING
) -> PhaseSolution | None:
    """Return a plan that fits into the memory, whatever the budgets; None where none was found.

    Policies that are not all looked at count as far as they are.  `keep_going` is asked now and
    then and may raise; it does not say no.
    """
    for microbatch in instance.microbatches:
        costs = RangeCosts(instance, microbatch, keep_going=keep_going, tuning=tuning)
        for io_tiles in _some(instance, tuning.rules.few_tiles):
            keep_going()
            track = instance.prefetch and io_tiles > 0
            rows = find_policies(costs, track=track, keep_going=keep_going)
            table = OptionTable(costs, rows, io_tiles, keep_going=keep_going)
            chosen = dp.search(table, dp.rest(table, keep_going), keep_going=keep_going)
            if chosen is not None:
                return assemble(table, chosen)
    return None


def enough_memory(
    instance: PhaseSchedule, keep_going: Callable[[], bool], tuning: PhasesTuning = TUNING
) -> tuple[int, PhaseSolution] | None:
    """Return the least memory beyond the instance's in which a plan fits, and such a plan.

    None where more memory does not help.  O(log(memory)) searches; see :func:`fitting`, for
    `keep_going`, too.
    """
    memory = instance.chip.memory
    assert memory is not None
    low, high = memory + 1, max(1, 2 * memory)
    while (plan := fitting(instance.replace(memory=high), keep_going, tuning)) is None:
        low, high = high + 1, high * 4
        if high >= MOST:
            return None
    while low < high:
        middle = (low + high) // 2
        found = fitting(instance.replace(memory=middle), keep_going, tuning)
        if found is None:
            low = middle + 1
        else:
            high, plan = middle, found
    return high, plan
