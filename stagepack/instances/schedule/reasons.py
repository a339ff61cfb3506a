"""Memory that no schedule can do without: why an instance is infeasible, in words."""

from __future__ import annotations

import numpy as np

from stagepack.instances.profile import Array
from stagepack.instances.schedule.instance import PipelineSchedule


def reasons(instance: PipelineSchedule) -> tuple[str, ...]:
    """Return what makes `instance` infeasible, a sentence a device; () when nothing was found.

    Names the operation that cannot run, what it needs, the limit, and by how much it is too
    small.  An instance without reasons may still be infeasible.
    """
    if instance.limit is None:
        return ()
    needs, operations = _needs(instance)
    found = []
    for device in range(instance.d):
        need, limit = needs[device], int(instance.limit[device])
        if need > limit:
            stage, kind, lone = operations[device]
            which = "a single microbatch" if lone > limit else "its last microbatch"
            found.append(
                f"{instance.stage_name(stage)} needs {need:,} on {instance.device_name(device)} "
                f"to run {kind} of {which}, whatever the order, but the limit is "
                f"{limit:,}: {need - limit:,} too little; raise the limit to {need:,} at least"
            )
    return tuple(found)


def least_memory(instance: PipelineSchedule) -> Array:
    """Return a lower bound on the memory each device needs in any schedule, int64, shape (d,).

    When a stage runs an operation of its last microbatch, some operations must have been run
    before: those of the earlier microbatches on the stage and its predecessors, and those of
    the same microbatch on stages of the device that come before (F) or after it (B).  Whatever
    else was run holds at least nothing, for no prefix of F, B, W of a stage and microbatch holds
    less.  Of operations that may or may not have been run, the state that holds least counts.
    O(p * edges + p**2).
    """
    return np.array(_needs(instance)[0], dtype=np.int64)


def _needs(instance: PipelineSchedule) -> tuple[list[int], list[tuple[int, str, int]]]:
    """Return for each device what it needs, and the operation that needs it.

    The operation as stage, kind, and what it would need were there one microbatch alone.
    """
    kinds = len(instance.kinds)
    columns = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    taken = np.stack(columns[:kinds])
    held = np.cumsum(taken, axis=0).tolist()  # after F, B, W of one microbatch
    delta = taken.tolist()
    needs, culprits = [0] * instance.d, [(0, "F", 0)] * instance.d
    for device in range(instance.d):
        stages = instance.stages_of(device)
        for s in stages:
            earlier = int(instance.microbatches[s]) - 1
            above = [a for a in stages if a in instance.above[s]]
            below = [b for b in stages if s in instance.above[b]]
            for kind in range(kinds):
                lone = max(delta[kind][s], 0) + (held[kind - 1][s] if kind else 0)
                # The earlier microbatches have run this kind here, and F above.
                rest = earlier * min(row[s] for row in held[kind:])
                for a in above:
                    # B of the last microbatch waits for that of this stage.
                    lone += held[0][a] if kind < 2 else min(row[a] for row in held)
                    rest += earlier * min(row[a] for row in held)
                if kind:
                    for b in below:
                        least = min(row[b] for row in held[1:])
                        lone += least
                        rest += earlier * least
                if lone + rest > needs[device]:
                    needs[device] = lone + rest
                    culprits[device] = (s, instance.kinds[kind], lone)
    return needs, culprits
