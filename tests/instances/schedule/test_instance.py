from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest

from stagepack.errors import InputError
from stagepack.instances.schedule import (
    Objective,
    PipelineSchedule,
    ScheduleSolution,
    least_memory,
)
from stagepack.instances.schedule import operations as layout
from stagepack.instances.schedule.ancestors import STAGE, Ancestors
from stagepack.instances.schedule.reasons import reasons
from stagepack.progress import Stopped
from tests.random_schedules import by_list, random_schedule


def chain(**fields: Any) -> PipelineSchedule:
    given: dict[str, Any] = {
        "forward": [3, 4],
        "backward": [5, 6],
        "weight": [2, 1],
        "microbatches": 2,
        "latency": 7,
    }
    return PipelineSchedule.from_arrays(**{**given, **fields})


def test_defaults() -> None:
    instance = chain()
    assert (instance.p, instance.d, instance.kinds) == (2, 2, ("F", "B", "W"))
    assert instance.training
    assert instance.split
    assert instance.edges == ((0, 1),)
    assert instance.devices.tolist() == [0, 1]
    assert instance.microbatches.tolist() == [2, 2]
    assert instance.latency.tolist() == [7]
    assert instance.memory_forward.tolist() == [0, 0]
    assert instance.limit is None
    assert instance.objective is Objective.MAKESPAN
    assert instance.order == (0, 1)
    assert chain(post_validation=True).objective is Objective.SPAN
    assert chain(post_validation=True, objective="makespan").objective is Objective.MAKESPAN
    assert chain(weight=None).kinds == ("F", "B")
    assert PipelineSchedule.from_arrays([1], microbatches=1).kinds == ("F",)
    assert not PipelineSchedule.from_arrays([1], microbatches=1).training
    assert (instance.stage_name(1), instance.device_name(0)) == ("stage 1", "device 0")
    named = chain(stage_names=["a", "b"], device_names=["x", "y"])
    assert (named.stage_name(1), named.device_name(0)) == ("b", "x")


def test_lone_numbers_and_whole_floats_are_taken() -> None:
    instance = chain(forward=np.array([3.0, 4.0]), limit=10, optimizer=2, memory_forward=1)
    assert instance.forward.tolist() == [3, 4]
    assert instance.forward.dtype == np.int64
    assert instance.limit is not None
    assert instance.limit.tolist() == [10, 10]
    assert instance.optimizer.tolist() == [2, 2]
    with pytest.raises(ValueError, match="read-only"):
        instance.forward[0] = 1


def test_latency_counts_between_devices_only() -> None:
    instance = PipelineSchedule.from_arrays(
        [1, 1, 1, 1], microbatches=1, devices=[0, 1, 1, 0], latency=[5, 6, 7]
    )
    assert instance.lag.tolist() == [5, 0, 7]
    assert instance.stages_of(0) == (0, 3)
    assert instance.d == 2


def test_stages_may_be_numbered_against_the_flow() -> None:
    instance = PipelineSchedule.from_arrays([1, 1, 1], microbatches=1, edges=[(2, 0), (0, 1)])
    assert instance.order == (2, 0, 1)


def test_the_layout_of_operations() -> None:
    operations = chain().operations
    assert operations.base.tolist() == [0, 6, 12]
    assert len(operations) == 12
    assert operations.op(1, 2, 1) == 11
    for v in range(12):
        place = (operations.stage[v], operations.kind[v], operations.microbatch[v])
        assert operations.op(*map(int, place)) == v
    assert operations.duration.tolist() == [3, 3, 5, 5, 2, 2, 4, 4, 6, 6, 1, 1]
    befores, afters, lagging = (column.tolist() for column in operations.precedences())
    lags = dict(zip(zip(befores, afters, strict=True), lagging, strict=True))
    arcs = set(lags)
    assert lags[0, 6] == 7  # F of stage 0 before F of stage 1
    assert lags[8, 2] == 7  # B of stage 1 before B of stage 0
    assert {(0, 2), (2, 4), (0, 1), (2, 3), (4, 5)} <= arcs
    assert len(arcs) == len(befores) == operations.arcs == 4 + 8 + 6


def test_edges_are_laid_out_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every new page of memory takes its time: little beside what is kept is touched."""
    p = 500
    instance = PipelineSchedule.from_arrays(
        [3] * p, [5] * p, microbatches=1, edges=np.stack(np.triu_indices(p, 1), axis=1)
    )
    assert len(instance.producers.stage) == len(instance.consumers.stage)  # found before
    whole = instance.operations
    monkeypatch.setattr(layout, "TOGETHER", 1_000)
    tracemalloc.start()
    try:
        parts = layout.Operations.of(instance)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1.2 * kept
    for one, other in zip(whole.precedences(), parts.precedences(), strict=True):
        assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"forward": []}, "forward", "no stages"),
        ({"forward": [1, 0]}, "forward", "entry 1 is 0"),
        ({"forward": [1, 2.5]}, "forward", "finer unit"),
        ({"forward": [1, float("nan")]}, "forward", "entry 1 is nan"),
        ({"forward": [1, "x"]}, "forward", "entry 0 is '1'"),
        ({"forward": [[1, 2]]}, "forward", "shape (1, 2)"),
        ({"forward": None}, "forward", "missing"),
        ({"forward": [2**62, 1]}, "forward", "2**62"),
        ({"forward": [2**61, 2**61]}, "forward", "cycles of all steps"),
        ({"backward": [1]}, "backward", "shape (1,)"),
        ({"backward": [1, 0]}, "backward", "entry 1 is 0"),
        ({"backward": None}, "backward", "though weight is given"),
        ({"microbatches": 0}, "microbatches", "entry 0 is 0"),
        ({"microbatches": None}, "microbatches", "missing"),
        ({"microbatches": [1, 2]}, "microbatches", "joined by edges[0]"),
        ({"microbatches": 2**30}, "microbatches", "operations"),
        ({"microbatches": True}, "microbatches", "True"),
        ({"steps": 0}, "steps", "at least 1"),
        ({"steps": -1}, "steps", "at least 1"),
        ({"steps": 1.5}, "steps", "no integer"),
        ({"steps": True}, "steps", "no integer"),
        ({"devices": [0, 2]}, "devices", "device 1 runs no stage"),
        ({"devices": [1, 1]}, "devices", "device 0 runs no stage"),
        ({"devices": [-1, 0]}, "devices", "entry 0 is -1"),
        ({"edges": [(0, 1), (1, 0)]}, "edges", "cycle 0 -> 1 -> 0"),
        ({"edges": [(1, 1)]}, "edges", "cycle 1 -> 1"),
        ({"edges": [(0, 2)]}, "edges[0]", "2 is no stage"),
        ({"edges": [(0, 1), (0, 1)]}, "edges[1]", "twice"),
        ({"edges": [3]}, "edges[0]", "no edge"),
        ({"latency": -1}, "latency", "entry 0 is -1"),
        ({"latency": [1, 2]}, "latency", "1 in all"),
        ({"memory_forward": -1}, "memory_forward", "would hold -1"),
        ({"memory_forward": 1, "memory_backward": -2}, "memory_backward", "would hold -1"),
        ({"memory_forward": 1, "memory_weight": -2}, "memory_weight", "would hold -1"),
        ({"weight": None, "memory_weight": 1}, "memory_weight", "no such operations"),
        ({"memory_forward": 2**61}, "memory_forward", "over all microbatches"),
        ({"limit": -1}, "limit", "entry 0 is -1"),
        ({"limit": [1, 2, 3]}, "limit", "2 in all"),
        ({"optimizer": -1}, "optimizer", "entry 0 is -1"),
        ({"objective": "speed"}, "objective", "choose one of makespan, span"),
        ({"stage_names": ["a"]}, "stage_names", "1 names for 2 stages"),
    ],
)
def test_bad_input_names_its_field(fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        chain(**fields)
    assert caught.value.field == field
    assert words in str(caught.value)
    assert caught.value.remedy


def test_a_long_cycle_is_spelt_out() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)]
    with pytest.raises(InputError, match="cycle 1 -> 2 -> 3 -> 1"):
        PipelineSchedule.from_arrays([1] * 5, microbatches=1, edges=edges)


def test_replace_validates_anew() -> None:
    instance = chain()
    assert instance.replace(limit=9).limit is not None
    assert instance.replace(name="x").digest == instance.digest
    assert instance.replace(latency=6).digest != instance.digest
    assert instance.replace(stage_names=["a", "b"]).digest == instance.digest
    with pytest.raises(InputError, match="no field of a PipelineSchedule"):
        instance.replace(speed=3)
    with pytest.raises(InputError, match="at least 1"):
        instance.replace(steps=0)


def test_instances_and_solutions_pickle() -> None:
    for seed in range(10):
        instance = random_schedule(seed, limit=None)
        solution = by_list(instance)
        again, other = pickle.loads(pickle.dumps((instance, solution)))
        assert again.digest == instance.digest
        assert other == solution
        assert hash(other) == hash(solution)
        assert again.evaluate(other) == instance.evaluate(solution)
        assert ScheduleSolution.from_dict(solution.to_dict(), instance) == solution


def test_solutions_that_differ_are_not_equal() -> None:
    instance = chain()
    solution = by_list(instance)
    assert solution != ScheduleSolution.of(instance, solution.start + 1)
    assert solution != "schedule"
    assert [rows.shape for rows in solution.stages] == [(3, 2), (3, 2)]


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ([], "start"),
        ({}, "start"),
        ({"start": 3}, "start"),
        ({"start": [[[0, 1], [0, 1], [0, 1]]]}, "start"),
        ({"start": [[[0, 1], [0, 1]]] * 2}, "start[0]"),
        ({"start": [[[0, 1], [0, 1], [0]]] * 2}, "start[0][2]"),
        ({"start": [[[0, 1], [0, 1], 4]] * 2}, "start[0][2]"),
        ({"start": [[[0, 1], [0, 1.5], [0, 1]]] * 2}, "start[0][1][1]"),
        ({"start": [[[0, 1], [0, True], [0, 1]]] * 2}, "start[0][1][1]"),
        ({"start": [[[0, 1], [0, 2**62], [0, 1]]] * 2}, "start[0][1][1]"),
    ],
)
def test_solutions_of_another_shape_are_refused(data: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        ScheduleSolution.from_dict(data, chain())
    assert caught.value.field == field


def test_memory_below_a_single_operation_is_explained() -> None:
    instance = chain(memory_forward=[4, 6], memory_backward=-1, memory_weight=-1, limit=[6, 5])
    (reason,) = reasons(instance)
    assert "stage 1 needs" in reason
    assert "on device 1" in reason
    assert "limit is 5" in reason
    assert least_memory(instance).tolist() == [4 + 2, 6 + 4]
    free = chain(memory_forward=[4, 6], memory_backward=[-4, -6], limit=[5, 5])
    assert "stage 1 needs 6 on device 1 to run F of a single microbatch" in reasons(free)[0]
    assert "1 too little; raise the limit to 6" in reasons(free)[0]
    assert reasons(free.replace(limit=6)) == ()
    assert reasons(free.replace(limit=None)) == ()


def test_what_is_never_released_adds_up() -> None:
    inference = PipelineSchedule.from_arrays([1], microbatches=5, memory_forward=2)
    assert least_memory(inference).tolist() == [10]
    assert "last microbatch" in reasons(inference.replace(limit=9))[0]


def test_stages_of_one_device_hold_a_microbatch_at_once() -> None:
    """Both stages have run F of a microbatch before either can run B."""
    instance = PipelineSchedule.from_arrays(
        [1, 1], [1, 1], microbatches=3, devices=[0, 0], memory_forward=2, memory_backward=-2
    )
    assert least_memory(instance).tolist() == [4]
    apart = instance.replace(edges=[], latency=0)
    assert least_memory(apart).tolist() == [2]


@pytest.mark.parametrize(
    ("field", "value"), [("edges", 5), ("stage_names", "ab"), ("device_names", 3)]
)
def test_what_is_no_list_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=field):
        PipelineSchedule.from_arrays([1, 2], microbatches=2, **{field: value})


def test_more_stages_operations_and_results_than_anything_is_made_for() -> None:
    with pytest.raises(InputError, match=r"16,385 stages.*at most 16,384"):
        PipelineSchedule.from_arrays([1] * 16_385, microbatches=1)
    with pytest.raises(InputError, match=r"operations.*fewer than 8,388,608"):
        PipelineSchedule.from_arrays([1] * 2, microbatches=2**22)
    every = [(a, b) for b in range(130) for a in range(b)]
    with pytest.raises(InputError, match="results cross edges"):
        PipelineSchedule.from_arrays([1] * 130, microbatches=1001, edges=every)


def stages_above(instance: PipelineSchedule, stage: int) -> set[int]:
    found: set[int] = set()
    walk = [stage]
    while walk:
        here = walk.pop()
        walk += [a for a, b in instance.edges if b == here and a not in found]
        found.update(walk)
    return found


@pytest.mark.parametrize("together", [1, 64])
def test_ancestors_agree_with_walks_along_edges(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stagepack.instances.schedule.ancestors.TOGETHER", together)
    draw = np.random.default_rng(together)
    for p in range(1, 40, 3):
        edges = np.argwhere(np.triu(draw.random((p, p)) < draw.random(), 1))
        names = draw.permutation(p)
        instance = PipelineSchedule.from_arrays([1] * p, microbatches=1, edges=names[edges])
        ancestors, everywhere = Ancestors.of(instance, lambda _: None), np.arange(p)
        for s in range(p):
            found = set(np.flatnonzero(ancestors.above(s, everywhere)).tolist())
            assert found == stages_above(instance, s)


def test_producers_above_others_are_left_out_of_ancestors() -> None:
    p, looked = 600, list[int]()
    edges = np.argwhere(np.triu(np.ones((p, p), dtype=bool), 1))
    instance = PipelineSchedule.from_arrays([1] * p, microbatches=1, edges=edges)
    Ancestors.of(instance, looked.append)
    assert 64 * (p - 64) < 8 * (sum(looked) - STAGE * p) / 75 < 64 * p  # of up to 599 producers


def test_edges_are_given_by_both_ends() -> None:
    instance = PipelineSchedule.from_arrays(
        [1] * 4, microbatches=1, edges=[(2, 3), (0, 3), (0, 1)], latency=[5, 6, 7]
    )
    assert [column.tolist() for column in instance.consumers] == [
        [0, 2, 2, 3, 3],
        [3, 1, 3],
        [6, 7, 5],
    ]
    assert [column.tolist() for column in instance.producers] == [
        [0, 0, 1, 1, 3],
        [0, 2, 0],
        [7, 5, 6],
    ]


@pytest.mark.parametrize("seed", range(60))
def test_the_memory_that_is_needed_agrees_with_its_definition(seed: int) -> None:
    instance = random_schedule(seed)
    columns = (instance.memory_forward, instance.memory_backward, instance.memory_weight)
    kinds = len(instance.kinds)
    held = np.cumsum(np.stack(columns[:kinds]), axis=0)
    expected = []
    for device in range(instance.d):
        most = 0
        stages = instance.stages_of(device)
        for s in stages:
            above = [a for a in stages if a in stages_above(instance, s)]
            below = [b for b in stages if s in stages_above(instance, b)]
            for k in range(kinds):
                need = max(int(columns[k][s]), 0) + (int(held[k - 1, s]) if k else 0)
                need += sum(int(held[0, a] if k < 2 else held[:, a].min()) for a in above)
                rest = int(held[k:, s].min()) + sum(int(held[:, a].min()) for a in above)
                if k:
                    need += sum(int(held[1:, b].min()) for b in below)
                    rest += sum(int(held[1:, b].min()) for b in below)
                most = max(most, need + (int(instance.microbatches[s]) - 1) * rest)
        expected.append(most)
    assert least_memory(instance).tolist() == expected


def test_whoever_waits_for_an_order_of_many_operations_is_asked_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operations = chain(microbatches=9).operations
    whole = operations.topological()
    monkeypatch.setattr(layout, "TOLD", 10)
    told: list[int] = []
    assert operations.topological(told.append).tolist() == whole.tolist()
    assert len(told) > 1
    assert sum(told) == len(operations)

    def end(_: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        operations.topological(end)
