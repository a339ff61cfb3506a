"""Remote buffers: which row holds which tensor, with the fewest rows and the proof of it.

A remote buffer is a matrix of rows by G steps; entry (row, step) has the flat index
row * G + step.  Every remote tensor (activation, stash, gradient) needs a row from the phase that
first stores it to the last phase that loads it, both included.  Tensors of equal bytes (equal
shapes) share one buffer; two that live in a common phase need different rows.

Lifetimes are intervals, so giving each, by its start, the lowest free row uses as many rows as
tensors are alive in some one phase: fewer are impossible, and that phase is the certificate.
(Interval graphs are perfect: Golumbic, *Algorithmic Graph Theory and Perfect Graphs*, 1980.)
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from stagepack.instances.phases.data import PhaseData, PhaseSolution
from stagepack.instances.phases.traffic import moves, shard


@dataclass(frozen=True)
class Stay:
    """A tensor in remote memory: from the phase that stores it to the last that loads it."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Buffer:
    """A remote buffer."""

    nbytes: int  # bytes of an entry
    # Entries are rows * steps; that of (row, step) is row * steps + step.
    rows: int
    steps: int
    stays: tuple[Stay, ...]  # the tensors that use it, by their start
    row: dict[str, int]  # the row of each tensor
    certificate: int  # a phase in which `rows` of its tensors are alive

    @property
    def name(self) -> str:
        """Such as ``buffer_4096``."""
        return f"buffer_{self.nbytes}"

    @property
    def total_bytes(self) -> int:
        """Bytes of the whole buffer."""
        return self.nbytes * self.rows * self.steps


def stays(instance: PhaseData, solution: PhaseSolution) -> list[Stay]:
    """Return the tensors in remote memory and the phases in which they are, by their start."""
    figures = instance.at(solution.microbatch)
    first: dict[str, tuple[int, int]] = {}
    last: dict[str, int] = {}
    for phase in solution.phases(instance):
        moved = moves(instance, figures, phase)
        for tensor in (*moved.loads, *moved.stores, *moved.paged):
            first.setdefault(tensor.name, (phase.index, tensor.nbytes))
        for tensor in (*moved.loads, *moved.paged):
            last[tensor.name] = phase.index
    found = [Stay(name, nbytes, at, last[name]) for name, (at, nbytes) in first.items()]
    return sorted(found, key=lambda stay: (stay.first, stay.last, stay.name))


def buffers(instance: PhaseData, solution: PhaseSolution) -> list[Buffer]:
    """Return the remote buffers of a plan, by the bytes of their entries.  O(m log m)."""
    steps = instance.at(solution.microbatch).steps
    shapes: dict[int, list[Stay]] = {}
    for stay in stays(instance, solution):
        shapes.setdefault(stay.nbytes, []).append(stay)
    return [_colour(nbytes, shapes[nbytes], steps) for nbytes in sorted(shapes)]


def _colour(nbytes: int, alive: list[Stay], steps: int) -> Buffer:
    """Return the buffer of tensors of one size: the lowest free row each, by their start."""
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    row: dict[str, int] = {}
    rows, certificate = 0, 0
    for stay in alive:
        while busy and busy[0][0] < stay.first:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            row[stay.name] = heapq.heappop(free)
        else:
            row[stay.name], certificate = rows, stay.first
            rows += 1
        heapq.heappush(busy, (stay.last, row[stay.name]))
    return Buffer(nbytes, rows, steps, tuple(alive), row, certificate)


def remote_bytes(instance: PhaseData, solution: PhaseSolution) -> int:
    """Return the remote memory that a plan uses: variables and state in shards, and buffers."""
    held = sum(
        shard(int(w), int(r)) + shard(int(o), int(r))
        for w, o, r in zip(instance.variables, instance.state, instance.sharding, strict=True)
    )
    return held + sum(buffer.total_bytes for buffer in buffers(instance, solution))
