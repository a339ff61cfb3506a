"""Whether the fields of a schedule fit one another; edges and names of it."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

from stagepack.errors import InputError
from stagepack.instances.joining import circle
from stagepack.instances.profile import Array
from stagepack.instances.schedule.data import ScheduleData
from stagepack.instances.words import LARGEST

MOST_OPERATIONS = 2**23
MOST_STAGES = 2**14
"""Stages and operations up to which every step of every method keeps its time and memory."""


def edges(values: Iterable[object] | None, p: int) -> tuple[tuple[int, int], ...]:
    """Return edges (producer, consumer) between `p` stages, each once; the chain for None."""
    if values is None:
        return tuple((s, s + 1) for s in range(p - 1))
    if not isinstance(values, Iterable):
        raise InputError(
            f"{values!r} is no list", field="edges", remedy="give pairs (producer, consumer)"
        )
    if isinstance(values, np.ndarray):
        values = values.tolist()
    found = tuple(_edge(at, value) for at, value in enumerate(values))
    try:
        ends = np.array(found, dtype=np.int64).reshape(-1, 2)
    except OverflowError:
        ends = np.clip(np.array(found, dtype=object), -1, p).astype(np.int64)
    outside = (ends < 0) | (ends >= p)
    for at in np.flatnonzero(outside.any(axis=1))[:1].tolist():
        raise InputError(
            f"{found[at][int(outside[at].argmax())]} is no stage",
            field=f"edges[{at}]",
            remedy=f"give stages from 0 to {p - 1}",
        )
    number = ends[:, 0] * p + ends[:, 1]
    by = np.argsort(number, kind="stable")
    for at in np.sort(by[1:][np.diff(number[by]) == 0])[:1].tolist():
        raise InputError(
            f"{found[at]} is given twice", field=f"edges[{at}]", remedy="give each edge once"
        )
    return found


def _edge(at: int, value: Iterable[SupportsIndex]) -> tuple[int, int]:
    """Return one edge as whole numbers."""
    try:
        producer, consumer = map(operator.index, value)
    except (TypeError, ValueError):
        raise InputError(
            f"{value!r} is no edge",
            field=f"edges[{at}]",
            remedy="give (producer stage, consumer stage)",
        ) from None
    return producer, consumer


def devices(column: Array) -> None:
    """Refuse devices without a stage."""
    used = np.unique(column)
    gap = np.flatnonzero(used != np.arange(len(used)))
    if gap.size:
        raise InputError(
            f"device {gap[0]} runs no stage",
            field="devices",
            remedy=f"number the devices from 0 to {len(used) - 1} without gaps",
        )


def instance(built: ScheduleData) -> None:
    """Refuse what contradicts itself."""
    _require_order(built)
    here, there = built.microbatches[built.ends.T]
    for at in np.flatnonzero(here != there)[:1].tolist():
        producer, consumer = built.edges[at]
        raise InputError(
            f"stage {producer} has {here[at]} and stage {consumer} has {there[at]}, joined by "
            f"edges[{at}]",
            field="microbatches",
            remedy="give the two ends of an edge as many",
        )
    f, b, w = built.memory_forward, built.memory_backward, built.memory_weight
    for name, left in (
        ("memory_forward", f),
        ("memory_backward", f + b),
        ("memory_weight", f + b + w),
    ):
        if left.min() < 0:
            at = int(left.argmin())
            raise InputError(
                f"stage {at} would hold {left[at]} after it",
                field=name,
                remedy="free no more than was allocated",
            )
    for name, present in (
        ("memory_backward", built.training),
        ("memory_weight", built.split),
    ):
        if not present and getattr(built, name).any():
            raise InputError(
                "is given but there are no such operations",
                field=name,
                remedy=f"leave it out, or give {name.removeprefix('memory_')} cycles",
            )
    _require_range(built)


def _require_order(built: ScheduleData) -> None:
    """Refuse a cycle of edges, which is spelt out."""
    if len(built.order) == built.p:
        return
    cycle = circle(built.edges)
    raise InputError(
        "has the cycle " + " -> ".join(map(str, [*cycle, cycle[0]])),
        field="edges",
        remedy="leave out one of these edges: data flows one way",
    )


def _require_range(built: ScheduleData) -> None:
    """Refuse what would overflow 64 bits: total cycles, total bytes, number of operations.

    Times are added up over all steps, and over paths that visit every device and return.
    """
    m = built.microbatches.tolist()
    kinds = len(built.kinds)
    if sum(m) * kinds >= MOST_OPERATIONS:
        raise InputError(
            f"{sum(m) * kinds:,} operations",
            field="microbatches",
            remedy=f"give fewer than {MOST_OPERATIONS:,}",
        )
    cycles = int(built.optimizer.max())
    for column in (built.forward, built.backward, built.weight):
        if column is not None:
            cycles += sum(a * b for a, b in zip(column.tolist(), m, strict=True))
    carried = built.microbatches[built.ends[:, 0]].tolist()
    cycles += sum(2 * a * b for a, b in zip(built.latency.tolist(), carried, strict=True))
    if (cycles + int(built.optimizer.max())) * max(built.steps, built.d + 1) >= LARGEST:
        raise InputError(
            "the cycles of all steps, or of a step for every device and one more, exceed 2**62",
            field="forward",
            remedy="use a coarser unit",
        )
    if sum(carried) >= MOST_OPERATIONS:
        raise InputError(
            f"{sum(carried):,} results cross edges",
            field="edges",
            remedy=f"give fewer edges or microbatches: below {MOST_OPERATIONS:,} results",
        )
    columns = (built.memory_forward, built.memory_backward, built.memory_weight)
    nbytes = sum(abs(a) * b for column in columns for a, b in zip(column.tolist(), m, strict=True))
    if nbytes >= LARGEST:
        raise InputError(
            "the sum over all microbatches exceeds 2**62",
            field="memory_forward",
            remedy="use a coarser unit",
        )
