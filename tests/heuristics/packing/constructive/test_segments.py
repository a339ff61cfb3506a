"""Segments as one number: what places blocks without ranges keeps to their multiples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, repeat

import numpy as np

from stagepack.heuristics.packing.constructive import dive, greedy, valleys
from stagepack.heuristics.packing.constructive.rules import BANKS, RULES, Measures
from stagepack.heuristics.packing.local_search import annealing, cores
from stagepack.instances.packing import LmemPacking, PackingSolution
from stagepack.instances.packing.normal_form.blocks import Blocks


def instances(count: int, n: int = 40) -> Iterator[LmemPacking]:
    """Yield buffers with lifetimes on a line, on a circle, or with gaps, in segments."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        size = rng.integers(1, 30, n) * int(rng.choice([1, 4]))
        start = rng.integers(0, 30, n)
        step = int(rng.choice([1, 4]))
        wide = -(-(int(size.max()) + int(rng.integers(0, 40))) // step) * step
        instance = LmemPacking.from_arrays(
            size, start, start + rng.integers(1, 15, n), segment=wide, alignment=step
        )
        yield instance if seed % 3 else instance.replace(period=30)


def test_all_placements_keep_to_segments() -> None:
    for instance in instances(9):
        blocks = Blocks.of(instance)
        tried = blocks.open
        assert bool(tried.segment) == bool((np.diff(blocks.piece_ptr) == 1).all())
        found = [greedy.place(blocks, rule) for rule in RULES.values() if rule.policy != BANKS]
        spans = valleys.Spans(blocks.rounded)
        found += [valleys.place(spans, valleys.classes_by(key, spans)) for key in valleys.KEYS]
        if not dive.unsupported(blocks.rounded):
            order = np.lexsort(dive.ORDERS["area-longest"](Measures(blocks.rounded))[::-1])
            found.append(dive.place(blocks.rounded, order))
            found.append(
                cores.best(
                    blocks.rounded, keep_going=partial(next, chain([True] * 9, repeat(False)))
                )
            )
        if found[0] is not None and not annealing.unsupported(blocks):
            found.append(annealing.improve(blocks, found[0], target=0, legs=3))
        assert sum(offsets is not None for offsets in found) > 10
        for offsets in found:
            if offsets is not None:
                solution = PackingSolution.of(instance, blocks.expand(offsets))
                assert instance.check(solution) == ()


def test_a_height_that_suffices() -> None:
    for instance in instances(12, n=12):
        blocks = Blocks.of(instance)
        placed = greedy.portfolio(blocks)
        assert placed is not None
        assert (placed + blocks.size).max() <= blocks.range_high.max()


def test_heaps_of_many_buffers_cost_little() -> None:
    rng = np.random.default_rng(0)
    n = 3000
    size = rng.integers(1, 2000, n) * 16
    start = rng.integers(0, n, n)
    instance = LmemPacking.from_arrays(
        size, start, start + rng.integers(1, 200, n), alignment=16, segment=2**18
    )
    blocks = Blocks.of(instance)
    spans = valleys.Spans(blocks.rounded)
    offsets = valleys.place(spans, valleys.classes_by("size", spans))
    assert offsets is not None
    assert instance.check(PackingSolution.of(instance, offsets)) == ()
    assert (offsets + size).max() < 1.2 * blocks.load.max()
