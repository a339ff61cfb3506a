"""Why no plan is possible: which operator does not fit, and what would make it fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from stagepack.heuristics.groups.network import cuts
from stagepack.heuristics.groups.placement import least_memory
from stagepack.heuristics.groups.tuning import TUNING, PlacementTuning
from stagepack.instances.groups import LayerGrouping
from stagepack.instances.groups.operators import AXES as ALL
from stagepack.instances.groups.problem import Slicing
from stagepack.instances.groups.regions import Cut, Regions
from stagepack.instances.groups.timesteps import Timetable

AXES = "NCHW"
NEVER = 2**62
"""More bytes than any lane has."""


class Need(NamedTuple):
    """What an operator by itself needs of every lane, and the cut in which it needs that."""

    memory: int
    cut: Cut
    name: str

    def __str__(self) -> str:
        ranges = [f"{count:,} along {axis}" for axis, count in zip(AXES, self.cut, strict=True)]
        cut = ", ".join(part for part in ranges if not part.startswith("1 "))
        how = f"cut into {cut}" if cut else "whole"
        return f"{self.name} by itself needs {self.memory:,} bytes in each lane, {how}"


def explain(
    instance: LayerGrouping,
    keep_going: Callable[[], bool],
    tuning: PlacementTuning = TUNING.placement,
) -> str:
    """Return which operator needs more local memory than there is, however it is cut.

    The memory that is told would do: with it every operator has a place by itself.  Where there is
    no time to look at all of them, as `keep_going` says, it is the first one known not to fit that
    is told.  `tuning` says how long it may be searched for addresses.
    """
    known: dict[object, Need] = {}
    for at, operator in enumerate(instance.operators):
        alike = replace(operator, name="", inputs=()), instance.sources(at)
        if instance.stands(at) or alike in known:
            continue
        need = _need(instance, at, keep_going, tuning)
        if not keep_going():
            break
        known[alike] = need
    there = instance.chip.memory
    first = next((need for need in known.values() if need.memory > there), None)
    if first is None:
        return "no buffers of some operator can be placed; give more local memory"
    more = "give more"
    if keep_going():
        more = f"lanes of {max(need.memory for need in known.values()):,} bytes would do"
    return (
        f"{first}: {first.memory - there:,} more than there are; {more}, or let it run from global "
        f"memory (standalone: any){_hints(instance)}"
    )


def _hints(instance: LayerGrouping) -> str:
    """Return what else may help, where cuts are left out so far."""
    along = "nh" if instance.slicing == Slicing.N_THEN_H else "nchw"
    most = math.prod(max(t.shape[ALL.index(axis)] for t in instance.tensors) for axis in along)
    found = ["more slices (max_slices)"] if most > instance.max_slices else []
    found += [] if instance.slicing == Slicing.FREE else ["other cuts (slicing: free)"]
    return f"; {' or '.join(found)} may help" if found else ""


def _need(
    instance: LayerGrouping, at: int, keep_going: Callable[[], bool], tuning: PlacementTuning
) -> Need:
    """Return the least that an operator needs, or what it needs in the first cut that fits."""
    name, sizes = instance.operators[at].name, instance.tensors[at].shape
    best = Need(NEVER, Cut(), name)
    for cut in cuts(instance):
        if best.memory <= instance.chip.memory or not keep_going():
            break
        regions = Regions(instance, (at,), cut)
        if all(sizes[axis] >= cut.along(axis) for axis in range(5)) and regions.allowed:
            needed = least_memory(Timetable(regions), best.memory, keep_going, tuning)
            best = min(best, Need(needed, cut, name))
    return best
