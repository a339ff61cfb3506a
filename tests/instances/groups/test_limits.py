"""Sizes whose products leave 64 bits are refused by name, however they come about."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.heuristics.groups.network import cuts
from stagepack.instances.groups import (
    LaneChip,
    LayerGrouping,
    Operator,
    OperatorKind,
    Source,
    Weight,
)
from stagepack.instances.groups.chip import exact
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
        ({"chip": {"rates": {"elementwise": 2.0**70}}}, r"chip\.rates\.elementwise"),
        ({"chip": {"rates": {"elementwise": 1e-12}}}, r"chip\.rates\.elementwise"),
        (
            {"chip": {"rates": {"elementwise": 2.0**-24}}, "shape": (1, 1, 2**20, 2**20)},
            r"chip\.rates",
        ),
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
        ({"chip": {"load_rate": math.inf}}, r"chip\.load_rate"),
        ({"limit": 1e-300}, "overlap_limit"),
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


def test_numbers_of_fifteen_digits_are_taken() -> None:
    """As measured, or divided: they are reckoned with as near fractions."""
    chip = {"load_rate": 53.98761234567891, "store_rate": 1 / 3, "overlap": 2 / 3}
    whole = line(chip=chip, limit=1 / 3)
    assert whole.chip.load_rate == 53.98761234567891
    assert whole.chip.store_cycles(10) == 30
    assert whole.chip.row_cycles(9, 9) == 12
    assert sp.solve(whole).status is sp.Status.OPTIMAL
    assert exact(5.7) == Fraction(57, 10)
    assert abs(exact(53.98761234567891) - Fraction("53.98761234567891")) < Fraction(1, 10**12)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"shape": (0, 8, 64, 64)}, r"operators\[0\]\.shape\[0\]"),
        ({"kernel": (-3, 3)}, r"operators\[0\]\.kernel\[0\]"),
        ({"stride": (0, 1)}, r"operators\[0\]\.stride\[0\]"),
        ({"padding": (0, 0, -1, 0)}, r"operators\[0\]\.padding\[2\]"),
        ({"kernel": (3,)}, r"operators\[0\]\.kernel"),
        ({"cycles": math.nan}, r"operators\[0\]\.cycles"),
        ({"weights": (Weight(channels=0),)}, r"operators\[0\]\.weights\[0\]\.channels"),
        ({"weights": ("w",)}, r"operators\[0\]\.weights\[0\]"),
        ({"buffer": object()}, r"operators\[0\]\.buffer"),
        ({"kind": "convolution"}, r"operators\[0\]\.kind"),
        ({"chip": {"load_rate": math.nan}}, r"chip\.load_rate"),
        ({"chip": {"load_rate": -1}}, r"chip\.load_rate"),
        ({"chip": {"overlap": 1.5}}, r"chip\.overlap"),
        ({"chip": {"banks": 0}}, r"chip\.banks"),
    ],
)
def test_structs_made_by_hand_are_read_as_strictly_as_files(
    given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InputError, match=f"^{field}: "):
        line(**given)


def test_numbers_of_other_libraries_are_numbers() -> None:
    shape: Any = (np.int64(1), 8, np.int32(64), 64)
    whole = line(shape=shape, chip={"load_rate": np.float32(0.5)})
    assert whole.digest == line(chip={"load_rate": 0.5}).digest


def test_outputs_are_names() -> None:
    with pytest.raises(InputError, match=r"^outputs\[0\]: "):
        line().replace(outputs=(3,))


def test_limits_of_rows_are_kept_exactly() -> None:
    """0.29 * 100 is a little less than 29 in floats: search and check must not differ."""
    whole = LayerGrouping.from_arrays(
        [
            Operator(
                name="y",
                kind=OperatorKind.CONV,
                inputs=("x",),
                shape=(1, 1, 71, 1),
                kernel=(30, 1),
            )
        ],
        [Source(name="x", shape=(1, 1, 100, 1))],
        chip=LaneChip(lanes=1, memory=900),
        overlap_limit=0.29,
    )
    plan = sp.GroupingSolution((0, 1), ((1, 1, 2, 1),))
    assert "slices" not in {violation.rule for violation in whole.check(plan)}
    tighter = whole.replace(overlap_limit=0.28)
    assert "slices" in {violation.rule for violation in tighter.check(plan)}


def test_more_slices_than_can_be_tried_are_refused() -> None:
    """Memory would grow with their square, and ways to cut a group without limit."""
    tall = (1, 1, 2**16, 1)
    with pytest.raises(InputError, match=r"^max_slices: .*; give at most 41,527$"):
        ribbon(100, shape=(1, 1, 2**20, 1), slices=2**16)
    assert ribbon(32, shape=tall, slices=2**16).max_slices == 2**16
    assert ribbon(32, shape=(1, 1, 64, 1), slices=2**31).max_slices == 2**31
    with pytest.raises(InputError, match=r"^max_slices: .*; give at most \d{3}$") as refused:
        ribbon(2, shape=(2**8,) * 4, slices=2**16, slicing="free")
    most = int(str(refused.value).rsplit(maxsplit=1)[-1])
    fitting = ribbon(2, shape=(2**8,) * 4, slices=most, slicing="free")
    assert 60_000 < len(cuts(fitting)) <= 2**16


def ribbon(n: int, shape: tuple[int, ...], slices: int, **fields: Any) -> LayerGrouping:
    """Return operators in a line, value by value."""
    return LayerGrouping.from_arrays(
        [
            Operator(
                name=f"y{at}",
                kind=OperatorKind.ELEMENTWISE,
                inputs=(f"y{at - 1}" if at else "x",),
                shape=shape,
            )
            for at in range(n)
        ],
        [Source(name="x", shape=shape)],
        chip=LaneChip(lanes=4, memory=4096),
        max_slices=slices,
        **fields,
    )


@pytest.mark.parametrize(("field", "zero"), [("load_rate", False), ("overlap", True)])
def test_zero_is_advised_only_where_it_is_taken(field: str, zero: bool) -> None:
    with pytest.raises(InputError, match="use a finer unit") as caught:
        line(chip={field: 7e-13})
    assert ("or 0" in str(caught.value)) == zero
