"""Rows of remote buffers: none shared, and as few as the certificate proves."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack import catalog
from stagepack.instances.phases import PhaseSolution
from stagepack.instances.phases.plan import plan
from stagepack.instances.phases.rows import buffers, remote_bytes
from tests.instances.phases.examples import two_groups, two_layers
from tests.random_phases import random_phases, random_plan


def test_mnist_runs_in_seven_phases_with_four_rows() -> None:
    instance = catalog.load("phases/mnist")
    solution = PhaseSolution((0, 1, 2, 3, 4), ("io",) * 7, 32, 8, ("stash",) * 4)
    assert instance.check(solution) == ()
    drawn = plan(instance, solution)
    assert [part.phase.name for part in drawn.phases] == [
        "F0", "F1", "F2", "FB3", "B2", "B1", "B0",
    ]  # fmt: skip
    assert drawn.graphs == 5  # the inner layers share theirs
    (buffer,) = drawn.buffers
    # The tutorial takes three rows for x and three for dx; four do for both.
    assert (buffer.nbytes, buffer.rows, buffer.steps) == (8 * 512 * 4, 4, 4)
    assert sorted(buffer.row) == ["dx1", "dx2", "dx3", "x1", "x2", "x3"]
    assert buffer.certificate == 3


def test_lifetimes_by_hand() -> None:
    found = {buffer.nbytes: buffer for buffer in buffers(two_layers(), two_groups())}
    stays = {s.name: (s.first, s.last) for buffer in found.values() for s in buffer.stays}
    assert stays == {"tape0": (0, 2), "tape1": (1, 1), "x1": (0, 1), "dx1": (1, 2)}
    assert [found[nbytes].rows for nbytes in (3, 5, 8)] == [1, 1, 2]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6))
def test_rows_are_apart_and_fewest(seed: int) -> None:
    instance = random_phases(seed, layers=(2, 7))
    solution = random_plan(instance, np.random.default_rng(seed))
    total = 0
    for buffer in buffers(instance, solution):
        for one, other in itertools.combinations(buffer.stays, 2):
            if buffer.row[one.name] == buffer.row[other.name]:
                assert one.last < other.first or other.last < one.first
        alive = [s for s in buffer.stays if s.first <= buffer.certificate <= s.last]
        assert len(alive) == buffer.rows == 1 + max(buffer.row.values())
        total += buffer.nbytes * buffer.rows * buffer.steps
    assert remote_bytes(instance, solution) >= total
