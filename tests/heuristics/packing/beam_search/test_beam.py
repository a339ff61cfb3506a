"""Beams: valid, complete where they are wide enough, and the same however often they pause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.heuristics import effort
from stagepack.heuristics.packing.beam_search import beam, beam_kernels
from stagepack.heuristics.packing.beam_search import beam_state as state
from stagepack.heuristics.packing.constructive.stack import stack
from stagepack.heuristics.packing.exact_search import exact
from stagepack.heuristics.packing.exact_search.components import Component, Packing
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from stagepack.instances.profile import Array
from tests.heuristics.packing.oracle import KINDS, least_peak, planted, random_instance
from tests.heuristics.packing.structured import structured
from tests.packing_cases import random_packing

CEILING = 40


def lowest(instance: LmemPacking, target: int, turns: int = 60) -> Array:
    """Return what beams make of a placement anywhere, after checking it."""
    blocks = Blocks.of(instance)
    start = exact.decide(blocks, 10**6).offsets
    assert start is not None
    left = iter(range(turns))
    told: list[int] = []
    found = beam.improve(
        blocks,
        start,
        target=target,
        keep_going=lambda: next(left, None) is not None,
        on_solution=lambda offsets: told.append(int((offsets + blocks.size).max())),
    )
    offsets = blocks.expand(found)
    assert not instance.check(PackingSolution.of(instance, offsets))
    assert told == sorted(told, reverse=True)
    assert not told or told[-1] == (found + blocks.size).max()
    return found + blocks.size


@pytest.mark.parametrize("kind", KINDS)
def test_finds_what_trying_everything_finds(kind: str) -> None:
    # So few blocks that nothing is dropped: a rule that kills a state too many would be seen.
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(20):
        instance = random_instance(rng, kind)
        best = least_peak(instance, CEILING)
        if best is not None:
            assert lowest(instance, best).max() == best


@pytest.mark.parametrize("seed", range(8))
def test_perfect_packings_are_found(seed: int) -> None:
    # Nothing is wasted anywhere, and nothing is left to choose below.
    instance = planted(np.random.default_rng(seed), 30, 64, 40)
    assert lowest(instance, 64).max() == 64


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_is_found_keeps_all_rules(seed: int) -> None:
    instance = random_packing(np.random.default_rng(seed))
    blocks = Blocks.of(instance)
    if not beam.unsupported(blocks) and stack(instance) is not None:
        lowest(instance, 0, turns=20)


def test_what_states_leave_is_packed_part_by_part() -> None:
    # One state a level dies on most of these: it would have to be right everywhere at once.
    found: dict[bool, list[bool]] = {False: [], True: []}
    for seed in range(12):
        packing = Packing(Blocks.of(planted(np.random.default_rng(seed), 40, 64, 60)))
        component = max(packing.components, key=lambda component: component.b)
        first, last = component.group.first, component.group.last
        meet = (first[:, None] <= last) & (first <= last[:, None])
        for ended in (False, True):
            search = beam.BeamSearch(component, beam.Ending(component, 0) if ended else None)
            search.start(component.capacity(64), beam.FIRST[0], 1)
            while (outcome := search.run()) == state.RUNNING:
                pass
            found[ended].append(outcome == state.FOUND)
            if outcome == state.FOUND:
                low = component.offsets(search.units)
                high = low + component.group.size
                assert low.min() >= component.lift
                assert high.max() <= 64
                overlap = meet & (low[:, None] < high) & (low < high[:, None])
                assert overlap.sum() == component.b  # each with itself
    assert all(there or not here for here, there in zip(*found.values(), strict=True))
    assert sum(found[True]) > sum(found[False])


def test_pauses_change_nothing() -> None:
    component = Packing(Blocks.of(planted(np.random.default_rng(3), 40, 64, 60))).components[0]
    capacity = component.capacity(64)
    reached = []
    for work in (TUNING.beams.budget, 1):
        tuning = TUNING.changed({"beams": {"budget": work}})
        search = beam.BeamSearch(component, tuning=tuning)
        for setting in beam.FIRST:
            search.start(capacity, setting, 3)
            while (outcome := search.run()) == state.RUNNING:
                pass
            reached.append((outcome, search.reached))
    half = len(reached) // 2
    assert reached[:half] == reached[half:]


@pytest.mark.parametrize("width", [1, 2, 5])
def test_pauses_after_any_work_change_nothing(width: int) -> None:
    for instance in structured().values():
        for component in Packing(Blocks.of(instance)).components:
            capacity = component.capacity(component.bound)
            expected = None
            for work in (TUNING.beams.budget, *range(2, 30, 3), 100, 1000):
                tuning = TUNING.changed({"beams": {"budget": work}})
                search = beam.BeamSearch(component, tuning=tuning)
                search.start(capacity, beam.FIRST[0], width)
                while (outcome := search.run()) == state.RUNNING:
                    pass
                units = search.units.tolist() if outcome == state.FOUND else []
                found = outcome, search.reached, units
                expected = expected or found
                assert found == expected, work


def test_states_that_leave_the_cache_count_as_longer_steps() -> None:
    component = Packing(Blocks.of(planted(np.random.default_rng(3), 40, 64, 60))).components[0]
    counted, reached = [], []
    for cached in (TUNING.beams.cached_state, 0):
        tuning = TUNING.changed({"beams": {"cached_state": cached}})
        search = beam.BeamSearch(component, tuning=tuning)
        search.start(component.capacity(64), beam.FIRST[0], 3)
        with effort.counting():
            while (outcome := search.run()) == state.RUNNING:
                pass
            counted.append(effort.spent())
        reached.append((outcome, search.reached, search.steps))
    assert reached[0] == reached[1]
    assert (
        counted[1] - counted[0]
        >= (TUNING.beams.uncached_slowness - 1) * TUNING.beams.step * search.steps * 0.999
    )


@pytest.mark.parametrize("states", [1, 40, 400])
def test_little_memory_narrows_the_beam(states: int) -> None:
    component = Packing(Blocks.of(planted(np.random.default_rng(1), 30, 64, 30))).components[0]
    memory = states * beam.BeamSearch(component).bytes
    search = beam.BeamSearch(component, tuning=TUNING.changed({"beams": {"memory": memory}}))
    assert search.widest == max(1, states // 3)
    search.start(component.capacity(1000), beam.FIRST[0], 100)
    while (outcome := search.run()) == state.RUNNING:
        pass
    assert outcome == state.FOUND
    assert (component.offsets(search.units) >= 0).all()


def test_few_blocks_need_no_wide_beam() -> None:
    three = LmemPacking.from_arrays([3, 5, 7], [0] * 3, [2] * 3, alignment=[7, 11, 13])
    search = beam.BeamSearch(Packing(Blocks.of(three)).components[0])
    assert search.widest == TUNING.beams.states_an_order * 6


def test_draws_widen_the_beam_in_turns_and_start_where_they_were() -> None:
    component = Packing(Blocks.of(planted(np.random.default_rng(3), 40, 64, 60))).components[0]
    beams, widths = beam.Beams(component), []
    too_low = component.capacity(64) - 1
    for _ in range(len(beam.FIRST) + 7):
        assert beams.run(too_low, draws=1) == state.DEAD
        widths.append(beams.search.width // TUNING.beams.narrowest)
    assert widths == [1, 2] * (len(beam.FIRST) // 2) + [1, 1, 2, 1, 1, 2, 4]
    assert beams.run(too_low + 1) == state.FOUND


def test_seeds_begin_with_unlike_settings() -> None:
    component = Packing(Blocks.of(planted(np.random.default_rng(3), 40, 64, 60))).components[0]
    first = [beam.Beams(component, seed)._draw(0)[0] for seed in range(len(beam.FIRST))]
    assert first == list(beam.FIRST)


def test_searches_are_made_once_and_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the target, which nothing reaches here, is tried again."""
    instance = LmemPacking.from_arrays(
        [4, 6, 5, 4, 2, 7, 7, 8], [0, 0, 0, 1, 1, 2, 3, 4], [2, 1, 3, 2, 4, 5, 4, 5]
    )
    made, turns = [], iter(range(6))

    class Told(beam.Beams):
        def __init__(self, component: Component, seed: int, **options: Any) -> None:
            made.append(component)
            super().__init__(component, seed, **options)

        def run(self, *_: object) -> int:
            return state.DEAD if next(turns, None) is not None else state.RUNNING

    monkeypatch.setattr(beam, "Beams", Told)
    lowest(instance, 0)
    assert next(turns, None) is None
    assert len(made) == 1


def test_sections_of_states_count_and_pieces_of_time_do_not() -> None:
    """States of a conflict graph have many sections; those of blocks in pieces have few."""
    random = np.random.default_rng(3)
    pairs = np.stack(np.triu_indices(30, 1), axis=1)
    pairs = pairs[random.random(len(pairs)) < 0.3]
    size, start = random.integers(1, 60, 30), random.integers(0, 20, 30)
    gaps = [(i, begin, begin + 2) for i in range(30) for begin in (start[i] + 2, start[i] + 6)]
    for instance in (
        LmemPacking.from_arrays(size, conflicts=pairs),
        LmemPacking.from_arrays(size, start, start + 10, gaps=gaps),
    ):
        component = Packing(Blocks.of(instance)).components[0]
        search = beam.BeamSearch(component)
        search.start(component.capacity(int(size.sum())), beam.FIRST[0], 3)
        with effort.counting() as spent:
            while (outcome := search.run()) == state.RUNNING:
                pass
        assert outcome == state.FOUND
        states = int(search._beam.control[state.NODES]) if search._beam is not None else 0
        sections = len(component.sections)
        assert search.steps >= states * beam_kernels.SECTION * sections
        assert spent() < 2 * TUNING.beams.step * search.steps


def test_arrays_for_another_width_count_as_work() -> None:
    component = Packing(Blocks.of(planted(np.random.default_rng(3), 40, 64, 60))).components[0]
    search, counted = beam.BeamSearch(component), []
    for width in (16, 16, 32, 4096):
        with effort.counting() as spent:
            search.start(component.capacity(64), beam.FIRST[0], width)
        counted.append(spent())
    assert counted[1] < counted[0] < counted[2] < counted[3]


def test_legal_places_take_longer_steps() -> None:
    plain = planted(np.random.default_rng(3), 40, 64, 60)
    counted = []
    for instance in (plain, plain.replace(reserved=np.array([[64, 65]]))):
        search = beam.BeamSearch(Packing(Blocks.of(instance)).components[0])
        search.start(search.component.capacity(64), beam.FIRST[0], 16)
        with effort.counting() as spent:
            while search.run() == state.RUNNING:
                pass
        counted.append(spent() / search.steps)
    assert counted[1] > 1.3 * counted[0]  # a look at the clock is the same
