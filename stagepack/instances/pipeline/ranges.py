"""Integer range costs: what algorithms and models need to know of every stage [a, b).

All times are whole *ticks*, so that every method compares integers; see :mod:`.ticks`.

Devices that differ in nothing but their name form a *class*.  The structure of the partition
("which device may run the next stage, and how many microbatches does it stash") is a small
automaton that reads the chain from its tail, see :class:`StageOrder`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import assert_never

import numpy as np

from stagepack.contracts import Number
from stagepack.errors import InputError
from stagepack.instances.pipeline import costs
from stagepack.instances.pipeline.choices import least
from stagepack.instances.pipeline.costs import LARGEST_TABLE, CostsInTicks
from stagepack.instances.pipeline.data import PipelineSolution
from stagepack.instances.pipeline.instance import PipelinePartition
from stagepack.instances.pipeline.order import StageOrder, assign_devices, device_classes
from stagepack.instances.pipeline.problem import Objective
from stagepack.instances.profile import Array
from stagepack.instances.ticks import exactly
from stagepack.instances.words import LARGEST

MOST_REACHES = 8
CHUNK = 5_000_000  # elementary steps of the compiled pass between two pauses
KEPT_AS = "_range_costs"  # with an instance, outside its fields


class RangeCosts(CostsInTicks):
    """Compute, memory and transfer of all ranges of an instance, in ticks and bytes.

    Nothing of size n x n is built unless asked for (:meth:`compute_matrix`,
    :meth:`memory_matrix`, :meth:`fits_matrix`).  Layers with alternatives cost the least of each
    figure here: costs of stages are bounds then, see :mod:`stagepack.heuristics.pipeline.options`.
    """

    def __init__(
        self, instance: PipelinePartition, pause: Callable[[], object] = lambda: None
    ) -> None:
        self.instance, self._chain = instance, least(instance)
        self.n, self.k, self.tokens = instance.n, instance.k, instance.tokens
        self.allowed = instance.allowed_cuts
        classes = device_classes(instance, pause)
        # The class of each device, shape (k,), numbered by first appearance.
        self.device_class = np.array(classes, dtype=np.int64)
        self.classes = max(classes) + 1
        if self.classes * (self.n + 1) > LARGEST_TABLE:
            raise InputError(
                f"{self.classes:,} kinds of devices for {self.n:,} layers make tables of more than "
                f"{LARGEST_TABLE:,} entries",
                field="cluster",
                remedy="use fewer kinds of devices, or join layers",
            )
        self._reach_cache: dict[tuple[int, int], Array] = {}
        self._fits_cache: dict[tuple[int, int], Array] = {}
        # One device stands for its class; classes are met in order.
        self._example = list({c: d for d, c in enumerate(classes)}.values())
        devices = [instance.cluster.devices[d] for d in self._example]
        # All bytes of an instance are fewer than 2**62: more capacity is no limit.
        self.capacity = [
            None if device.memory is None or device.memory >= LARGEST else device.memory
            for device in devices
        ]
        self._speeds = [exactly(device.speed) for device in devices]
        self._set_ticks(float(min(device.speed for device in devices)), pause)
        # Of `moves`: costs of what is limited, the most compute and transfer in their ticks.
        self.within = self._limits(pause) if instance.objective is Objective.MOVES else None

    def _limits(self, pause: Callable[[], object]) -> tuple[RangeCosts, int, int] | None:
        """Return what limits `moves`, see :attr:`within`."""
        instance, limit = self.instance, self.instance.limit
        if limit is None:
            return None
        limited = RangeCosts(instance.replace(objective=instance.limited), pause)
        share = 1 + Fraction(instance.rounding) / 2
        if limited.rounding > (share - 1) * Fraction(limit) * limited.scale:
            raise InputError(
                f"{limit:,} is lost beside the largest figures, from which it differs by too many "
                "orders of magnitude",
                field="limit",
                remedy="give a higher limit, or figures that are nearer to one another",
            )
        total = math.floor(Fraction(limit) * share * limited.scale)
        while not limited.rounding and limited.value(total + 1) <= limit:
            total += 1  # which a float of the limit may just miss
        most = total
        moved = LARGEST
        if instance.limited is Objective.TRANSFER_BOUNDED:
            most = total - limited.transfer_bound() - limited.host
            moved = total - limited.compute_bound()
        elif instance.limited is Objective.SUM:
            most -= limited.host
        if limited.tabular or limited.recv.any() or limited.send.any():
            self._require_tables("limited", "stages within a limit on transfers have tables")
            self.tabular = True
        return limited, most, moved

    @classmethod
    def of(
        cls, instance: PipelinePartition, pause: Callable[[], object] = lambda: None
    ) -> RangeCosts:
        """Return the range costs of an instance, built once and kept with it.

        `pause` is called several times on the way; what it raises ends the construction.
        """
        kept: dict[str, RangeCosts] = vars(instance)
        if KEPT_AS not in kept:
            kept[KEPT_AS] = cls(instance, pause)
        return kept[KEPT_AS]

    def bound(self, ticks: int) -> Number:
        """Return a lower bound in ticks as one in cycles, safe whatever rounding there was.

        Nothing takes less than no time.  Of headroom, ticks are tokens.
        """
        if self.instance.objective is Objective.HEADROOM:
            return ticks
        return self.value(max(0, ticks - self.rounding))

    def value(self, ticks: int) -> Number:
        """Return `ticks` in cycles: an int when whole."""
        cycles = ticks if self.scale == 1 else Fraction(ticks) / self.scale
        return int(cycles) if cycles.denominator == 1 else float(cycles)

    def compute(self, first: int, end: int, device_class: int) -> int:
        """Return the ticks of the layers [`first`, `end`) on a device of `device_class`."""
        work = self._work[device_class]
        return int(work[first, end] if work.ndim == 2 else work[end] - work[first])

    def transfer(self, first: int, end: int, device_class: int) -> int:
        """Return the ticks that [`first`, `end`) transfers: receive, send and the host's share."""
        own = int(self.extra[device_class][first, end]) if self.extra else 0
        return int(self.recv[device_class, first] + self.send[device_class, end]) + self.host + own

    def objective(self, solution: PipelineSolution) -> int:
        """Return the objective value of a partition in ticks."""
        if self.instance.objective is Objective.HEADROOM:
            return int(self.instance.evaluate(solution))
        if self.instance.alternatives:
            return round(Fraction(self.instance.evaluate(solution)) * self.scale)
        if self.instance.objective.additive:
            stages = [(a, b, int(self.device_class[d])) for a, b, d in solution.stages]
            each = (self.compute(*s) + self.transfer(*s) - self.host for s in stages)
            return sum(each) + self.host
        value = self.largest_compute(solution)
        if self.instance.objective is Objective.TRANSFER_BOUNDED:
            classes = self.device_class
            value += max(self.transfer(a, b, int(classes[d])) for a, b, d in solution.stages)
        return value

    def largest_compute(self, solution: PipelineSolution) -> int:
        """Return the most that a stage needs of the limit on compute, whatever that counts."""
        stages = [(a, b, int(self.device_class[d])) for a, b, d in solution.stages]
        work = [self.compute(*stage) for stage in stages]
        if self.instance.placed:
            loads = dict.fromkeys(solution.devices, 0)
            for device, ticks in zip(solution.devices, work, strict=True):
                loads[device] += ticks
            return max(loads.values())
        match self.instance.objective:
            case Objective.SUM:
                work = [w + self.transfer(*stage) for w, stage in zip(work, stages, strict=True)]
            case Objective.OVERLAP:
                moved = [int(max(self.recv[c, a], self.send[c, b])) for a, b, c in stages]
                work = list(map(max, work, moved))
            case (
                Objective.BOTTLENECK
                | Objective.TRANSFER_BOUNDED
                | Objective.LATENCY
                | Objective.HEADROOM
                | Objective.MOVES
            ):
                pass
            case unknown:
                assert_never(unknown)
        return max(work)

    def with_more_memory(self, extra: int) -> RangeCosts:
        """Return the same costs with `extra` bytes more on every device."""
        return self._with(capacity=[None if c is None else c + extra for c in self.capacity])

    def with_tokens(self, tokens: int) -> RangeCosts:
        """Return the same costs with the KV cache of so many tokens in memory."""
        return self._with(tokens=tokens)

    def with_tables(self, work: list[Array], constant: int) -> RangeCosts:
        """Return the same costs with other ticks of compute, `work` of [a, b) by class.

        Each is of shape (n + 1, n + 1); every solution pays `constant` on top, as `host`.
        """
        return self._with(_work=work, host=constant, tabular=True)

    def _with(self, **changes: object) -> RangeCosts:
        other = copy.copy(self)
        vars(other).update(_reach_cache={}, _fits_cache={})
        vars(other).update(changes)
        vars(other).pop("_exclusive", None)
        return other

    def reach(
        self, device_class: int, stashes: int, pause: Callable[[], object] = lambda: None
    ) -> Array:
        """Return, shape (n,), the furthest end of a stage that begins at each layer.

        The stage [a, b) fits a device of `device_class` and contains no fixed cut exactly for the
        ends b in (a, reach[a]] (a, when no end will do); it holds activations of `stashes`
        microbatches. Non-decreasing.  O(n + uses of shared keys).  Only for instances without
        tables.  What `pause`, called now and then, raises ends the pass.
        """
        assert not self.tabular
        fit = self._roomy(device_class, stashes, pause)
        if self.within is None:
            return fit
        limited, most, _ = self.within
        prefix = limited.prefix[limited.device_class[self._example[device_class]]]
        within = np.searchsorted(prefix, prefix[:-1] + most, side="right") - 1
        return np.asarray(np.minimum(fit, np.maximum(within, np.arange(self.n))))

    def _roomy(self, device_class: int, stashes: int, pause: Callable[[], object]) -> Array:
        """Return :meth:`reach` as far as memory and fixed cuts allow."""
        capacity = self.capacity[device_class]
        if capacity is None:
            return self._next_fixed
        key = (capacity, stashes)
        if key not in self._reach_cache:
            added = self._exclusive
            if stashes:
                added = added + stashes * self._chain.stash
            if costs.needs_kernels(self.instance.shared, self.n):
                fit = self._slide(added, capacity, pause)
            else:
                fit = np.minimum(costs.furthest_fit(added, self._peak, capacity), self._next_fixed)
            if len(self._reach_cache) >= MOST_REACHES:
                return fit  # as many stashes, as many rows
            self._reach_cache[key] = fit
        return self._reach_cache[key]

    def _slide(self, added: Array, capacity: int, pause: Callable[[], object]) -> Array:
        """Return :meth:`reach` from the compiled kernel, which returns now and then."""
        from stagepack.instances.pipeline import kernels

        shared = self.instance.shared
        layers = kernels.Layers(
            added, self._peak, self._next_fixed, self._first_use, shared.key, shared.nbytes
        )
        window, fit = kernels.Window.of(layers), np.empty(self.n, dtype=np.int64)
        pause()
        while not kernels.furthest_fit(CHUNK, layers, capacity, window, fit):
            pause()
        return fit

    def furthest_end(self, first: int, limit: int, device_class: int, stashes: int) -> int:
        """Return the furthest end of the stage that begins with layer `first`, as `reach`.

        No end is beyond `limit`; `device_class` and `stashes` as there.  Looks no further than
        twice the stage, so that a few such questions need no pass over all layers for every number
        of stashes.
        """
        capacity = self.capacity[device_class]
        limit = min(limit, int(self._next_fixed[first]))
        if capacity is None:
            return limit
        if not stashes or self.within or (capacity, stashes) in self._reach_cache:
            return min(limit, int(self.reach(device_class, stashes)[first]))
        instance, shared = self._chain, self.instance.shared
        held, highest, end, width, seen = 0, 0, first, 64, set[int]()
        while end < limit:
            stop = min(limit, end + width)
            added = self._exclusive[end:stop] + stashes * instance.stash[end:stop]
            uses = slice(*np.searchsorted(shared.layer, (end, stop)).tolist())
            for layer, key in zip(
                shared.layer[uses].tolist(), shared.key[uses].tolist(), strict=True
            ):
                if key not in seen:
                    seen.add(key)
                    added[layer - end] += shared.nbytes[key]
            need = held + np.cumsum(added)
            peak = self._peak[end:stop]
            peak = np.maximum(np.maximum.accumulate(peak), highest)
            over = need + peak > capacity
            if over.any():
                return end + int(np.argmax(over))
            held, highest, end, width = int(need[-1]), int(peak[-1]), stop, 2 * width
        return end

    def compute_bound(self) -> int:
        """Return a lower bound on the largest compute of a partition, in ticks.

        The larger of: all work spread over all devices without loss; the costliest span that no
        cut may split, on the fastest device.  0 for a compute table, whose ranges need not add
        up.  O(n), once.
        """
        return self._compute_bound

    @cached_property
    def _compute_bound(self) -> int:
        if self.instance.compute_table is not None or self.instance.objective is Objective.MOVES:
            return 0
        cuts = np.flatnonzero(self.allowed)
        totals = self.prefix[:, -1].tolist()
        fastest = self.prefix[totals.index(min(totals))]
        if len(cuts) <= self.n:
            fastest = fastest[cuts]
        # Speeds in a unit that makes them whole.
        unit = math.lcm(*(speed.denominator for speed in self._speeds))
        speeds = [speed.numerator * (unit // speed.denominator) for speed in self._speeds]
        together = sum(speeds[c] for c in self.device_class.tolist())
        spread: int = -(-totals[0] * speeds[0] // together)
        return max(0, spread - self.rounding, int((fastest[1:] - fastest[:-1]).max()))

    def transfer_bound(self) -> int:
        """Return a lower bound on the largest receive + send of a partition, in ticks.

        The larger of the dearest cut that cannot be spared, see :meth:`cut_bound`, and what the
        cheapest cuts cost in all, spread over the stages.
        """
        return max(self._cut_bounds[:2])

    def transfers_bound(self) -> int:
        """Return a lower bound on what all stages receive and send together, in ticks."""
        return self._cut_bounds[2]

    def cut_bound(self) -> int:
        """Return a lower bound on the largest single receive or send of a partition, in ticks.

        As many stages as devices need one cut fewer; with fewer stages none may be needed.  O(n),
        once.
        """
        return self._cut_bounds[0]

    @cached_property
    def _cut_bounds(self) -> tuple[int, int, int]:
        cuts = np.flatnonzero(self.allowed)[1:-1]
        needed = self.k - 1
        if self.instance.fewer_stages or not 0 < needed <= len(cuts):
            return 0, 0, 0
        inner = slice(1, self.n) if len(cuts) == self.n - 1 else cuts  # no copy of all of them
        recv, send = (
            (rows[0] if self.classes == 1 else rows.min(axis=0))[inner]
            for rows in (self.recv, self.send)
        )
        both = np.maximum(recv, send)
        dearest = costs.smallest(both, needed).max()
        together = costs.smallest(np.add(recv, send, out=both), needed).sum()  # new room costs more
        return int(dearest), int(-(-together // self.k)), int(together)

    def memory_matrix(self, device_class: int, stashes: int) -> Array:
        """Return, shape (n + 1, n + 1), the bytes of [a, b) with `stashes` microbatches in flight.

        Vectorised, O(n^2 + uses).
        """
        instance, n = self._chain, self.n
        table = instance.memory_table
        added = instance.cached_bytes(self.tokens) if table is not None else self._exclusive
        lasting = np.concatenate([[0], np.cumsum(instance.stash * stashes + added)])
        memory = lasting[None, :] - lasting[:, None]
        if table is not None:
            return np.asarray(memory + self._class_table(table, device_class))
        memory += costs.peaks(self._peak)
        if len(instance.shared.layer):
            memory += costs.held_once(instance.shared, n)
        return np.asarray(memory)

    def fits_matrix(
        self, device_class: int, stashes: int, pause: Callable[[], object] = lambda: None
    ) -> Array:
        """Return, shape (n + 1, n + 1), whether [a, b) may be a stage on a device of a class.

        `device_class`, `stashes` and `pause` are as :meth:`reach` takes them.
        """
        n, capacity = self.n, self.capacity[device_class]
        fits, ends = np.empty((n + 1, n + 1), dtype=bool), np.append(self._next_fixed, n)
        given = self.instance.memory_table is not None
        if not given:
            ends[:n] = self._roomy(device_class, stashes, pause)
        cuts = np.arange(n + 1)
        for rows in costs.blocks(n, pause):
            np.logical_and(cuts > cuts[rows, None], cuts <= ends[rows, None], out=fits[rows])
            fits[rows] &= self.allowed[rows, None] & self.allowed
        if given and capacity is not None:
            fits &= self.memory_matrix(device_class, stashes) <= capacity
        if self.within is not None:
            fits &= self._limited(device_class, *self.within)
        return fits

    def _limited(self, device_class: int, limited: RangeCosts, most: int, moved: int) -> Array:
        """Return, shape (n + 1, n + 1), which [a, b) are within the limits of :attr:`within`."""
        c = int(limited.device_class[self._example[device_class]])
        work, recv, send = limited.compute_matrix(c), limited.recv[c][:, None], limited.send[c]
        match limited.instance.objective:
            case Objective.SUM:
                return np.asarray(work + recv + send <= most)
            case Objective.OVERLAP:
                return np.asarray((np.maximum(work, recv) <= most) & (send <= most))
            case Objective.TRANSFER_BOUNDED:
                transfer = recv + send + limited.host + (limited.extra[c] if limited.extra else 0)
                return np.asarray((work <= most) & (transfer <= moved))
            case _:
                return np.asarray(work <= most)

    def with_limits(self, most: int, moved: int) -> RangeCosts:
        """Return the same costs of `moves` with other limits, see :attr:`within`.

        They are `most` ticks of compute, `moved` of transfer.
        """
        assert self.within is not None
        return self._with(within=(self.within[0], most, moved))

    def fits_from(self, first: int, device_class: int, stashes: int) -> Array:
        """Return row `first` of :meth:`fits_matrix`, which is kept for the next question.

        `device_class` and `stashes` are as :meth:`reach` takes them.
        """
        if (device_class, stashes) not in self._fits_cache:
            self._fits_cache = {(device_class, stashes): self.fits_matrix(device_class, stashes)}
        return np.asarray(self._fits_cache[device_class, stashes][first])

    @cached_property
    def _exclusive(self) -> Array:
        total = self._chain.cached_bytes(self.tokens)
        for column in self._chain.exclusive.values():
            total += column
        return total

    @cached_property
    def _peak(self) -> Array:
        return np.asarray(self._chain.temporary + self._chain.carry)

    @cached_property
    def _first_use(self) -> Array:
        return costs.first_uses(self.instance.shared, self.n)

    @cached_property
    def _next_fixed(self) -> Array:
        return costs.next_of(self.instance.fixed_cuts, self.n)

    @cached_property
    def order(self) -> StageOrder:
        """Which device may run the next stage, read from the tail of the chain."""
        return StageOrder.of(self.instance)

    def partition(self, boundaries: list[int], classes: list[int]) -> PipelineSolution:
        """Return the solution of stages with `boundaries` on devices of `classes`."""
        return assign_devices(self.instance, boundaries, classes)
