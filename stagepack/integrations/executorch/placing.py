"""Packing instances from ExecuTorch's description of tensors and memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from stagepack.errors import InputError
from stagepack.formats.door import write
from stagepack.instances.packing import LmemPacking
from stagepack.solve import solve

Spec = Any
"""What is looked at of a ``TensorSpec``: `lifetime`, first and last time, both inclusive; `mem_id`,
the memory that it must be in; `storage_base`, the tensor that it lies in from `storage_base_offset`
on; `allocated_memory`, bytes, a multiple of the alignment, which `realign` changes."""


@dataclass(frozen=True)
class Place:
    """A memory, and the first byte in it."""

    memory: int
    offset: int


def placed(
    specs: Iterable[Spec],
    alignment: int,
    taken: Sequence[int],
    time_limit: float,
    record: Path | None = None,
) -> tuple[dict[Spec, Place], list[tuple[int, bool]]]:
    """Return where tensors lie, and of each memory its bytes and whether anything was placed there.

    Nothing is placed below what is `taken` of a memory; 0 is for constants.  Each gets `time_limit`
    seconds, and its buffers are written to `record`, its number before the ending.  `specs` and
    `alignment` are as ExecuTorch hands them over.
    """
    specs = list(specs)
    for spec in specs:
        spec.realign(alignment)
    known = set(specs)
    roots = {spec: _root(spec, known) for spec in specs}
    lives: dict[Spec, tuple[int, int]] = {}
    for spec, (root, _) in roots.items():
        first, last = _lifetime(spec)
        born, dead = lives.get(root, (first, last))
        lives[root] = min(born, first), max(dead, last)
    memories: dict[int, list[Spec]] = {}
    for root in lives:
        memories.setdefault(1 if root.mem_id is None else root.mem_id, []).append(root)
    sizes = [(0, False)] * (max(memories, default=1) + 1)
    places: dict[Spec, Place] = {}
    for memory, here in sorted(memories.items()):
        below = taken[memory] if memory < len(taken) else 0
        below = -(-below // alignment) * alignment
        file = None if record is None else record.with_suffix(f".{memory}{record.suffix}")
        offsets = _offsets(here, lives, alignment, time_limit, file)
        places |= {spec: Place(memory, below + offset) for spec, offset in offsets.items()}
        peak = max(offset + spec.allocated_memory for spec, offset in offsets.items())
        sizes[memory] = (below + peak, True)
    for spec, (root, within) in roots.items():
        places[spec] = Place(places[root].memory, places[root].offset + within)
    return places, sizes


def _root(spec: Spec, known: set[Spec]) -> tuple[Spec, int]:
    """Return the tensor in which another lies in the end, and how far from its begin."""
    root, within, met = spec, 0, {spec}
    while root.storage_base is not None:
        within += root.storage_base_offset
        root = root.storage_base
        if root in met or root not in known:
            raise InputError(
                "lies in itself" if root in met else "lies in a tensor that is not planned",
                field="storage_base",
                remedy="plan the tensor that it lies in, too",
            )
        met.add(root)
    if within < 0 or within + spec.allocated_memory > root.allocated_memory:
        raise InputError(
            f"{spec.allocated_memory} bytes from {within} on are not in the "
            f"{root.allocated_memory} of the tensor that they lie in",
            field="storage_base_offset",
            remedy="give a tensor that fits",
        )
    return root, within


def _lifetime(spec: Spec) -> tuple[int, int]:
    first, last = spec.lifetime
    if first is None or last is None or last < first:
        raise InputError(
            f"{list(spec.lifetime)} is no lifetime",
            field="lifetime",
            remedy="update the lifetimes of all tensors before planning",
        )
    return first, last


def _offsets(
    specs: Sequence[Spec],
    lives: Mapping[Spec, tuple[int, int]],
    alignment: int,
    time_limit: float,
    record: Path | None,
) -> dict[Spec, int]:
    """Return offsets in one memory; tensors without bytes are at its begin."""
    solid = [spec for spec in specs if spec.allocated_memory]
    offsets = dict.fromkeys(specs, 0)
    if solid:
        buffers = LmemPacking.from_arrays(
            [spec.allocated_memory for spec in solid],
            [lives[spec][0] for spec in solid],
            [lives[spec][1] + 1 for spec in solid],
            alignment=alignment,
            name="executorch",
        )
        if record is not None:
            write(buffers, record)
        found = solve(buffers, time_limit=time_limit).solution
        if found is not None:
            offsets.update(zip(solid, found.offsets.tolist(), strict=True))
        else:  # stopped before the first placement: one behind the other
            sizes = [spec.allocated_memory for spec in solid]
            offsets.update(zip(solid, accumulate(sizes, initial=0), strict=False))
    return offsets
