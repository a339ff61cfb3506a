"""Normal form of a network for compiled kernels: arrays over operators, tensors and edges.

:mod:`.network_state` documents the arrays.  All quantities that determine cycles are integers;
rates are fractions.

Cost: O(operators + edges + weights); O(c log(c)) for the c ways to cut.  Source: ours.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from stagepack.heuristics.groups.network_state import (
    CUBIC,
    GIVEN,
    LINEAR,
    MATRIX,
    PLANES,
    REPEATED,
    SAME,
    TRANSPOSED,
    WINDOW,
    Machine,
    Network,
)
from stagepack.heuristics.groups.tuning import TUNING, GroupsTuning
from stagepack.instances.groups import LayerGrouping, OperatorKind, Slicing
from stagepack.instances.groups.chip import LaneChip, exact
from stagepack.instances.groups.operators import (
    AROUND,
    AXES,
    H,
    Operator,
    Shape,
    W,
    cuttable,
    grid,
    interpolates,
    needs_all,
    pace,
)
from stagepack.instances.groups.regions import Cut

_made: weakref.WeakKeyDictionary[LayerGrouping, Network] = weakref.WeakKeyDictionary()
"""Normal forms of instances that are still there."""


def network(
    instance: LayerGrouping,
    pause: Callable[[], None] = lambda: None,
    tuning: GroupsTuning = TUNING,
) -> Network:
    """Return the normal form of a network; `pause` is called now and then."""
    if instance not in _made:
        _made[instance] = _network(instance, pause, tuning.operators_at_once)
    return _made[instance]


def _network(instance: LayerGrouping, pause: Callable[[], None], part: int) -> Network:
    """Return the normal form, made anew; a few operators take less time than a question."""
    operators: list[list[int]] = []
    edges: list[list[int]] = []
    weights: list[list[int]] = []
    for at, operator in enumerate(instance.operators):
        if at % part == part - 1:
            pause()
        sources = instance.sources(at)
        ends = len(edges), len(edges) + len(sources), len(weights)
        edges += [
            [*_whole(operator, which, source), tensor]
            for which, (tensor, source) in enumerate(zip(instance.reads[at], sources, strict=True))
        ]
        weights += [
            [w.channels, w.values, w.dtype_bytes, -1 if w.lane_bytes is None else w.lane_bytes]
            for w in operator.weights
        ]
        model = _model(operator, sources, instance.chip)
        operators.append([
            *(*ends, len(weights), *model, operator.buffer),
            *(instance.overwrites(at), operator.even, instance.alone(at)),
            *(cuttable(operator, axis) for axis in range(len(AXES))),
            *(*_window(operator, sources, H), *_window(operator, sources, W)),
        ])  # fmt: skip
    tensors = [
        [*t.shape, t.dtype_bytes, len(t.readers) + (at in instance.kept or not t.readers)]
        for at, t in enumerate(instance.tensors)
    ]
    return Network(
        np.array(operators, np.int64),
        np.array(tensors, np.int64),
        np.array(edges, np.int64).reshape(len(edges), len(AXES) + 1),
        np.array(weights, np.int64).reshape(len(weights), 4),
    )


def machine(instance: LayerGrouping) -> Machine:
    """Return the chip of an instance in integers."""
    chip, limit = instance.chip, instance.overlap_limit
    return Machine(
        lanes=chip.lanes,
        memory=chip.memory,
        eu_bytes=chip.eu_bytes,
        load=_fraction(chip.load_rate),
        store=_fraction(chip.store_rate),
        load_latency=chip.load_latency,
        store_latency=chip.store_latency,
        startup=chip.startup,
        overlap=_fraction(chip.overlap),
        cores=chip.cores,
        limit=(-1, 1) if limit is None else _fraction(limit),
    )


def cuts(instance: LayerGrouping) -> list[Cut]:
    """Return the ways in which a group may be cut, fewest slices first.

    Along N, and along H once N is cut down to one; or all combinations.  Axes along which no
    tensor has as many values are left out.
    """
    most = instance.max_slices
    n, c, _, h, w = (max(t.shape[axis] for t in instance.tensors) for axis in range(len(AXES)))
    if instance.slicing == Slicing.N_THEN_H:
        found = [Cut(n=parts) for parts in range(1, min(n, most) + 1)]
        return found + [Cut(n=n, h=parts) for parts in range(2, min(h, most // n) + 1)]
    sides = [
        (a, b, x)
        for a in range(1, min(n, most) + 1)
        for b in range(1, min(c, most // a) + 1)
        for x in range(1, min(h, most // (a * b)) + 1)
    ]
    room = np.minimum(w, most // np.prod(sides, axis=1))
    last = 1 + np.arange(room.sum()) - np.repeat(np.cumsum(room) - room, room)
    table = np.column_stack([np.repeat(sides, room, axis=0), last])
    by = np.lexsort((table[:, 2], table[:, 1], last, table.prod(axis=1)))
    return [Cut(*row) for row in table[by].tolist()]


def _whole(operator: Operator, which: int, source: Shape) -> list[bool]:
    """Return on which axes all of an input is read, whatever part is written."""
    by_value = operator.kind in (OperatorKind.ELEMENTWISE, OperatorKind.ROWS)
    return [
        needs_all(operator, which, axis) or (by_value and source[axis] == 1)
        for axis in range(len(AXES))
    ]


def _model(
    operator: Operator, sources: tuple[Shape, ...], chip: LaneChip
) -> tuple[int, int, int, int, int, int]:
    """Return how the cycles of an operator follow from a part of what it writes."""
    if operator.cycles is not None:
        return GIVEN, operator.cycles, 1, 1, 0, 0
    known = pace(operator, sources, chip)
    model = MATRIX if operator.kind == OperatorKind.MATMUL else PLANES
    return model, known.turns, known.times, known.per, *(known.plane or (0, 0))


def _window(operator: Operator, sources: tuple[Shape, ...], axis: int) -> tuple[int, int, int, int]:
    """Return how rows or columns that are read follow from those that are written."""
    at, kind = axis - H, operator.kind
    kernel = (operator.kernel[at] - 1) * operator.dilation[at] + 1
    before, stride = operator.padding[2 * at], operator.stride[at]
    if kind in (OperatorKind.CONV, OperatorKind.POOL):
        return WINDOW, kernel, stride, before
    if kind == OperatorKind.DECONV:
        return TRANSPOSED, kernel, stride, kernel - before - 1
    if kind == OperatorKind.UPSAMPLE:
        return REPEATED, operator.scale[at], 1, 0
    if sources and interpolates(operator, axis, sources[0][axis]):
        step, shift, unit = grid(operator, axis, sources[0][axis])
        return (CUBIC if AROUND[operator.interpolation] else LINEAR), step, unit, shift
    return SAME, 1, 1, 0


def _fraction(rate: float) -> tuple[int, int]:
    """Return a rate as numerator and denominator."""
    found = exact(rate)
    return found.numerator, found.denominator
