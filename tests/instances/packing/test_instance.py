from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagepack.errors import InputError
from stagepack.instances.packing import (
    Allowed,
    Banks,
    Gap,
    LmemPacking,
    Memory,
    Objective,
    PackingSolution,
)
from tests.packing_cases import FEATURES, random_packing

BASE: dict[str, Any] = {
    "size": [4, 6, 4], "start": [0, 0, 2], "end": [2, 4, 4], "ids": ["a", "b", "c"],
}  # fmt: skip
BANKS = Banks(2, 8, np.array([[0, 1]]))


def packing(**options: Any) -> LmemPacking:
    return LmemPacking.from_arrays(**{**BASE, **options})


def test_defaults() -> None:
    instance = LmemPacking.from_arrays([4, 6], [0, 1], [2, 3])
    assert instance.n == 2
    assert [instance.buffer_id(i) for i in range(2)] == ["0", "1"]
    assert instance.objective is Objective.PEAK
    assert instance.ceiling is None
    assert instance.goal is None
    assert instance.kind == "lmem-packing"
    assert instance.tolerance == 0
    assert instance.alignment.tolist() == [1, 1]
    assert instance.accesses.tolist() == [4, 6]
    for name in ("fixed", "previous", "hint"):
        assert getattr(instance, name).tolist() == [-1, -1]
    for name in ("size", "start", "end", "alignment", "fixed"):
        column = getattr(instance, name)
        assert column.dtype == np.int64
        assert not column.flags.writeable


def test_default_objectives() -> None:
    assert packing(capacity=10).objective is Objective.FIT
    assert packing(capacity=10).ceiling == packing(capacity=10).goal == 10
    assert packing(capacity=10, objective="peak").ceiling is None
    spilling = packing(memories=[("near", 8, 1), ("far", None, 9)])
    assert spilling.objective is Objective.SPILL
    assert spilling.memories == (Memory("near", 8, 1), Memory("far", None, 9))
    assert packing(capacity=10, banks=BANKS).objective is Objective.FIT


def test_what_may_be_given_in_several_ways() -> None:
    assert packing(gaps=[(1, 1, 2)]).gaps == packing(gaps=[Gap(1, 1, 2)]).gaps == (Gap(1, 1, 2),)
    assert packing(allowed=[(1, 4, 9)]).allowed == (Allowed(1, 4, 9),)
    assert packing(alignment=8).alignment.tolist() == [8, 8, 8]
    assert packing(size=np.array([4.0, 6.0, 4.0])).digest == packing().digest
    assert packing(size=np.array([4, 6, 4], dtype=np.uint64)).digest == packing().digest
    assert packing(in_place=[(2, 0), (0, 2)]).in_place == ((0, 2),)
    assert packing(colocated=[(2, 1), (0, 2)]).colocated == ((0, 1, 2),)
    assert packing(reserved=[(6, 9), (0, 3), (3, 4)]).reserved == ((0, 4), (6, 9))
    graph = LmemPacking.from_arrays([1, 2], conflicts=[(1, 0), (0, 1)])
    assert graph.conflicts is not None
    assert graph.conflicts.tolist() == [[0, 1]]


def test_the_callers_arrays_stay_theirs() -> None:
    size = np.array([4, 6, 4])
    instance = packing(size=size)
    size[0] = 99
    assert instance.size[0] == 4


def test_bytes_are_said_as_in_the_shell() -> None:
    said = LmemPacking.from_arrays(
        ["1KiB", "512", "2kB"], [0] * 3, [1] * 3, capacity="1MiB", alignment="16 B",
        fixed=[4096, -1, -1], allowed=[(1, 0, "1MiB")], reserved=[("8KiB", "9KiB")],
        gaps=[(0, 0, 1, 0, "1KiB")], banks=Banks(64, 16384, np.array([[0, 1]])),
    )  # fmt: skip
    counted = LmemPacking.from_arrays(
        [1024, 512, 2000], [0] * 3, [1] * 3, capacity=2**20, alignment=16,
        fixed=[4096, -1, -1], allowed=[(1, 0, 2**20)], reserved=[(8192, 9216)],
        gaps=[(0, 0, 1, 0, 1024)], banks=Banks(64, 16384, np.array([[0, 1]])),
    )  # fmt: skip
    assert said.digest == counted.digest
    assert said.replace(size=np.array(["1KiB", "2B", "0"])).size.tolist() == [1024, 2, 0]
    assert said.replace(fixed=None, gaps=(), views=[(1, 0, "0.5KiB")]).views[0].offset == 512
    with_units: list[Any] = [("near", "1KiB", 1), ("far", None, 2)]
    assert packing(memories=with_units).memories[0].capacity == 1024


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"size": []}, "start", "shape"),
    ({"size": [], "start": [], "end": [], "ids": None}, "size", "no buffers"),
    ({"size": [4, -1, 4]}, "size", "-1 of buffer b is negative"),
    ({"size": [4, 6.5, 4]}, "size", "entry 1 is 6.5"),
    ({"size": [4, "6 apples", 4]}, "size", "'6 apples' is no number of bytes"),
    ({"start": [0, "1", 0]}, "start", "'0', no integer"),
    ({"capacity": "12Kib!"}, "capacity", "write 1e9 or 16GiB"),
    ({"size": [4, None, 4]}, "size", "no integer"),
    ({"size": [4, 2**62, 4]}, "size", "2**62"),
    ({"size": [4, 2**70, 4]}, "size", "2**62"),
    ({"size": [4, float("nan"), 4]}, "size", "entry 1 is nan"),
    ({"size": [2**61, 2**61, 1]}, "size", "2**61"),
    ({"size": [[4, 6, 4]]}, "size", "one-dimensional"),
    ({"size": [[4], [6, 4]]}, "size", ""),
    ({"start": [0, 0]}, "start", "shape"),
    ({"start": None}, "start", "missing"),
    ({"end": [2, 0, 4]}, "end", "0 of buffer b is not after its start"),
    ({"ids": ["a", "b"]}, "ids", "2 names for 3 buffers"),
    ({"ids": ["a", "b", "a"]}, "ids", "two buffers are named 'a'"),
    ({"alignment": [1, 0, 1]}, "alignment", "0 of buffer b"),
    ({"alignment": 2**61}, "alignment", "2**61"),
    ({"accesses": [1, -1, 1]}, "accesses", "-1 of buffer b"),
    ({"fixed": [-1, -2, -1]}, "fixed", "-2 of buffer b"),
    ({"fixed": [-1, 3, -1], "alignment": 2}, "fixed", "3 of buffer b is no multiple"),
    ({"capacity": -1}, "capacity", "negative"),
    ({"capacity": 1.5}, "capacity", "1.5 is no integer"),
    ({"period": 0}, "period", "is 0"),
    ({"period": 2}, "start", "2 of buffer c is outside [0, 2)"),
    ({"period": 3}, "end", "4 of buffer b is more than a period"),
    ({"gaps": [(1, 1)]}, "gaps[0]", "has 2 entries"),
    ({"gaps": [7]}, "gaps[0]", "7 is no Gap"),
    ({"gaps": [(3, 1, 2)]}, "gaps[0].buffer", "3 is no buffer"),
    ({"gaps": [(0, 1, 3)]}, "gaps[0]", "lifetime [0, 2) of buffer a"),
    ({"gaps": [(1, 1, 1)]}, "gaps[0]", "lifetime"),
    ({"gaps": [(1, 0, 2), (1, 1, 3)]}, "gaps[1]", "overlaps another gap"),
    ({"gaps": [(1, 0, 2, 3, 7)]}, "gaps[0]", "window [3, 7)"),
    ({"allowed": [(1, 4, 4)]}, "allowed[0]", "empty"),
    ({"allowed": [(5, 4, 9)]}, "allowed[0].buffer", "5 is no buffer"),
    ({"reserved": [(4, 4)]}, "reserved[0]", "empty"),
    ({"reserved": [4]}, "reserved[0]", "4 is no range"),
    ({"colocated": [(0, 3)]}, "colocated[0]", "3 is no buffer"),
    ({"colocated": [(0, 2)], "fixed": [0, -1, 4]}, "colocated", "fixed at 0 and 4"),
    ({"in_place": [(1, 1)]}, "in_place[0]", "with itself"),
    ({"in_place": [(1, 3)]}, "in_place", "3 is no buffer"),
    ({"banks": Banks(0, 8, np.array([[0, 1]]))}, "banks.count", "is 0"),
    ({"banks": Banks(2, 0, np.array([[0, 1]]))}, "banks.nbytes", "is 0"),
    ({"banks": Banks(2, 8, np.array([[0, 9]]))}, "banks.pairs", "9 is no buffer"),
    ({"banks": Banks(2, 8, np.array([[0, 1]]), -1)}, "banks.weight", "is -1"),
    ({"conflicts": [(0, 1)]}, "conflicts", "replaces lifetimes"),
    ({"objective": "smallest"}, "objective", "choose one of peak, fit"),
    ({"objective": "fit"}, "capacity", "missing"),
    ({"objective": "moves", "capacity": 9}, "previous", "missing"),
    ({"objective": "bank-conflicts"}, "banks", "missing"),
    ({"objective": "spill"}, "memories", "missing"),
    (
        {"objective": "moves", "previous": [0, 0, 0], "memories": [("m", 1)]},
        "objective",
        "one memory",
    ),
    ({"objective": "fit", "memories": [("m", None)]}, "memories", "no capacity"),
    ({"memories": [("m", 1, 1, [(3, 2)])]}, "memories[0].reserved[0]", "empty"),
    ({"memories": [("m", 1, 1, (), 0)]}, "memories[0].alignment", "positive"),
    ({"memories": [("m",)]}, "memories[0]", "1 entries"),
    ({"memories": [("m", 1)], "homes": {0: ["n"]}}, "homes[0]", "no memory"),
    ({"memories": [("m", 1)], "homes": {0: []}}, "homes", "no memory"),
    ({"homes": [[True]]}, "homes", "shape"),
    (
        {"memories": [("m", 1), ("k", 2)], "homes": {0: ["m"], 1: "k"}, "colocated": [(0, 1)]},
        "homes",
        "no memory in common",
    ),
    ({"apart": [(0, 1)], "exempt": [(1, 0)]}, "exempt", "kept apart"),
    ({"apart": [(0, 1)], "colocated": [(0, 1)]}, "apart", "one place"),
    ({"views": [(0, 1, 3)]}, "views[0]", "not inside"),
    ({"views": [(0, 1), (0, 2)]}, "views[1]", "two hosts"),
    ({"views": [(0, 0)]}, "views[0]", "in itself"),
    ({"views": [(0, 1)], "fixed": [4, 8, -1]}, "colocated", "fixed at"),
    ({"objective": "penalties", "capacity": 9}, "penalties", "missing"),
    ({"objective": "penalties", "penalties": [(0, 1, 2)]}, "capacity", "missing"),
    ({"penalties": [(0, 1, -2)]}, "penalties", "negative"),
    ({"penalties": [(0, 1)]}, "penalties", "no list of pairs"),
    ({"segment": 0}, "segment", "is 0"),
    ({"exclusive": [3]}, "exclusive", "3 is no buffer"),
    ({"exclusive": [-1]}, "exclusive", "-1 is no buffer"),
    ({"lives": [[(0, 1)]]}, "lives", "replaces start"),
    ({"memories": [("m", 1, 1), ("m", 1, 2)]}, "memories", "one name"),
    ({"memories": [("m", -1, 1)]}, "memories[0]", "negative"),
    ({"memories": [("m", 1, 2**61)]}, "memories[0].cost", "2**62"),
]


@pytest.mark.parametrize(("options", "field", "words"), BAD)
def test_what_cannot_be_is_refused_by_name(options: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        packing(**options)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.remedy


def test_replace() -> None:
    instance = packing()
    assert instance.replace().digest == instance.digest
    assert instance.replace(capacity=9, objective="fit").ceiling == 9
    assert instance.replace(start=None, end=None, conflicts=[(0, 1)]).conflicts is not None
    with pytest.raises(InputError, match="no field"):
        instance.replace(sizes=[1, 2, 3])
    with pytest.raises(InputError, match="negative"):
        instance.replace(size=[-1, 1, 1])


def test_digest_tells_all_that_matters() -> None:
    changes: list[dict[str, Any]] = [
        {}, {"size": [4, 6, 5]}, {"end": [2, 4, 5]}, {"capacity": 9}, {"alignment": 2},
        {"capacity": 9, "objective": "peak"}, {"gaps": [Gap(1, 1, 2)]}, {"period": 5},
        {"gaps": [Gap(1, 1, 2, 0, 1)]}, {"fixed": [0, -1, -1]}, {"allowed": [(0, 0, 9)]},
        {"reserved": [(0, 1)]}, {"colocated": [(0, 2)]}, {"in_place": [(0, 2)]},
        {"banks": BANKS}, {"banks": Banks(2, 8, np.array([[0, 2]]))}, {"hint": [0, -1, -1]},
        {"banks": Banks(2, 8, np.array([[0, 1]]), 5)}, {"previous": [0, -1, -1]},
        {"start": None, "end": None, "conflicts": [(0, 1)]},
        {"memories": [("m", 9, 1), ("far", None, 2)]}, {"accesses": [1, 1, 1]},
        {"memories": [("m", 9, 1), ("far", None, 3)]},
    ]  # fmt: skip
    digests = {packing(**change).digest for change in changes}
    assert len(digests) == len(changes)
    assert packing(name="other", source="x", ids=None).digest == packing().digest


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    features=st.sets(st.sampled_from(FEATURES)).map(sorted),
    objective=st.sampled_from(Objective),
)
def test_copies_are_equal(seed: int, features: list[str], objective: Objective) -> None:
    rng = np.random.default_rng(seed)
    instance = random_packing(rng, features=features, objective=objective)
    assert instance.replace().digest == instance.digest
    again = pickle.loads(pickle.dumps(instance))
    assert again.digest == instance.digest
    memory = rng.integers(0, 2, instance.n) if instance.memories else None
    solution = PackingSolution.of(instance, rng.integers(0, 99, instance.n), memory)
    assert PackingSolution.from_dict(solution.to_dict(), instance) == solution
    assert pickle.loads(pickle.dumps(solution)) == solution
    assert hash(PackingSolution.from_dict(solution.to_dict(), instance)) == hash(solution)
    assert again.check(solution) == instance.check(solution)


def test_conflicts_come_before_any_peak() -> None:
    instance = packing(banks=BANKS, capacity=16)
    assert instance.conflict_weight == 100
    assert packing(banks=Banks(2, 8, np.array([[0, 1]]), 7)).conflict_weight == 7
    free = packing(banks=BANKS, objective="bank-conflicts", reserved=[(0, 995)])
    assert free.conflict_weight == 10_000


def test_solutions_as_data() -> None:
    instance = packing(memories=[("near", 8, 1), ("far", None, 9)])
    solution = PackingSolution.of(instance, [0, 4, 0], [0, 1, 0])
    data = {"offsets": {"a": 0, "b": 4, "c": 0}, "memories": {"a": "near", "b": "far", "c": "near"}}
    assert solution.to_dict() == data
    assert PackingSolution.from_dict(data, instance) == solution
    assert solution != PackingSolution.of(packing(), [0, 4, 0])
    assert solution != PackingSolution.of(instance, [0, 4, 0], [0, 1, 1])
    assert solution != {"offsets": {}}
    for changed, field, words in (
        ({}, "offsets", "missing"),
        ([], "offsets", "missing"),
        ({"offsets": [0, 4, 0]}, "offsets", "no object"),
        ({"offsets": {"a": 0, "b": 4}}, "offsets.c", "missing"),
        ({"offsets": {"a": 0, "b": 4, "c": 0, "d": 1}}, "offsets.d", "no buffer"),
        ({"offsets": {"a": 0, "b": 4.5, "c": 0}}, "offsets.b", "4.5 is no integer"),
        ({"offsets": {"a": 0, "b": True, "c": 0}}, "offsets.b", "True"),
        ({"offsets": {"a": 0, "b": 2**62, "c": 0}}, "offsets.b", "2**62"),
        ({**data, "memories": {"a": "near"}}, "memories.b", "missing"),
        ({**data, "memories": {"a": "near", "b": "nowhere", "c": "far"}}, "memories.b", "near"),
        ({**data, "memories": ["near"]}, "memories", "no object"),
    ):
        with pytest.raises(InputError, match=re.escape(words)) as caught:
            PackingSolution.from_dict(changed, instance)
        assert caught.value.field == field


def test_a_selection_keeps_what_it_can() -> None:
    instance = packing(
        gaps=[Gap(1, 1, 2)], allowed=[(0, 0, 9), (2, 0, 9)], colocated=[(0, 2)],
        in_place=[(1, 2)], banks=Banks(2, 8, np.array([[0, 1], [1, 2]])), fixed=[-1, 3, -1],
    )  # fmt: skip
    part = instance.select([2, 1])
    assert part.ids == ("c", "b")
    assert part.size.tolist() == [4, 6]
    assert part.gaps == (Gap(1, 1, 2),)
    assert part.allowed == (Allowed(0, 0, 9),)
    assert part.colocated == ()
    assert part.in_place == ((0, 1),)
    assert part.banks is not None
    assert part.banks.pairs.tolist() == [[0, 1]]
    assert part.fixed.tolist() == [-1, 3]
