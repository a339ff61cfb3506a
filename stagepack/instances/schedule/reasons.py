"""Memory that no schedule can do without: why an instance is infeasible, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.ancestors import Ancestors
from stagepack.instances.schedule.instance import PipelineSchedule
from stagepack.progress import Stopped


def reasons(
    instance: PipelineSchedule, keep_going: Callable[[], bool] | None = None
) -> tuple[str, ...]:
    """Return what makes `instance` infeasible, a sentence a device; () when nothing was found.

    Names the operation that cannot run, what it needs, the limit, and by how much it is too
    small.  An instance without reasons may still be infeasible.  Once `keep_going` says no, no
    further devices are looked at.
    """
    if instance.limit is None:
        return ()
    needs = _needs(instance, keep_going)
    found = []
    for device in np.flatnonzero(needs.memory > instance.limit).tolist():
        need, limit = int(needs.memory[device]), int(instance.limit[device])
        which = "a single microbatch" if needs.lone[device] > limit else "its last microbatch"
        found.append(
            f"{instance.stage_name(int(needs.stage[device]))} needs {need:,} on "
            f"{instance.device_name(device)} to run {instance.kinds[needs.kind[device]]} of "
            f"{which}, whatever the order, but the limit is {limit:,}: {need - limit:,} too "
            f"little; raise the limit to {need:,} at least"
        )
    return tuple(found)


def least_memory(instance: PipelineSchedule, keep_going: Callable[[], bool] | None = None) -> Array:
    """Return a lower bound on the memory each device needs in any schedule, int64, shape (d,).

    When a stage runs an operation of its last microbatch, some operations must have been run
    before: those of the earlier microbatches on the stage and its predecessors, and those of
    the same microbatch on stages of the device that come before (F) or after it (B).  Whatever
    else was run holds at least nothing, for no prefix of F, B, W of a stage and microbatch holds
    less.  Of operations that may or may not have been run, the state that holds least counts.
    O(p + edges), and O(p) more for each stage that shares its device; zeros once `keep_going`
    says no.
    """
    return _needs(instance, keep_going).memory


class _Needs(NamedTuple):
    """What each device needs, and the operation that needs it, int64, shape (d,) each.

    `lone` is what the operation would need were there one microbatch alone.
    """

    memory: Array
    stage: Array
    kind: Array
    lone: Array


def _needs(instance: PipelineSchedule, keep_going: Callable[[], bool] | None) -> _Needs:
    """Return what devices need at least, and for which operation; zeros once time is over."""
    kinds = len(instance.kinds)
    columns = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    taken = np.stack(columns[:kinds])
    held = np.cumsum(taken, axis=0)  # after F, B, W of one microbatch
    least = held.min(axis=0)
    started = held[1:].min(axis=0) if kinds > 1 else np.zeros_like(least)  # once B has run
    earlier = instance.microbatches - 1
    # What stages of the device hold besides that come before, or after: of one microbatch.
    above, above_least, below = np.zeros((3, instance.p), dtype=np.int64)
    try:
        for s, row in _above(instance, keep_going) if instance.d < instance.p else ():
            above[s], above_least[s] = held[0][row].sum(), least[row].sum()
            below[row] += started[s]
    except Stopped:
        return _Needs(*np.zeros((4, instance.d), dtype=np.int64))
    lone = np.empty((instance.p, kinds), dtype=np.int64)
    need = np.empty_like(lone)
    for kind in range(kinds):
        # B of the last microbatch waits for that of this stage.
        lone[:, kind] = np.maximum(taken[kind], 0) + (above if kind < 2 else above_least)
        rest = held[kind:].min(axis=0) + above_least  # has run this kind here, and F above
        if kind:
            lone[:, kind] += held[kind - 1] + below
            rest = rest + below
        need[:, kind] = lone[:, kind] + earlier * rest
    most, kind = need.max(axis=1), need.argmax(axis=1)
    by = np.lexsort((-most, instance.devices))
    stage = by[np.searchsorted(instance.devices[by], np.arange(instance.d))]
    worst = kind[stage]
    return _Needs(np.maximum(0, most[stage]), stage, worst, lone[stage, worst])


def _above(
    instance: PipelineSchedule, keep_going: Callable[[], bool] | None
) -> Iterator[tuple[int, Array]]:
    """Yield every stage that shares its device, and which of the others there are above it."""

    def look(_: int) -> None:
        if keep_going is not None and not keep_going():
            raise Stopped

    ancestors = Ancestors.of(instance, look)
    for device in range(instance.d):
        stages = np.array(instance.stages_of(device))
        for s in stages.tolist() if len(stages) > 1 else ():
            look(0)
            yield s, stages[ancestors.above(s, stages)]
