"""The filling of devices: plain for few of them, compiled for many."""

from __future__ import annotations

import numpy as np

from stagepack.heuristics.pipeline import fill_kernels


def test_devices_are_filled_alike_compiled_or_not() -> None:
    prefix, reach = np.array([[0, 3, 5, 9, 10]]), np.array([[2, 3, 4, 4]])
    classes = np.zeros(4, np.int64)
    found = [np.zeros((2, 4), np.int64) for _ in range(2)]
    for fill, out in zip((fill_kernels.fill, fill_kernels.fill_many), found, strict=True):
        assert fill(5, prefix, reach, classes, True, out) == (5, 2)
    assert found[0].tolist() == found[1].tolist() == [[2, 4, 0, 0], [0, 1, 0, 0]]
