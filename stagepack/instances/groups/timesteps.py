"""Timesteps of a group: what runs in which row, how long that takes, and what is alive when.

A group of T operators has T rows, one for each operator in its order.  Slices pass through the
table in a software pipeline of three stages: in the iteration in which slice i is computed
(stage 1), slice i + 1 is loaded (stage 0) and slice i - 1 stored (stage 2).  So whatever moves has
a *position*: stage * T + row, from 0 to 3T - 1; operator k is at T + k.  A tensor is loaded before
the position of its first reader, and stored after that of its writer.  By the rule ``nearest`` that
is the row before and the row after.

**Time.**  In a row compute and transfers run side by side.  With L slices on a core there are L + 2
iterations, of which iteration j runs the stages s with 0 <= j - s < L::

    fill (j = 0, 1, 2)  +  (L - 3)+ times the kernel (all stages)  +  drain (the last two)

Weights that all slices read alike, and inputs too, are *resident*: loaded with the first slice, in
iteration s for stage s, and alive for as long as the group runs.  Slices count like the largest.

**Memory.**  A tensor is alive from the position where it is loaded or computed to the last one
where it is read or stored.  With several slices time is a circle of T rows, and what is alive
longer than a turn is there several times at once; with one slice it is a line of 3T rows.

Sources: TPU-MLIR (``lib/Dialect/Tpu/Transforms/LayerGroup``: BasicTimeStep, SwPipeline,
CycleCalculator) and the seed's sections on periods and on LMEM.  There a tensor that would be alive
longer than a turn is not allowed for; counting it several times is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from stagepack.instances.groups.data import GroupingData
from stagepack.instances.groups.operators import C, buffer_bytes, compute_cycles
from stagepack.instances.groups.regions import Regions

STAGES = 3


@dataclass(frozen=True)
class Move:
    """A transfer of every slice, or, if what moves is `resident`, of the first alone, for all.

    The tensor is -1 for a weight; `operator` is the index in the group of its first reader, or of
    its writer; `lane_bytes` are those in every lane.
    """

    name: str
    load: bool
    tensor: int
    operator: int
    cycles: int
    lane_bytes: int
    resident: bool = False


class Spill(NamedTuple):
    """A tensor that leaves local memory for a while: stored at a position, and loaded again."""

    tensor: int
    store: int
    load: int


class Role(StrEnum):
    """What lies in a buffer."""

    WEIGHTS = "weights"
    LOADED = "loaded"
    COMPUTED = "computed"
    WORKING = "working bytes"
    SPILLED = "spilled"


@dataclass(frozen=True)
class Buffer:
    """Bytes in every lane that are alive from one position to another, both included.

    `of` is the tensor; of weights and working bytes the operator.  The name is for people: inputs
    may be called like a weight.  What is `resident` stays for all slices.
    """

    name: str
    role: Role
    of: int
    lane_bytes: int
    first: int
    last: int
    resident: bool = False


class Timetable:
    """The rows of a group that is cut in a certain way.

    `positions` are those of :attr:`moves`, None by the rule ``nearest``; `spills` leave local
    memory for a while.
    """

    def __init__(
        self,
        regions: Regions,
        positions: Sequence[int] | None = None,
        spills: Sequence[Spill] = (),
    ) -> None:
        self.regions, self.spills = regions, tuple(spills)
        self.operators = regions.operators
        self._given = positions

    @property
    def rows(self) -> int:
        """T, one for each operator."""
        return len(self.operators)

    @cached_property
    def rounds(self) -> int:
        """L, slices that one core computes."""
        return -(-self.regions.cut.slices // self.regions.instance.chip.cores)

    @property
    def positions(self) -> tuple[int, ...]:
        """The position of each of :attr:`moves`."""
        return nearest(self.moves, self.rows) if self._given is None else tuple(self._given)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Loads by first reader (its inputs, then its weights), then stores by writer."""
        regions, instance = self.regions, self.regions.instance
        chip, several = instance.chip, regions.cut.slices > 1
        found, known, loaded = [], set(), set(regions.loaded)
        stored = set(regions.stored)
        for k, at in enumerate(self.operators):
            for tensor in instance.reads[at]:
                if tensor not in loaded or tensor in known:
                    continue
                known.add(tensor)
                whole = instance.tensors[tensor]
                part = regions.part(tensor)
                found.append(
                    Move(
                        whole.name,
                        True,
                        tensor,
                        k,
                        chip.load_cycles(whole.nbytes(part)),
                        chip.lane_bytes(part, whole.dtype_bytes),
                        several and regions.constant(tensor),
                    )
                )
            channels = regions.part(at)[C]
            for number, weight in enumerate(instance.operators[at].weights):
                share = -(-weight.channels * channels // instance.operators[at].full[C])
                found.append(
                    Move(
                        f"{instance.operators[at].name}.w{number}",
                        True,
                        -1,
                        k,
                        chip.load_cycles(weight.nbytes(share)),
                        weight.local(chip, share),
                        several and regions.constant(at, (C,)),
                    )
                )
        for k, at in enumerate(self.operators):
            if at in stored:
                whole = instance.tensors[at]
                nbytes = whole.nbytes(regions.own(at))
                found.append(Move(whole.name, False, at, k, chip.store_cycles(nbytes), 0))
        return tuple(found)

    @cached_property
    def compute(self) -> tuple[int, ...]:
        """Cycles of the operator in every row."""
        regions, instance = self.regions, self.regions.instance
        return tuple(
            compute_cycles(
                instance.operators[at], instance.sources(at), regions.part(at), instance.chip
            )
            for at in self.operators
        )

    @cached_property
    def transfers(self) -> tuple[int, ...]:
        """Cycles of what moves for every slice, at every position."""
        found = [0] * (STAGES * self.rows)
        for move, position in zip(self.moves, self.positions, strict=True):
            if not move.resident:
                found[position] += move.cycles
        chip, regions = self.regions.instance.chip, self.regions
        for spill in self.spills:
            nbytes = regions.instance.tensors[spill.tensor].nbytes(regions.part(spill.tensor))
            found[spill.store] += chip.store_cycles(nbytes)
            found[spill.load] += chip.load_cycles(nbytes)
        return tuple(found)

    @cached_property
    def once(self) -> tuple[int, ...]:
        """Cycles of what moves with the first slice alone, at every position."""
        found = [0] * (STAGES * self.rows)
        for move, position in zip(self.moves, self.positions, strict=True):
            if move.resident:
                found[position] += move.cycles
        return tuple(found)

    def row_cycles(self, row: int, stages: Sequence[int], first: int = -1) -> int:
        """Return the cycles of one `row` when some `stages` run; `first`: see :meth:`iteration`."""
        chip, rows = self.regions.instance.chip, self.rows
        moving = sum(self.transfers[stage * rows + row] for stage in stages)
        moving += self.once[first * rows + row] if first >= 0 else 0
        return chip.row_cycles(self.compute[row] if 1 in stages else 0, moving)

    def iteration(self, stages: Sequence[int], first: int = -1) -> int:
        """Return the cycles of all rows when some `stages` run.

        `first` is the stage that the first slice is in, which loads what is resident; -1: none.
        """
        return sum(self.row_cycles(row, stages, first) for row in range(self.rows))

    @property
    def kernel(self) -> int:
        """Cycles of an iteration in which all stages run."""
        return self.iteration(range(STAGES))

    @property
    def iterations(self) -> list[tuple[range, int, int]]:
        """Fill, kernels, drain: stages that run, that of the first slice (or -1), how often."""
        most = self.rounds
        fill = [(range(max(j - most + 1, 0), j + 1), j, 1) for j in range(STAGES)]
        kernels = [(range(STAGES), -1, max(most - STAGES, 0))]
        drain = [(range(j, STAGES), -1, 1) for j in range(1, STAGES) if most - 1 + j >= STAGES]
        return fill + kernels + drain

    @cached_property
    def cycles(self) -> int:
        """Cycles of the group: fill, kernels, drain."""
        return sum(times * self.iteration(run, first) for run, first, times in self.iterations)

    @cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """What takes room: loads in the order of `moves`, computed, working, what comes back."""
        regions, instance = self.regions, self.regions.instance
        place = {at: k for k, at in enumerate(self.operators)}
        rows = self.rows
        away = {spill.tensor: spill for spill in self.spills}
        loaded, back = [], []
        stored = {
            move.tensor: position
            for move, position in zip(self.moves, self.positions, strict=True)
            if not move.load
        }

        def uses(tensor: int) -> list[int]:
            read = [rows + place[at] for at in instance.tensors[tensor].readers if at in place]
            return read + ([stored[tensor]] if tensor in stored else [])

        def alive(role: Role, nbytes: int, first: int, tensor: int, resident: bool) -> Buffer:
            used, name = uses(tensor), instance.tensors[tensor].name
            spill = away.get(tensor)
            if spill is None:
                return Buffer(name, role, tensor, nbytes, first, max([first, *used]), resident)
            last = max([spill.load, *(at for at in used if at > spill.load)])
            back.append(Buffer(f"{name}'", Role.SPILLED, tensor, nbytes, spill.load, last))
            return Buffer(name, role, tensor, nbytes, first, spill.store)

        for move, position in zip(self.moves, self.positions, strict=True):
            if not move.load:
                continue
            size, stays = move.lane_bytes, move.resident
            if move.tensor < 0:
                own, of = rows + move.operator, self.operators[move.operator]
                loaded.append(Buffer(move.name, Role.WEIGHTS, of, size, position, own, stays))
            else:
                loaded.append(alive(Role.LOADED, size, position, move.tensor, stays))
        written, working = [], []
        for k, at in enumerate(self.operators):
            operator, part = instance.operators[at], regions.part(at)
            nbytes = instance.chip.lane_bytes(part, operator.dtype_bytes)
            written.append(alive(Role.COMPUTED, nbytes, rows + k, at, False))
            if operator.buffer:
                size = buffer_bytes(operator, part, instance.chip)
                name, own = f"{operator.name}.buffer", rows + k
                working.append(Buffer(name, Role.WORKING, at, size, own, own))
        return tuple(loaded + written + working + back)

    def load_bytes(self) -> list[int]:
        """Return the bytes in every lane that are alive in every row: a line, or a circle."""
        length = self.period or STAGES * self.rows
        found, always = [0] * length, 0
        for buffer in self.buffers:
            turns, rest = self.turns(buffer)
            always += turns * buffer.lane_bytes
            for row in range(buffer.first, buffer.first + rest):
                found[row % length] += buffer.lane_bytes
        return [always + nbytes for nbytes in found]

    @property
    def period(self) -> int:
        """Rows after which time begins anew; 0 where there is one slice."""
        return self.rows if self.rounds > 1 else 0

    def turns(self, buffer: Buffer) -> tuple[int, int]:
        """Return how many copies are there all the time, and for how many rows one more is."""
        rows = buffer.last - buffer.first + 1
        if not self.period:
            return 0, rows
        if buffer.resident:
            return 1, 0
        return (0, rows) if rows <= self.period else (-(-rows // self.period), 0)


def nearest(moves: Sequence[Move], rows: int) -> tuple[int, ...]:
    """Return positions by the rule ``nearest``: loads a row before use, stores a row after."""
    return tuple(rows + move.operator + (-1 if move.load else 1) for move in moves)


def alone_row(instance: GroupingData, at: int) -> tuple[int, int, int]:
    """Return the cycles of compute, loads and stores of an operator that runs by itself."""
    operator, chip = instance.operators[at], instance.chip
    own, *read = (instance.tensors[t] for t in (at, *dict.fromkeys(instance.reads[at])))
    loads = sum(chip.load_cycles(tensor.nbytes(tensor.shape)) for tensor in read)
    loads += sum(chip.load_cycles(weight.nbytes(weight.channels)) for weight in operator.weights)
    compute = compute_cycles(operator, instance.sources(at), operator.full, chip)
    return compute, loads, chip.store_cycles(own.nbytes(own.shape))


def alone_cycles(instance: GroupingData, at: int) -> int:
    """Return the cycles of an operator that runs from and to global memory: one row of its own."""
    compute, loads, stores = alone_row(instance, at)
    return instance.chip.row_cycles(compute, loads + stores)
