"""Lower bounds that need no search over boundaries."""

from __future__ import annotations

from stagepack.heuristics.phases.cycles import Links, on_tiles, transfer, transfers
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode


class WorkBounds:
    """Cycles that no plan goes below, for every microbatch and number of I/O tiles.

    One start-up, the variables once (not where they may be loaded ahead), the compute of all
    steps beside or after the transfers with the host, and the optimiser.  What depends on one of
    both numbers only is found once for it: O(n * microbatches + I/O tiles + pairs).
    """

    def __init__(self, instance: PhaseSchedule) -> None:
        self.instance = instance
        chip = instance.chip
        links = Links(chip)
        shards = -(-instance.variables // instance.sharding)
        states = -(-instance.state // instance.sharding)
        loaded, state = int(shards.sum()), int(states.sum())
        gather = int(transfers(instance.variables - shards, links.gather).sum())
        fixed = chip.startup + gather
        if instance.training:
            fixed += gather + int(instance.update.sum())
        self._once: dict[int, int] = {}
        self._host = {count: links.host(count) for count in instance.io_tile_choices}
        self._overlapped: dict[int, bool] = {}
        for count in instance.io_tile_choices:
            remote = links.remote(count)
            once = fixed
            if not (instance.prefetch and count):
                once += transfer(loaded, remote)
            if instance.training:
                once += transfer(state, remote) + transfer(loaded + state, remote)
            self._once[count] = once
            self._overlapped[count] = Mode.IO_OVERLAPPED in instance.modes_with(count)
        # By microbatch: steps, and of each step cycles on all tiles and bytes of the host.
        self._steps: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        for microbatch in instance.microbatches:
            figures = instance.at(microbatch)
            work, moved = int(figures.forward.sum()), [int(figures.activations[0])]
            if instance.training:
                work += int(figures.backward.sum())
            else:
                moved.append(int(figures.activations[-1]))
            self._steps[microbatch] = figures.steps, work, tuple(moved)

    def of(self, microbatch: int, io_tiles: int) -> int:
        """Return the bound of one pair.  O(1)."""
        steps, work, moved = self._steps[microbatch]
        host = sum(transfer(nbytes, self._host[io_tiles]) for nbytes in moved)
        step = on_tiles(work, self.instance.chip.tiles, io_tiles)
        step = max(step, host) if self._overlapped[io_tiles] else step + host
        return self._once[io_tiles] + steps * step

    def longest_recomputation(self, microbatch: int, upper: int) -> int:
        """Return cycles of a step that a plan of fewer than `upper` may compute again, at most."""
        steps, work, moved = self._steps[microbatch]
        tiles, longest = self.instance.chip.tiles, 0
        for count, once in self._once.items():
            step = (upper - 1 - once) // steps
            if not self._overlapped[count]:
                step -= sum(transfer(nbytes, self._host[count]) for nbytes in moved)
            longest = max(longest, step * (tiles - count) // tiles - work)
        return longest
