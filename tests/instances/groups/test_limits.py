"""Sizes whose products leave 64 bits are refused by name, however they come about."""

from __future__ import annotations

from typing import Any

import pytest

from stagepack.errors import InputError
from stagepack.instances.groups import (
    LaneChip,
    LayerGrouping,
    Operator,
    OperatorKind,
    Source,
    Weight,
)
from stagepack.instances.groups.limits import most_slices

LARGE = 2**31
SMALL = (1, 8, 64, 64)


def line(
    shape: tuple[int, ...] = SMALL,
    chip: dict[str, Any] | None = None,
    limit: float | None = None,
    slices: int = 64,
    **fields: Any,
) -> LayerGrouping:
    """Return two operators in a line, value by value."""
    fields = {"kind": OperatorKind.ELEMENTWISE, "shape": shape} | fields
    return LayerGrouping.from_arrays(
        [Operator(name=own, inputs=(read,), **fields) for own, read in ("yx", "zy")],
        [Source(name="x", shape=shape)],
        chip=LaneChip(lanes=4, memory=4096, **(chip or {})),
        overlap_limit=limit,
        max_slices=slices,
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"shape": (LARGE, LARGE, LARGE, LARGE)}, r"operators\[0\]\.shape"),
        ({"shape": (1, 1, LARGE, LARGE)}, r"operators\[0\]\.shape"),
        ({"dtype_bytes": LARGE, "shape": (1, 1, LARGE, 1)}, r"operators\[0\]\.shape"),
        ({"cycles": LARGE, "shape": (1, 2**20, 2**14, 1)}, r"operators\[0\]\.cycles"),
        ({"buffer": LARGE, "shape": (1, 2**17, 2**15, 1)}, r"operators\[0\]\.buffer"),
        ({"passes": LARGE, "shape": (1, 2**20, 2**20, 1)}, r"operators\[0\]\.passes"),
        (
            {"weights": (Weight(channels=LARGE, values=LARGE),)},
            r"operators\[0\]\.weights\[0\]",
        ),
        (
            {"weights": (Weight(channels=LARGE, lane_bytes=LARGE),)},
            r"operators\[0\]\.weights\[0\]",
        ),
        ({"chip": {"load_rate": 1e300}}, r"chip\.load_rate"),
        ({"chip": {"store_rate": 1e-300}}, r"chip\.store_rate"),
        ({"chip": {"load_rate": 1 / 3}}, r"chip\.load_rate"),
        ({"chip": {"overlap": 1 / 3}}, r"chip\.overlap"),
        ({"limit": 1e-300}, "overlap_limit"),
        ({"limit": 1 / 3}, "overlap_limit"),
        ({"shape": (1, 1, 2**30, 2**30)}, "operators"),
        ({"shape": (1, 1, 2**30, 2**20), "slices": LARGE}, "operators"),
    ],
)
def test_what_is_too_large_is_named(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=rf"^{field}: .*beyond 2\*\*62|^{field}: .*no fraction"):
        line(**given)


def test_multiplications_of_a_convolution_are_counted() -> None:
    with pytest.raises(InputError, match=r"operators\[0\]\.shape: y multiplies: beyond"):
        LayerGrouping.from_arrays(
            [
                Operator(
                    name="y",
                    kind=OperatorKind.CONV,
                    inputs=("x",),
                    shape=(1, LARGE, 2, 2),
                    kernel=(LARGE, LARGE),
                    padding=(LARGE // 2,) * 4,
                )
            ],
            [Source(name="x", shape=(1, LARGE, 1, 1))],
            chip=LaneChip(lanes=4, memory=4096),
        )


def test_slices_are_no_more_than_there_are_values() -> None:
    """A large limit alone is no reason to refuse."""
    assert most_slices(line((1, 2, 3, 4), slices=LARGE)) == 24
    assert most_slices(line((1, 2, 3, 4), slices=5)) == 5


def test_an_input_that_comes_twice() -> None:
    with pytest.raises(InputError, match=r"inputs\[1\]\.name: 'x' comes twice"):
        LayerGrouping.from_arrays(
            [Operator(name="y", kind=OperatorKind.ELEMENTWISE, inputs=("x",), shape=SMALL)],
            [Source(name="x", shape=SMALL)] * 2,
            chip=LaneChip(lanes=4, memory=4096),
        )


@pytest.mark.parametrize(
    ("field", "given", "name"),
    [
        ("chip", "bm1684x", "chip"),
        ("operators", [1], r"operators\[0\]"),
        ("inputs", ["x"], "inputs"),
    ],
)
def test_what_is_of_another_type(field: str, given: object, name: str) -> None:
    with pytest.raises(InputError, match=rf"^{name}.*: is of type (str|int); give stagepack"):
        line().replace(**{field: given})
