"""Plans are whole: no level can be left out."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import stagepack as sp
from stagepack.planning.claims import check_plan
from stagepack.planning.document import read_plan
from tests.planning import test_grouped, test_inside, test_phased_graphs

TWO = sp.Cluster.uniform(2)
MADE: dict[str, tuple[Any, dict[str, Any]]] = {
    "kept": ("pipeline/resnet-50", {}),
    "phases": (test_inside.tight(0, n=6), {"remote": test_inside.REMOTE}),
    "phases of training": (
        test_inside.tight(0, n=8, training=True),
        {"remote": test_inside.REMOTE},
    ),
    "graph": (test_phased_graphs.graph(0), {"remote": test_phased_graphs.REMOTE}),
    "groups": (test_inside.blocks(), {"cluster": TWO, "microbatches": 4}),
    "groups of training": (test_grouped.branches(), {"cluster": TWO, "training": True}),
    "groups of a graph": (
        test_grouped.branches(),
        {"cluster": TWO, "training": True, "graph": True},
    ),
}


@pytest.mark.parametrize("what", MADE)
def test_levels_that_are_left_out_are_named(what: str) -> None:
    model, options = MADE[what]
    if isinstance(model, str):
        model = sp.load(model, cluster="ipu-pod4")
    plan = sp.plan_model(model, **options)
    assert plan.check() == ()
    begin, inside = plan.levels[:2], plan.levels[2:]
    assert inside
    for count in range(len(inside)):
        for left in itertools.combinations(inside, count):
            assert replace(plan, levels=(*begin, *left)).check()


def test_levels_of_files_without_tensors_are_missed(tmp_path: Path) -> None:
    plan = sp.plan_model(sp.load("pipeline/resnet-50", cluster="ipu-pod4"))
    path = tmp_path / "plan.json"
    document = plan.to_dict()
    del document["levels"][0]["instance"]["layers"]["passing"]
    whole = document["levels"]

    def rules(levels: list[Any]) -> list[str]:
        path.write_text(json.dumps({**document, "levels": levels}))
        return [one.rule for one in check_plan(read_plan(path), path).violations]

    assert rules(whole) == []
    assert rules(whole[:-1]) == ["stage 3"]
    # Nothing else says that all the others had one, too.
    assert rules(whole[:2]) == []
    document["inside"][0] = "3 groups"
    assert rules(whole) == ["claim: inside"]


@pytest.mark.parametrize(
    ("name", "said", "rule"),
    [
        ("objective_name", "seconds", "objective_name"),
        ("violations", ["stage 0: memory: 9 of 8 bytes"], "violations"),
        ("attempts", [{"in_flight": 1}], "attempts or versions"),
        ("attempts", "many", "attempts or versions"),
        ("versions", {"stagepack": 3}, "attempts or versions"),
    ],
)
def test_what_tells_of_the_search_is_compared_too(
    name: str, said: object, rule: str, tmp_path: Path
) -> None:
    document = sp.plan_model(sp.load("pipeline/resnet-50", cluster="ipu-pod4")).to_dict()
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    assert check_plan(read_plan(path), path).violations == ()
    path.write_text(json.dumps({**document, name: said}))
    assert [one.rule for one in check_plan(read_plan(path), path).violations] == [f"claim: {rule}"]


def test_no_attempt_is_better_than_the_plan(tmp_path: Path) -> None:
    document = sp.plan_model(sp.load("pipeline/resnet-50", cluster="ipu-pod4")).to_dict()
    path = tmp_path / "plan.json"
    better = {**document["attempts"][0], "status": "FEASIBLE", "objective": 1}
    path.write_text(json.dumps({**document, "attempts": [*document["attempts"], better]}))
    (found,) = check_plan(read_plan(path), path).violations
    assert found.rule == "claim: attempts"
    assert "one of 1 cycles is said" in found.detail
