"""Lower bounds without search: the work of all blocks, and the cost of the most expensive block.

**Work**: the blocks are weighted such that no device can hold more than its share, see
:mod:`.rooms`.

**Anchored cut**: some stage contains block v.  For each net of v, the stage either contains all
other members or pays for the net.  It therefore costs at least the time of v plus a minimum cut
around v: by duality, the value of any flow from v through its nets to their members, where each
block absorbs at most its own work.  The flow computed here uses direct neighbours only.

O(classes * blocks + nets of the heaviest blocks).  Source: own work.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.graph import stage_kernels as kernels
from stagepack.heuristics.graph.rooms import least_limit
from stagepack.heuristics.graph.staging import Staging


def objective_bound(staging: Staging) -> int:
    """Return a bound on the objective in ticks."""
    first = least_limit(staging.rooms, kernels.FIRST)
    value = least_limit(staging.rooms, kernels.VALUE)
    blocks = staging.blocks
    if staging.mode == kernels.MEMORY:
        return max(value, int((blocks.size + blocks.stash).max()))
    if staging.mode == kernels.REPLICATED:
        return value
    alone: list[int] = blocks.work.min(axis=1).max(axis=1).tolist()
    if staging.mode == kernels.FORWARD_BACKWARD:
        return max(first, alone[0]) + max(value, alone[1])
    return max(value, alone[0], anchored(staging) if staging.mode == kernels.SUM else 0)


def anchored(staging: Staging) -> int:
    """Return what the stage of some block costs at least."""
    blocks, pays = staging.blocks, staging.blocks.pays
    if not pays.any():
        return 0
    first, members = staging.nets
    work = blocks.work[0, pays].min(axis=0)
    free = blocks.work[0, ~pays].min(axis=0, initial=kernels.FORBIDDEN)
    traffic = np.zeros(staging.n, dtype=np.int64)
    np.add.at(traffic, members, np.repeat(blocks.cost, np.diff(first)))
    most = np.minimum(work + traffic, free)
    most_blocks = staging.tuning.cut_blocks
    best, left = 0, staging.tuning.cut_members
    heaviest = np.argpartition(-most, min(most_blocks, staging.n) - 1)[:most_blocks]
    for v in heaviest[np.argsort(-most[heaviest], kind="stable")].tolist():
        room: dict[int, int] = {}
        flow = 0
        for t in blocks.of[blocks.of_first[v] : blocks.of_first[v + 1]][:left].tolist():
            through = int(blocks.cost[t])
            others = members[first[t] : first[t + 1]][:left].tolist()
            left -= 1 + len(others)
            for u in others:
                if u != v:
                    pushed = min(through, room.get(u, int(work[u])))
                    room[u] = room.get(u, int(work[u])) - pushed
                    through, flow = through - pushed, flow + pushed
                if not through:
                    break
            if left <= 0:
                break
        best = max(best, min(int(work[v]) + flow, int(free[v])))
        if left <= 0:
            break
    return best
