"""Fronts of every kind against trying everything, and against solves within one limit."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.instances.tradeoffs import axis
from stagepack.tradeoffs import epsilon
from tests.cli.shell import run

SCHEDULE = sp.PipelineSchedule.from_arrays(
    [5, 4, 6], [6, 5, 7], microbatches=4, memory_forward=3, memory_backward=-3, limit=12, latency=1
)
PHASES = sp.PhaseSchedule.from_arrays(
    [4] * 4, [6] * 4, [8, 8, 2, 8, 2], memory=30, remote_bandwidth=2, host_bandwidth=2, steps=4,
    modes=["compute"], training=True, policies=["stash", "recompute"], backward=[7] * 4,
    tape=[3] * 4,
)  # fmt: skip
PACKING = sp.LmemPacking.from_arrays(
    [4, 4, 4, 2, 6], start=[0, 3, 0, 1, 5], end=[3, 9, 9, 4, 8], accesses=[5, 3, 8, 1, 2],
    memories=[sp.Memory("fast", 12, 1), sp.Memory("slow", None, 10)], objective="spill",
)  # fmt: skip
GRAPH = sp.GraphPartition.from_edges(
    4, [(0, 1), (0, 2), (1, 3), (2, 3)], time=[4, 5, 3, 4], traffic=[1, 1, 2, 0],
    memory=[5, 2, 3, 6], accelerators=2,
)  # fmt: skip
GROUPS: Any = sp.load("groups/random/blocks", operators=4, channels=64, rows=16, chip="cv184x")


def chain(seed: int, **changes: Any) -> sp.PipelinePartition:
    rng = np.random.default_rng(seed)
    n = 7
    given: dict[str, Any] = {
        "devices": 3,
        "exclusive": rng.integers(1, 9, n),
        "temporary": rng.integers(0, 5, n),
        "bandwidth": 1e-9,
        "in_bytes": rng.integers(0, 4, n + 1),
        "out_bytes": rng.integers(0, 4, n + 1),
        "objective": "sum",
    }
    return sp.PipelinePartition.from_arrays(rng.integers(1, 30, n), **{**given, **changes})


@pytest.mark.parametrize("seed", range(4))
def test_front_of_a_pipeline_agrees_with_trying_everything(seed: int) -> None:
    instance = chain(seed)
    used = axis(instance.kind, "memory").used
    best: dict[int, float] = {}
    for cuts in itertools.combinations(range(1, instance.n), 2):
        solution = sp.PipelineSolution.in_order((0, *cuts, instance.n))
        assert not instance.check(solution)
        x, y = used(instance, solution), instance.evaluate(solution)
        best[x] = min(y, best.get(x, y))
    exact = [(x, best[x]) for x in sorted(best) if best[x] < min([best[z] for z in best if z < x],
                                                                 default=np.inf)]  # fmt: skip
    found = sp.pareto(instance)
    assert [(point.x, point.y) for point in found.points] == exact
    assert found.complete
    assert found.infeasible == exact[0][0] - 1


def test_small_times_have_the_front_and_the_changes_of_large_ones() -> None:
    def timed(unit: float) -> sp.PipelinePartition:
        given = chain(1, objective="bottleneck", bandwidth=None, capacity=40)
        return given.replace(forward=given.forward * unit)

    small = 2.0**-50
    large = sp.pareto(timed(1.0))
    assert len(large.points) > 1
    assert [(point.x, point.y * small) for point in large.points] == [
        (point.x, point.y) for point in sp.pareto(timed(small)).points
    ]
    changes = sp.explain(timed(1.0)).changes
    assert any(change.saved for change in changes)
    assert [change.saved * small for change in changes if change.saved is not None] == [
        change.saved for change in sp.explain(timed(small)).changes if change.saved is not None
    ]


@pytest.mark.parametrize(
    ("instance", "x"),
    [
        (SCHEDULE, "memory"),
        (PHASES, "remote-memory"),
        (PACKING, "memory"),
        (GRAPH, "memory"),
        (GROUPS, "memory"),
    ],
    ids=["schedule", "phases", "packing", "graph", "groups"],
)
def test_points_are_those_of_separate_solves(instance: sp.Instance, x: str) -> None:
    found = sp.pareto(instance, x)
    known = axis(instance.kind, x)
    assert found.complete
    assert len(found.points) > 1
    for point in found.points:
        solution = point.result.solution
        assert instance.check(solution) == ()
        assert (known.used(instance, solution), instance.evaluate(solution)) == (point.x, point.y)
    first, last = found.points[0], found.points[-1]
    for point in (first, last):
        alone = sp.solve(known.within(instance, max(1, point.x)))
        assert (alone.status, alone.objective) == ("OPTIMAL", point.y)
    less = sp.solve(known.within(instance, last.x - 1))
    assert less.objective is not None
    assert less.objective > last.y
    if found.infeasible is not None:
        assert sp.solve(known.within(instance, found.infeasible)).status == "INFEASIBLE"


def test_devices_are_the_limit_where_that_is_asked_for() -> None:
    found = sp.pareto(chain(0), "devices", "bottleneck")
    assert [point.x for point in found.points] == [1, 2, 3]
    one, *_ = found.points
    assert one.y == chain(0).forward.sum()


@pytest.mark.parametrize("options", [None, {"deterministic": True}])
def test_all_solves_share_the_limit(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any] | None
) -> None:
    given: list[float] = []

    def solve(*asked: Any, time_limit: float, **more: Any) -> sp.Result[Any]:
        given.append(time_limit)
        found = sp.solve(*asked, time_limit=time_limit, **more)
        return dataclasses.replace(found, runtime=time_limit)

    monkeypatch.setattr(epsilon, "solve", solve)
    monkeypatch.setattr(epsilon, "PART", 0.5)
    monkeypatch.setattr(epsilon, "LEAST", 0.125)
    monkeypatch.setattr(epsilon, "EACH", 0.02)
    found = sp.pareto(chain(0), points=100, time_limit=1, options=options)
    assert given == pytest.approx([0.5, 0.25, 0.125] if options is None else [0.5, 0.5])
    assert found.solves == len(given)
    assert not found.complete


def test_what_cannot_fit_is_said() -> None:
    found = sp.pareto(chain(0, capacity=5))
    assert (found.points, found.complete) == ((), False)
    assert "layer" in found.result.reason


@pytest.mark.parametrize(
    ("instance", "given", "field", "remedy"),
    [
        (chain(0), {"x": "time"}, "x", "memory or devices"),
        (chain(0), {"points": 0}, "points", "at least 1"),
        (chain(0), {"over": "memory"}, "over", "points"),
        (chain(0), {"objective": "overlap"}, "objective", "as y"),
        (chain(0), {"target": 3}, "target", "leave it out"),
        (PACKING, {"y": "peak"}, "objective", "spill"),
        (sp.load("groups/squeezenet"), {"x": "time"}, "x", "memory"),
        (chain(0, recv_cycles=np.ones((3, 8))), {"x": "devices"}, "x", "another"),
    ],
)
def test_bad_questions_are_named(
    instance: sp.Instance, given: dict[str, Any], field: str, remedy: str
) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.pareto(instance, **given)
    assert caught.value.field == field
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("x", [[1], None, 5, {}])
def test_what_is_no_name_of_a_limit_is_refused_by_name(x: Any) -> None:
    with pytest.raises(sp.InputError) as caught:
        sp.pareto(chain(0), x)
    assert caught.value.field == "x"


@pytest.mark.parametrize("limit", [0, -1, "3", float("nan")])
def test_limits_that_make_no_sense_are_refused_by_all_that_share_them(limit: Any) -> None:
    for ask in (sp.explain, sp.pareto, sp.plan_model):
        with pytest.raises(sp.InputError) as caught:
            ask(chain(0), time_limit=limit)
        assert caught.value.field == "time_limit"
    with pytest.raises(sp.InputError) as caught:
        sp.prove(sp.LmemPacking.from_arrays([1], [0], [1]), 1, time_limit=limit)
    assert caught.value.field == "time_limit"


def test_what_is_asked_for_another_objective_is_explained_for_it() -> None:
    asked = sp.explain(chain(0), objective="bottleneck")
    assert asked.critical == sp.explain(chain(0, objective="bottleneck")).critical
    with pytest.raises(sp.InputError, match="'effort' is no option of explain"):
        sp.explain(chain(0), effort=3)


@pytest.mark.parametrize(
    "instance",
    [chain(1, capacity=26), SCHEDULE, PHASES, PACKING, GRAPH],
    ids=["pipeline", "schedule", "phases", "packing", "graph"],
)
def test_changes_never_make_an_optimum_worse(instance: sp.Instance) -> None:
    found = sp.explain(instance)
    assert found.critical
    assert found.changes
    for change in found.changes:
        assert change.result.status == "OPTIMAL"
        assert change.saved is not None
        assert change.saved >= 0
        assert change.saved == change.most
        assert change.binds is (change.saved > 0)


@pytest.mark.parametrize("deterministic", [False, True])
def test_all_solves_of_an_explanation_share_its_limit(deterministic: bool) -> None:
    """Each had the whole: six solves took six times as long."""
    found = sp.explain(
        chain(1, capacity=26), time_limit=6, options={"deterministic": deterministic}
    )
    limits = [
        result.options["time_limit"]
        for result in (found.result, *(change.result for change in found.changes))
    ]
    used = [found.result.runtime, *(change.result.runtime for change in found.changes)]
    parts = len(limits)
    assert limits[0] == 6 / parts
    if deterministic:
        assert set(limits) == {6 / parts}
    else:
        assert limits[-1] == pytest.approx(6 - sum(used[:-1]))


def test_commands_print_and_write_fronts(tmp_path: Path) -> None:
    path, csv, picture = tmp_path / "i.json", tmp_path / "f.csv", tmp_path / "f.svg"
    sp.write(chain(2, capacity=40), path)
    done = run("pareto", path, "--json", "--csv", csv, "--plot", picture)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["complete"]
    assert len(csv.read_text().splitlines()) == len(document["points"]) + 1
    assert picture.read_text().startswith("<?xml")
    found = run("explain", path)
    assert found.returncode == 0, found.stderr
    assert "one more device" in found.stdout
    tight = run("pareto", path, "--capacity", "2")
    assert tight.returncode == 3
    assert "INFEASIBLE" in tight.stdout
    wrong = run("pareto", path, "-x", "tmie")
    assert wrong.returncode == 2
    assert "memory or devices" in wrong.stderr
    assert wrong.stderr.startswith("error: -x:")
