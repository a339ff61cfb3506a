"""Annealing: never worse, valid, the same for a seed."""

import numpy as np
import pytest

from stagepack.heuristics.packing.constructive import greedy
from stagepack.heuristics.packing.constructive.rules import RULES
from stagepack.heuristics.packing.constructive.stack import pile
from stagepack.heuristics.packing.local_search import annealing
from stagepack.heuristics.packing.local_search.annealing_kernels import (
    ENERGY,
    REORDERED,
    RETARGETED,
    TARGET,
    TRIALS,
    Annealing,
    anneal,
)
from stagepack.heuristics.packing.tuning import TUNING
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.heuristics.packing.constructive.test_greedy import random_plain, stack_one_by_one
from tests.heuristics.packing.structured import structured
from tests.packing_cases import random_packing, tight

SHORT = TUNING.changed({"annealing": {"budget": 100_000}})
"""Calls of the kernel are short, so that few of them are a run."""


def poor(blocks: Blocks) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    offsets = greedy.place(blocks, RULES["first-fit-start"])
    assert offsets is not None
    return offsets


@pytest.mark.parametrize("scale", [1, 1024, 1_000_003])
def test_peak_falls_for_any_unit(scale: int) -> None:
    instance = random_plain(np.random.default_rng(1), 150, longest=60)
    instance = instance.replace(size=instance.size * scale)
    blocks = Blocks.of(instance)
    start = poor(blocks)
    offsets = annealing.improve(blocks, start, target=int(blocks.load.max()), legs=40, tuning=SHORT)
    assert instance.check(PackingSolution(offsets)) == ()
    assert blocks.load.max() <= (offsets + blocks.size).max() < (start + blocks.size).max()


@pytest.mark.parametrize("words", [1, 512])
def test_marks_and_heap_place_alike(words: int) -> None:
    tuning = SHORT.changed({"annealing": {"marks": words}})
    instance = random_plain(np.random.default_rng(2), 120, longest=60)
    blocks = Blocks.of(instance)
    start = poor(blocks)
    search = annealing._search(blocks, start, np.ones(blocks.b, dtype=bool), 1, 0, tuning=tuning)
    assert (len(search.bits) == 0) == (words == 1)
    rng = np.random.default_rng(3)
    search.order[:] = rng.permutation(blocks.b)
    search.place[search.order] = np.arange(blocks.b)
    search.state[TARGET] = int(blocks.load.max())
    annealing.place_all(search)
    expected = stack_one_by_one(instance, search.order, tightest=False)
    assert search.offsets.tolist() == expected
    top = np.zeros(blocks.sections, dtype=np.int64)
    for i in range(blocks.b):
        part = top[blocks.first[i] : blocks.end[i]]
        np.maximum(part, search.offsets[i] + blocks.size[i], out=part)
    excess = np.maximum(top - blocks.load.max(), 0)
    assert search.state[ENERGY] == excess.sum() + 3 * excess.max()


@pytest.mark.parametrize("words", [1, 512])
def test_pauses_change_nothing(words: int) -> None:
    """Where a search pauses after every move, it has made the same moves in the end."""
    tuning = SHORT.changed({"annealing": {"marks": words}})
    for instance in structured().values():
        blocks = Blocks.of(instance)
        if annealing.unsupported(blocks):
            continue
        free = blocks.fixed < 0
        stacked = pile(blocks.size, blocks.alignment, int((blocks.fixed + blocks.size).max()))
        assert stacked is not None
        start = np.where(free, stacked, blocks.fixed)
        states: list[tuple[int, list[int], int]] = []
        for budget in (5_000, *range(1, 12)):
            search = annealing._search(blocks, start, free, 1, 0, tuning=tuning)
            search.state[:] = int(blocks.load.max()) - 1, REORDERED, 0
            while search.state[TRIALS] < (states[0][0] if states else 1):
                anneal(search, 1.0, budget)
            states.append(
                (int(search.state[TRIALS]), search.offsets.tolist(), int(search.random[0]))
            )
        assert states == states[:1] * len(states)
        assert states[0][0] > 1


def test_a_new_target_alone_moves_nothing_but_the_energy() -> None:
    instance = random_plain(np.random.default_rng(9), 120, longest=60)
    blocks = Blocks.of(instance)
    search = annealing._search(
        blocks, poor(blocks), np.ones(blocks.b, dtype=bool), 1, 0, tuning=SHORT
    )
    annealing.place_all(search)
    before = search.offsets.copy()
    for target in (int(blocks.load.max()), int((before + blocks.size).max()) - 1):
        search.state[TARGET] = target
        search.state[ENERGY] = RETARGETED
        anneal(search, 0.0, 1)
        counted = int(search.state[ENERGY])
        annealing.place_all(search)
        assert (search.offsets == before).all()
        assert counted == search.state[ENERGY] > 0


def test_the_target_is_a_unit_below_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(10), 80, longest=60))
    start, bound = poor(blocks), int(blocks.load.max())
    peak = int((start + blocks.size).max())
    assert peak - bound < TUNING.annealing.target_steps
    targets = []

    def watched(search: Annealing, temperature: float, budget: int) -> int:
        targets.append((int((search.offsets + search.size).max()), int(search.state[TARGET])))
        return anneal(search, temperature, budget)

    monkeypatch.setattr(annealing, "anneal", watched)
    reports = [peak]
    looks = iter(range(12))
    annealing.improve(
        blocks,
        start,
        target=bound,
        keep_going=lambda: next(looks, None) is not None,
        on_solution=lambda found: reports.append(int((found + blocks.size).max())),
        tuning=SHORT,
    )
    assert len(reports) > 2
    assert {target for _, target in targets} <= {max(bound, value - 1) for value in reports}


def test_same_seed_same_answer() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(4), 100, longest=60))
    bound = int(blocks.load.max())
    one, two = (
        annealing.improve(blocks, poor(blocks), target=bound, seed=7, legs=15, tuning=SHORT)
        for _ in range(2)
    )
    assert np.array_equal(one, two)


def test_valid_with_circular_time_graphs_alignment_and_fixed_offsets() -> None:
    rng = np.random.default_rng(6)
    moved = 0
    for _ in range(60):
        features = [
            name
            for name in ("alignment", "fixed", "circular", "conflicts", "colocated")
            if rng.random() < 0.4
        ]
        instance = random_packing(rng, features=features)
        blocks = Blocks.of(instance)
        start = greedy.place(blocks, RULES["first-fit-start"])
        if start is None or annealing.unsupported(blocks):
            continue
        offsets = annealing.improve(
            blocks, start, target=int(blocks.load.max()), legs=3, tuning=SHORT
        )
        assert instance.check(PackingSolution(blocks.expand(offsets))) == ()
        assert (offsets + blocks.size).max() <= (start + blocks.size).max()
        moved += not np.array_equal(offsets, start)
    assert moved


@pytest.mark.parametrize("alive", [10, 60])
def test_a_heap_counts_more_than_marks(alive: int) -> None:
    def trials(words: int) -> int:
        tuning = SHORT.changed({"annealing": {"marks": words}})
        n, start = 400, np.arange(400)
        size = np.random.default_rng(4).integers(1, 9, n)
        blocks = Blocks.of(LmemPacking.from_arrays(size, start, start + alive))
        search = annealing._search(
            blocks, poor(blocks), np.ones(n, dtype=bool), 1, 0, tuning=tuning
        )
        search.state[TARGET], search.state[ENERGY] = blocks.load.max() - 1, RETARGETED
        anneal(search, 1e-9, 400_000)
        return int(search.state[TRIALS])

    assert trials(1) < 0.8 * trials(512)  # of the same budget


def test_long_marks_count_more_than_short_ones() -> None:
    """Where buffers have hundreds of units, as many steps took more than twice as long."""

    def trials(scale: int) -> int:
        n, start = 100, np.arange(100)
        size = scale * np.random.default_rng(4).integers(1, 9, n) + 1
        blocks = Blocks.of(LmemPacking.from_arrays(size, start, start + 10))
        search = annealing._search(blocks, poor(blocks), np.ones(n, dtype=bool), 1, 0, tuning=SHORT)
        assert len(search.bits)
        search.state[TARGET], search.state[ENERGY] = blocks.load.max() - 1, RETARGETED
        anneal(search, 1e-9, 400_000)
        return int(search.state[TRIALS])

    assert trials(300) < 0.7 * trials(1)  # of the same budget


def test_finds_the_optimum_above_the_load() -> None:
    blocks = Blocks.of(tight())
    reports: list[int] = []
    offsets = annealing.improve(
        blocks,
        poor(blocks),
        target=17,
        legs=20,
        on_solution=lambda found: reports.append(int((found + blocks.size).max())),
        tuning=SHORT,
    )
    assert (offsets + blocks.size).max() == 17
    assert reports == sorted(set(reports), reverse=True)


def test_stops_when_told() -> None:
    blocks = Blocks.of(random_plain(np.random.default_rng(8), 100, longest=60))
    start = poor(blocks)
    found = annealing.improve(
        blocks, start, target=int(blocks.load.max()), keep_going=lambda: False, tuning=SHORT
    )
    assert (found + blocks.size).max() <= (start + blocks.size).max()


def test_unsupported_names_what_is_in_the_way() -> None:
    ranged = LmemPacking.from_arrays([2, 3], [0, 1], [2, 3], reserved=((4, 5),))
    assert "ranges" in annealing.unsupported(Blocks.of(ranged))
    fixed = LmemPacking.from_arrays([2, 3], [0, 1], [2, 3], fixed=np.array([4, -1]))
    assert annealing.unsupported(Blocks.of(fixed)) == ""
