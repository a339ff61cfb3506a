"""Why an instance has no plan, in words a person can act on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from stagepack.heuristics.phases import dp
from stagepack.heuristics.phases.options import OptionTable
from stagepack.heuristics.phases.policies import find_policies
from stagepack.heuristics.phases.ranges import RangeCosts
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.liveness import capacities
from stagepack.instances.phases.solution import PhaseSolution
from stagepack.result import Progress, Stopped


def explain(instance: PhaseSchedule, progress: Progress[PhaseSolution]) -> str:
    """Return which layer does not fit, in which phase and by how much, and what memory would do.

    The memory named was found to be enough, and less was not, as far as `progress` had time.
    O(log(memory)) searches.
    """
    memory = instance.chip.memory
    if memory is None:
        return "the policies and modes allowed leave no plan"
    cause = _oversized(instance)
    try:
        enough = _enough_memory(instance, memory, progress)
    except Stopped:
        return cause
    if enough is None:
        return f"{cause}; more memory alone does not help"
    return f"{cause}; it would be feasible with {enough:,} bytes of memory instead of {memory:,}"


def _oversized(instance: PhaseSchedule) -> str:
    """Name the layer (or given group) that exceeds the chip by most, where it does so least."""
    cuts = instance.fixed_boundaries or tuple(range(instance.n + 1))
    roomy = instance.replace(memory=None, fixed_boundaries=cuts)
    worst: tuple[int, str] | None = None
    for microbatch in instance.microbatches:
        costs = RangeCosts(roomy, microbatch)
        rows = find_policies(costs)
        for io_tiles in instance.io_tile_choices[:1]:
            capacity, _ = capacities(instance, io_tiles)
            assert capacity is not None
            table = OptionTable(costs, rows, io_tiles, ("remote",))
            found = _worst(instance, table, cuts, capacity)
            if worst is None or found < worst:
                worst = found
    assert worst is not None
    excess, text = worst
    return text if excess > 0 else "every layer alone fits, but no plan of all of them does"


def _worst(
    instance: PhaseSchedule, table: OptionTable, cuts: tuple[int, ...], capacity: int
) -> tuple[int, str]:
    worst = (0, "")
    for first, end in pairwise(cuts):
        numbers = np.arange(table.start[first], table.start[first + 1])
        if not len(numbers):
            what = f"layers {first} to {end - 1}" if end > first + 1 else f"layer {first}"
            return dp.INFINITE, f"the policies and modes allowed leave nothing for {what}"
        best = int(numbers[np.argmin(table.need[numbers])])
        need = int(table.need[best])
        if need - capacity <= worst[0]:
            continue
        if end - first == 1:
            named = instance.layer_names is not None
            what = f"layer {first}" + (f" ({instance.layer_name(first)})" if named else "")
            verb = "needs"
        else:
            what, verb = f"the given group of layers {first} to {end - 1}", "needs"
        option = table.option(best)
        phase = option.kinds[int(np.argmax(option.needs))]
        where = {"F": "forward", "B": "backward", "FB": "forward and backward"}[phase]
        worst = (
            need - capacity,
            f"{what} {verb} at least {need:,} bytes in its {where} phase (microbatch "
            f"{table.microbatch}, {table.io_tiles} I/O tiles) of {capacity:,}: "
            f"{need - capacity:,} too many",
        )
    return worst


def feasible(instance: PhaseSchedule, progress: Progress[PhaseSolution]) -> bool:
    """Whether some plan fits; policies that were not all looked at count as far as they were."""
    for microbatch in instance.microbatches:
        costs = RangeCosts(instance, microbatch)
        rows = find_policies(costs, keep_going=progress.keep_going)
        for io_tiles in instance.io_tile_choices:
            progress.require_time()
            table = OptionTable(costs, rows, io_tiles)
            if dp.search(table, dp.rest(table), keep_going=progress.keep_going) is not None:
                return True
    return False


def _enough_memory(
    instance: PhaseSchedule, memory: int, progress: Progress[PhaseSolution]
) -> int | None:
    """Return the least memory with which a plan exists; None where none helps."""
    low, high = memory + 1, max(1, 2 * memory)
    while not feasible(instance.replace(memory=high), progress):
        low, high = high + 1, high * 4
        if high >= 2**61:
            return None
    while low < high:
        middle = (low + high) // 2
        if feasible(instance.replace(memory=middle), progress):
            high = middle
        else:
            low = middle + 1
    return high
