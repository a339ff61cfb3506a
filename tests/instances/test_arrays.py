"""One reader of numbers and arrays for all problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stagepack import LmemPacking, PhaseSchedule, PipelinePartition, PipelineSchedule
from stagepack.errors import InputError
from stagepack.instances.arrays import (
    distinct,
    integer,
    integers,
    numbers,
    whole_bytes,
)


@pytest.mark.parametrize(
    "given",
    [[1, 2], (1.0, 2.0), np.array([1, 2], np.uint8), np.array([1, 2], object), np.array([1.0, 2])],
)
def test_whole_numbers_of_any_type_are_int64(given: Any) -> None:
    for read in (integers(given, "size", "buffer", 2), whole_bytes(given, "size", (2,))):
        assert read.dtype == np.int64
        assert read.tolist() == [1, 2]
        assert not read.flags.writeable


def test_what_is_frozen_is_not_copied_and_what_is_not_is() -> None:
    given = np.array([1, 2])
    read = integers(given, "size", "buffer")
    assert read is not given
    assert integers(read, "size", "buffer") is read
    lone = integers(3, "size", "buffer", 2, spread=True)
    assert lone.tolist() == [3, 3]
    assert lone.flags.c_contiguous


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "missing"),
        (3, "shape ()"),
        ([1], "2 in all"),
        ([[1, 2]], "shape (1, 2)"),
        ([[1], [1, 2]], "no array of numbers"),
        ([1, 2.5], "entry 1 is 2.5, no integer"),
        ([1, float("inf")], "entry 1 is inf"),
        ([1, None], "entry 1 is None, no integer"),
        ([1, "2"], "entry 0 is '1'"),
        (np.array([True, False]), "entry 0 is True"),
        ([1, 2**62], "2**62"),
        ([1, -(2**62)], "2**62"),
        ([1, 2**70], "2**62"),
        (np.array([1, 2**63], np.uint64), "2**62"),
        ([1.0, 1e30], "2**62"),
    ],
)
def test_what_is_no_array_of_integers_is_refused_by_entry(given: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        integers(given, "size", "buffer", 2)
    assert caught.value.field == "size"
    assert says in str(caught.value)


NONE: tuple[Any, ...] = ([], (), np.array([]))


def test_no_numbers_are_whole() -> None:
    assert [numbers(none, "x").dtype.kind for none in NONE] == ["i"] * 3


def test_numbers_keep_their_fractions() -> None:
    assert numbers([1, 2.5], "forward").tolist() == [1, 2.5]
    assert numbers(None, "backward", (2,)).tolist() == [0, 0]
    with pytest.raises(InputError, match="entry 0, 1 is nan"):
        numbers([[1, float("nan")]], "recv_cycles", (1, 2))
    with pytest.raises(InputError, match="at least 0"):
        numbers([1, -2], "forward")


@pytest.mark.parametrize("value", [True, np.bool_(True), 1.5, "1", None, np.array([1, 2])])
def test_what_is_no_integer(value: object) -> None:
    with pytest.raises(InputError, match="no integer"):
        integer(value, "steps")


def test_integers_have_limits() -> None:
    assert integer(2.0, "steps") == integer(np.int8(2), "steps", 2) == 2
    with pytest.raises(InputError, match="at least 3"):
        integer(2, "steps", 3)
    with pytest.raises(InputError, match="2\\*\\*62"):
        integer(2**62, "steps")


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda odd: LmemPacking.from_arrays(odd, [0, 0], [1, 1]), "size"),
        (lambda odd: PipelineSchedule.from_arrays(odd, microbatches=1), "forward"),
        (lambda odd: PhaseSchedule.from_arrays(odd, [1, 1], [1, 1, 1]), "variables"),
        (lambda odd: PipelinePartition.from_arrays([1, 1], devices=1, stash=odd), "stash"),
    ],
)
@pytest.mark.parametrize("odd", [[1, 2.5], [[1], [1, 2]], ["a", "b"]])
def test_every_problem_reads_alike(build: Any, field: str, odd: Any) -> None:
    with pytest.raises(InputError) as caught:
        build(odd)
    assert caught.value.field == field


@pytest.mark.parametrize("values", [[], [0], [-1, -1], [5, 2, 5, 0, 2]])
def test_distinct_values_ascend(values: list[int]) -> None:
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))
