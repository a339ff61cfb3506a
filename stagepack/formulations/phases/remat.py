"""Data that both models of recomputation share: sizes and times of one group, and its plans.

One group holds all layers and is trained: its single phase runs the forward pass, the loss and the
backward pass in each step.  The model decides for each layer whether its products (its tape, and
its output if another layer reads it) are kept, paged out and in again, or dropped and computed
again, and before which backward layer.  The I/O tiles, the microbatch and the mode are given.

Quantities
    x_t, tape_l, temporary_l    bytes of tensor t, of what layer l keeps, of its working memory
    products_l        bytes that the backward part needs of layer l
    g_l, h_l          bytes of gradients during the backward pass of layer l, and just before it
    room              bytes for what is live: those of the compute tiles less variables and x_0
    paging            bytes that may be paged out in a step
    G                 steps
Cost
    O(n + uses of tensors)
Source
    the problem as in Checkmate (Jain et al., MLSys 2020), within the phases of this package
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.phases.data import SEPARATE, PhaseSolution, Policy
from stagepack.instances.phases.instance import PhaseSchedule
from stagepack.instances.phases.modes import (
    Mode,
    compute_cycles,
    link_rate,
    phase_time,
    rate,
    transfer_cycles,
)

UNLIMITED = 2**61


class Step:
    """One step of the only group, for one choice of `io_tiles`, `microbatch` and mode; training.

    - `x`, `tape`, `temporary`, `forward`: bytes of x_0 ... x_n, of tapes and of working memory;
      cycles.
    - `readers`, `reads`: as in the instance, tensors without bytes left out: nobody misses them.
    - `products`: bytes that the backward part needs of each layer.
    - `gradients`, `gradients_before`: bytes of gradients alive during the backward pass of each
      layer, and just before it.
    - `room`: bytes for what is live at one moment, x_0 and the base taken off; below 0: infeasible.
    """

    def __init__(
        self, instance: PhaseSchedule, io_tiles: int, microbatch: int, mode: Mode | str
    ) -> None:
        figures = instance.at(microbatch)
        self.instance, self.n, self.steps = instance, instance.n, figures.steps
        self.io_tiles, self.microbatch, self.mode = io_tiles, microbatch, Mode(mode)
        if self.mode not in instance.modes_with(io_tiles):
            raise InputError(f"{mode} does not go with {io_tiles} I/O tiles", field="mode")
        self.x: list[int] = figures.activations.tolist()
        self.tape: list[int] = figures.tape.tolist()
        self.temporary: list[int] = figures.temporary.tolist()
        self.forward: list[int] = figures.forward.tolist()
        n = self.n
        self.readers = [
            list(found) if self.x[t] else [] for t, found in enumerate(instance.readers)
        ]
        self.reads = [[t for t in found if self.x[t]] for found in instance.reads]
        self.products = [
            self.tape[i] + (self.x[i + 1] if self.readers[i + 1] else 0) for i in range(n)
        ]
        self.allowed = {
            policy: policy in instance.policies
            and (policy is not Policy.RECOMPUTE or instance.recomputations > 0)
            for policy in Policy
        }
        self._set_gradients()
        self._set_room()
        self._set_times(int(figures.forward.sum() + figures.backward.sum()))

    def _set_gradients(self) -> None:
        """dx_t lives from the backward pass of its last reader to that of layer t - 1."""
        n = self.n
        self.gradients, self.gradients_before = [0] * n, [0] * n
        for t in range(1, n):
            for layer in range(t - 1, (self.readers[t] or [t - 2])[-1] + 1):
                self.gradients[layer] += self.x[t]
                if layer < self.readers[t][-1]:
                    self.gradients_before[layer] += self.x[t]

    def _set_room(self) -> None:
        """Find the bytes that are there for what is live."""
        instance, chip = self.instance, self.instance.chip
        base = 2 * int(instance.variables.sum())
        self.shards = int((-(-instance.variables // instance.sharding)).sum())
        self.state = int((-(-instance.state // instance.sharding)).sum())
        self.room = UNLIMITED
        self.paging = UNLIMITED
        if chip.memory is not None:
            # Tiles that only move data hold the I/O buffers, and nothing else.
            compute = (chip.tiles - self.io_tiles) * chip.memory // chip.tiles
            self.room = compute - base - self.x[0]
            if base + self.state > compute:
                self.room = -1
            if self.mode is Mode.IO_OVERLAPPED and self.steps >= 2:
                # The buffers hold one set of what is loaded and one of what is stored.
                io = self.io_tiles * chip.memory // chip.tiles
                self.paging = (io - self.x[0]) // 2
        if instance.remote_memory is not None:
            held = self.state + self.shards
            self.paging = min(self.paging, (instance.remote_memory - held) // self.steps)
        if instance.graphs == 0:
            self.room = -1

    def _set_times(self, computed: int) -> None:
        """Find the cycles of the phase but for what is computed again."""
        chip = self.instance.chip
        self.computed = computed
        self.tiles = chip.tiles
        self.remote: Fraction | None = link_rate(chip, chip.remote_bandwidth, self.io_tiles)
        host = link_rate(chip, chip.host_bandwidth, self.io_tiles)
        self.host = transfer_cycles(self.x[0], host)
        alone = self.instance.variables - -(-self.instance.variables // self.instance.sharding)
        gather = sum(transfer_cycles(w, rate(chip.gather_bandwidth)) for w in alone.tolist())
        self.v = transfer_cycles(self.shards, self.remote) + gather
        # The gradients are scattered, the state is loaded; both it and the variables are stored.
        moved = (self.state, self.shards + self.state)
        self.fixed = chip.startup + gather + int(self.instance.update.sum())
        self.fixed += sum(transfer_cycles(nbytes, self.remote) for nbytes in moved)

    @property
    def infeasible(self) -> bool:
        """Whether not even an empty step fits."""
        return self.room < 0 or self.paging < 0

    def time(self, again: int, paged: int = 0) -> int:
        """Return the plan's cycles with so many cycles computed again and bytes paged a step."""
        moved = transfer_cycles(paged, self.remote)
        compute = compute_cycles(self.computed + again, self.tiles, self.io_tiles)
        return self.fixed + phase_time(
            self.mode, self.v, moved + self.host, compute, moved, self.steps
        )

    def most_again(self, upper: int) -> int:
        """Return the most cycles computed again in a plan of at most `upper`; -1: none is."""
        least, most = -1, self.instance.recomputations * sum(self.forward)
        while least < most:
            middle = (least + most + 1) // 2
            if self.time(middle) <= upper:
                least = middle
            else:
                most = middle - 1
        return least

    def plan(self, policy: list[Policy], recompute: list[tuple[int, ...]] | None) -> PhaseSolution:
        """Return the plan of policies and sequences, None: the canonical ones."""
        return PhaseSolution(
            boundaries=(0, self.n),
            mode=(str(self.mode),),
            io_tiles=self.io_tiles,
            microbatch=self.microbatch,
            policy=tuple(map(str, policy)),
            recompute=None if recompute is None else tuple(recompute),
        )

    def idle_policy(self, layer: int) -> Policy:
        """Return a policy for a layer that is neither paged nor computed again."""
        if self.products[layer] and not self.allowed[Policy.KEEP]:
            raise ValueError(f"layer {layer} may not be kept")
        return Policy.KEEP if Policy.KEEP in self.instance.policies else self.instance.policies[0]


def unsupported(instance: PhaseSchedule) -> str:
    """Return why an instance is no case of recomputation alone, '' if it is."""
    if not instance.training:
        return "only training computes anything again"
    if instance.fixed_boundaries != (0, instance.n):
        return "all layers must be one group: fix the boundaries to (0, n)"
    return too_many(instance)


def too_many(instance: PhaseSchedule) -> str:
    """Return why a model for each pair of microbatch and I/O tiles is too much, '' if it is not."""
    pairs = len(instance.microbatches) * len(instance.io_tile_choices)
    if pairs > SEPARATE:
        return (
            f"a model for each of {pairs:,} pairs of microbatch and I/O tiles, more than "
            f"{SEPARATE:,}; use enumerate"
        )
    return ""


def as_bits(values: np.ndarray) -> list[bool]:
    """Return which of an engine's values are one."""
    return [bool(value > 0.5) for value in np.asarray(values)]
