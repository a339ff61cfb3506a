"""One order of arguments everywhere: instance, solution or result, path or axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot

import stagepack as sp
from stagepack import plots
from stagepack.instances.schedule import measure as measure_schedule
from tests.instances.groups.networks import block

mpl.use("Agg")

INSTANCES: dict[str, Any] = {
    "pipeline": sp.PipelinePartition.from_arrays(
        [4, 2, 5, 3, 1, 6], devices=3, exclusive=[1] * 6, capacity=4
    ),
    "packing": sp.LmemPacking.from_arrays([4, 4, 4], [0, 3, 0], [3, 9, 9], ids=["a", "b", "c"]),
    "schedule": sp.PipelineSchedule.from_arrays([2, 2], [3, 3], microbatches=3),
    "phases": sp.PhaseSchedule.from_arrays(
        [4] * 3, [6] * 3, [8, 8, 2, 2], memory=40, remote_bandwidth=2, steps=4, modes=["compute"]
    ),
    "groups": block(),
    "graph": sp.GraphPartition.from_arrays(
        [4, 2, 5],
        accelerators=2,
        producer=[0, 1],
        consumers=[1, 2],
        consumer_ptr=[0, 1, 2],
        traffic=[2, 3],
    ),
}
KINDS = list(INSTANCES)
RESULTS: dict[str, Any] = {}
TAKERS: dict[str, list[Callable[..., Any]]] = {
    "pipeline": [sp.estimate, plots.device_bars, plots.memory_bars],
    "packing": [sp.measure],
    "schedule": [measure_schedule],
    "phases": [sp.plan, sp.program],
    "groups": [sp.group_program, plots.group_rows],
    "graph": [sp.chain, sp.partition_dot, sp.partition_graphml],
}


def result(kind: str) -> Any:
    if kind not in RESULTS:
        RESULTS[kind] = sp.solve(INSTANCES[kind], options={"deterministic": True})
    return RESULTS[kind]


def warm_start(instance: Any, solution: Any) -> Any:
    if solution is None:
        solution = 5  # None means none
    return sp.solve(instance, warm_start=solution, options={"deterministic": True})


def takers(kind: str) -> list[Callable[[Any, Any], Any]]:
    return [
        lambda instance, solution: instance.check(solution),
        lambda instance, solution: instance.evaluate(solution),
        warm_start,
        sp.plot,
        *TAKERS[kind],
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_stands_for_its_solution(kind: str, tmp_path: Path) -> None:
    instance, found = INSTANCES[kind], result(kind)
    assert instance.check(found) == instance.check(found.solution) == ()
    assert instance.evaluate(found) == found.objective
    for take in takers(kind):
        take(instance, found)
        take(instance, found.solution)
    for given in (found, found.solution):
        sp.write_solution(instance, given, tmp_path / "solution.json")
        assert sp.read_solution(tmp_path / "solution.json", instance) == found.solution
    pyplot.close("all")


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_others_are_refused_by_name(kind: str) -> None:
    instance = INSTANCES[kind]
    empty = dataclasses.replace(result(kind), solution=None)
    other = dataclasses.replace(result(kind), digest="0" * 16)
    foreign = result(KINDS[KINDS.index(kind) - 1])
    for take in takers(kind):
        for given, words in (
            (empty, "holds no solution"),
            (other, "another instance"),
            (foreign, "another instance"),
            (foreign.solution, "is no solution of a"),
            (None, "is no solution"),
            (5, "int is no solution"),
            ("solution.json", r"is no solution|unknown warm start"),
        ):
            with pytest.raises(sp.InputError, match=words) as caught:
                take(instance, given)
            assert caught.value.field in ("solution", "warm_start"), given


def test_another_objective_of_the_same_instance_will_do() -> None:
    instance = INSTANCES["pipeline"]
    found = sp.solve(instance, objective="sum")
    assert found.digest != instance.digest
    assert sp.estimate(instance, found).stages == sp.estimate(instance, found.solution).stages
    start = sp.solve(instance, "cp-sat", objective="overlap", warm_start=found)
    assert start.options["warm_start"] == found.solution.to_dict()
    with pytest.raises(sp.InputError, match="another instance"):
        sp.estimate(instance.replace(microbatches=2), found)


MALFORMED: list[tuple[str, Any, tuple[Any, ...], str]] = [
    ("pipeline", sp.PipelineSolution, (None, (0,)), "boundaries"),
    ("pipeline", sp.PipelineSolution, ((0, 2.5, 6), (0, 1)), "boundaries"),
    ("pipeline", sp.PipelineSolution, ((0, 6), "a"), "devices"),
    ("packing", sp.PackingSolution, ([0, 4, 8],), "offsets"),
    ("packing", sp.PackingSolution, (np.arange(3), [0] * 3), "memory"),
    ("schedule", sp.ScheduleSolution, ([0, 1], 2, (3, 3)), "start"),
    ("phases", sp.PhaseSolution, ((0, 3), None), "mode"),
    ("phases", sp.PhaseSolution, ((0, 3), ("compute",), "a"), "io_tiles"),
    ("groups", sp.GroupingSolution, ((0, 3), ((1, 1, "a", 1),)), "slices"),
    ("graph", sp.GraphSolution, ([0, 1, 1],), "assignment"),
    ("graph", sp.GraphSolution, (np.zeros(3, dtype=np.int64), ("a",)), "order"),
]


@pytest.mark.parametrize(("kind", "made", "given", "field"), MALFORMED)
def test_what_is_wrong_inside_is_named(
    kind: str, made: Any, given: tuple[Any, ...], field: str
) -> None:
    for take in takers(kind):
        with pytest.raises(sp.InputError) as caught:
            take(INSTANCES[kind], made(*given))
        assert caught.value.field.endswith(f".{field}")


MISSHAPEN: list[tuple[str, Any]] = [
    ("pipeline", sp.PipelineSolution((0, 9), (0,))),
    ("pipeline", sp.PipelineSolution((0, 2, 6), (0,))),
    ("pipeline", sp.PipelineSolution((), ())),
    ("packing", sp.PackingSolution(np.zeros(2, dtype=np.int64))),
    ("packing", sp.PackingSolution(np.zeros(3))),
    ("schedule", sp.ScheduleSolution(np.zeros(2, dtype=np.int64), 2, (3, 3))),
    ("phases", sp.PhaseSolution((0, 2), ("compute",))),
    ("phases", sp.PhaseSolution((0, 3), ("compute", "io"))),
    ("groups", sp.GroupingSolution((0, 2), ((1, 1, 1, 1),))),
    ("groups", sp.GroupingSolution((0, 3), ((1, 1, 9, 1),))),
    ("graph", sp.GraphSolution(np.zeros(2, dtype=np.int64))),
    ("graph", sp.GraphSolution(np.full(3, 7))),
]


@pytest.mark.parametrize(("kind", "solution"), MISSHAPEN)
def test_solutions_of_another_shape_are_told_or_refused(kind: str, solution: Any) -> None:
    assert INSTANCES[kind].check(solution)
    for take in takers(kind)[1:]:
        with pytest.raises(sp.InputError):
            take(INSTANCES[kind], solution)


@pytest.mark.parametrize("kind", KINDS)
def test_the_instance_comes_first(kind: str, tmp_path: Path) -> None:
    found = result(kind)
    take: Any
    for take in [*TAKERS[kind], sp.plot]:
        for first in (found.solution, found, None, 5, INSTANCES[KINDS[KINDS.index(kind) - 1]]):
            with pytest.raises(sp.InputError):
                take(first, found)
    take = sp.write_solution
    with pytest.raises(sp.InputError, match="is missing"):
        take(None, found, tmp_path / "a.json")
    with pytest.raises(sp.InputError, match="no instance"):
        take(5, found, tmp_path / "a.json")
    with pytest.raises(sp.InputError, match="path"):
        take(INSTANCES[kind], found, None)


@pytest.mark.parametrize("kind", KINDS)
def test_plots_go_to_axes_or_files(kind: str, tmp_path: Path) -> None:
    instance, found = INSTANCES[kind], result(kind)
    draws = [take for take in TAKERS[kind] if take.__module__.startswith(plots.__name__)]
    draws.append(sp.plot)
    for draw in draws:
        pyplot.close("all")
        assert draw(instance, found).figure is not None
        _, ax = pyplot.subplots()
        assert draw(instance, found, ax) is ax
        assert draw(instance, found, ax=ax, title="title") is ax
        ends = ["png", "svg", "pdf", "html"]
        for end in ends[: 3 if "bars" in draw.__name__ else 4]:
            path = tmp_path / f"{draw.__name__}.{end}"
            draw(instance, found, str(path))
            assert path.stat().st_size > 1000
        for wrong in (5, instance):
            with pytest.raises(sp.InputError, match="no path and no axes"):
                draw(instance, found, wrong)
        with pytest.raises(sp.InputError):
            draw(instance, found, tmp_path / "picture.doc")
    pyplot.close("all")
    assert sp.plot(instance, found, tmp_path / "a.png") == tmp_path / "a.png"
    assert not pyplot.get_fignums()
    with pytest.raises(sp.InputError, match="scale"):
        sp.plot(instance, found, scale="miles")
    pyplot.close("all")


def test_what_is_no_instance_is_refused_by_name(tmp_path: Path) -> None:
    given: Any
    for given in (5, None, "mine.json", result("packing"), result("packing").solution):
        for take in (sp.solve, sp.methods, sp.compare, lambda x: sp.write(x, tmp_path / "a.json")):
            with pytest.raises(sp.InputError) as caught:
                take(given)
            assert caught.value.field in ("instance", "instances", "kind")


def test_an_instance_of_another_kind_is_told_apart_from_no_instance() -> None:
    takers = (sp.estimate, plots.device_bars)
    for take in takers:
        with pytest.raises(sp.InputError) as caught:
            take(INSTANCES["packing"], result("packing").solution)
        assert str(caught.value) == (
            "instance: is an lmem-packing, no pipeline-partition; "
            "give an instance of pipeline-partition"
        )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (([4, -4], [0, 3], [3, 9]), "size: -4"),
        (([4, 4], [0], [3, 9]), "start: has shape (1,)"),
        (([4, 4], [0, 3], [3, "x"]), "end: entry"),
        (([4, 4], [0, 3], [3, 3]), "end: 3 of buffer 1"),
    ],
)
def test_pack_names_its_own_arguments(given: Any, name: str) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.pack(*given)
    assert str(caught.value).startswith(name)


def test_offsets_by_name() -> None:
    instance, found = INSTANCES["packing"], result("packing")
    offsets = found.solution.offsets.tolist()
    assert found.solution.by_name(instance) == dict(zip("abc", offsets, strict=True))
    assert sp.PackingSolution(found.solution.offsets).by_name(instance)["b"] == offsets[1]
    bare = instance.replace(ids=None)
    assert found.solution.by_name(bare) == dict(zip("012", offsets, strict=True))
    with pytest.raises(sp.InputError, match="does not fit"):
        found.solution.by_name(sp.LmemPacking.from_arrays([4], [0], [1]))
    number: Any = 5
    given: Any
    for given, said in (
        (5, "an int is no packing"),
        (INSTANCES["graph"], "a GraphPartition is no"),
    ):
        with pytest.raises(sp.InputError, match=f"^instance: {said}"):
            found.solution.by_name(given)
    with pytest.raises(sp.InputError, match="an int is no solution of an lmem-packing"):
        instance.check(number)


@pytest.mark.parametrize("nothing", [[], {}, ()])
def test_a_plot_of_nothing_is_refused(nothing: Any) -> None:
    instance = sp.PipelinePartition.from_arrays([1, 5, 3], devices=2)
    with pytest.raises(sp.InputError, match="solution: holds none"):
        sp.plot(instance, nothing)


def test_what_is_no_plan_or_function_is_refused_by_name() -> None:
    wrong: Any = 5
    with pytest.raises(sp.InputError, match="plan: an int is no plan; give a plan"):
        sp.explain_plan(wrong)
    with pytest.raises(sp.InputError, match="make: an int is no function; give a function"):
        sp.tune(wrong, {"devices": [1]})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: sp.PipelinePartition.from_arrays([1] * 2000, devices=3000),
            "3,000 devices for 2,000 layers",
        ),
        (
            lambda: sp.PipelinePartition.from_arrays([1] * 2000, devices=2, layer_names=["a"]),
            "1 names for 2,000 layers",
        ),
        (
            lambda: sp.LmemPacking.from_arrays([1] * 2000, [0] * 2000, [1] * 2000, ids=["a"]),
            "1 names for 2,000 buffers",
        ),
        (
            lambda: sp.LmemPacking.from_arrays([1] * 2000, [0] * 1999, [1] * 2000),
            "2,000 in all",
        ),
        (
            lambda: sp.GraphPartition.from_edges(
                2000, [], time=[1] * 2000, accelerators=2, names=["a"]
            ),
            "1 names for 2,000 nodes",
        ),
        (
            lambda: sp.load("pipeline/random/bert-like", layers=2000, devices=3000),
            "2,000 layers for 3,000 devices",
        ),
    ],
)
def test_counts_in_errors_have_their_thousands_apart(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(sp.InputError, match=said):
        make()
