from __future__ import annotations

import importlib
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.instances.packing import (
    Allowed,
    Banks,
    Gap,
    LmemPacking,
    Memory,
    Objective,
    PackingSolution,
    measure,
)
from stagepack.instances.packing.check import LISTED
from tests.instances.packing.moments import violations
from tests.packing_cases import FEATURES, RELATIONS, random_packing

checking = importlib.import_module("stagepack.instances.packing.check")  # not its function


def packing(**options: Any) -> LmemPacking:
    """Return three buffers: a and b alive together, then b and c."""
    given = {"size": [4, 6, 4], "start": [0, 0, 2], "end": [2, 4, 4], "ids": ["a", "b", "c"]}
    return LmemPacking.from_arrays(**{**given, **options})


@pytest.mark.parametrize("features", [(), ("circular",), ("gaps", "in-place")])
def test_events_are_played_in_any_parts(
    features: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(3)
    for n in (3, 7):
        for _ in range(5):
            instance = random_packing(random, n=n, features=features)
            offsets = random.integers(0, 60, instance.n)
            found = []
            for at_once in (50_000, *range(1, 6)):
                monkeypatch.setattr(checking, "AT_ONCE", at_once)
                found.append(broken(instance, offsets.tolist()))
            assert found == found[:1] * len(found)


def broken(instance: LmemPacking, offsets: list[int], memory: Any = None) -> list[str]:
    found = instance.check(PackingSolution.of(instance, offsets, memory))
    return [str(violation) for violation in found]


def test_valid() -> None:
    assert broken(packing(), [0, 4, 0]) == []
    assert broken(packing(), [6, 0, 6]) == []
    assert broken(packing(capacity=10), [0, 4, 0]) == []
    assert broken(packing(), [100, 4, 10]) == []


TWO_MEMORIES = {"memories": [Memory("near", 6, 1), Memory("far", None, 5)]}
CASES: list[tuple[dict[str, Any], list[int], Any, list[str]]] = [
    ({}, [0, -1, 9], None, ["offsets: buffer b lies at -1", "overlap: buffers a at 0 and b at -1 "
      "share [0, 4) at times [0, 2)"]),
    ({}, [0, 3, 9], None,
     ["overlap: buffers a at 0 and b at 3 share [3, 4) at times [0, 2)"]),
    ({}, [0, 4, 7], None,
     ["overlap: buffers b at 4 and c at 7 share [7, 10) at times [2, 4)"]),
    ({"capacity": 9}, [0, 4, 0], None,
     ["capacity: buffer b ends at 10, 1 bytes beyond the capacity of 9"]),
    ({"capacity": 9, "objective": "peak"}, [0, 4, 0], None, []),
    ({"alignment": [1, 8, 1]}, [0, 4, 0], None,
     ["alignment: buffer b lies at 4, no multiple of 8"]),
    ({"fixed": [0, 6, -1]}, [0, 4, 0], None, ["fixed: buffer b lies at 4, not at 6"]),
    ({"allowed": [Allowed(1, 0, 8), Allowed(1, 5, 11)]}, [0, 4, 0], None,
     ["range: buffer b lies at 4, in no range"]),
    ({"reserved": [(3, 5), (20, 30)]}, [0, 4, 5], None,
     ["reserved: buffer a at 0 reaches into [3, 5)", "reserved: buffer b at 4 reaches into [3, 5)",
      "overlap: buffers b at 4 and c at 5 share [5, 9) at times [2, 4)"]),
    ({"colocated": [(0, 2)]}, [0, 4, 10], None,
     ["colocation: one offset is asked for, not a at 0, c at 10"]),
    ({"colocated": [(0, 1)]}, [4, 4, 0], None, []),
    ({"in_place": [(1, 2)]}, [6, 0, 0], None, []),
    ({"in_place": [(1, 2)]}, [6, 0, 1], None,
     ["in-place: buffers b at 0 and c at 1 share [1, 5) at times [2, 4)"]),
    ({"gaps": [Gap(1, 2, 4)]}, [0, 4, 4], None, []),
    ({"gaps": [Gap(1, 2, 4, 0, 2)]}, [0, 4, 6], None, []),
    ({"gaps": [Gap(1, 2, 4, 0, 3)]}, [0, 4, 6], None,
     ["gap: buffers b at 4 and c at 6 share [6, 7) at times [2, 4)"]),
    ({"banks": Banks(2, 5, np.array([[0, 1]]))}, [0, 5, 0], None,
     ["bank: buffer b ends at 11, beyond the 2 banks (10 bytes)"]),
    ({"conflicts": [(0, 2)], "start": None, "end": None}, [0, 0, 2], None,
     ["overlap: buffers a at 0 and c at 2"]),
    (TWO_MEMORIES, [0, 0, 0], [0, 1, 0], []),
    (TWO_MEMORIES, [0, 0, 3], [0, 1, 0],
     ["capacity: buffer c ends at 7, 1 bytes beyond the capacity of 6"]),
    (TWO_MEMORIES, [0, 0, 0], [0, 0, 1],
     ["overlap: buffers a at 0 and b at 0 share [0, 4) at times [0, 2)"]),
    (TWO_MEMORIES, [0, 0, 0], [0, 2, 0], ["memory: buffer b is in memory 2"]),
    (TWO_MEMORIES, [0, 0, 0], None, ["memory: the memory of each buffer is missing"]),
    ({}, [0, 4, 0], [0, 0, 0], ["memory: there is only one memory"]),
    ({}, [0, 4], None, ["offsets: (2,) int64 for 3 buffers"]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "offsets", "memory", "expected"), CASES)
def test_every_rule(
    options: dict[str, Any], offsets: list[int], memory: Any, expected: list[str]
) -> None:
    assert broken(packing(**options), offsets, memory) == expected


def test_circular_lifetimes_overlap_around_the_end() -> None:
    instance = packing(start=[2, 0, 1], end=[4, 1, 2], period=3)
    # a is alive in the moments 2 and 0.
    assert broken(instance, [0, 4, 0]) == []
    assert broken(instance, [0, 3, 0]) == [
        "overlap: buffers a at 0 and b at 3 share [3, 4) at times [0, 1)"
    ]
    assert broken(instance.replace(end=[5, 1, 2]), [0, 4, 0]) == [
        "overlap: buffers a at 0 and c at 0 share [0, 4) at times [1, 2)"
    ]


def test_long_lists_of_violations_are_cut() -> None:
    n = 2 * LISTED
    instance = LmemPacking.from_arrays([1] * n, [0] * n, [1] * n, capacity=1, alignment=2)
    rules = Counter(v.rule for v in instance.check(PackingSolution.of(instance, [1] * n)))
    assert rules == {"capacity": LISTED + 1, "alignment": LISTED + 1, "overlap": LISTED + 1}


MANY = 40_000
LARGE: list[dict[str, Any]] = [
    {},
    {"start": np.arange(MANY) % 99, "end": np.arange(MANY) % 99 + 60, "period": 99},
    {"colocated": [range(MANY // 2)]},
    {"in_place": [(i, i + 1) for i in range(MANY - 1)]},
    {"gaps": [(i, 1, 2, 0, 1) for i in range(MANY)]},
    {"reserved": [(10 * MANY + 2 * i, 10 * MANY + 2 * i + 1) for i in range(MANY)]},
    {"memories": [(str(i), None, i) for i in range(MANY // 10)]},
]


@pytest.mark.parametrize("options", LARGE)
def test_the_work_grows_like_a_sort(options: dict[str, Any]) -> None:
    """Where all are alive together: a pair by pair look would take hours, and some memory."""
    given = {"start": [0] * MANY, "end": [3] * MANY, **options}
    instance = LmemPacking.from_arrays([3] * MANY, **given)
    memory = np.arange(MANY) % 2 if "memories" in options else None
    offsets = 3 * np.arange(MANY)
    if "colocated" in options:
        offsets[: MANY // 2] = 0
    began = time.process_time()
    assert instance.check(PackingSolution.of(instance, offsets, memory)) == ()
    found = instance.check(PackingSolution.of(instance, offsets // 3, memory))
    assert 0 < len([v for v in found if v.rule in ("overlap", "gap")]) <= LISTED + 1
    assert "at least" in str(found[-1])
    assert time.process_time() - began < 6


def test_a_buffer_in_many_reserved_ranges_is_told_once_each() -> None:
    instance = packing(size=[40, 6, 4], reserved=[(5 * i, 5 * i + 1) for i in range(30)])
    told = broken(instance, [7, 200, 62])
    assert [line for line in told if line.startswith("reserved")] == [
        f"reserved: buffer a at 7 reaches into [{low}, {low + 1})" for low in range(10, 46, 5)
    ] + ["reserved: buffer c at 62 reaches into [65, 66)"]


def test_offsets_of_another_type() -> None:
    instance = packing()
    solution = PackingSolution(np.array([0.0, 4.0, 0.0]))
    assert [v.rule for v in instance.check(solution)] == ["offsets"]


@settings(max_examples=400)
@given(
    seed=st.integers(0, 2**32),
    features=st.sets(st.sampled_from((*FEATURES, *RELATIONS, "memories"))),
    objective=st.sampled_from(Objective),
)
def test_against_moments(seed: int, features: set[str], objective: Objective) -> None:
    rng = np.random.default_rng(seed)
    instance = random_packing(rng, features=sorted(features), objective=objective)
    levels = len(instance.memories)
    memory = rng.integers(0, levels, instance.n) if levels else None
    solution = PackingSolution.of(instance, rng.integers(0, 20, instance.n), memory)
    found = Counter(violation.rule for violation in instance.check(solution))
    assert found == violations(instance, solution)


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), apart=st.integers(0, 3))
def test_the_sweep_misses_nothing(seed: int, apart: int) -> None:
    """Nearly valid packings of plain buffers: at most one overlap."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 30))
    start = rng.integers(0, 10, n)
    instance = LmemPacking.from_arrays(rng.integers(1, 5, n), start, start + rng.integers(1, 5, n))
    offsets = np.cumsum(instance.size) - instance.size
    moved = int(rng.integers(n))
    offsets[moved] = max(0, offsets[moved] - apart)
    solution = PackingSolution.of(instance, offsets)
    assert Counter(v.rule for v in instance.check(solution)) == violations(instance, solution)


def test_measure() -> None:
    instance = packing(
        banks=Banks(4, 4, np.array([[0, 1], [1, 2], [0, 2]])),
        capacity=16,
        previous=[0, 8, -1],
        objective="bank-conflicts",
    )
    # a is in bank 0, b in banks 1 and 2, c in banks 2 and 3.
    found = measure(instance, PackingSolution.of(instance, [0, 4, 10]))
    assert (found.peak, found.bank_conflicts, found.moved, found.moved_bytes) == (14, 1, 1, 6)
    assert found.spill_cost is None
    assert instance.conflict_weight == 100
    assert instance.evaluate(PackingSolution.of(instance, [0, 4, 10])) == 114
    assert (
        instance.replace(objective="moves").evaluate(PackingSolution.of(instance, [0, 4, 10])) == 6
    )
    for objective in ("peak", "fit"):
        assert (
            instance.replace(objective=objective).evaluate(PackingSolution.of(instance, [0, 4, 10]))
            == 14
        )
    weighted = instance.replace(banks=Banks(4, 4, np.array([[1, 2]]), weight=3))
    assert weighted.evaluate(PackingSolution.of(instance, [0, 4, 10])) == 17


def test_spill_cost() -> None:
    instance = packing(**TWO_MEMORIES, accesses=[7, 2, 0])
    solution = PackingSolution.of(instance, [0, 0, 0], [0, 1, 1])
    assert instance.objective is Objective.SPILL
    assert instance.evaluate(solution) == 7 + 10
    assert measure(instance, solution).peaks == (4, 6)


def test_apart_agrees_with_the_sweep_that_finds_all() -> None:
    rng = np.random.default_rng(7)
    answers = Counter[bool]()
    for n in [*rng.integers(1, 12, 300), 64, 65, 4097]:
        start = rng.integers(0, n, n)
        instance = LmemPacking.from_arrays(rng.integers(1, 4, n), start, start + 1 + start % 5)
        offsets = rng.integers(0, int(rng.integers(1, 4 * n)), n)
        if n > 12:
            offsets = np.cumsum(instance.size) - instance.size  # a stack
        buffer, *sides = checking._rectangles(instance, offsets)
        nobody = np.empty(0, dtype=np.int64)
        found, _ = checking._meeting(n, nobody, buffer, buffer, *sides)
        answers[len(found) == 0] += 1
        # Once too far apart to be sorted with their indices.
        for start, end, low, high in (sides, [side << 46 for side in sides]):
            events = (*checking._ascending(start), *checking._ascending(end))
            assert checking._apart(events, low, high) == (len(found) == 0)
    assert min(answers.values()) > 20


def test_what_is_valid_and_plain_is_never_searched_for_overlaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(checking, "_meeting")
    assert broken(packing(), [0, 4, 0]) == []
    assert broken(packing(period=4, start=[0, 1, 3], end=[2, 4, 5]), [0, 4, 10]) == []
    with pytest.raises(NameError):
        broken(packing(), [0, 3, 9])


def test_buffers_that_are_never_there_overlap_nothing() -> None:
    gone = LmemPacking.from_arrays([4, 4], [0, 0], [2, 2], gaps=[(0, 0, 2), (1, 0, 2)])
    assert gone.check(PackingSolution(np.zeros(2, dtype=np.int64))) == ()


def test_many_answers_of_one_instance_sort_its_lifetimes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ascending, sorted_ = checking._ascending, list[int]()

    def counted(values: Any) -> Any:
        sorted_.append(len(values))
        return ascending(values)

    monkeypatch.setattr(checking, "_ascending", counted)
    instance = LmemPacking.from_arrays([4, 4, 4], [0, 1, 5], [3, 6, 9])
    assert instance.check(PackingSolution.of(instance, [0, 4, 0])) == ()
    assert len(sorted_) == 3
    assert instance.check(PackingSolution.of(instance, [4, 0, 4])) == ()
    assert len(sorted_) == 4  # the addresses
    assert instance.check(PackingSolution.of(instance, [4, 0, 3])) != ()
    circle = instance.replace(period=9)
    for _ in range(2):
        assert circle.check(PackingSolution.of(circle, [0, 4, 0])) == ()
    assert len(sorted_) == 5 + 6  # pieces of a circle are made anew
