"""All phases of a long plan at once: the definitions of :mod:`.traffic` and :mod:`.liveness`.

Those modules process one phase after the other, which is easy to read and test, but takes about ten
seconds for a plan of 100,000 layers.  Here the same sums are computed over arrays.  The moments of
all phases are in one row: forward parts first, layer by layer, and then backward parts in the
opposite order, so that every phase is a range of them.  Tests compare both on plans of every kind.
O((layers + skips + recomputations) log).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from itertools import chain

import numpy as np

from stagepack.instances.arrays import distinct
from stagepack.instances.phases.data import PhaseData, PhaseSolution
from stagepack.instances.phases.modes import compute_cycles, io_slack, link_rate, phase_time, rate
from stagepack.instances.profile import Array

LARGE = 512
"""Layers above which plans are accounted for here."""

UNLIMITED = 2**62
"""More bytes and cycles than an instance may have; products below it are whole in 64 bits."""


class Ledger:
    """What every phase of a plan moves, takes and holds; its shape must be right.

    Phase by phase, in the order of time: its layers [first, end), whether it has a `forward` and a
    `backward` part, and the bytes that one step moves.
    """

    def __init__(self, instance: PhaseData, solution: PhaseSolution) -> None:
        self.instance, self.solution = instance, solution
        self.figures = instance.at(solution.microbatch)
        self.n = n = instance.n
        cuts = np.array(solution.boundaries, dtype=np.int64)
        self.groups = groups = len(cuts) - 1
        self.group = np.arange(groups)
        if instance.training:
            self.group = np.concatenate((self.group, self.group[-2::-1]))
        count = len(self.group)
        self.first, self.end = cuts[:-1][self.group], cuts[1:][self.group]
        self.forward = np.arange(count) < groups
        self.backward = np.arange(count) >= (groups - 1 if instance.training else count)
        self._group_of = np.repeat(np.arange(groups), np.diff(cuts))
        self._limit = cuts[1:][self._group_of]  # where the group of each layer ends
        tensors, layers = instance.read_pairs
        self._pairs = tensors * (n + 1) + layers
        sizes = np.bincount(tensors, minlength=n + 1)
        self._last_reader = np.full(n + 1, -1)
        self._last_reader[sizes > 0] = layers[np.cumsum(sizes)[sizes > 0] - 1]
        # Of x_{l + 1}: whether the group of layer l reads it, and whether later ones do.
        nearest = self._reader_before(np.arange(1, n + 1), self._limit)
        self._inside = nearest >= 0
        self._outside = self._last_reader[1:] >= self._limit
        self._nearest = nearest
        self._policy = np.array([*map(str, solution.policy)] or [""] * n)
        self._moves()

    def _reader_before(self, tensors: Array, limits: Array) -> Array:
        """Return the last layer before each limit that reads a tensor, -1: none."""
        at = np.searchsorted(self._pairs, tensors * (self.n + 1) + limits) - 1
        found = self._pairs[np.maximum(at, 0)] - tensors * (self.n + 1)
        return np.asarray(np.where((at >= 0) & (found >= 0), found, -1))

    def _by_group(self, values: Array) -> Array:
        """Return sums over the layers of every group."""
        found = np.zeros(self.groups, dtype=np.int64)
        np.add.at(found, self._group_of, values)
        return found

    @cached_property
    def _inputs(self) -> tuple[Array, Array]:
        """Tensors made before a group that it reads, and the group."""
        tensors, layers = self.instance.read_pairs
        group = self._group_of[layers]
        early = tensors <= self.first[group]
        found = distinct(tensors[early] * self.groups + group[early])
        return found // self.groups, found % self.groups

    def _moves(self) -> None:
        """Sum what a step moves; see :mod:`.traffic`."""
        instance, nbytes = self.instance, self.figures.activations
        made = nbytes[1:]
        needed = np.where(self._inside, made, 0)  # by the backward part
        stashed = self._policy == "stash"
        tensors, group = self._inputs
        # Rows of groups: inputs, those of them that later groups read, too, outputs, stashes.
        inputs, shared, host = (np.zeros(self.groups, dtype=np.int64) for _ in range(3))
        np.add.at(inputs, group, np.where(tensors > 0, nbytes[tensors], 0))
        later = (tensors > 0) & (self._last_reader[tensors] >= self.end[group])
        np.add.at(shared, group, np.where(later, nbytes[tensors], 0))
        host[group[tensors == 0]] = nbytes[0]
        outputs = self._by_group(np.where(self._outside, made, 0))
        paged = self._by_group(np.where(stashed, self.figures.tape + needed, 0))
        twice = self._by_group(np.where(stashed & self._outside, needed, 0))
        inputs, shared, outputs, paged, twice, self.host_load = (
            values[self.group] for values in (inputs, shared, outputs, paged, twice, host)
        )
        both = self.forward & self.backward
        only = self.backward & ~self.forward
        training = instance.training
        self.load = inputs + (paged if training else 0) * self.backward
        self.load += np.where(only, outputs, 0) + np.where(self.backward, shared, 0)
        self.store = np.where(self.backward, inputs, outputs)
        if training:
            self.store += np.where(both | ~self.backward, paged, 0)
            self.store -= np.where(self.backward, 0, twice)
        final = (self.end == self.n) & (not training)
        self.host_store = np.where(final, int(nbytes[-1]), 0)

    def cycles(self) -> int:
        """Return the cycles of the plan: all phases, less what is hidden."""
        instance, chip, io_tiles = self.instance, self.instance.chip, self.solution.io_tiles
        remote = link_rate(chip, chip.remote_bandwidth, io_tiles)
        host = link_rate(chip, chip.host_bandwidth, io_tiles)
        shards = -(-instance.variables // instance.sharding)
        apart = np.where(instance.sharding > 1, instance.variables - shards, 0)
        gather = self._by_group(_cycles(apart, rate(chip.gather_bandwidth)))
        held = self._by_group(shards)
        variables = _cycles(held, remote)
        state = self._by_group(-(-instance.state // instance.sharding))
        epilogue = gather + _cycles(state, remote) + _cycles(held + state, remote)
        epilogue += self._by_group(instance.update)
        load = _cycles(self.load, remote) + _cycles(self.host_load, host)
        store = _cycles(self.store, remote) + _cycles(self.host_store, host)
        work = np.where(self.forward, self._by_group(self.figures.forward)[self.group], 0)
        if instance.training:
            again = self.solution.recomputed(instance)
            repeated = np.array([len(run) for run in again], dtype=np.int64)
            layers = np.fromiter(chain.from_iterable(again), dtype=np.int64)
            redone = np.zeros(self.groups, dtype=np.int64)
            turns = np.repeat(self._group_of, repeated)
            np.add.at(redone, turns, self.figures.forward[layers])
            redone += self._by_group(self.figures.backward)
            work = work + np.where(self.backward, redone[self.group], 0)
        columns = (
            self.solution.mode,
            variables[self.group].tolist(),
            gather[self.group].tolist(),
            load.tolist(),
            work.tolist(),
            store.tolist(),
            np.where(self.backward, epilogue[self.group], 0).tolist(),
            self.solution.prefetch or [False] * len(self.group),
        )
        steps, total, slack = self.figures.steps, 0, 0
        for mode, loading, gathering, into, on_all, out, after, ahead in zip(*columns, strict=True):
            spent = compute_cycles(on_all, chip.tiles, io_tiles)
            total += chip.startup + after - min(loading, slack)
            total += phase_time(mode, loading + gathering, into, spent, out, steps)
            slack = io_slack(mode, into, spent, out, steps) if ahead else 0
        return int(total)

    def suspects(self, compute: int, io: int) -> list[int]:
        """Return the phases that need more bytes than there are, or miss a tensor.

        Layers that are computed again must be dropped ones of the group at hand.
        """
        needs, absent = self._needs()
        doubtful = (needs > compute) | absent
        if self.figures.steps >= 2:
            buffers = self.load + self.host_load + self.store + self.host_store
            overlapped = np.array(self.solution.mode) == "io_overlapped"
            doubtful |= overlapped & (buffers > io)
        return [int(index) for index in np.flatnonzero(doubtful)]

    def _needs(self) -> tuple[Array, Array]:
        """Return the most bytes that each phase needs, and where something is not there."""
        moments = _Moments(self)
        moments.hold_inputs()
        absent = np.zeros(len(self.group), dtype=bool)
        nbytes = self.figures.activations
        inside, outside = self._inside, self._outside
        tensors = np.arange(1, self.n + 1)
        moments.hold_products(nbytes[1:], tensors, inside & (nbytes[1:] > 0), outside, absent)
        if self.instance.training:
            tape = self.figures.tape
            moments.hold_products(tape, None, tape > 0, np.zeros_like(outside), absent)
            moments.hold_gradients()
        instance = self.instance
        weights = self._by_group(instance.variables)
        base = np.where(self.backward, 2, 1) * weights[self.group]
        kept = np.where(self._policy == "keep", self.figures.tape + nbytes[1:] * inside, 0)
        kept = self._by_group(kept) * self.figures.steps
        kept[-1] = 0
        base += np.cumsum(kept)[self.group]
        if self.solution.prefetch:
            shards = self._by_group(-(-instance.variables // instance.sharding))[self.group]
            base[:-1] += np.where(self.solution.prefetch, np.append(shards[1:], 0), 0)[:-1]
        state = self._by_group(-(-instance.state // instance.sharding))
        epilogue = np.where(self.backward, state[self.group], 0)
        return base + np.maximum(moments.peaks(), epilogue), absent


class _Moments:
    """The moments of all phases in a row, and the bytes live at each."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, n = ledger, ledger.n
        training, group = ledger.instance.training, ledger._group_of
        self.layer, self.phase = np.arange(n), group
        self.backward = np.full(n, -1)
        self.again, self.again_layer = np.empty(0, np.int64), np.empty(0, np.int64)
        if training:
            again = ledger.solution.recomputed(ledger.instance)[::-1]
            counts = np.array([len(run) for run in again], dtype=np.int64)
            turns = np.arange(n)[::-1]
            self.backward[turns] = n + np.cumsum(counts + 1) - 1
            layer = np.full(n + n + int(counts.sum()), -1)
            layer[:n], layer[self.backward] = np.arange(n), np.arange(n)
            self.again = np.flatnonzero(layer < 0)
            self.again_layer = np.fromiter(chain.from_iterable(again), dtype=np.int64)
            layer[self.again] = self.again_layer
            later = np.repeat(len(ledger.group) - 1 - group[turns], counts + 1)
            self.layer, self.phase = layer, np.concatenate((group, later))
        self.count = len(self.layer)
        phases = np.arange(len(ledger.group))
        self.start = np.searchsorted(self.phase, phases)
        self.final = np.searchsorted(self.phase, phases, side="right") - 1
        self.change = np.zeros(self.count + 1, dtype=np.int64)
        # Every moment at which a tensor is used, as tensor * count + moment, rising.
        order = np.argsort(self.layer, kind="stable")
        begins = np.searchsorted(self.layer[order], np.arange(n + 1))
        tensors, layers = ledger.instance.read_pairs
        counts = begins[layers + 1] - begins[layers]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        moments = order[np.repeat(begins[layers], counts) + within]
        self.uses = np.sort(np.repeat(tensors, counts) * self.count + moments)

    def hold(self, nbytes: Array, start: Array, end: Array) -> None:
        """Let tensors be live from one moment to another, both included."""
        np.add.at(self.change, start, nbytes)
        np.subtract.at(self.change, end + 1, nbytes)

    def first_use(self, tensors: Array, low: Array, high: Array) -> Array:
        """Return the first use in [low, high), -1: none."""
        at = np.searchsorted(self.uses, tensors * self.count + low)
        found = np.append(self.uses, -1)[at] - tensors * self.count
        return np.asarray(np.where((found >= low) & (found < high), found, -1))

    def last_use(self, tensors: Array, low: Array, high: Array) -> Array:
        """Return the last use in [low, high), -1: none."""
        at = np.searchsorted(self.uses, tensors * self.count + high) - 1
        found = np.append(self.uses, -1)[at] - tensors * self.count
        return np.asarray(np.where((found >= low) & (found < high), found, -1))

    def peaks(self) -> Array:
        """Return the most bytes live at a moment of each phase."""
        temporary = self.ledger.figures.temporary[self.layer]
        return np.maximum.reduceat(np.cumsum(self.change[:-1]) + temporary, self.start)

    def hold_inputs(self) -> None:
        """What a group reads of before is live from the start to its last use."""
        ledger = self.ledger
        tensors, phase = ledger._inputs
        if ledger.instance.training:  # the last group has one phase, the others have two
            two = phase < ledger.groups - 1
            tensors = np.concatenate((tensors, tensors[two]))
            phase = np.concatenate((phase, len(ledger.group) - 1 - phase[two]))
        last = self.last_use(tensors, self.start[phase], self.final[phase] + 1)
        self.hold(ledger.figures.activations[tensors], self.start[phase], last)

    def hold_products(
        self,
        nbytes: Array,
        tensors: Array | None,
        needed: Array,
        outside: Array,
        absent: Array,
    ) -> None:
        """Hold what layers make: outputs, or tapes (no `tensors`), by what becomes of them.

        They have `nbytes`, and are `needed` by the backward part, or `outside`, by later groups;
        all of shape (n,).  Phases whose backward part uses what is not there are marked in
        `absent`.
        """
        ledger = self.ledger
        policy, group = ledger._policy, ledger._group_of
        last_group = (group == ledger.groups - 1) & ledger.instance.training
        kept = (policy == "keep") & needed & ~last_group
        stashed = (policy == "stash") & needed
        split = stashed & last_group
        layers = np.arange(ledger.n)

        def last(of: Array, low: Array, high: Array) -> Array:
            if tensors is None:
                use = self.backward[of]
                return np.asarray(np.where((use >= low) & (use < high), use, -1))
            return self.last_use(tensors[of], low, high)

        def first(of: Array, low: Array, high: Array) -> Array:
            return (
                last(of, low, high) if tensors is None else self.first_use(tensors[of], low, high)
            )

        # Each computation, and the next one of the same layer in its phase.
        computed = np.concatenate((layers, self.again))
        made = np.concatenate((layers, self.again_layer))
        order = np.lexsort((computed, made))
        computed, made = computed[order], made[order]
        until = self.final[self.phase[computed]] + 1
        same = (made[1:] == made[:-1]) & (self.phase[computed[1:]] == self.phase[computed[:-1]])
        until[:-1] = np.where(same, computed[1:], until[:-1])
        until = np.where(split[made], ledger.n, until)  # paged out with the forward part
        begin = np.maximum(last(made, computed + 1, until), computed)
        stored = (
            (outside | (stashed & ~last_group))[made] & ~last_group[made] & (computed < ledger.n)
        )
        end = np.where(stored, self.final[self.phase[computed]], begin)
        counted = ~kept[made]
        self.hold(nbytes[made[counted]], computed[counted], end[counted])
        if not ledger.instance.training:
            return
        # Loaded again: by a phase of its own from its start, in the last group as first used.
        phase = len(ledger.group) - 1 - group
        high = self.final[phase] + 1
        used = last(layers, np.maximum(self.start[phase], ledger.n), high)
        earliest = first(layers, np.maximum(self.start[phase], ledger.n), high)
        back = stashed & (used >= 0)
        start = np.where(last_group, earliest, self.start[phase])
        self.hold(nbytes[back], start[back], used[back])
        # Dropped, and used before it is computed again.
        remade = np.full(ledger.n, self.count)
        np.minimum.at(remade, self.again_layer, self.again)
        missing = ~kept & ~stashed & ~last_group & (nbytes > 0) & (earliest >= 0)
        absent[phase[missing & (earliest < remade)]] = True

    def hold_gradients(self) -> None:
        """Gradients: from the first backward layer that adds to them to their writer's."""
        ledger, nbytes = self.ledger, self.ledger.figures.activations
        tensors, group = ledger._inputs
        tensors, group = tensors[tensors > 0], group[tensors > 0]
        phase = len(ledger.group) - 1 - group
        nearest = ledger._reader_before(tensors, ledger.end[group])
        loaded = ledger._last_reader[tensors] >= ledger.end[group]
        start = np.where(loaded, self.start[phase], self.backward[nearest])
        self.hold(nbytes[tensors], start, self.final[phase])
        # Those of what the group makes.
        phase = len(ledger.group) - 1 - ledger._group_of
        there = ledger._inside | ledger._outside
        start = np.where(ledger._outside, self.start[phase], self.backward[ledger._nearest])
        self.hold(nbytes[1:][there], start[there], self.backward[there])


def _cycles(nbytes: Array, at: Fraction | None) -> Array:
    """Return ceil(bytes / rate) of every entry, exactly."""
    if at is None:
        return np.zeros_like(nbytes)
    whole, parts = at.numerator, at.denominator
    if max(int(nbytes.max(initial=0)) * parts, whole) >= UNLIMITED:
        return np.array([-(-value * parts // whole) for value in nbytes.tolist()], dtype=np.int64)
    return np.asarray(-(-nbytes * parts // whole))
