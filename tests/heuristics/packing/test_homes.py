"""Where buffers can live, what is packed apart, and memories and homes as texts."""

from __future__ import annotations

from typing import Any

import pytest

from stagepack.errors import InputError
from stagepack.formats import memories as said
from stagepack.heuristics.packing import homes
from stagepack.instances.packing import LmemPacking, Memory, Objective, View


def four(**options: Any) -> LmemPacking:
    given: dict[str, Any] = {
        "memories": [("a", 10), ("b", 20), ("c", None)],
        "objective": "peak",
        **options,
    }
    return LmemPacking.from_arrays(
        [4, 4, 12, 30], [0, 1, 2, 3], [2, 3, 4, 5], ids=["conv1", "conv2", "x=1", "y"], **given
    )


def test_where_buffers_can_live() -> None:
    at = homes.possible(four(homes={0: ["a", "b"]}))
    assert at.astype(int).tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1], [0, 0, 1]]
    tied = homes.possible(four(colocated=[(1, 2)], views=[View(0, 1)], homes={0: ["a", "b"]}))
    assert tied[:3].astype(int).tolist() == [[0, 1, 0]] * 3
    fixed = homes.possible(four(fixed=[-1, 18, -1, -1]))
    assert fixed[1].tolist() == [False, False, True]
    aligned = four(fixed=[-1, 3, -1, -1], memories=[Memory("a", 10, alignment=2), ("b", 90)])
    assert homes.possible(aligned)[1].tolist() == [False, True]


def test_what_has_nothing_to_do_with_the_rest_is_apart() -> None:
    instance = four(homes={0: "a", 1: "a", 2: ["b", "c"], 3: "c"})
    small, large = homes.shares(instance, homes.possible(instance))
    assert (small.memories, small.buffers.tolist()) == ((0,), [0, 1])
    assert not small.instance.memories
    assert (large.memories, large.buffers.tolist()) == ((1, 2), [2, 3])
    assert [memory.name for memory in large.instance.memories] == ["b", "c"]
    assert large.constant is None


def test_what_costs_the_same_anywhere_must_only_fit() -> None:
    instance = four(
        memories=[("a", 10, 2), ("b", 60, 7)],
        homes={0: "a", 1: "a", 2: "b", 3: "b"},
        objective="spill",
    )
    shares = homes.shares(instance, homes.possible(instance))
    assert [share.constant for share in shares] == [16, 294]
    assert {share.instance.objective for share in shares} == {Objective.FIT}


def test_memories_and_homes_as_texts() -> None:
    instance = LmemPacking.from_arrays([4, 4], [0, 1], [2, 3], capacity=9, ids=["conv1", "x=1"])
    texts = [
        "fast=1KiB,cost=1,alignment=8,reserved=0-16,reserved=1e3-1KiB",
        "slow=unlimited,cost=3",
    ]
    found = said.memories(texts, instance, {})
    assert found["memories"] == (
        Memory("fast", 1024, 1, ((0, 16), (1000, 1024)), 8),
        Memory("slow", None, 3),
    )
    assert found["objective"] is Objective.SPILL
    assert found["capacity"] is None
    at = said.homes(["fast=conv*", "fast=x=1", "slow=x=1"], instance, found)["homes"]
    assert at.tolist() == [[True, False], [True, True]]
    changed = instance.replace(**found, homes=at)
    again = said.memories(["fast=2KiB", "third=5"], changed, {})
    assert [m.name for m in again["memories"]] == ["fast", "slow", "third"]
    assert again["homes"].tolist() == [[True, False, False], [True, True, True]]


@pytest.mark.parametrize(
    ("read", "text", "field", "remedy"),
    [
        (said.memories, "fast", "memories", "write fast=256KiB"),
        (said.memories, "fast=many", "memories", "write fast=256KiB"),
        (said.memories, "fast=1,price=3", "memories", "choose one of reserved, alignment, cost"),
        (said.memories, "fast=1,reserved=3", "memories", "write fast=256KiB"),
        (said.homes, "fast=conv1", "homes", "give --memory"),
    ],
)
def test_what_is_no_memory_is_refused(read: object, text: str, field: str, remedy: str) -> None:
    assert callable(read)
    instance = LmemPacking.from_arrays([4], [0], [2])
    with pytest.raises(InputError) as caught:
        read([text], instance, {})
    assert caught.value.field == field
    assert remedy in str(caught.value)


def test_a_buffer_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean conv1"):
        said.homes(["a=comv1"], four(), {})
