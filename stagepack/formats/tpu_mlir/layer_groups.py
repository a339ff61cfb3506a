"""Layer groups that TPU-MLIR compiled: the buffers that share the local memory of a lane.

A file has ``groups``; each has a table of timesteps (one turn of a software-pipelined loop), the
bytes of the memory, its banks, and ``buffers`` with a ``size``, the timestep ``start_ts`` in which
their lifetime begins and its length ``life``.  Lifetimes are circular modulo the number of
timesteps: a buffer loaded in the last timestep for the first of the next turn wraps around.

Buffers stand at multiples of ``eu_bytes``, sizes are rounded up to them.  ``npu_gdma_pairs`` are
the buffers that compute and DMA touch at once; they should not share a bank.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import msgspec
import numpy as np

from stagepack.errors import InputError
from stagepack.formats.known import stem_of
from stagepack.instances.documents import strict
from stagepack.instances.packing import KIND, Banks, LmemPacking
from stagepack.instances.packing.problem import GIVEN
from stagepack.instances.words import Words

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**40)]
Timestep = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class Buffer(msgspec.Struct, frozen=True):
    """One buffer: bytes, and the timesteps start_ts .. start_ts + life - 1 modulo their number."""

    name: str
    size: Positive
    start_ts: Timestep
    life: Timestep


class Group(msgspec.Struct, frozen=True):
    """One layer group; what it says of its operations is not needed here."""

    group: int
    timestep_table: Annotated[list[object], msgspec.Meta(min_length=1)]
    lmem_bytes: Positive
    banks: Positive
    eu_bytes: Positive
    buffers: Annotated[list[Buffer], msgspec.Meta(min_length=1)]
    npu_gdma_pairs: list[tuple[str, str]] = []


class Document(msgspec.Struct, frozen=True):
    """A compiled network."""

    groups: Annotated[list[Group], msgspec.Meta(min_length=1)]
    model: str = ""


def parse(data: bytes, given: Words, file: str) -> list[LmemPacking]:
    """Return an instance for each group, named after the model and the group's number."""
    document = strict.decode(data, Document)
    model = document.model.split()[0] if document.model.split() else stem_of(file)
    instances = []
    for at, group in enumerate(document.groups):
        try:
            instances.append(_build(group, given, f"{model}-g{group.group}", file))
        except InputError as error:
            error.field = f"groups[{at}].{error.field}"
            raise
    return instances


def _build(group: Group, given: Words, name: str, source: str) -> LmemPacking:
    period = len(group.timestep_table)
    for at, buffer in enumerate(group.buffers):
        if not 1 <= buffer.life <= period:
            raise InputError(
                f"{buffer.life} timesteps of buffer {buffer.name}, in a loop of {period}",
                field=f"buffers[{at}].life",
                # Longer than a turn: the next turn's copy is born while this one lives.
                remedy="leave out buffers without a life; give each copy of a longer one its own",
            )
        if buffer.start_ts >= period:
            raise InputError(
                f"timestep {buffer.start_ts} of buffer {buffer.name}, in a loop of {period}",
                field=f"buffers[{at}].start_ts",
                remedy="count timesteps from 0",
            )
    twice = [name for name, count in Counter(b.name for b in group.buffers).items() if count > 1]
    if twice:
        raise InputError(
            f"two buffers are named {twice[0]!r}",
            field="buffers",
            remedy="the pairs name buffers: give each a name of its own",
        )
    index = {buffer.name: at for at, buffer in enumerate(group.buffers)}
    for at, pair in enumerate(group.npu_gdma_pairs):
        for end in pair:
            if end not in index:
                raise InputError(
                    f"{end!r} is no buffer of the group",
                    field=f"npu_gdma_pairs[{at}]",
                    remedy="name buffers",
                )
    if group.lmem_bytes % group.banks:
        raise InputError(
            f"{group.lmem_bytes} bytes are not {group.banks} equal banks",
            field="banks",
            remedy="correct lmem_bytes or banks",
        )
    grain = group.eu_bytes
    start = np.array([buffer.start_ts for buffer in group.buffers])
    pairs = [(index[one], index[other]) for one, other in group.npu_gdma_pairs]
    return LmemPacking.from_arrays(
        [-(-buffer.size // grain) * grain for buffer in group.buffers],
        start,
        start + [buffer.life for buffer in group.buffers],
        ids=[buffer.name for buffer in group.buffers],
        period=period,
        segment=given.get("segment"),
        capacity=given.get("capacity", group.lmem_bytes),
        alignment=given.get("alignment", grain),
        banks=Banks(
            group.banks,
            group.lmem_bytes // group.banks,
            np.array(pairs, dtype=np.int64).reshape(-1, 2),
        ),
        objective=given.get("objective"),
        name=name,
        source=source,
    )


CONTEXTS = {KIND: GIVEN - {"period", "dim"}}
