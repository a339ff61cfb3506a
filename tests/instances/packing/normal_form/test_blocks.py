from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagepack.instances.packing import (
    Allowed,
    Gap,
    LmemPacking,
    Objective,
    PackingSolution,
    measure,
)
from stagepack.instances.packing.normal_form import cover, graphs
from stagepack.instances.packing.normal_form.blocks import Blocks
from tests.instances.packing.moments import held, overlap
from tests.packing_cases import FEATURES, brute_force, random_packing

cases = {
    "seed": st.integers(0, 2**32),
    "features": st.sets(st.sampled_from([f for f in FEATURES if f != "no-bytes"])).map(sorted),
}


def case(seed: int, features: list[str]) -> tuple[LmemPacking, Blocks]:
    instance = random_packing(np.random.default_rng(seed), features=features)
    assume(never_dead(instance))
    return instance, Blocks.of(instance)


def never_dead(instance: LmemPacking) -> bool:
    """Tell whether every buffer holds something at some moment."""
    return not instance.gaps or all(held(instance, i) for i in range(instance.n))


DEAD = LmemPacking.from_arrays(
    [4, 2, 6], [0, 0, 0], [2, 4, 4], gaps=[Gap(0, 0, 2), Gap(1, 1, 2)], in_place=[(0, 1)]
)
"""A buffer that is dead all its life, and one in two pieces: as many pieces as blocks."""


def test_a_buffer_that_is_always_dead_may_share() -> None:
    assert Blocks.of(DEAD).load.max() == 8


def test_neighbours_are_told_once() -> None:
    ptr, other = Blocks.of(DEAD.replace(in_place=())).neighbours()
    assert [other[a:b].tolist() for a, b in pairwise(ptr)] == [[], [2], [1]]


def test_nothing_is_ever_alive() -> None:
    blocks = Blocks.of(LmemPacking.from_arrays([4], [0], [2], gaps=[Gap(0, 0, 2)]))
    assert (blocks.sections, blocks.load.tolist()) == (1, [0])


def test_blocks_of_no_bytes_are_alone() -> None:
    instance = LmemPacking.from_arrays([4, 0, 6, 0], [0, 0, 1, 2], [2, 4, 4, 3], reserved=[(0, 3)])
    blocks = Blocks.of(instance)
    assert pieces(blocks) == [(0, 0, 1, 0, 4), (1, 1, 2, 0, 0), (2, 0, 1, 0, 6), (3, 2, 3, 0, 0)]
    assert blocks.load.tolist() == [10, 0, 0]
    ranges = zip(blocks.range_low.tolist(), blocks.range_high.tolist(), strict=True)
    assert [low for low, _ in ranges] == [3, 0, 3, 3, 0, 3]  # on either side of what is reserved
    assert Blocks.of(LmemPacking.from_arrays([0, 0], [0, 0], [1, 1])).unit == 1
    assert Blocks.of(instance.replace(colocated=[(0, 1)])).load.tolist() == [10, 0]


def pieces(blocks: Blocks) -> list[tuple[int, int, int, int, int]]:
    """Return (block, first, end, low, high) of every piece."""
    owner = np.repeat(np.arange(blocks.b), np.diff(blocks.piece_ptr))
    rows = zip(owner, blocks.first, blocks.end, blocks.low, blocks.high, strict=True)
    return [(int(o), int(f), int(e), int(low), int(high)) for o, f, e, low, high in rows]


def members(blocks: Blocks) -> list[set[int]]:
    """Return the blocks of each section."""
    found: list[set[int]] = [set() for _ in range(blocks.sections)]
    for owner, first, end, _, _ in pieces(blocks):
        for section in range(first, end):
            found[section].add(owner)
    return found


@settings(max_examples=300)
@given(**cases)
def test_two_blocks_overlap_as_their_buffers_do(seed: int, features: list[str]) -> None:
    instance, blocks = case(seed, features)
    if instance.conflicts is None or not instance.colocated:
        require_equal_overlaps(instance, blocks)


def test_colocated_members_conflict_with_their_own_sizes() -> None:
    instance = LmemPacking.from_arrays([2, 8, 3], conflicts=[(0, 2)], colocated=[(0, 1)])
    assert instance.check(PackingSolution.of(instance, [0, 0, 2])) == ()
    require_equal_overlaps(instance, Blocks.of(instance))


def require_equal_overlaps(instance: LmemPacking, blocks: Blocks) -> None:
    for i in range(instance.n):
        for j in range(i):
            one, other = int(blocks.block[i]), int(blocks.block[j])
            if one == other:
                continue
            mine = [n for n in range(instance.n) if blocks.block[n] == one]
            theirs = [n for n in range(instance.n) if blocks.block[n] == other]
            for distance in range(-12, 13):
                expected = any(
                    conflict(instance, a, b, distance + int(blocks.shift[b] - blocks.shift[a]))
                    for a in mine
                    for b in theirs
                )
                found = any(
                    f < g and h < e and low < top + distance and bottom + distance < high
                    for o, f, e, low, high in pieces(blocks)
                    if o == one
                    for p, h, g, bottom, top in pieces(blocks)
                    if p == other
                )
                assert found == expected


def conflict(instance: LmemPacking, i: int, j: int, distance: int) -> bool:
    """Tell whether j, `distance` bytes above i, is where it must not be."""
    pair = min(i, j), max(i, j)
    if pair in instance.apart or {i, j} & set(instance.exclusive):
        both = instance.size[i] and instance.size[j]
        return bool(both and -instance.size[j] < distance < instance.size[i])
    return pair not in instance.exempt and overlap(instance, i, j, distance)


@settings(max_examples=300)
@given(**cases)
def test_sections_are_maximal_cliques(seed: int, features: list[str]) -> None:
    instance, blocks = case(seed, features)
    sections = members(blocks)
    assume(not (instance.apart or instance.exempt or instance.exclusive))
    if instance.conflicts is None:
        alive: dict[int, set[int]] = {}
        for i in range(instance.n):
            for moment in held(instance, i):
                alive.setdefault(moment, set()).add(int(blocks.block[i]))
        for together in alive.values():
            assert any(together <= section for section in sections)
        # A moment of each section, in order: what is alive then is what the section holds.
        assert [alive[int(moment)] for moment in blocks.time] == sections
        assert np.array_equal(blocks.time, blocks.moment)
        assert (np.diff(blocks.time) > 0).all()
    else:
        for i, j in instance.conflicts.tolist():
            if blocks.block[i] != blocks.block[j]:
                pair = {int(blocks.block[i]), int(blocks.block[j])}
                assert any(pair <= section for section in sections)
    if blocks.linear and not (instance.gaps or instance.colocated or instance.views):
        for at, section in enumerate(sections):
            assert not any(section <= other for other in sections[:at] + sections[at + 1 :])


@settings(max_examples=300)
@given(**cases)
def test_load_pieces_and_neighbours(seed: int, features: list[str]) -> None:
    instance, blocks = case(seed, features)
    load = np.zeros(blocks.sections, dtype=np.int64)
    last: dict[int, int] = {}
    for owner, first, end, low, high in pieces(blocks):
        assert 0 <= low < high <= blocks.size[owner]
        assert last.get(owner, 0) <= first < end <= blocks.sections
        windows = instance.gaps and (instance.colocated or instance.views)
        last[owner] = first if windows else end  # members that have paused in part may lie apart
        load[first:end] += high - low
    if len(blocks.may_share):
        assert (blocks.load <= load).all()
        assert (blocks.load > 0).all()
    else:
        assert np.array_equal(load, blocks.load)
    runs = [range(first, end) for _, first, end, _, _ in pieces(blocks)]
    met = sum(one.start < other.stop and other.start < one.stop for one in runs for other in runs)
    assert blocks.count_meetings() == met == 2 * blocks.pairs + len(runs)
    ptr, other = blocks.neighbours()
    sections = members(blocks)
    for i in range(blocks.b):
        row = other[ptr[i] : ptr[i + 1]].tolist()
        assert row == sorted(set().union(*(s for s in sections if i in s)) - {i})
    assert len(other) == ptr[-1]
    assert (blocks.size[blocks.block] >= instance.size).all()
    whole = all((low, high) == (0, blocks.size[o]) for o, _, _, low, high in pieces(blocks))
    assert blocks.rigid == (whole and not len(blocks.may_share))
    if blocks.plain:
        assert blocks.rigid
        assert len(blocks.first) == blocks.b
    offsets = blocks.expand(1000 * np.arange(blocks.b))
    assert np.array_equal(offsets, 1000 * blocks.block + blocks.shift)
    assert np.array_equal(blocks.gathered(offsets), 1000 * np.arange(blocks.b))
    assert ((blocks.shift % instance.alignment == 0) | (len(blocks.range_low) > 0)).all()


@settings(max_examples=60)
@given(**cases)
def test_ranges_are_the_offsets_that_rules_allow(seed: int, features: list[str]) -> None:
    instance, blocks = case(seed, features)
    rules = {"range", "reserved", "fixed", "offsets", "segment"}
    for at in range(blocks.b):
        ranges = range(blocks.range_ptr[at], blocks.range_ptr[at + 1])
        size = int(blocks.size[at])
        inside = [i for i in range(instance.n) if blocks.block[i] == at]
        for offset in range(40):
            offsets = 1000 * np.arange(1, instance.n + 1)
            offsets[inside] = offset + blocks.shift[inside]
            names = {instance.buffer_id(i) for i in inside}
            fine = not any(
                violation.rule in rules and violation.detail.split()[1] in names
                for violation in instance.check(PackingSolution.of(instance, offsets))
            )
            found = not len(ranges) or any(
                blocks.range_low[r] <= offset and offset + size <= blocks.range_high[r]
                for r in ranges
            )
            if (blocks.shift % instance.alignment != 0)[inside].any():
                fine = False  # alignments contradict one another
            beyond = len(ranges) and offset + size > blocks.range_high[ranges.stop - 1]
            assert found == fine or (instance.segment and beyond)  # so high nobody need lie
    for at, group in enumerate(instance.colocated):
        assert len({int(blocks.block[i]) for i in group}) == 1, at


@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32),
    features=st.sets(st.sampled_from(FEATURES), max_size=3).map(sorted),
    objective=st.sampled_from(
        [Objective.PEAK, Objective.FIT, Objective.BANK_CONFLICTS, Objective.MOVES]
    ),
)
def test_multiples_of_the_unit_will_do(
    seed: int, features: list[str], objective: Objective
) -> None:
    rng = np.random.default_rng(seed)
    instance = random_packing(rng, features=features, objective=objective, n=4)
    assume(never_dead(instance))
    blocks = Blocks.of(instance)
    unit = blocks.unit
    assert unit >= 1
    fixed = instance.fixed
    assert (fixed[fixed >= 0] % unit == 0).all()
    one = brute_force(instance)
    assert one is None or measure(instance, one).peak >= blocks.load.max()
    if unit == 1:
        return
    other = brute_force(instance.replace(alignment=np.lcm(instance.alignment, unit)))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert instance.evaluate(one) == instance.evaluate(other)


def test_the_units_of_known_instances() -> None:
    def unit(**options: Any) -> int:
        given: dict[str, Any] = {"size": [12, 18], "start": [0, 0], "end": [1, 1], **options}
        return Blocks.of(LmemPacking.from_arrays(**given)).unit

    assert unit() == 6
    assert unit(alignment=[4, 4]) == 2
    assert unit(alignment=[2, 3]) == 6
    assert unit(fixed=[4, -1]) == 2
    assert unit(allowed=[Allowed(0, 4, 40)]) == 2
    assert unit(gaps=[Gap(0, 0, 1, 3, 9)]) == 3
    assert unit(previous=[5, -1], capacity=90, objective="moves") == 1


def test_the_unit_beside_a_reserved_range() -> None:
    instance = LmemPacking.from_arrays([12, 18], [0, 0], [1, 1], reserved=[(9, 15)])
    assert Blocks.of(instance).unit == 3


def test_a_case_by_hand() -> None:
    instance = LmemPacking.from_arrays(
        [4, 6, 2, 8],
        [-5, 0, 10, 10],
        [0, 10, 12, 30],
        colocated=[(0, 2)],
        gaps=[Gap(3, 20, 30, 2, 5)],
        in_place=[(1, 0)],
        alignment=[2, 1, 3, 1],
    )
    blocks = Blocks.of(instance)
    assert blocks.block.tolist() == [0, 1, 0, 2]
    assert blocks.size.tolist() == [4, 6, 8]
    assert blocks.alignment.tolist() == [6, 1, 1]
    assert blocks.sections == 4
    assert pieces(blocks) == [
        (0, 0, 1, 0, 4), (0, 2, 3, 0, 2), (1, 1, 2, 0, 6), (2, 2, 3, 0, 8), (2, 3, 4, 2, 5),
    ]  # fmt: skip
    assert blocks.load.tolist() == [4, 6, 10, 3]
    assert blocks.duration.tolist() == [7, 10, 20]
    assert blocks.may_share.tolist() == [[0, 1]]
    assert not blocks.rigid
    assert not blocks.plain
    assert blocks.expand(np.array([7, 8, 9])).tolist() == [7, 8, 7, 9]


@pytest.mark.parametrize("span", [1, 10**6, 2**60])
def test_moments_far_apart(span: int) -> None:
    instance = LmemPacking.from_arrays(
        [1, 2, 4], [-span, 0, span], [span, 2 * span, 2 * span + 1], ids=["a", "b", "c"]
    )
    blocks = Blocks.of(instance)
    assert blocks.load.tolist() == [3, 6]
    assert blocks.plain
    assert blocks.unit == math.gcd(1, 2, 4)
    far = LmemPacking.from_arrays([1, 2], [-(2**61), 2**61], [2 - 2**61, 2**61 + 1])
    assert Blocks.of(far).load.tolist() == [1, 2]


def test_a_million_buffers() -> None:
    rng = np.random.default_rng(0)
    n = 1_000_000
    start = rng.integers(0, n, n)
    instance = LmemPacking.from_arrays(
        rng.integers(1, 1000, n), start, start + rng.integers(1, 20, n)
    )
    blocks = Blocks.of(instance)
    assert blocks.plain
    assert blocks.b == n
    events = np.zeros(n + 20, dtype=np.int64)
    np.add.at(events, instance.start, instance.size)
    np.add.at(events, instance.end, -instance.size)
    assert blocks.load.max() == np.cumsum(events).max()


def test_the_work_of_the_normal_form_grows_like_a_sort() -> None:
    """Each of these took minutes: a look at all others for every buffer, pair or section."""
    n = 30_000
    at = np.arange(n)
    began = time.process_time()
    chain = LmemPacking.from_arrays(
        at % 7 + 1, at, at + 3, in_place=[(i, i + 1) for i in range(n - 1)]
    )
    assert Blocks.of(chain).load.max() == 7
    together = LmemPacking.from_arrays(at % 7 + 1, at, at + n, colocated=[range(n)])
    assert Blocks.of(together).b == 1
    assert Blocks.of(together).load.max() == 7
    pairs = np.stack(np.triu_indices(600, 1), axis=1)
    complete = LmemPacking.from_arrays([1] * 600, conflicts=pairs)
    assert Blocks.of(complete).sections == 1
    holes = LmemPacking.from_arrays(
        [3] * 1500, [0] * 1500, [1] * 1500, reserved=[(4 * i, 4 * i + 1) for i in range(1500)]
    )
    assert len(Blocks.of(holes).range_low) == 1500 * 1500
    assert time.process_time() - began < 20


def test_the_normal_form_is_kept_as_long_as_its_instance() -> None:
    instance = LmemPacking.from_arrays([1], [0], [1])
    assert Blocks.of(instance) is Blocks.of(instance)
    assert Blocks.of(instance) is not Blocks.of(instance.replace(name="other"))


def greedy_cover(weight: list[int], adjacent: list[set[int]]) -> list[list[int]]:
    uncovered = [set(others) for others in adjacent]
    cliques = []
    for i in sorted(range(len(weight)), key=lambda i: -weight[i]):
        alone = not adjacent[i]
        while uncovered[i] or alone:
            alone, members = False, [i]
            while near := set.intersection(*(adjacent[m] for m in members)):
                gain = {c: sum(c in uncovered[m] for m in members) for c in near}
                members.append(max(near, key=lambda c: (gain[c], weight[c], -c)))
            for member in members:
                uncovered[member].difference_update(members)
            cliques.append(members)
    return cliques


@pytest.mark.parametrize("seed", range(40))
def test_conflicts_are_covered_by_greedy_cliques(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 24))
    pairs = rng.integers(0, n, (int(rng.integers(1, n * n)), 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0).reshape(-1, 2)
    instance = LmemPacking.from_arrays(rng.integers(1, 9, n), conflicts=pairs)
    block = np.arange(n) if seed % 2 else rng.integers(0, n, n)
    adjacent: list[set[int]] = [set() for _ in range(n)]
    for i, j in pairs[block[pairs[:, 0]] != block[pairs[:, 1]]].tolist():
        adjacent[i].add(j)
        adjacent[j].add(i)
    expected = greedy_cover(instance.size.tolist(), adjacent)
    low, high = np.ascontiguousarray(graphs.edges(instance, block).T)
    buffer, clique, count, _ = cover.clique_cover(low, high, instance.size, lambda: True)
    assert buffer.tolist() == [member for members in expected for member in members]
    assert clique.tolist() == [c for c, members in enumerate(expected) for _ in members]
    assert count == len(expected)


@pytest.mark.parametrize("questions", [0, 3, 9, 20, 60])
def test_a_cover_that_is_cut_short_says_the_same(
    questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three million conflicts took 6.5 s without a question."""
    monkeypatch.setattr(cover, "PART", 10)
    rng = np.random.default_rng(questions)
    pairs = rng.integers(0, 30, (90, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    instance = LmemPacking.from_arrays(rng.integers(1, 9, 33), conflicts=pairs)
    left = iter(range(questions))
    cut = Blocks.of(instance, lambda: next(left, None) is not None)
    assert next(left, None) is None  # so many questions there were
    whole = Blocks.of(instance, lambda: True)
    assert whole is not cut
    assert Blocks.of(instance, lambda: True) is whole
    for one, other in zip(cut.neighbours(), whole.neighbours(), strict=True):
        assert one.tolist() == other.tolist()
    assert cut.sections > whole.sections
    assert cut.load.max() <= whole.load.max()


@pytest.mark.parametrize("hub", [1, 9])
def test_a_buffer_that_conflicts_with_all_others(hub: int) -> None:
    n = 100_000  # whose squared number of steps would take hours
    pairs = np.stack([np.zeros(n - 1, dtype=np.int64), np.arange(1, n)], axis=1)
    instance = LmemPacking.from_arrays([hub] + [5] * (n - 1), conflicts=pairs)
    low, high = np.ascontiguousarray(pairs.T)
    _, clique, count, _ = cover.clique_cover(low, high, instance.size, lambda: True)
    assert count == n - 1
    assert len(clique) == 2 * (n - 1)


def test_many_reserved_ranges_ask_one_by_one() -> None:
    """Of thousands nothing was asked for 0.2 s."""
    asked = []
    reserved = [(10 * at, 10 * at + 3) for at in range(50)]
    instance = LmemPacking.from_arrays([5, 6], [0, 1], [2, 3], reserved=reserved)

    def keep_going() -> bool:
        asked.append(True)
        return True

    Blocks.of(instance, keep_going)
    assert len(asked) > 2 * len(reserved)
