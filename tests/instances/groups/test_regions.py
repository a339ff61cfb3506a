"""Ranges that slices read, by hand and against rows marked one by one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind, Source
from stagepack.instances.groups.operators import AXES, C, H, N, W, reads
from stagepack.instances.groups.problem import Coordinates, Interpolation
from stagepack.instances.groups.regions import Cut, Range, Regions, dealt
from tests.instances.groups.networks import FREELY, block, conv, grouping, networks

CONV, POOL, DECONV = OperatorKind.CONV, OperatorKind.POOL, OperatorKind.DECONV
UPSAMPLE, WHOLE, SUM = OperatorKind.UPSAMPLE, OperatorKind.GLOBAL_POOL, OperatorKind.ELEMENTWISE

# kind, kernel, stride, padding, dilation, rows of the input, output range -> input range
HALOS = [
    (CONV, 1, 1, 0, 1, 8, (0, 3), (0, 3)),
    (CONV, 3, 1, 1, 1, 8, (0, 4), (0, 5)),  # above it is nothing but padding
    (CONV, 3, 1, 1, 1, 8, (2, 3), (1, 5)),
    (CONV, 3, 1, 1, 1, 8, (4, 4), (3, 5)),  # nor below
    (CONV, 3, 1, 0, 1, 8, (3, 3), (3, 5)),
    (CONV, 5, 1, 2, 1, 16, (4, 2), (2, 6)),
    (CONV, 3, 2, 1, 1, 16, (0, 4), (0, 8)),  # rows -1 to 7
    (CONV, 3, 2, 1, 1, 16, (4, 4), (7, 9)),
    (CONV, 7, 2, 3, 1, 224, (56, 56), (109, 115)),  # the first layer of ResNet-50: 109 to 223
    (CONV, 7, 2, 3, 1, 224, (0, 56), (0, 114)),
    (CONV, 3, 1, 2, 2, 16, (4, 4), (2, 8)),  # holes: an extent of 5
    (CONV, 3, 1, 4, 4, 16, (8, 2), (4, 10)),
    (CONV, 1, 2, 0, 1, 16, (2, 2), (4, 4)),  # rows between strides are loaded, too
    (POOL, 2, 2, 0, 1, 16, (3, 2), (6, 4)),
    (POOL, 3, 2, 1, 1, 16, (4, 4), (7, 9)),
    (POOL, 3, 2, 0, 1, 15, (3, 4), (6, 9)),
    (POOL, 2, 3, 0, 1, 16, (1, 2), (3, 6)),
    (DECONV, 4, 2, 1, 1, 8, (0, 4), (0, 3)),
    (DECONV, 4, 2, 1, 1, 8, (4, 4), (1, 4)),
    (DECONV, 4, 2, 1, 1, 8, (12, 4), (5, 3)),
    (DECONV, 2, 2, 0, 1, 8, (4, 4), (2, 2)),
    (DECONV, 3, 2, 1, 1, 8, (3, 2), (1, 2)),
    (DECONV, 3, 1, 1, 1, 8, (2, 2), (1, 4)),
    (DECONV, 1, 1, 0, 1, 8, (3, 2), (3, 2)),
    (DECONV, 3, 1, 2, 2, 8, (3, 2), (1, 6)),  # holes: taps -2, 0, 2 rows away
    (DECONV, 2, 3, 0, 1, 8, (5, 1), (2, 1)),  # the row between strides is of none: one is loaded
    (POOL, 3, 1, 2, 2, 16, (5, 3), (3, 7)),
    (POOL, 2, 1, 0, 3, 16, (2, 2), (2, 5)),
    (POOL, 3, 2, 1, 2, 16, (0, 2), (0, 6)),  # rows -1, 1, 3 and 1, 3, 5
    (CONV, 2, 4, 0, 3, 32, (1, 2), (4, 8)),  # an extent of 4, rows to the next stride
    (WHOLE, 1, 1, 0, 1, 8, (0, 1), (0, 8)),
]


@pytest.mark.parametrize(
    ("kind", "kernel", "stride", "padding", "dilation", "size", "own", "expected"), HALOS
)
def test_rows_that_are_read(
    kind: OperatorKind,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    size: int,
    own: tuple[int, int],
    expected: tuple[int, int],
) -> None:
    operator = Operator(
        name="y",
        kind=kind,
        inputs=("x",),
        shape=(1, 1, 8, 8),
        kernel=(kernel,) * 2,
        stride=(stride,) * 2,
        padding=(padding,) * 4,
        dilation=(dilation,) * 2,
    )
    assert reads(operator, 0, H, *own, size) == expected
    assert reads(operator, 0, W, *own, size) == expected


# kind, fields, which input, axis, size there, output range -> input range
AXIS_BY_AXIS: list[tuple[str, dict[str, Any], int, int, int, Range, Range]] = [
    ("elementwise", {}, 0, H, 8, (2, 3), (2, 3)),
    ("elementwise", {}, 0, N, 8, (2, 3), (2, 3)),
    ("elementwise", {}, 1, H, 1, (2, 3), (0, 1)),  # one row for all
    ("rows", {"whole": "w"}, 0, W, 8, (2, 3), (0, 8)),
    ("rows", {"whole": "w"}, 0, H, 8, (2, 3), (2, 3)),
    ("rows", {"whole": "chw"}, 0, C, 8, (2, 3), (0, 8)),
    ("concat", {}, 0, H, 8, (2, 3), (2, 3)),
    ("concat", {}, 1, C, 4, (6, 2), (0, 4)),
    ("matmul", {}, 0, H, 8, (2, 3), (2, 3)),  # rows of the left one
    ("matmul", {}, 0, W, 5, (2, 3), (0, 5)),
    ("matmul", {}, 1, H, 5, (2, 3), (0, 5)),
    ("matmul", {}, 1, W, 8, (2, 3), (2, 3)),  # columns of the right one
    ("matmul", {}, 1, C, 8, (2, 3), (2, 3)),
    ("conv", {}, 0, C, 4, (2, 3), (0, 4)),
    ("conv", {"groups": 8}, 0, C, 8, (2, 3), (2, 3)),  # channel by channel
    ("conv", {"groups": 2}, 0, C, 8, (2, 3), (0, 8)),
    ("conv", {"kernel": (3, 3), "padding": (1,) * 4}, 0, N, 8, (2, 3), (2, 3)),
    ("conv", {"kernel": (3, 1), "padding": (2, 0, 0, 0)}, 0, H, 8, (2, 3), (0, 5)),
    ("conv", {"kernel": (3, 1), "padding": (2, 0, 0, 0)}, 0, W, 8, (2, 3), (2, 3)),
    ("pool", {"kernel": (1, 2), "stride": (1, 2)}, 0, W, 16, (2, 3), (4, 6)),
    ("pool", {"kernel": (2, 2), "stride": (2, 2)}, 0, C, 8, (2, 3), (2, 3)),
    ("deconv", {"groups": 8}, 0, C, 8, (2, 3), (2, 3)),
    ("deconv", {}, 0, C, 8, (2, 3), (0, 8)),
    ("upsample", {"scale": (2, 3)}, 0, W, 8, (2, 3), (0, 2)),
    ("upsample", {"scale": (2, 3)}, 0, C, 8, (2, 3), (2, 3)),
    ("global-pool", {}, 0, W, 8, (0, 1), (0, 8)),
    ("global-pool", {}, 0, C, 8, (2, 3), (2, 3)),
]


@pytest.mark.parametrize(
    ("kind", "fields", "which", "axis", "size", "own", "expected"), AXIS_BY_AXIS
)
def test_what_is_read_axis_by_axis(
    kind: str,
    fields: dict[str, Any],
    which: int,
    axis: int,
    size: int,
    own: Range,
    expected: Range,
) -> None:
    operator = Operator(
        name="y", kind=OperatorKind(kind), inputs=("x", "z"), shape=(8, 8, 8, 8), **fields
    )
    assert reads(operator, which, axis, *own, size) == expected


@pytest.mark.parametrize(
    ("own", "expected"), [((0, 4), (0, 2)), ((3, 2), (1, 2)), ((4, 1), (2, 1)), ((5, 3), (2, 2))]
)
def test_rows_that_are_repeated_are_read_once(
    own: tuple[int, int], expected: tuple[int, int]
) -> None:
    operator = Operator(name="y", kind=UPSAMPLE, inputs=("x",), shape=(1, 1, 8, 8), scale=(2, 2))
    assert reads(operator, 0, H, *own, 4) == expected


# interpolation, coordinates, rows of the input, of the output, output range -> input range
INTERPOLATIONS = [
    ("linear", "half-pixel", 4, 8, (0, 1), (0, 1)),  # a quarter before the first row
    ("linear", "half-pixel", 4, 8, (0, 4), (0, 3)),  # the last at 1.25
    ("linear", "half-pixel", 4, 8, (2, 3), (0, 3)),  # 0.75 to 1.75
    ("linear", "half-pixel", 4, 8, (4, 4), (1, 3)),
    ("linear", "half-pixel", 4, 8, (7, 1), (3, 1)),
    ("linear", "half-pixel", 6, 9, (1, 2), (0, 3)),  # 0.5, 1.17
    ("linear", "half-pixel", 6, 9, (3, 3), (1, 4)),  # 1.83, 2.5, 3.17
    ("linear", "half-pixel", 8, 4, (1, 2), (2, 4)),  # 2.5, 4.5
    ("linear", "half-pixel", 16, 4, (1, 1), (5, 4)),  # 5.5; rows up to 9.5 are loaded, too
    ("linear", "half-pixel", 16, 4, (3, 1), (13, 2)),  # the last one
    ("linear", "half-pixel", 8, 1, (0, 1), (3, 2)),  # the middle
    ("linear", "pytorch-half-pixel", 8, 1, (0, 1), (0, 1)),
    ("linear", "pytorch-half-pixel", 4, 8, (2, 3), (0, 3)),
    ("linear", "align-corners", 4, 7, (0, 3), (0, 2)),  # 0, 0.5, 1
    ("linear", "align-corners", 4, 7, (3, 1), (1, 2)),
    ("linear", "align-corners", 4, 7, (4, 1), (2, 1)),  # on row 2
    ("linear", "align-corners", 4, 7, (4, 3), (2, 2)),
    ("linear", "align-corners", 5, 1, (0, 1), (0, 1)),
    ("linear", "asymmetric", 4, 8, (0, 4), (0, 3)),  # 0 to 1.5
    ("linear", "asymmetric", 4, 8, (4, 4), (2, 2)),  # 2 to 3.5: below is nothing
    ("cubic", "half-pixel", 8, 16, (8, 1), (2, 4)),  # 3.75
    ("cubic", "half-pixel", 8, 16, (0, 4), (0, 4)),  # the last at 1.25
    ("cubic", "half-pixel", 8, 16, (12, 4), (4, 4)),
    ("cubic", "asymmetric", 8, 16, (7, 1), (2, 4)),  # 3.5
    ("cubic", "align-corners", 8, 15, (5, 1), (1, 4)),  # 2.5
    ("cubic", "half-pixel", 8, 8, (2, 3), (2, 3)),  # nothing lies between
]


@pytest.mark.parametrize(
    ("interpolation", "coordinates", "size", "made", "own", "expected"), INTERPOLATIONS
)
def test_rows_that_are_interpolated(
    interpolation: str, coordinates: str, size: int, made: int, own: Range, expected: Range
) -> None:
    operator = Operator(
        name="y",
        kind=OperatorKind.INTERPOLATE,
        inputs=("x",),
        shape=(1, 1, made, made),
        interpolation=Interpolation(interpolation),
        coordinates=Coordinates(coordinates),
    )
    assert reads(operator, 0, H, *own, size) == expected
    assert reads(operator, 0, W, *own, size) == expected


@pytest.mark.parametrize(
    ("size", "parts", "expected"),
    [
        (8, 1, [(0, 8)]),
        (8, 2, [(0, 4), (4, 4)]),
        (10, 4, [(0, 3), (3, 3), (6, 2), (8, 2)]),
        (7, 7, [(at, 1) for at in range(7)]),
    ],
)
def test_first_ranges_are_longer(size: int, parts: int, expected: list[tuple[int, int]]) -> None:
    assert dealt(size, parts) == expected


def test_two_convolutions_and_a_skip() -> None:
    regions = Regions(block(rows=8), (0, 1, 2), Cut(h=2))
    assert regions.along(H) == {
        2: [(0, 4), (4, 4)],
        1: [(0, 4), (4, 4)],
        0: [(0, 5), (3, 5)],
        3: [(0, 6), (2, 6)],  # x, by way of both
    }
    assert regions.loaded == (3,)
    assert regions.stored == (2,)


@pytest.mark.parametrize(
    ("parts", "a", "x"),
    [
        (1, [(0, 16)], [(0, 16)]),
        (2, [(0, 9), (7, 9)], [(0, 10), (6, 10)]),
        (3, [(0, 7), (5, 7), (10, 6)], [(0, 8), (4, 9), (9, 7)]),
        (4, [(0, 5), (3, 6), (7, 6), (11, 5)], [(0, 6), (2, 8), (6, 8), (10, 6)]),
        (5, [(0, 5), (3, 5), (6, 5), (9, 5), (12, 4)], [(0, 6), (2, 7), (5, 7), (8, 7), (11, 5)]),
        (
            6,  # 3, 3, 3, 3, 2 and 2 rows
            [(0, 4), (2, 5), (5, 5), (8, 5), (11, 4), (13, 3)],
            [(0, 5), (1, 7), (4, 7), (7, 7), (10, 6), (12, 4)],
        ),
        (
            7,
            [(0, 4), (2, 5), (5, 4), (7, 4), (9, 4), (11, 4), (13, 3)],
            [(0, 5), (1, 7), (4, 6), (6, 6), (8, 6), (10, 6), (12, 4)],
        ),
        (
            8,
            [(0, 3), (1, 4), (3, 4), (5, 4), (7, 4), (9, 4), (11, 4), (13, 3)],
            [(0, 4), (0, 6), (2, 6), (4, 6), (6, 6), (8, 6), (10, 6), (12, 4)],
        ),
    ],
)
def test_two_convolutions_and_a_skip_in_one_to_eight_slices(
    parts: int, a: list[Range], x: list[Range]
) -> None:
    found = Regions(block(rows=16), (0, 1, 2), Cut(h=parts)).along(H)
    assert (found[0], found[3]) == (a, x)
    assert found[1] == found[2] == dealt(16, parts)


def test_strides_in_a_chain() -> None:
    down = {"stride": (2, 2), "padding": (1,) * 4}
    first = conv("a", "x", 8, 16, 3, shape=(1, 8, 8, 8), **down)
    second = conv("b", "a", 8, 8, 3, shape=(1, 8, 4, 4), **down)
    found = Regions(grouping([first, second], rows=16), (0, 1), Cut(h=4)).along(H)
    assert found[1] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert found[0] == [(0, 2), (1, 3), (3, 3), (5, 3)]
    assert found[2] == [(0, 4), (1, 7), (5, 7), (9, 7)]


def test_several_readers_are_covered() -> None:
    # A kernel of 5 reads two rows around, one of 1 with a stride of 2 every second row.
    wide, thin = conv("a", "x", 8, 8, 5), conv("b", "x", 8, 8, 1, shape=(1, 8, 4, 4), stride=(2, 2))
    found = Regions(grouping([wide, thin], rows=8), (0, 1), Cut(h=4)).along(H)
    assert found[0] == [(0, 2), (2, 2), (4, 2), (6, 2)]
    assert found[1] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert found[2] == [(0, 4), (0, 6), (2, 6), (4, 4)]


@pytest.mark.parametrize(
    ("kernel", "padding", "expected", "fits"),
    [
        (61, (30, 30), [(0, 80), (20, 80)], False),
        (41, (30, 10), [(0, 60), (20, 80)], True),
    ],
)
def test_the_rule_of_a_half(
    kernel: int, padding: tuple[int, int], expected: list[tuple[int, int]], fits: bool
) -> None:
    # The example of the seed: 60 of 100 rows that are read again are too many, 40 are not.
    wide = Operator(
        name="a",
        kind=CONV,
        inputs=("x",),
        shape=(1, 8, 100, 100),
        kernel=(kernel, 1),
        padding=(*padding, 0, 0),
    )
    whole = grouping([wide], rows=100, overlap_limit="half")
    regions = Regions(whole, (0,), Cut(h=2))
    assert regions.along(H)[1] == expected
    assert (regions.allowed) == fits
    assert Regions(whole.replace(overlap_limit=0.6), (0,), Cut(h=2)).allowed
    assert Regions(whole.replace(overlap_limit="none"), (0,), Cut(h=2)).allowed


# ---------------------------------------------------------------------- row by row


def taps(whole: LayerGrouping, at: int, which: int, axis: int, row: int) -> set[int]:
    """Return the rows of an input that one row of the output is computed from, one by one.

    Rows stand for planes, channels, rows or columns.
    """
    operator, source = whole.operators[at], whole.sources(at)[which]
    size, kind = source[axis], operator.kind
    found = {row if size > 1 else 0}
    if (
        AXES[axis] in operator.whole
        or (kind == WHOLE and axis in (H, W))
        or (kind == OperatorKind.MATMUL and axis == (W, H)[which])
    ):
        found = set(range(size))
    elif axis == C and kind in (CONV, DECONV):
        made, read = operator.full[C] // operator.groups, size // operator.groups
        found = {channel for channel in range(size) if channel // read == row // made}
    elif axis == C and kind == OperatorKind.CONCAT:
        found = {row - sum(other[C] for other in whole.sources(at)[:which])}
    elif axis in (H, W):
        side = axis - H
        kernel, stride = operator.kernel[side], operator.stride[side]
        padding, dilation = operator.padding[2 * side], operator.dilation[side]
        if kind in (CONV, POOL):
            found = {row * stride - padding + tap * dilation for tap in range(kernel)}
        elif kind == DECONV:
            found = {
                source
                for source in range(size)
                for tap in range(kernel)
                if source * stride + tap * dilation - padding == row
            }
        elif kind == UPSAMPLE:
            found = {row // operator.scale[side]}
        elif kind == OperatorKind.INTERPOLATE:
            found = interpolated(operator, axis, row, size)
    return {source for source in found if 0 <= source < size}


def interpolated(operator: Operator, axis: int, row: int, size: int) -> set[int]:
    """Return the rows from which one is interpolated: those whose weight is not zero."""
    made = operator.full[axis]
    x = (row + Fraction(1, 2)) * Fraction(size, made) - Fraction(1, 2)
    if operator.coordinates == Coordinates.ASYMMETRIC:
        x = Fraction(row * size, made)
    elif operator.coordinates == Coordinates.ALIGN_CORNERS:
        x = Fraction(row * (size - 1), made - 1) if made > 1 else Fraction(0)
    elif operator.coordinates == Coordinates.PYTORCH_HALF_PIXEL and made == 1:
        x = Fraction(0)
    reach = 2 if operator.interpolation == Interpolation.CUBIC else 1
    weighty = {source for source in range(-3, size + 3) if abs(source - x) < reach}
    weighty -= {source for source in weighty if abs(source - x) == 1}  # where cubics are zero
    return {min(max(source, 0), size - 1) for source in weighty}


def traced(whole: LayerGrouping, regions: Regions, axis: int, which: int) -> dict[int, set[int]]:
    """Return the rows of all tensors that one slice needs, marked one by one."""
    needed: dict[int, set[int]] = {t: set() for t in range(len(whole.tensors))}
    for tensor in regions.stored:
        size = whole.tensors[tensor].shape[axis]
        start, length = dealt(size, regions.cut.along(axis))[which]
        needed[tensor] |= set(range(start, start + length))
    for at in reversed(range(whole.n)):
        for number, tensor in enumerate(whole.reads[at]):
            for row in needed[at]:
                needed[tensor] |= taps(whole, at, number, axis, row)
    return needed


def ranges(whole: LayerGrouping, axis: int, parts: int) -> Regions | None:
    """Return the whole network in slices, None where there are too few rows for them."""
    cut = Cut(**{AXES[axis]: parts})
    regions = Regions(whole, range(whole.n), cut)
    return None if any(whole.tensors[t].shape[axis] < parts for t in regions.stored) else regions


@given(networks(), st.sampled_from([N, C, H, W]), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_ranges_hold_every_row_that_is_needed(whole: LayerGrouping, axis: int, parts: int) -> None:
    regions = ranges(whole, axis, parts)
    for which in range(parts if regions is not None else 0):
        assert regions is not None
        for tensor, rows in traced(whole, regions, axis, which).items():
            if tensor in regions.along(axis):
                start, length = regions.along(axis)[tensor][which]
                assert rows <= set(range(start, start + length))


Sizes = tuple[int, int]
"""Rows and columns."""


@st.composite
def branches(draw: Any) -> LayerGrouping:
    """Return windows without holes, each at least as long as its stride, and sums of them.

    Rows and columns have windows of their own; each reads any tensor before it.
    """
    known: list[tuple[str, Sizes]] = [("x", (draw(st.integers(4, 20)), draw(st.integers(4, 20))))]
    operators: list[Operator] = []
    for at in range(draw(st.integers(1, 6))):
        read, sizes = draw(st.sampled_from(known[-3:]))
        kind = draw(st.sampled_from([CONV, POOL, DECONV, UPSAMPLE, SUM, OperatorKind.INTERPOLATE]))
        alike = [name for name, other in known if other == sizes]
        reads = (read, draw(st.sampled_from(alike))) if kind == SUM else (read,)
        windows = [draw(_window(kind, size)) for size in sizes]
        made = windows[0][0], windows[1][0]
        if not all(1 <= size <= 60 for size in made):
            continue
        kernels, strides, paddings = ([window[part] for window in windows] for part in (1, 2, 3))
        fields: dict[str, Any] = {}
        if kind == UPSAMPLE:
            fields = {"scale": tuple(kernels)}
        elif kind == OperatorKind.INTERPOLATE:
            fields = {"coordinates": draw(st.sampled_from(Coordinates))}
        elif kind != SUM:
            fields = {"kernel": tuple(kernels), "stride": tuple(strides)}
            fields["padding"] = (*[paddings[0]] * 2, *[paddings[1]] * 2)
        name = f"o{at}"
        operators.append(
            Operator(name=name, kind=kind, inputs=reads, shape=(1, 8, *made), **fields)
        )
        known.append((name, made))
    assume(operators)
    source = Source(name="x", shape=(1, 8, *known[0][1]))
    return LayerGrouping.from_arrays(operators, [source], **FREELY)


@st.composite
def _window(draw: Any, kind: OperatorKind, size: int) -> tuple[int, int, int, int]:
    """Return how many rows a window makes of others, its kernel, stride and padding."""
    kernel = draw(st.integers(1, 5))
    stride, padding = draw(st.integers(1, kernel)), draw(st.integers(0, kernel - 1))
    made = {
        SUM: size,
        UPSAMPLE: size * kernel,
        OperatorKind.INTERPOLATE: size + stride,
        DECONV: (size - 1) * stride + kernel - 2 * padding,
    }
    return made.get(kind, (size + 2 * padding - kernel) // stride + 1), kernel, stride, padding


@given(branches(), st.sampled_from([H, W]), st.integers(1, 8))
@settings(max_examples=300, deadline=None)
def test_ranges_are_tight_without_holes(whole: LayerGrouping, axis: int, parts: int) -> None:
    """No range has a row that nothing needs, but between those that different readers need."""
    found = ranges(whole, axis, parts)
    assume(found is not None)
    assert found is not None
    chain = all(len(tensor.readers) < 2 for tensor in whole.tensors)
    for which in range(parts):
        for tensor, rows in traced(whole, found, axis, which).items():
            if tensor in found.along(axis):
                start, length = found.along(axis)[tensor][which]
                assert (min(rows), max(rows) + 1) == (start, start + length)
                if chain:
                    assert rows == set(range(start, start + length))
