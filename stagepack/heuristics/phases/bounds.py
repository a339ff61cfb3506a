"""Lower bounds that need no search over boundaries."""

from __future__ import annotations

from stagepack.heuristics.phases.cycles import transfers
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode, compute_cycles, link_rate, rate, transfer_cycles


def work_bound(instance: PhaseSchedule, microbatch: int, io_tiles: int) -> int:
    """Return cycles that no plan with this microbatch and number of I/O tiles goes below.

    One start-up, the variables once (not where they may be loaded ahead), the compute of all
    steps beside or after the transfers with the host, and the optimiser.  O(n).
    """
    once, work, moved = _work(instance, microbatch, io_tiles)
    step = compute_cycles(work, instance.chip.tiles, io_tiles)
    overlapped = Mode.IO_OVERLAPPED in instance.modes_with(io_tiles)
    step = max(step, moved) if overlapped else step + moved
    return once + instance.at(microbatch).steps * step


def longest_recomputation(
    instance: PhaseSchedule, microbatch: int, io_tiles: int, upper: int
) -> int:
    """Return how many cycles of a step a plan of fewer than `upper` may compute again, at most."""
    once, work, moved = _work(instance, microbatch, io_tiles)
    step = (upper - 1 - once) // instance.at(microbatch).steps
    if Mode.IO_OVERLAPPED not in instance.modes_with(io_tiles):
        step -= moved
    tiles = instance.chip.tiles
    return max(0, step * (tiles - io_tiles) // tiles - work)


def _work(instance: PhaseSchedule, microbatch: int, io_tiles: int) -> tuple[int, int, int]:
    """Return cycles outside the steps, and of each step those of all tiles and of the host."""
    figures, chip = instance.at(microbatch), instance.chip
    remote = link_rate(chip, chip.remote_bandwidth, io_tiles)
    host = link_rate(chip, chip.host_bandwidth, io_tiles)
    shards = -(-instance.variables // instance.sharding)
    states = -(-instance.state // instance.sharding)
    gather = int(transfers(instance.variables - shards, rate(chip.gather_bandwidth)).sum())
    once = chip.startup + gather
    if not (instance.prefetch and io_tiles):
        once += transfer_cycles(int(shards.sum()), remote)
    work = int(figures.forward.sum())
    moved = transfer_cycles(int(figures.activations[0]), host)
    if instance.training:
        work += int(figures.backward.sum())
        once += gather + transfer_cycles(int(states.sum()), remote)
        once += transfer_cycles(int((shards + states).sum()), remote) + int(instance.update.sum())
    else:
        moved += transfer_cycles(int(figures.activations[-1]), host)
    return once, work, moved
