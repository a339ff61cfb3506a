"""How kernels are compiled and loaded: once for all whole numbers, and nothing without need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from stagepack.instances.compiled import inner, step


@pytest.mark.parametrize("way", [inner, step])
def test_constants_and_widths_of_integers_do_not_compile_anew(way: Callable[..., Any]) -> None:
    @way
    def double(value: int, factor: int = 2) -> int:
        return factor * value

    @numba.njit
    def uses(narrow: Any) -> Any:
        return double(1) + double(2) + double(narrow[0]) + double(3, factor=4) + double(narrow[1])

    assert uses(np.array([5, 2**31 - 1], np.int32)) == 2 + 4 + 10 + 12 + 2 * (2**31 - 1)
    kinds = {signature.args[0] for signature in double.nopython_signatures}
    assert kinds == {numba.int64}
    assert len(double.nopython_signatures) <= 2  # with and without the second argument


def test_unsigned_integers_truth_and_floats_stay_what_they_are() -> None:
    @inner
    def same(value: Any) -> Any:
        return value

    @numba.njit
    def uses() -> Any:
        return same(True), same(0.5), same(np.uint64(2**63))

    assert uses() == (True, 0.5, 2**63)


def test_blas_is_loaded_for_kernels_that_call_it_only() -> None:
    program = """
import sys
import numba
import numpy as np
import stagepack.instances.compiled

assert numba.njit(lambda row: row.sum())(np.arange(3)) == 3
assert "scipy.linalg" not in sys.modules
assert numba.njit(lambda one, other: one @ other)(np.eye(2), np.ones(2)).sum() == 2
assert "scipy.linalg" in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
