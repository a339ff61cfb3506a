"""Two groups of a few operators that show why timesteps and addresses are decided together."""

from __future__ import annotations

from stagepack.instances.groups.chip import LaneChip
from stagepack.instances.groups.data import Source
from stagepack.instances.groups.instance import LayerGrouping
from stagepack.instances.groups.operators import Operator, Weight
from stagepack.instances.groups.problem import OperatorKind


def _chip(memory: int) -> LaneChip:
    """Return a chip so small that its rows can be worked out by hand."""
    return LaneChip(
        name="small",
        lanes=4,
        memory=memory,
        banks=4,
        eu_bytes=16,
        channels=4,
        pixels=2,
        load_rate=4,
        store_rate=2,
        load_latency=10,
        store_latency=12,
        startup=3,
    )


def _chain(
    name: str, memory: int, rows: int, channels: list[int], work: list[tuple[int, int]]
) -> LayerGrouping:
    """Return convolutions of 1 x 1, one after the other, on tensors with four columns."""
    operators, before = [], "x"
    for letter, own, (cycles, values) in zip("abc", channels[1:], work, strict=False):
        weights = (Weight(channels=own, values=values),) if values else ()
        operators.append(
            Operator(
                name=letter,
                kind=OperatorKind.CONV,
                inputs=(before,),
                shape=(1, own, rows, 4),
                cycles=cycles,
                weights=weights,
            )
        )
        before = letter
    return LayerGrouping.from_arrays(
        operators,
        [Source(name="x", shape=(1, channels[0], rows, 4))],
        chip=_chip(memory),
        slicing="n-then-h",
        timesteps="free",
        name=name,
    )


def balanced_rows() -> LayerGrouping:
    """Return a network whose most balanced rows are not its quickest ones.

    In three slices the least sum of |compute - transfers| over the rows of the kernel is that of
    timetables that take 296 cycles at least; others take 280.
    """
    return _chain("balanced-rows", 4096, 8, [4, 4, 4], [(40, 4), (120, 8)])


def schedule_then_place() -> LayerGrouping:
    """Return a network whose best timesteps fit row by row, but have no addresses.

    In two slices they take 545 cycles; with addresses it is 552, and 582 by the rule ``nearest``.
    """
    return _chain("schedule-then-place", 288, 4, [4, 12, 8, 12], [(40, 16), (100, 32), (200, 0)])
