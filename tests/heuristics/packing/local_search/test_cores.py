"""Packings built from a core: valid, repeatable, and low."""

from typing import Any

import numpy as np
import pytest

from stagepack import catalog
from stagepack.heuristics import effort
from stagepack.heuristics.packing.constructive import dive
from stagepack.heuristics.packing.constructive.rules import Measures
from stagepack.heuristics.packing.local_search import cores
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.heuristics.packing.constructive.test_greedy import random_plain
from tests.packing_cases import tight


@pytest.mark.parametrize("large", [10, 60_000])
def test_best_is_valid_repeats_and_reports(large: int) -> None:
    tuning = TUNING.changed({"greedy": {"scalable_from": large}, "cores": {"rounds": 3}})
    instance = random_plain(np.random.default_rng(3), 600, longest=100)
    blocks = Blocks.of(instance)
    peaks: list[int] = []
    offsets = cores.best(
        blocks,
        on_solution=lambda found, _: peaks.append(int((found + blocks.size).max())),
        tuning=tuning,
    )
    assert offsets is not None
    assert instance.check(PackingSolution(offsets)) == ()
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1] == (offsets + blocks.size).max() >= blocks.load.max()
    again = cores.best(blocks, tuning=tuning)
    assert again is not None
    assert np.array_equal(offsets, again)


def test_best_reaches_the_optimum_of_a_tight_instance() -> None:
    blocks = Blocks.of(tight())
    offsets = cores.best(blocks, target=17)
    assert offsets is not None
    assert (offsets + blocks.size).max() == 17


def dense_core() -> Blocks:
    """Return blocks of which all are alive where memory is nearly full; dives leave a percent."""
    instance = catalog.load("packing/random/training", buffers=1500, layers=8, kept=60, seed=0)
    assert isinstance(instance, LmemPacking)
    blocks = Blocks.of(instance).rounded
    heaviest = Measures(blocks).heaviest_load
    return cores._part(blocks, np.flatnonzero(heaviest >= 0.9 * blocks.load.max()))


def test_a_core_in_which_many_meet_is_filled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    core = dense_core()
    target = int(core.load.max())
    nothing = np.full(core.b, -1, dtype=np.int64)

    def peak(many: int) -> int:
        tuning = TUNING.changed({"cores": {"refilled_meetings": many, "annealed_meetings": 0}})
        with effort.counting():
            packed = cores._pack_core(
                core, nothing, False, target, 0, 12, 0.0, lambda: True, tuning=tuning
            )
        assert packed is not None
        assert (packed >= 0).all()
        return int((packed + core.size).max()) - target

    few = peak(core.b**2)
    monkeypatch.setattr(dive, "place", lambda *_, **__: pytest.fail("a dive takes longer"))
    assert 0 <= peak(0) < 0.6 * few


def test_what_was_built_is_not_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = dense_core()
    target = int(core.load.max())
    nothing = np.full(core.b, -1, dtype=np.int64)
    before = cores._pack_core(core, nothing, False, target, 0, 2, 0.0, lambda: True, tuning=TUNING)
    assert before is not None
    monkeypatch.setattr(dive, "place", lambda *_, **__: pytest.fail("built again"))
    after = cores._pack_core(core, before, False, target, 1, 2, 0.0, lambda: True, tuning=TUNING)
    assert after is not None
    assert (after + core.size).max() <= (before + core.size).max()


def test_what_is_no_lower_than_what_is_known_is_not_placed_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(1), 600, longest=100))
    lowest = cores.best(blocks)
    assert lowest is not None
    known = lowest + 1  # a unit above the load
    placed: list[tuple[int, bool]] = []
    complete = cores._complete

    def told(part: Blocks, *rest: Any, **options: Any) -> list[tuple[int, int, Any]]:
        tries = complete(part, *rest, **options)
        placed.append((part.b, min(peak for _, peak, _ in tries) >= (known + blocks.size).max()))
        return tries

    monkeypatch.setattr(cores, "_complete", told)
    tuning = TUNING.changed({"cores": {"rounds": 1}})
    cores.best(blocks, offsets=known, tuning=tuning)
    assert any(too_high for _, too_high in placed)
    assert max(size for size, _ in placed) < blocks.b


def test_best_stops_when_told() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(4), 300, longest=100))
    assert cores.best(blocks, keep_going=lambda: False) is None


def test_exact_search_packs_a_core_that_rules_do_not() -> None:
    random, n = np.random.default_rng([13, 2]), 18_692
    start, lasting = random.integers(0, n, n), random.lognormal(3, 2.5, n).astype(np.int64)
    size = random.integers(1, 100_000, n)
    blocks = Blocks.of(LmemPacking.from_arrays(size, start, start + np.maximum(1, lasting)))
    crest = Measures(blocks).heaviest_load >= 0.98 * blocks.load.max()
    core = cores._part(blocks, np.flatnonzero(crest))
    target, nothing = int(core.load.max()), np.full(core.b, -1, dtype=np.int64)

    def peak(grown: bool) -> int:
        found = cores._pack_core(core, nothing, grown, target, 0, 2, 0, lambda: True, tuning=TUNING)
        assert found is not None
        return int((found + core.size).max())

    assert peak(False) > peak(True) == target


@pytest.mark.parametrize("seed", range(60))
def test_tiny_structured_packings_are_valid_and_what_is_fixed_stays(seed: int) -> None:
    random = np.random.default_rng([seed, 47])
    n = int(random.integers(2, 9))
    # Staircases, nests and ladders in turn, with sizes off the grid of unlike alignments.
    at, size = np.arange(n), random.integers(1, 9, n)
    start = (at, at, np.zeros(n, dtype=np.int64))[seed % 3]
    end = (at + random.integers(1, n + 1), 2 * n - at, at + 1)[seed % 3]
    alignment = random.choice([1, 2, 4], n)
    plain = LmemPacking.from_arrays(size, start, end, alignment=alignment)
    brief = TUNING.changed({"cores": {"rounds": 3}, "annealing": {"budget": 5_000}})
    stack = cores.best(Blocks.of(plain).rounded, tuning=brief)
    assert stack is not None
    assert plain.check(PackingSolution(stack)) == ()
    kept = random.random(n) < 0.3
    fixed = LmemPacking.from_arrays(
        size, start, end, alignment=alignment, fixed=np.where(kept, stack, -1)
    )
    blocks = Blocks.of(fixed).rounded
    assert cores.unsupported(blocks) == ""
    peaks: list[int] = []
    found = cores.best(
        blocks,
        on_solution=lambda offsets, _: peaks.append(int((offsets + blocks.size).max())),
        tuning=brief,
    )
    assert found is not None
    assert fixed.check(PackingSolution(found)) == ()
    assert peaks == sorted(set(peaks), reverse=True)


def test_ranges_are_refused() -> None:
    ranged = LmemPacking.from_arrays([4, 4], [0, 0], [2, 2], reserved=[(4, 8)])
    assert "ranges" in cores.unsupported(Blocks.of(ranged))
