"""Timestep tables of a compiler: our rules of time and lifetimes hold in them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from benchmarks.timesteps import FILE, STAGES, Table, tables


@pytest.fixture(scope="module")
def compiled(data_dir: Path) -> list[Table]:
    if not (data_dir / FILE).exists():
        pytest.skip(f"no {data_dir / FILE}: it is not shipped, see its PROVENANCE")
    return tables(data_dir / FILE)


def test_every_lifetime_is_as_the_compiler_says(compiled: list[Table]) -> None:
    """From the load or the computation to the last reader or store, the last included."""
    count = 0
    for table in compiled:
        for buffer, (first, last) in zip(table.buffers, table.lifetimes(table.given), strict=True):
            told = first % table.rows, last - first + 1
            assert told == (buffer["start_ts"], buffer["life"]), buffer
            count += 1
    assert count == 165


def test_transfers_stand_where_they_may(compiled: list[Table]) -> None:
    for table in compiled:
        assert all(move.first <= move.given <= move.last for move in table.moves)


def test_cycles_of_a_table_by_hand(compiled: list[Table]) -> None:
    # Three rows: a convolution beside two loads and the store, another beside two loads, a third
    # and a sum beside three loads, which take longer.
    first = compiled[0]
    loads = 6188 + 520 + 750
    assert first.turn(first.given) == 24593 + 4608 + loads
    assert first.span(first.given) == loads + 24593 + 4608 + (4096 + 2048) + 11966
    for table in compiled:
        # Many slices are turns but for the first two and the last two iterations.
        spans = [table.span(table.given, slices) for slices in (3, 4, 9)]
        assert spans[1] - spans[0] == table.turn(table.given)
        assert spans[2] - spans[1] == 5 * table.turn(table.given)


@pytest.mark.parametrize("turn", [True, False])
def test_nothing_is_below_what_is_proved(compiled: list[Table], turn: bool) -> None:
    for table in compiled:
        least = table.least_turn if turn else table.least_span
        worth = table.turn if turn else table.span
        assert least >= max(sum(table.compute), sum(move.cycles for move in table.moves))
        found, proved = table.best(turn, limit=60.0)
        assert proved
        assert all(m.first <= at <= m.last for m, at in zip(table.moves, found, strict=True))
        assert all(last - first < table.rows for first, last in table.lifetimes(found))
        assert least <= worth(found) <= worth(table.given)


def test_the_least_of_a_small_group_is_that_of_all(compiled: list[Table]) -> None:
    small = min(compiled, key=lambda table: len(table.moves))
    choices = [range(move.first, move.last + 1) for move in small.moves]
    every = [list(positions) for positions in product(*choices)]
    assert len(every) > STAGES
    short = [
        positions
        for positions in every
        if all(last - first < small.rows for first, last in small.lifetimes(positions))
    ]
    assert min(map(small.turn, short)) == small.turn(small.best(turn=True)[0])
    assert min(map(small.span, short)) == small.span(small.best(turn=False)[0])
    assert small.least_span <= min(map(small.span, every))
