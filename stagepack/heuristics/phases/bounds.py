"""Lower bounds that need no search over boundaries."""

from __future__ import annotations

from stagepack.heuristics.phases.cycles import transfers
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode, compute_cycles, link_rate, rate, transfer_cycles


def work_bound(
    instance: PhaseSchedule, microbatch: int, io_tiles: int, *, again: int = 0
) -> int:
    """Return cycles that no plan with this microbatch and number of I/O tiles goes below.

    One start-up, the variables once (not where they may be loaded ahead), the compute of all
    steps beside or after the transfers with the host, and the optimiser; `again` cycles of a step
    are computed again.  O(n).
    """
    figures, chip = instance.at(microbatch), instance.chip
    remote = link_rate(chip, chip.remote_bandwidth, io_tiles)
    host = link_rate(chip, chip.host_bandwidth, io_tiles)
    shards = -(-instance.variables // instance.sharding)
    states = -(-instance.state // instance.sharding)
    gather = int(transfers(instance.variables - shards, rate(chip.gather_bandwidth)).sum())
    total = chip.startup + gather
    if not (instance.prefetch and io_tiles):
        total += transfer_cycles(int(shards.sum()), remote)
    work = int(figures.forward.sum()) + again
    moved = transfer_cycles(int(figures.activations[0]), host)
    if instance.training:
        work += int(figures.backward.sum())
        total += gather + transfer_cycles(int(states.sum()), remote)
        total += transfer_cycles(int((shards + states).sum()), remote) + int(instance.update.sum())
    else:
        moved += transfer_cycles(int(figures.activations[-1]), host)
    step = compute_cycles(work, chip.tiles, io_tiles)
    overlapped = Mode.IO_OVERLAPPED in instance.modes_with(io_tiles)
    step = max(step, moved) if overlapped else step + moved
    return total + figures.steps * step
