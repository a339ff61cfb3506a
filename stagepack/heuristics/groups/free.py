"""Lower bounds on groups whose loads and stores can be at any timestep, for every cut of a group.

Cost: O(parts * edges) for ranges and O(rows * moves) for every cut, a group.  Source: ours.
"""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.effort import SHORT, spend
from stagepack.heuristics.groups import free_kernels as kernels
from stagepack.heuristics.groups.oracle import NONE, Oracle
from stagepack.instances.profile import Array


class FreeOracle(Oracle):
    """An oracle that knows what groups take at least, whatever their timesteps."""

    def floors(self, steps: Array, below: Array) -> Array:
        """Return the least cycles of groups in every cut; `NONE` where it is of no use.

        No timesteps, spills and addresses take less; a cut is left out where no spills let its
        bytes fit.  `steps` is as in :meth:`.Oracle.price`; `below`, int64 (groups,), are cycles
        that are of no use, nor are any more.
        """
        found = np.full((len(steps), len(self.cuts)), NONE)
        # Loads of weights and of tensors, and stores.
        net, moves = self._net, len(self._net.weights) + 2 * len(self._net.tensors)
        tuning = self.tuning.oracle
        prices = tuning.byte_prices
        shapes = [
            self.longest,
            moves,
            moves,
            self.longest,
            len(net.tensors),
            (3, moves),
            self.longest,
            (prices, self.longest),
            (prices, self.longest),
            (prices, 2),
            6,
        ]
        room = kernels.Falling(*(np.zeros(shape, np.int64) for shape in shapes))
        for group, _, first, cuts in self._room.portions():
            place = np.array([0, -1])
            part = np.full((len(steps), len(cuts)), NONE)
            while place[0] < len(steps):
                done = 0
                for most in (min(SHORT, tuning.steps_at_once), tuning.steps_at_once):
                    if place[0] == len(steps):
                        break
                    done += kernels.floors(
                        net,
                        self._machine,
                        group,
                        self._rows,
                        room,
                        cuts,
                        steps,
                        below,
                        part,
                        place,
                        most - done,
                    )
                spend(tuning.bound_step_price * done)
                self._pause()
            found[:, first : first + len(cuts)] = part
        return found
