"""Lower bounds that need no search over boundaries.

They count the work of all steps and the bytes that every plan moves, whatever its groups.  Cost:
O(n), then O(1) for each bound.  Source: own work.
"""

from __future__ import annotations

import functools

from stagepack.heuristics.phases.cycles import Links, on_tiles, transfer, transfers
from stagepack.heuristics.phases.tuning import TUNING, OptionsTuning
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import Mode


class WorkBounds:
    """Cycles that no plan goes below, for every microbatch and number of I/O tiles.

    One start-up, the variables once (not where they may be loaded ahead), the compute of all
    steps beside or after the transfers with the host, and the optimiser.  What depends on one of
    both numbers only is found once for it: O(n), and O(1) for each microbatch, number and pair.
    """

    def __init__(self, instance: PhaseSchedule, tuning: OptionsTuning = TUNING.options) -> None:
        self.instance, self._tuning = instance, tuning
        chip = instance.chip
        self._links = links = Links(chip)
        shards = -(-instance.variables // instance.sharding)
        states = -(-instance.state // instance.sharding)
        self._loaded, self._state = int(shards.sum()), int(states.sum())
        gather = int(transfers(instance.variables - shards, links.gather).sum())
        self._fixed = chip.startup + gather
        work, fixed = instance.forward.sum(), instance.forward_fixed.sum()
        if instance.training:
            self._fixed += gather + int(instance.update.sum())
            work, fixed = work + instance.backward.sum(), fixed + instance.backward_fixed.sum()
        self._work, self._work_fixed = int(work), int(fixed)
        self._moved = [int(instance.activations[0])]
        if not instance.training:
            self._moved.append(int(instance.activations[-1]))
        self._once = functools.lru_cache(maxsize=2**16)(self._find_once)
        self._host = functools.lru_cache(maxsize=2**16)(links.host)

    def _find_once(self, io_tiles: int) -> int:
        """Return the cycles of a plan outside of steps."""
        instance, remote = self.instance, self._links.remote(io_tiles)
        once = self._fixed
        if not (instance.prefetch and io_tiles):
            once += transfer(self._loaded, remote)
        if instance.training:
            once += transfer(self._state, remote) + transfer(self._loaded + self._state, remote)
        return once

    def _overlapped(self, io_tiles: int) -> bool:
        """Whether transfers may run beside compute."""
        return Mode.IO_OVERLAPPED in self.instance.modes_with(io_tiles)

    def _steps(self, microbatch: int) -> tuple[int, int, list[int]]:
        """Return the steps, and of each step cycles on all tiles and bytes of the host."""
        instance = self.instance
        scale = 1 if instance.microbatch is not None else microbatch
        steps = instance.global_batch // (microbatch * instance.data_parallel)
        moved = [scale * nbytes for nbytes in self._moved]
        return steps, self._work_fixed + scale * self._work, moved

    def of(self, microbatch: int, io_tiles: int, most: int | None = None) -> int:
        """Return a lower bound on the cycles of a plan of `microbatch` and `io_tiles`.  O(1).

        With `most` it holds for all numbers of I/O tiles from `io_tiles` to this one.
        """
        most = io_tiles if most is None else most
        steps, work, moved = self._steps(microbatch)
        host = sum(transfer(nbytes, self._host(most)) for nbytes in moved)
        step = on_tiles(work, self.instance.chip.tiles, io_tiles)
        step = max(step, host) if self._overlapped(io_tiles) else step + host
        return self._once(most) + steps * step

    def longest_recomputation(self, microbatch: int, upper: int) -> int:
        """Return cycles of a step that a plan of fewer than `upper` may compute again, at most."""
        steps, work, moved = self._steps(microbatch)
        counts, tiles, longest = self.instance.io_tile_choices, self.instance.chip.tiles, 0
        size = -(-len(counts.some) // self._tuning.tile_ranges)
        parts = [(0, 0)] * counts.none
        for low in range(0, len(counts.some), max(1, size)):
            part = counts.some[low : low + size]
            parts.append((part[0], part[-1]))
        for least, most in parts:
            step = (upper - 1 - self._once(most)) // steps
            if not self._overlapped(least):
                step -= sum(transfer(nbytes, self._host(most)) for nbytes in moved)
            longest = max(longest, step * (tiles - least) // tiles - work)
        return longest
