"""Small networks, and strategies for random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import strategies as st

from stagepack.instances.groups import (
    GroupingSolution,
    LaneChip,
    LayerGrouping,
    Operator,
    OperatorKind,
    Source,
    Weight,
)
from stagepack.instances.groups.chip import aligned
from stagepack.instances.groups.lmem import copies
from stagepack.instances.groups.problem import Coordinates, Interpolation

CHIP = LaneChip(
    lanes=4,
    memory=4096,
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

RATED = msgspec.structs.replace(
    CHIP,
    rates={
        OperatorKind.CONV: 3,
        OperatorKind.POOL: 0.7,
        OperatorKind.ELEMENTWISE: 1.5,
        OperatorKind.MATMUL: 5,
        OperatorKind.GLOBAL_POOL: 2,
    },
)
"""The same with a table of rates."""

FREELY: dict[str, Any] = {
    "chip": CHIP,
    "overlap_limit": None,
    "slicing": "free",
    "timesteps": "free",
}
"""What instances of tests say where nothing else is said."""


def conv(
    name: str, reads: str, channels: int, rows: int, kernel: int = 3, **fields: Any
) -> Operator:
    """Return a square convolution that keeps the number of rows, unless padding is given."""
    given = {"padding": (kernel // 2,) * 4, "shape": (1, channels, rows, rows)} | fields
    return Operator(
        name=name,
        kind=OperatorKind.CONV,
        inputs=(reads,),
        kernel=(kernel, kernel),
        weights=(Weight(channels=channels, values=8 * kernel * kernel),),
        **given,
    )


def add(name: str, *reads: str, channels: int, rows: int) -> Operator:
    """Return a sum that may be written over its first input."""
    return Operator(
        name=name,
        kind=OperatorKind.ELEMENTWISE,
        inputs=reads,
        shape=(1, channels, rows, rows),
        in_place=True,
    )


def grouping(
    operators: list[Operator], *, channels: int = 8, rows: int = 8, **fields: Any
) -> LayerGrouping:
    """Return a network over one input, x."""
    return LayerGrouping.from_arrays(
        operators,
        [Source(name="x", shape=(1, channels, rows, rows))],
        **FREELY | fields,
    )


def block(rows: int = 8, **fields: Any) -> LayerGrouping:
    """Return two convolutions and a skip around them."""
    operators = [
        conv("a", "x", 8, rows),
        conv("b", "a", 8, rows),
        add("s", "b", "x", channels=8, rows=rows),
    ]
    return grouping(operators, rows=rows, **fields)


def stacked(whole: LayerGrouping, plan: GroupingSolution) -> GroupingSolution:
    """Return a plan with all buffers of a group above one another."""
    offsets = []
    for _, table in plan.timetables(whole):
        found, top = [], 0
        for copy in copies(table) if table is not None else ():
            found.append(top)
            top += aligned(copy.buffer.lane_bytes, whole.chip.eu_bytes)
        offsets.append(tuple(found))
    return replace(plan, offsets=tuple(offsets))


Known = tuple[str, int, int]
"""A tensor: its name, channels, rows (and columns)."""


@st.composite
def networks(draw: Any, /, most: int = 6, **fields: Any) -> LayerGrouping:
    """Return a random network of all kinds of operators over one input, with branches."""
    batch, rows = draw(st.sampled_from([1, 1, 2])), draw(st.integers(4, 14))
    known: list[Known] = [("x", draw(st.sampled_from([1, 4, 6])), rows)]
    operators: list[Operator] = []
    for at in range(draw(st.integers(1, most))):
        read = known[draw(st.integers(max(0, len(known) - 3), len(known) - 1))]
        kind = draw(st.sampled_from(["window", "window", "several", "whole"]))
        if kind == "window":
            made = draw(_windows(f"o{at}", read))
        elif kind == "several":
            made = draw(_several(f"o{at}", read, known))
        else:
            made = draw(_wholes(f"o{at}", read))
        operators.append(msgspec.structs.replace(made, shape=(batch, *made.shape[1:])))
        known.append((made.name, made.shape[1], made.shape[2]))
    given = [Source(name="x", shape=(batch, known[0][1], rows, rows))]
    return LayerGrouping.from_arrays(operators, given, **FREELY | fields)


@st.composite
def _several(draw: Any, name: str, read: Known, known: list[Known]) -> Operator:
    """Return a sum, perhaps with a tensor of one row, a product, or one tensor after another."""
    _, channels, rows = read
    alike = [other for other in known if other[1:] == (channels, rows)]
    single = [other for other in known if other[1:] == (channels, 1)]
    joined = [other for other in known if other[2] == rows]
    other = draw(st.sampled_from(alike))
    kind = draw(st.sampled_from(["elementwise", "elementwise", "gate", "matmul", "concat"]))
    if kind == "gate" and single:
        pair = draw(st.permutations([read[0], draw(st.sampled_from(single))[0]]))
        return _made(name, "elementwise", tuple(pair), channels, rows)
    if kind == "concat":
        other = draw(st.sampled_from(joined))
        return _made(name, "concat", (read[0], other[0]), channels + other[1], rows)
    if kind == "matmul":
        return _made(name, "matmul", (read[0], other[0]), channels, rows)
    reads = (read[0],) if other == read else (read[0], other[0])
    return _made(name, "elementwise", reads, channels, rows)


@st.composite
def _wholes(draw: Any, name: str, read: Known) -> Operator:
    """Return an operator that repeats values, or needs whole rows, columns or planes."""
    _, channels, rows = read
    kind = draw(st.sampled_from(["upsample", "interpolate", "rows", "global-pool"]))
    if kind == "interpolate":
        made = draw(st.integers(1, 16))
        words = {
            "interpolation": draw(st.sampled_from(Interpolation)),
            "coordinates": draw(st.sampled_from(Coordinates)),
        }
        return _made(name, kind, read[:1], channels, made, **words)
    if kind == "upsample" and rows <= 8:
        even = draw(st.booleans())
        return _made(name, kind, read[:1], channels, 2 * rows, scale=(2, 2), even=even)
    if kind == "global-pool":
        return _made(name, kind, read[:1], channels, 1)
    whole = draw(st.sampled_from(["w", "h", "c"]))
    return _made(name, "rows", read[:1], channels, rows, whole=whole, buffer=40, passes=2)


@st.composite
def _windows(draw: Any, name: str, read: Known) -> Operator:
    """Return a convolution, pooling or deconvolution of random geometry."""
    _, channels, size = read
    kind = draw(st.sampled_from(["conv", "pool", "deconv"]))
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    each = kind != "pool" and channels > 1 and draw(st.booleans())
    groups = draw(st.sampled_from([channels, 2])) if each and channels % 2 == 0 else 1
    window = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "groups": groups}
    if kind == "deconv" and size <= 6:
        padding = draw(st.integers(0, kernel - 1))
        now = (size - 1) * stride + kernel - 2 * padding + draw(st.integers(0, stride - 1))
        if now >= 1:
            return _made(name, kind, read[:1], channels, now, padding=(padding,) * 4, **window)
    dilation = draw(st.integers(1, 2))
    extent = (kernel - 1) * dilation + 1
    padding = draw(st.integers(0, extent - 1))
    now = (size + 2 * padding - extent) // stride + 1
    if now < 1:
        return _made(name, "elementwise", read[:1], channels, size)
    window |= {"padding": (padding,) * 4, "dilation": (dilation,) * 2}
    return _made(name, "pool" if kind == "pool" else "conv", read[:1], channels, now, **window)


def _made(
    name: str, kind: str, reads: tuple[str, ...], channels: int, rows: int, **fields: Any
) -> Operator:
    weights = (Weight(channels=channels, values=4),) if kind in ("conv", "deconv") else ()
    return Operator(
        name=name,
        kind=OperatorKind(kind),
        inputs=reads,
        shape=(1, channels, rows, rows),
        weights=weights,
        in_place=kind == "elementwise",
        **fields,
    )
