"""Why nothing fits: which buffers clash, when, and what capacity would do."""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.packing import conflict, exact
from stagepack.instances.packing import LmemPacking
from stagepack.instances.packing.blocks import Blocks
from stagepack.instances.profile import Array
from stagepack.methods.packing.attempt import Attempt
from stagepack.result import CheckError

NODES = 50_000
"""Nodes that a search for the reason may cost."""


def conclude_infeasible(
    attempt: Attempt, low: Array | None, source: str, within: tuple[int, int] | None = None
) -> None:
    """Report that nothing fits, and why: an irreducible set of buffers, found in little time."""
    instance, blocks, progress = attempt.instance, attempt.blocks, attempt.progress
    if progress.solution is not None:
        raise CheckError(f"{source} calls an instance infeasible that has a valid placement")
    ceiling = instance.ceiling
    if instance.memories:
        progress.prove_infeasible(
            f"{source}: the buffers do not fit into the memories, however they are spread; "
            "give one of them more"
        )
        return
    if ceiling is None:
        progress.prove_infeasible(f"{source}: fixed and limited buffers leave others no place")
        return
    room = f"{ceiling} bytes" if ceiling == instance.capacity else f"the banks' {ceiling} bytes"
    reason = f"{source}: no placement within {room}"
    if not exact.unsupported(blocks):
        found = conflict.explain(
            blocks,
            ceiling,
            within=within,
            keep_going=lambda: progress.remaining > 0,
            node_limit=NODES,
        )
        if found is not None:
            reason = f"{source}: {_described(instance, blocks, found, room)}"
        least = _least_capacity(attempt, low)
        if least is not None and ceiling == instance.capacity:
            reason += f"; a capacity of {least} would do"
    progress.prove_infeasible(reason)


def _least_capacity(attempt: Attempt, low: Array | None) -> int | None:
    """Return the least peak that a short search finds; None without any packing."""
    peaks = [] if low is None else [int((low + attempt.blocks.size).max())]
    exact.minimise(
        attempt.blocks,
        upper=low,
        on_solution=lambda offsets: peaks.append(int((offsets + attempt.blocks.size).max())),
        keep_going=lambda: attempt.progress.remaining > 0,
        node_limit=NODES,
    )
    return min(peaks, default=None)


def _described(instance: LmemPacking, blocks: Blocks, found: conflict.Conflict, room: str) -> str:
    """Return which buffers cannot be packed together, and when they are alive."""
    members = np.flatnonzero(np.isin(blocks.block, found.blocks))
    shown = ", ".join(instance.buffer_id(int(i)) for i in members[:12])
    if len(members) > 12:
        shown += f" and {len(members) - 12} more"
    when = ""
    if instance.conflicts is None:
        first, last = blocks.time[found.first], blocks.time[found.end - 1]
        when = f" (alive at time {first})" if first == last else f" (alive from {first} to {last})"
    fewer = "; any one fewer fits" if found.irreducible else ""
    return f"buffers {shown}{when} do not fit together in {room}{fewer}"
