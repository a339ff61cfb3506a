"""Ranges that slices read, by hand and against rows marked one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.instances.groups import LayerGrouping, Operator, OperatorKind
from stagepack.instances.groups.operators import H, W, reads
from stagepack.instances.groups.regions import Cut, Regions, dealt
from tests.instances.groups.networks import block, conv, grouping, networks

CONV, POOL, DECONV = OperatorKind.CONV, OperatorKind.POOL, OperatorKind.DECONV
UPSAMPLE, WHOLE = OperatorKind.UPSAMPLE, OperatorKind.GLOBAL_POOL

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


@pytest.mark.parametrize(
    ("own", "expected"), [((0, 4), (0, 2)), ((3, 2), (1, 2)), ((4, 1), (2, 1)), ((5, 3), (2, 2))]
)
def test_rows_that_are_repeated_are_read_once(
    own: tuple[int, int], expected: tuple[int, int]
) -> None:
    operator = Operator(name="y", kind=UPSAMPLE, inputs=("x",), shape=(1, 1, 8, 8), scale=(2, 2))
    assert reads(operator, 0, H, *own, 4) == expected


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
    assert (not regions.refusals()) == fits
    assert not Regions(whole.replace(overlap_limit=0.6), (0,), Cut(h=2)).refusals()
    assert not Regions(whole.replace(overlap_limit="none"), (0,), Cut(h=2)).refusals()


# ---------------------------------------------------------------------- row by row


def taps(operator: Operator, row: int, size: int) -> set[int]:
    """Return the rows of an input that one row of the output is computed from, one by one."""
    kernel, stride, padding = operator.kernel[0], operator.stride[0], operator.padding[0]
    dilation = operator.dilation[0]
    if operator.kind in (CONV, POOL):
        found = {row * stride - padding + tap * dilation for tap in range(kernel)}
    elif operator.kind == DECONV:
        found = {
            source
            for source in range(size)
            for tap in range(kernel)
            if source * stride + tap * dilation - padding == row
        }
    elif operator.kind == UPSAMPLE:
        found = {row // operator.scale[0]}
    else:
        found = {row}
    return {source for source in found if 0 <= source < size}


def traced(whole: LayerGrouping, regions: Regions, which: int) -> dict[int, set[int]]:
    """Return the rows of all tensors that one slice needs, marked one by one."""
    needed: dict[int, set[int]] = {t: set() for t in range(len(whole.tensors))}
    for tensor in regions.stored:
        start, length = dealt(whole.tensors[tensor].shape[H], regions.cut.h)[which]
        needed[tensor] |= set(range(start, start + length))
    for at in reversed(range(whole.n)):
        for tensor in whole.reads[at]:
            size = whole.tensors[tensor].shape[H]
            for row in needed[at]:
                needed[tensor] |= taps(whole.operators[at], row, size)
    return needed


@given(networks(), st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_ranges_hold_every_row_that_is_needed(whole: LayerGrouping, parts: int) -> None:
    regions = Regions(whole, range(whole.n), Cut(h=parts))
    if any(whole.tensors[t].shape[H] < parts for t in regions.stored):
        return
    for which in range(parts):
        for tensor, rows in traced(whole, regions, which).items():
            if tensor in regions.along(H):
                start, length = regions.along(H)[tensor][which]
                assert rows <= set(range(start, start + length))


@given(
    st.integers(1, 5), st.integers(1, 5), st.integers(0, 4), st.integers(5, 20), st.integers(1, 8)
)
@settings(max_examples=200, deadline=None)
def test_ranges_are_tight_without_holes(
    kernel: int, stride: int, padding: int, rows: int, parts: int
) -> None:
    stride, padding = min(stride, kernel), min(padding, kernel - 1)
    now = (rows + 2 * padding - kernel) // stride + 1
    if now < parts:
        return
    one = conv(
        "a", "x", 8, rows, kernel, stride=(stride,) * 2, padding=(padding,) * 4,
        shape=(1, 8, now, now),
    )  # fmt: skip
    whole = grouping([one], rows=rows)
    regions = Regions(whole, (0,), Cut(h=parts))
    for which in range(parts):
        start, length = regions.along(H)[1][which]
        assert traced(whole, regions, which)[1] == set(range(start, start + length))
