"""Phase times: the closed forms, and the formulas against a simulator that does not use them."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.instances.phases import Mode
from stagepack.instances.phases.execution.simulate import idle, loop
from stagepack.instances.phases.modes import (
    compute_cycles,
    io_slack,
    link_rate,
    phase_time,
    transfer_cycles,
)
from stagepack.instances.profile import Chip

cycles = st.integers(0, 12)


@pytest.mark.parametrize(
    ("mode", "time"), [("naive", 280), ("compute", 140), ("io", 140), ("io_overlapped", 105)]
)
def test_closed_form(mode: Mode, time: int) -> None:
    assert phase_time(mode, 20, 3, 10, 2, 8) == time


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(Mode)), cycles, cycles, cycles, cycles, st.integers(1, 7))
def test_the_formula_is_what_the_simulator_plays(
    mode: Mode, v: int, load: int, compute: int, store: int, steps: Any
) -> None:
    events = loop(mode, v, load, compute, store, steps)
    end = max((event.end for event in events), default=0)
    assert end == phase_time(mode, v, load, compute, store, steps)
    for engine in ("io", "compute"):  # an engine does one thing at a time
        own = sorted((e.start, e.end) for e in events if e.engine == engine)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(own))
    done = {(event.what, event.step): event for event in events}
    for (what, step), event in done.items():
        if what == "compute" and ("load", step) in done:
            assert done["load", step].end <= event.start
        if what == "store" and ("compute", step) in done:
            assert done["compute", step].end <= event.start
    if mode.uses_io_tiles:
        free = sum(stop - start for start, stop in idle(events, v, end))
        assert free == io_slack(mode, load, compute, store, steps)


def test_one_step_is_not_overlapped() -> None:
    assert phase_time("io_overlapped", 5, 3, 10, 2, 1) == phase_time("io", 5, 3, 10, 2, 1) == 20
    assert io_slack("io_overlapped", 3, 10, 2, 1) == 10


def test_only_io_tiles_have_time_to_spare() -> None:
    assert io_slack("naive", 0, 9, 0, 3) == io_slack("compute", 0, 9, 0, 3) == 0


def test_rates_are_exact() -> None:
    # 0.1 is a tenth, not the double next to it.
    assert transfer_cycles(3, Fraction("0.1")) == 30
    assert transfer_cycles(10**17 + 1, Fraction(1)) == 10**17 + 1
    assert transfer_cycles(7, None) == 0
    assert transfer_cycles(0, Fraction(1, 3)) == 0


def test_io_tiles_feed_a_link_and_slow_compute() -> None:
    chip = Chip(tiles=10, tile_bandwidth=0.75, remote_bandwidth=2)
    assert [link_rate(chip, 2, t) for t in (0, 1, 2, 3)] == [2, Fraction(3, 4), Fraction(3, 2), 2]
    assert link_rate(chip, None, 2) == Fraction(3, 2)
    assert link_rate(Chip(tiles=10), None, 2) is None
    assert [compute_cycles(10, 10, t) for t in (0, 1, 5)] == [10, 12, 20]
