"""Range costs: the memory and transfers of every group that could fit, for any policies.

Groups [a, b) are numbered by rising a, then b; from each a up to the first b whose variables alone
exceed the chip.  O(groups) for a chain.  Source: own work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stagepack.heuristics.effort import spend
from stagepack.heuristics.phases.cycles import UNLIMITED, Links, rooms, transfers
from stagepack.heuristics.phases.liveness_kernels import Layers
from stagepack.heuristics.phases.ranges_kernels import traffic
from stagepack.heuristics.phases.tuning import TUNING, PhasesTuning
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.profile import Array


def _layers(sizes: Array, longest: int) -> int:
    """Return the layers of all groups of at most `longest`, given how many groups start where."""
    most = np.minimum(sizes, longest).astype(np.float64)
    return int((most * (most + 1) / 2).sum())


class RangeCosts:
    """Sums over the layers and tensors of every group, for one `microbatch`.

    All groups together have `most` layers, if less than usual, and lie between the boundaries
    `cuts`, if not all that are allowed.  `keep_going` is asked several times a second; it may
    raise.

    - `first`, `end`, int64, shape (groups,): the first layer of each group, and the one behind its
      last.
    - `start`, int64, shape (n + 1,): groups from layer a are start[a] ... start[a + 1] - 1.
    - `together`, bool, shape (groups,): whether forward and backward run in one phase.
    - `weights`, `shards`, `states`, `gather`, `forward`, `backward`, `update`, int64, shape
      (groups,): bytes of variables, of them and of state in shards; cycles.
    - `loaded`, `host`, `stored`, `added`, int64, shape (groups,): bytes a step; see
      :func:`.ranges_kernels.traffic`.
    - `written`, int64, shape (n,): what stashing a layer's output stores, at least: nothing where
      other groups may read it.
    - `inexact`: why groups may be missing; '' when none is.
    """

    def __init__(
        self,
        instance: PhaseSchedule,
        microbatch: int,
        most: int | None = None,
        cuts: Sequence[int] | None = None,
        keep_going: Callable[[], bool] = lambda: True,
        tuning: PhasesTuning = TUNING,
    ) -> None:
        self.instance, self.tuning = instance, tuning
        self._keep_going = keep_going
        self._cuts = instance.fixed_boundaries if cuts is None else cuts
        self._most = tuning.options.most_layers if most is None else most
        self.figures = figures = instance.at(microbatch)
        self.microbatch, self.steps, self.n = microbatch, figures.steps, instance.n
        n = self.n
        self.weight_sums = _sums(instance.variables)
        self.shard_sums = _sums(-(-instance.variables // instance.sharding))
        self.state_sums = _sums(-(-instance.state // instance.sharding))
        remainder = instance.variables - -(-instance.variables // instance.sharding)
        self.links = Links(instance.chip)
        self.inexact = ""
        gather = transfers(remainder, self.links.gather)
        self.start = self._starts()
        sizes = np.diff(self.start)
        first = np.repeat(np.arange(n), sizes)
        end = first + np.arange(self.start[-1]) - np.repeat(self.start[:-1], sizes) + 1
        tensors, readers = instance.read_pairs
        order = np.argsort(readers, kind="stable")
        count = np.bincount(tensors, minlength=n + 1)
        ends = np.cumsum(count)
        last = np.where(count > 0, readers[np.maximum(ends, 1) - 1], -1)
        self.layers = Layers(
            nbytes=np.ascontiguousarray(figures.activations),
            tape=np.ascontiguousarray(figures.tape),
            temporary=np.ascontiguousarray(figures.temporary),
            forward=np.ascontiguousarray(figures.forward),
            reads_from=_sums(np.bincount(readers, minlength=n)),
            reads=tensors[order],
            readers_from=_sums(count),
            readers=readers,
        )
        moved = self._moved(last)
        self.written = np.where(count[1:] == 1, figures.activations[1:], 0)
        if self._cuts is not None:  # there is one group from each boundary
            follow = np.full(n, -1)
            follow[list(self._cuts[:-1])] = self._cuts[1:]
            allowed = follow[first] == end
            first, end, moved = first[allowed], end[allowed], moved[:, allowed]
            self.start = np.searchsorted(first, np.arange(n + 1)).astype(np.int64)
        self.first, self.end = first, end
        self.loaded, self.host, self.stored, self.added = moved
        self.together = np.asarray((self.end == n) & instance.training)
        self.weights = self._over(self.weight_sums)
        self.shards = self._over(self.shard_sums)
        self.states = self._over(self.state_sums)
        self.gather = self._over(_sums(gather))
        self.forward = self._over(_sums(figures.forward))
        self.backward = self._over(_sums(figures.backward))
        self.update = self._over(_sums(instance.update))
        prices = tuning.prices
        spend(40 * prices.look_price + prices.group_price * (len(first) + n))

    def _moved(self, last: Array) -> Array:
        """Return what groups move, given the last readers of tensors; see :func:`traffic`."""
        layers, start = self.layers, self.start
        reach = np.arange(self.n) + np.diff(start)
        read = layers.reads_from[reach] - layers.reads_from[:-1]
        done = np.concatenate(([0], np.cumsum(np.diff(start) + read)))
        ending = np.argsort(last, kind="stable")
        ends = np.searchsorted(last[ending], np.arange(self.n + 1)).astype(np.int64)
        seen = np.full(self.n + 1, -1)
        found = np.empty((4, int(start[-1])), dtype=np.int64)
        low, part = 0, self.tuning.options.groups_at_once
        while low < self.n:
            self._keep_going()
            high = int(np.searchsorted(done, done[low] + part, side="right")) - 1
            high = max(low + 1, high)
            traffic(
                start,
                layers.nbytes,
                layers.reads_from,
                layers.reads,
                ends,
                ending,
                last,
                seen,
                found,
                low,
                high,
            )
            spend(self.tuning.prices.read_price * int(done[high] - done[low]))
            low = high
        return found

    def _starts(self) -> Array:
        """Return where the groups from each layer start, as far as variables alone decide."""
        n, fixed = self.n, self._cuts
        reach = self.reach()
        if fixed is not None:
            follow = np.arange(n)
            follow[list(fixed[:-1])] = fixed[1:]
            reach = np.minimum(reach, follow)
        sizes = np.maximum(reach - np.arange(n), 0)
        longest = int(sizes.max())
        if fixed is None and _layers(sizes, longest) > self._most:
            low = 1
            while longest - low > 1:
                middle = (low + longest) // 2
                low, longest = (
                    (low, middle) if _layers(sizes, middle) > self._most else (middle, longest)
                )
            sizes = np.minimum(sizes, low)
            self.inexact = f"groups of more than {low:,} layers are too many to look at"
        return _sums(sizes)

    def reach(self) -> Array:
        """Return where groups from each layer end at most, by their variables alone."""
        most = self.largest_capacity
        share = most // 2 if self.instance.training else most
        limits = np.minimum(self.weight_sums[:-1] + share, UNLIMITED)
        return np.asarray(np.searchsorted(self.weight_sums, limits, side="right") - 1)

    @property
    def largest_capacity(self) -> int:
        """Bytes for variables and working set with the fewest I/O tiles allowed."""
        return rooms(self.instance.chip, self.instance.io_tile_choices[0])[0]

    def _over(self, sums: Array) -> Array:
        """Return the sums of groups."""
        self._keep_going()
        return np.asarray(sums[self.end] - sums[self.first])

    def __len__(self) -> int:
        return len(self.first)


def _sums(values: Array) -> Array:
    """Return sums of all values before each, and of all."""
    return np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
