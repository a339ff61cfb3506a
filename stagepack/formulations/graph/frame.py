"""Data that both models of a graph partition share: slots, and where each block may be.

A block is placed on a slot.  Slots are the stages in their order, or, if links have different
bandwidths, the devices.  If stages may run on different classes of devices in any order, the model
also chooses the class of each slot; empty stages then come first, so that K - s stages follow from
slot s of K on, itself included.

Cost: O(blocks * classes + members of nets); where slots are in line and a solution is known
O(edges + blocks) sets of a bit a block more.  Source: ours.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from stagepack.errors import InputError
from stagepack.heuristics.graph.frontier.plan import rows, with_sources
from stagepack.heuristics.graph.tuning import TUNING, ModelsTuning
from stagepack.instances.graph.check import stage_order
from stagepack.instances.graph.compact import FORBIDDEN, UNLIMITED, Compact
from stagepack.instances.graph.data import GraphSolution
from stagepack.instances.graph.problem import Objective
from stagepack.instances.profile import Array

NEARLY = 1e-10
"""Part of a unit by which figures may miss a multiple of it: their last bits."""


class Frame:
    """An instance as models see it: figures in steps, blocks on slots.

    What is worth more ticks than `upper`, a known solution, may be left out.  Steps, and units of
    bytes, are as coarse as it takes for all figures and their sums to be below `largest`.

    - `classes`: of each slot: the classes of device that may run it.
    - `shared`: a slot may run on several devices.
    - `in_line`: slots are in the order of stages: no block is on an earlier slot than one before
      it.
    - `devices`: slots are devices, whose links are unlike.
    - `leading`: slots without blocks come before all others.
    - `roaming`: slots are devices of which it is chosen who comes before whom.
    - `turn`, int64, shape (slots,): of slots that can be exchanged, how many come before, or 0.
    - `rank`, int64, shape (blocks,): how many blocks are larger: they take at most so many of such
      slots.
    - `unit`: ticks of a step.
    - `coarse`: whether bytes are counted in a unit too coarse for them.
    - `time`, `cost`, int64, shapes (passes, classes, blocks), (nets,): steps of blocks, 0 where a
      block must not be, and of nets.
    """

    def __init__(
        self,
        compact: Compact,
        upper: int | None,
        largest: int,
        tuning: ModelsTuning = TUNING.models,
    ) -> None:
        self.compact, self.tuning = compact, tuning
        self.upper, self.largest = upper, largest
        self.shared = compact.objective == Objective.REPLICATED
        self.slots = compact.devices
        if self.slots * max(compact.blocks, len(compact.net)) > tuning.most_places:
            raise InputError(
                f"{compact.blocks:,} blocks on {self.slots:,} devices are too many for a model",
                field="method",
                remedy="use linear-dp or local-search, or fewer devices",
            )
        kinds = len(compact.class_count)
        fixed = compact.sequence is not None
        self.devices = not compact.uniform
        self.in_line = compact.contiguous and (fixed or not self.devices)
        # Where the order of stages matters to nobody, slots are the devices.
        ordered = compact.contiguous or bool(compact.stash.any())
        chosen = kinds > 1 and ordered and not fixed and not self.devices
        every = list(range(kinds))
        self.classes = [every if chosen else [c] for c in compact.device_class.tolist()]
        empties = not compact.exact_stages or self.shared
        self.leading = empties and not fixed and not self.devices and (chosen or kinds == 1)
        self.roaming = self.devices and ordered and not fixed
        self._alike = [] if ordered or self.devices else [self._slots_of_class(c) for c in every]
        self.turn = np.zeros(self.slots, dtype=np.int64)
        for like in self._alike:
            self.turn[like] = np.arange(len(like))
        self._set_steps(largest)
        held = int(compact.size.sum() + compact.microbatches * compact.stash.sum())
        common = int(np.gcd.reduce([*compact.size, *compact.stash])) or 1
        limited = bool((compact.class_memory < UNLIMITED).any())
        self.coarse = limited and held // common >= largest

    def _slots_of_class(self, kind: int) -> Array:
        """Return the slots of a class in the order in which they are taken."""
        found = np.flatnonzero(self.compact.device_class == kind)
        return found[::-1] if self.leading else found

    def _set_steps(self, largest: int) -> None:
        """Count times and traffic in steps, as fine as `largest` allows."""
        compact = self.compact
        self.allowed = compact.time[0] < FORBIDDEN
        time = np.where(self.allowed, compact.time, 0)
        figures = [time, compact.net_cost]
        if compact.level_cost is not None:
            figures.append(compact.level_cost)
        if compact.objective == Objective.MEMORY:
            figures.append(compact.stash)
        total = max(int(time.sum(axis=2).max()), 1) + int(figures[1].sum())
        if self.shared:
            figures.append(self.exchanged)
            total += int(self.exchanged.sum())
        unit = math.gcd(*(int(np.gcd.reduce(f, axis=None)) for f in figures if f.size)) or 1
        if self.shared:
            unit = 1  # loads are divided by squares of numbers of replicas
        nearly = 0
        if total // unit >= largest:
            nearly = self._near_unit(np.concatenate([f.ravel() for f in figures]))
            unit = nearly if nearly and total // nearly < largest else -(-total // largest)
        self.unit = unit
        self._whole = unit == nearly
        largest_first = np.argsort(-time.max(axis=(0, 1)), kind="stable")
        self.rank = np.argsort(largest_first)
        # Every figure is rounded down, so that a slot's steps are at most its load.
        self.time = time // self.unit
        self.cost = compact.net_cost // self.unit
        self.stashed = compact.stash // self.unit
        self.level_cost = None if compact.level_cost is None else compact.level_cost // self.unit
        if self.limit is not None and not self.shared:
            # No better solution cuts a net that costs more: engines need not reckon with how much.
            self.cost = np.minimum(self.cost, self.limit + 1)

    def _near_unit(self, figures: Array) -> int:
        """Return a unit of which all figures are multiples but for their last bits, 0 for none.

        Times such as 3/7 have no decimal unit, yet hardly lose by being rounded down to this one.
        Multiples of it can be divided by squares of numbers of replicas, where these share them.
        `figures` are ticks, not negative.
        """
        found = figures[figures > 0]
        if not len(found) or (self.shared and self.slots > self.tuning.unit_shares):
            return 0
        shares = math.lcm(*range(1, self.slots + 1)) ** 2 if self.shared else 1
        for parts in range(1, self.tuning.unit_parts + 1):
            ratios = found * (parts / int(found.min()))
            multiples = np.rint(ratios).astype(np.int64)
            if float(np.abs(ratios - multiples).max()) <= NEARLY:
                unit = int((found // multiples).min()) // shares
                fits = unit > 0 and bool((found // unit == multiples * shares).all())
                return unit if fits else 0
        return 0

    def byte_unit(self, nbytes: Array) -> int:
        """Return the bytes that the rows of a device count as one, by the `nbytes` of blocks.

        What all have in common, or more where these would be too many.
        """
        common, total = int(np.gcd.reduce(nbytes)) or 1, int(nbytes.sum())
        return common if total // common < self.largest else total // (self.largest - 1) + 1

    @cached_property
    def exchanged(self) -> Array:
        """Ticks that m replicas exchange of each block, times m / (m - 1); rounded down."""
        sync = self.compact.sync
        return np.array([int(p * sync) for p in self.compact.parameters.tolist()], dtype=np.int64)

    @property
    def limit(self) -> int | None:
        """Steps of the known solution, that no better one exceeds."""
        return None if self.upper is None else self.upper // self.unit + self.excess

    @property
    def excess(self) -> int:
        """Steps by which T, which is whole, may exceed a load that replicas share."""
        rounded = self.unit > 1 or self.compact.rounding > 0
        return int(self.shared and rounded and not self._whole)

    @cached_property
    def members(self) -> list[list[int]]:
        """Blocks of each net, the producer first."""
        return rows(self.compact.net_ptr, self.compact.net)

    @cached_property
    def precedence(self) -> list[tuple[int, int]]:
        """Pairs (u, v): the stage of block u is not after that of v."""
        compact = self.compact
        source = np.repeat(np.arange(compact.blocks), np.diff(compact.after_ptr))
        pairs = np.unique(np.column_stack((source, compact.after)), axis=0)
        return list(map(tuple, pairs.tolist()))

    def stashes(self, slot: int) -> list[int]:
        """Return how many microbatches a slot may have in flight, rising."""
        most = min(self.compact.microbatches, self.slots - (0 if self.roaming else slot))
        known = self.leading or (self.compact.exact_stages and not self.roaming)
        if not self.compact.stash.any():
            return [0]
        return [most] if known else list(range(1, most + 1))

    def memory(self, kind: int) -> int | None:
        """Return the bytes of a device of a class, None where all fits."""
        room = int(self.compact.class_memory[kind])
        return None if room >= UNLIMITED else room

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """First and last slot of every block, shape (blocks,) each.

        What comes before a block must be on its slot or earlier, and no slot holds more than the
        known solution's load.
        """
        compact, count = self.compact, self.compact.blocks
        first = np.zeros(count, dtype=np.int64)
        last = np.full(count, self.slots - 1)
        if not self.in_line:
            return first, last
        work = np.where(self.allowed, compact.time, FORBIDDEN).sum(axis=0).min(axis=0)
        limit = self.upper
        if limit is None or count > self.tuning.most_ancestors or self.shared:
            return first, last
        limit = max(1, limit)
        before = rows(compact.before_ptr, compact.before)
        after = rows(compact.after_ptr, compact.after)
        forward = with_sources(before, range(count), work)
        backward = with_sources(after, range(count - 1, -1, -1), work)
        return (
            np.maximum(first, -(-forward // limit) - 1),
            np.minimum(last, self.slots - -(-backward // limit)),
        )

    # ------------------------------------------------------------------ back and forth

    def solution(
        self, slot_of: list[int], kinds: list[int], position: list[int], replicas: list[int]
    ) -> GraphSolution:
        """Return the solution with a slot a block, a class a slot, and an order of slots.

        `slot_of` has an entry a block; of each slot `kinds` are the classes, `position` its place
        in the order of stages, and `replicas` its devices; empty: one each.
        """
        used = set(slot_of)
        shared = [replicas[s] for s in sorted(used)] if replicas else []
        if not self.devices and position == sorted(position):
            return self.compact.assignment(slot_of, kinds, shared)
        order = sorted(used, key=position.__getitem__)
        devices = np.asarray(slot_of)[self.compact.block_of]
        return GraphSolution.of(self.compact.instance, devices, order, shared)

    def slots_of(self, solution: GraphSolution) -> tuple[list[int], list[int], list[int]]:
        """Return of a solution the slot of each block, and of the slots device and replicas.

        A slot without blocks is on device -1.
        """
        compact = self.compact
        first = np.unique(compact.block_of, return_index=True)[1]
        device = solution.assignment[first].tolist()
        order = stage_order(compact.instance, solution)
        by_name = self.devices or not (self.in_line or self.leading)
        if self._alike:
            free = [iter(like.tolist()) for like in self._alike]
            taken = dict.fromkeys(device[v] for v in np.argsort(self.rank).tolist())
            slot = {d: next(free[compact.device_class[d]]) for d in taken}
        elif by_name or compact.sequence is not None:
            slot = {d: d for d in order}
        else:
            begin = self.slots - len(order) if self.leading else 0
            slot = {d: begin + at for at, d in enumerate(order)}
        running, shared = [-1] * self.slots, [0] * self.slots
        for at, d in enumerate(order):
            running[slot[d]] = d
            shared[slot[d]] = solution.replicas[at] if solution.replicas else 1
        return [slot[d] for d in device], running, shared
