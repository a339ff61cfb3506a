"""Replays a group from its plan: ranges, rows, lifetimes, addresses, cycles.  For the checker.

Plans are written with :mod:`.regions`, :mod:`.timesteps` and :mod:`.lmem`, which also define their
meaning.  None of these is used here, so that errors in them are detected.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.operators import AXES, Shape, buffer_bytes, compute_cycles
from stagepack.instances.groups.solution import GroupingSolution
from stagepack.instances.groups.taps import held_along

STAGES, COMPUTES = range(3), 1
"""Stages of the pipeline through which every slice passes, an iteration each; one computes."""

Part = tuple[int, int]
"""A range [from, to)."""


class Transfer(NamedTuple):
    """What moves between global and local memory, with every slice or once a core, for all.

    The tensor is -1 for weights; `operator` is the position of its first reader, or of its writer;
    `position` is stage and row, as plans number them; `nbytes` are those in every lane.
    """

    name: str
    tensor: int
    load: bool
    operator: int
    position: int
    cycles: int
    nbytes: int
    once: bool


class Life(NamedTuple):
    """Bytes of a lane that are in use from one position to another, both included.

    `tensor` is -1 for weights, working bytes, and what came back.
    """

    name: str
    tensor: int
    nbytes: int
    first: int
    last: int
    once: bool = False


class Place(NamedTuple):
    """Bytes of a lane that are in use for so many rows from one on, around the circle."""

    name: str
    nbytes: int
    start: int
    rows: int


class Replay:
    """What a `group` does that is cut into slices.

    Attributes
    ----------
    rows : int
        One for each operator; k of them computes at position ``rows + k``.
    cut : dict of str to int
        Ranges on each axis.
    loaded : dict of int to int
        Tensors that come from global memory, and the position of the first reader.
    stored : list of int
        Tensors that go there.
    spills : tuple of (int, int, int)
        Tensor, position of its store, position of its load.
    """

    def __init__(self, instance: GroupingData, solution: GroupingSolution, group: int) -> None:
        self.instance, self.operators = instance, solution.operators(group)
        self.rows = len(self.operators)
        self.cut = {"d": 1, **dict(zip("nchw", solution.slices[group], strict=True))}
        self._given = solution.positions[group] if solution.positions else ()
        self.spills = solution.spills[group] if solution.spills else ()
        self._own = {at: self.rows + k for k, at in enumerate(self.operators)}
        self.loaded: dict[int, int] = {}
        self._read: dict[int, list[int]] = defaultdict(list)
        for at, position in self._own.items():
            for tensor in instance.reads[at]:
                self._read[tensor].append(position)
                if tensor not in self._own:
                    self.loaded.setdefault(tensor, position)
        self.stored = [at for at in self.operators if self._leaves(at)]
        self._largest: dict[int, Shape] = {}

    def _leaves(self, at: int) -> bool:
        """Whether what an operator writes is a result, or read by other groups."""
        readers = self.instance.tensors[at].readers
        return at in self.instance.kept or not readers or not self._own.keys() >= {*readers}

    @cached_property
    def ranges(self) -> list[dict[int, list[Part]]]:
        """Of each axis: the ranges of every tensor that slices hold, last operator to first."""
        return [self._along(axis, self.cut[letter]) for axis, letter in enumerate(AXES)]

    def _along(self, axis: int, parts: int) -> dict[int, list[Part]]:
        instance = self.instance
        asked: dict[int, list[list[Part]]] = defaultdict(list)
        found: dict[int, list[Part]] = {}
        for tensor in self.stored:
            size, longer = divmod(instance.tensors[tensor].shape[axis], parts)
            ends = accumulate((size + (at < longer) for at in range(parts)), initial=0)
            asked[tensor].append(list(pairwise(ends)))
        for at in (*reversed(self.operators), *self.loaded):
            wanted = zip(*asked[at], strict=True)
            found[at] = [(min(p[0] for p in some), max(p[1] for p in some)) for some in wanted]
            sources = instance.sources(at) if at < instance.n and at not in self.loaded else ()
            for which in range(len(sources)):
                operator = instance.operators[at]
                held = [held_along(operator, which, axis, part, sources) for part in found[at]]
                asked[instance.reads[at][which]].append(held)
        return found

    def largest(self, tensor: int) -> Shape:
        """Return the longest range of a tensor on every axis."""
        if tensor not in self._largest:
            along = (held[tensor] for held in self.ranges)
            n, c, d, h, w = (max(end - first for first, end in held) for held in along)
            self._largest[tensor] = n, c, d, h, w
        return self._largest[tensor]

    def alike(self, tensor: int, axes: str = AXES) -> bool:
        """Whether all slices hold the same ranges of a tensor."""
        return all(len({*self.ranges[AXES.index(axis)][tensor]}) == 1 for axis in axes)

    def position(self, operator: int) -> int:
        """Return the position at which an operator of the group computes."""
        return self._own[operator]

    def readers(self, tensor: int) -> list[int]:
        """Return the positions at which a tensor is read, rising."""
        return self._read[tensor]

    @property
    def moved(self) -> int:
        """Number of transfers."""
        weights = (len(self.instance.operators[at].weights) for at in self.operators)
        return len(self.loaded) + sum(weights) + len(self.stored)

    @cached_property
    def transfers(self) -> tuple[Transfer, ...]:
        """Loads by first reader, inputs before weights, then stores by writer."""
        inputs: dict[int, list[Transfer]] = defaultdict(list)
        for tensor, reader in self.loaded.items():
            inputs[reader].append(self._input(tensor, reader))
        found = []
        for at, position in self._own.items():
            found += [*inputs[position], *self._weights(at, position)]
        found += [self._store(at) for at in self.stored]
        if not self._given:
            return tuple(found)
        moved = zip(found, self._given, strict=True)
        return tuple(move._replace(position=position) for move, position in moved)

    def _input(self, tensor: int, reader: int) -> Transfer:
        known, chip, part = self.instance.tensors[tensor], self.instance.chip, self.largest(tensor)
        cycles = chip.load_cycles(math.prod(part) * known.dtype_bytes)
        nbytes = chip.lane_bytes(part, known.dtype_bytes)
        once = self.slices > 1 and self.alike(tensor)
        return Transfer(known.name, tensor, True, reader, reader - 1, cycles, nbytes, once)

    def _weights(self, at: int, reader: int) -> list[Transfer]:
        operator, chip, found = self.instance.operators[at], self.instance.chip, []
        channels, once = self.largest(at)[1], self.slices > 1 and self.alike(at, "c")
        for number, weight in enumerate(operator.weights):
            share = -(-weight.channels * channels // operator.full[1])
            cycles = chip.load_cycles(share * weight.values * weight.dtype_bytes)
            name, nbytes = f"{operator.name}.w{number}", weight.local(chip, share)
            found.append(Transfer(name, -1, True, reader, reader - 1, cycles, nbytes, once))
        return found

    def _store(self, at: int) -> Transfer:
        known, writer = self.instance.tensors[at], self._own[at]
        values = math.prod(
            -(-size // self.cut[letter]) for letter, size in zip(AXES, known.shape, strict=True)
        )
        cycles = self.instance.chip.store_cycles(values * known.dtype_bytes)
        return Transfer(known.name, at, False, writer, writer + 1, cycles, 0, once=False)

    @property
    def slices(self) -> int:
        """All of them."""
        return math.prod(self.cut.values())

    @property
    def turns(self) -> int:
        """Slices that a core computes, one after the other."""
        return -(-self.slices // self.instance.chip.cores)

    @cached_property
    def cycles(self) -> int:
        """Cycles of all iterations.

        The first four slices are played; each one more adds an iteration in which every stage has
        a slice, and none its first.
        """
        played = min(self.turns, 4)
        took = [self._iteration(number, played) for number in range(played + 2)]
        return sum(took) + (self.turns - played) * took[min(3, len(took) - 1)]

    def _iteration(self, number: int, slices: int) -> int:
        """Return the cycles of an iteration: row for row the compute, beside it what moves."""
        compute, moved = [0] * self.rows, [0] * self.rows
        running = [stage for stage in STAGES if 0 <= number - stage < slices]
        if COMPUTES in running:
            compute = self._compute
        for position, cycles, once in self._moves:
            stage, row = divmod(position, self.rows)
            if stage in running and (number == stage or not once):
                moved[row] += cycles
        return sum(map(self.instance.chip.row_cycles, compute, moved))

    @cached_property
    def _compute(self) -> list[int]:
        instance = self.instance
        return [
            compute_cycles(
                instance.operators[at], instance.sources(at), self.largest(at), instance.chip
            )
            for at in self.operators
        ]

    @cached_property
    def _moves(self) -> list[tuple[int, int, bool]]:
        """Position, cycles, and whether only the first slice moves it; what leaves for a while."""
        chip = self.instance.chip
        found = [(move.position, move.cycles, move.once) for move in self.transfers]
        for tensor, store, load in self.spills:
            nbytes = math.prod(self.largest(tensor)) * self.instance.tensors[tensor].dtype_bytes
            found.append((store, chip.store_cycles(nbytes), False))
            found.append((load, chip.load_cycles(nbytes), False))
        return found

    @cached_property
    def lives(self) -> list[Life]:
        """What takes room: what is loaded, computed, worked with, and what came back."""
        instance, found, back = self.instance, list[Life](), list[Life]()
        used = defaultdict(list, {tensor: [*at] for tensor, at in self._read.items()})
        for move in self.transfers:
            if not move.load:
                used[move.tensor].append(move.position)
        away = {tensor: (store, load) for tensor, store, load in self.spills}

        def live(name: str, tensor: int, nbytes: int, first: int, once: bool = False) -> None:
            last = max([first, *used[tensor]])
            if tensor in away:
                last, begin = away[tensor]
                end = max([begin, *used[tensor]])
                back.append(Life(f"{name}'", -1, nbytes, begin, end))
            found.append(Life(name, tensor, nbytes, first, last, once and tensor not in away))

        for move in self.transfers:
            if move.tensor >= 0 and move.load:
                live(move.name, move.tensor, move.nbytes, move.position, move.once)
            elif move.load:
                found.append(
                    Life(move.name, -1, move.nbytes, move.position, move.operator, move.once)
                )
        working = []
        for at, position in self._own.items():
            operator, part = instance.operators[at], self.largest(at)
            live(operator.name, at, instance.chip.lane_bytes(part, operator.dtype_bytes), position)
            if operator.buffer:
                nbytes = buffer_bytes(operator, part, instance.chip)
                working.append(Life(f"{operator.name}.buffer", -1, nbytes, position, position))
        return found + working + back

    @property
    def period(self) -> int:
        """Rows of an iteration, after which the next slice does the same; 0 where there is none."""
        return self.rows if self.turns > 1 else 0

    def copies(self, life: Life) -> list[Place]:
        """Return the places that are needed at once: one for each slice that is alive with it."""
        rows = life.last - life.first + 1
        if not self.period:
            return [Place(life.name, life.nbytes, life.first, rows)]
        if life.once:
            return [Place(life.name, life.nbytes, 0, self.period)]
        if rows <= self.period:
            return [Place(life.name, life.nbytes, life.first % self.period, rows)]
        return [
            Place(f"{life.name}#{at}", life.nbytes, 0, self.period)
            for at in range(-(-rows // self.period))
        ]

    @cached_property
    def places(self) -> list[Place]:
        """All places, in the order of the plan's addresses."""
        return [place for life in self.lives for place in self.copies(life)]

    @cached_property
    def overwritten(self) -> set[tuple[int, int]]:
        """Places, by number, the second of which may be written over the first, value by value.

        That is an operator's first input, which nobody reads, stores or spills afterwards.
        """
        single: dict[int, tuple[int, Life]] = {}
        number = 0
        for life in self.lives:
            count = len(self.copies(life))
            if count == 1 and life.tensor >= 0:
                single[life.tensor] = number, life
            number += count
        kept = {*self.stored, *(tensor for tensor, _, _ in self.spills)}
        found = set()
        for at, position in self._own.items():
            first = self.instance.reads[at][0] if self.instance.overwrites(at) else -1
            if first in kept or first not in single or at not in single:
                continue
            (one, old), (other, new) = single[first], single[at]
            ends = old.last == position and not old.once and old.nbytes == new.nbytes
            if ends and not (self.period and new.last - old.first >= self.period):
                found.add((one, other))
        return found


def played_alone(instance: GroupingData, at: int) -> int:
    """Return the cycles of an operator that runs from and to global memory."""
    operator, chip, whole = instance.operators[at], instance.chip, instance.tensors[at].shape
    moved = chip.store_cycles(math.prod(whole) * operator.dtype_bytes)
    for tensor in {*instance.reads[at]}:
        known = instance.tensors[tensor]
        moved += chip.load_cycles(math.prod(known.shape) * known.dtype_bytes)
    for weight in operator.weights:
        moved += chip.load_cycles(weight.channels * weight.values * weight.dtype_bytes)
    return chip.row_cycles(compute_cycles(operator, instance.sources(at), whole, chip), moved)
