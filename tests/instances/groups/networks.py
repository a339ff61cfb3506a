"""Small networks, and strategies for random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
        **{"chip": CHIP, "overlap_limit": None, "slicing": "free", "timesteps": "free"} | fields,
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


@st.composite
def networks(draw: Any, /, most: int = 6, **fields: Any) -> LayerGrouping:
    """Return a random network of windows, sums and resampling over one input, some branches."""
    rows = draw(st.integers(4, 14))
    channels = draw(st.sampled_from([1, 4, 6]))
    known: list[tuple[str, int]] = [("x", rows)]
    operators: list[Operator] = []
    for at in range(draw(st.integers(1, most))):
        name = f"o{at}"
        read, size = known[draw(st.integers(max(0, len(known) - 3), len(known) - 1))]
        kind = draw(st.sampled_from(["conv", "pool", "deconv", "upsample", "add", "whole"]))
        alike = [other for other, its in known if its == size]
        if kind == "add" and len(alike) > 1:
            other = draw(st.sampled_from(alike))
            reads = (read,) if other == read else (read, other)
            made, now = _made(name, "elementwise", reads, channels, size, {}), size
        elif kind == "upsample" and size <= 8:
            made = _made(name, "upsample", (read,), channels, 2 * size, {"scale": (2, 2)})
            now = 2 * size
        else:
            made, now = draw(_windows(name, read, channels, size, kind))
        operators.append(made)
        known.append((name, now))
    return grouping(operators, channels=channels, rows=rows, **fields)


@st.composite
def _windows(
    draw: Any, name: str, read: str, channels: int, size: int, kind: str
) -> tuple[Operator, int]:
    """Return a convolution, pooling or deconvolution of random geometry, and what it writes."""
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    if kind == "deconv" and size <= 6:
        padding = draw(st.integers(0, kernel - 1))
        now = (size - 1) * stride + kernel - 2 * padding + draw(st.integers(0, stride - 1))
        if now >= 1:
            window = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "padding": (padding,) * 4}
            return _made(name, "deconv", (read,), channels, now, window), now
    dilation = draw(st.integers(1, 2))
    extent = (kernel - 1) * dilation + 1
    padding = draw(st.integers(0, extent - 1))
    now = (size + 2 * padding - extent) // stride + 1
    if now < 1:
        return _made(name, "elementwise", (read,), channels, size, {}), size
    window = {
        "kernel": (kernel,) * 2,
        "stride": (stride,) * 2,
        "padding": (padding,) * 4,
        "dilation": (dilation,) * 2,
    }
    named = "pool" if kind == "pool" else "conv"
    return _made(name, named, (read,), channels, now, window), now


def _made(
    name: str, kind: str, reads: tuple[str, ...], channels: int, rows: int, window: dict[str, Any]
) -> Operator:
    weights = (Weight(channels=channels, values=4),) if kind in ("conv", "deconv") else ()
    return Operator(
        name=name,
        kind=OperatorKind(kind),
        inputs=reads,
        shape=(1, channels, rows, rows),
        weights=weights,
        in_place=kind == "elementwise",
        **window,
    )
