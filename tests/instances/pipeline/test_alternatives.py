"""Alternatives of layers: how they are given, checked and counted; what is not believed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stagepack as sp
from stagepack.errors import InputError
from stagepack.verify import verify
from tests.chosen_pipelines import chosen_instance


def training(**changes: Any) -> sp.PipelinePartition:
    """Return four layers that may be recomputed, on two devices."""
    options: dict[str, Any] = {
        "devices": 2,
        "backward": [20, 40, 60, 80],
        "stash": [8, 8, 8, 8],
        "temporary": [1, 2, 3, 4],
        "exclusive": {"weights": [5, 5, 5, 5], "code": [1, 1, 1, 1]},
        "in_bytes": [1, 2, 3, 4, 5],
        "capacity": 50,
        "training": True,
        "recompute": "full",
        "own_alternative": "none",
    }
    return sp.PipelinePartition.from_arrays([10, 20, 30, 40], **{**options, **changes})


def taking(*choices: str) -> sp.PipelineSolution:
    return sp.PipelineSolution((0, 2, 4), (0, 1), choices)


def test_recomputed_layers_keep_their_inputs_and_run_forward_again() -> None:
    full = training().alternatives["full"]
    assert full.backward.tolist() == [30, 60, 90, 120]
    assert full.stash.tolist() == [1, 2, 3, 4]
    assert full.temporary.tolist() == [9, 10, 11, 12]


def test_what_is_chosen_is_added_up() -> None:
    instance = training()
    found = sp.estimate(instance, taking("full", "none", "none", "full"))
    first, last = found.stages
    assert (first.compute, last.compute) == (10 + 30 + 60, 90 + 40 + 120)
    # Weights and code, two microbatches of stashes, and the layer that needs most.
    assert first.memory == 12 + 2 * (1 + 8) + 9
    assert last.memory == 12 + 1 * (8 + 4) + 12
    assert (first.choices, last.choices) == ("1 full, 1 none", "1 full, 1 none")
    assert instance.evaluate(taking("full", "none", "none", "full")) == 250
    assert instance.evaluate(taking()) == instance.evaluate(taking(*["none"] * 4)) == 210
    assert "choices" not in sp.estimate(training(recompute="none"), taking()).rows()[0]


def test_bytes_replace_a_category_or_all() -> None:
    one = training(
        alternatives={
            "cpu": {"exclusive": {"weights": 0}, "layers": [1, 2]},
            "disk": {"exclusive": [0, 1, 2, 3], "forward": 100},
        },
        recompute="none",
    )
    held = [sp.estimate(one, taking(*names)).stages[0].memory for names in (
        ("none", "none", "none", "none"), ("none", "cpu", "none", "none"),
        ("disk", "disk", "none", "none"),
    )]  # fmt: skip
    assert held == [12 + 32 + 2, 7 + 32 + 2, 1 + 32 + 2]
    broken = one.check(taking("cpu", "none", "none", "none"))
    assert [v.rule for v in broken] == ["choices"]
    assert "has no alternative 'cpu'" in broken[0].detail


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        (("full", "none", "none"), "3 for 4 layers"),
        (("full", "none", "none", "gone"), "'gone' is no alternative"),
    ],
)
def test_choices_that_say_nothing_are_refused(choices: tuple[str, ...], said: str) -> None:
    instance = training()
    assert said in instance.check(taking(*choices))[0].detail
    with pytest.raises(InputError, match="does not fit"):
        instance.evaluate(taking(*choices))
    assert "no alternatives" in training(recompute="none").check(taking("full"))[0].detail


def test_layers_of_a_stage_that_have_it_take_the_same() -> None:
    instance = training(alternatives_per="stage", capacity=None)
    assert not instance.check(taking("full", "full", "none", "none"))
    assert [v.rule for v in instance.check(taking("full", "none", "none", "none"))] == ["choices"]
    few = instance.replace(alternatives={"full": {"backward": 99, "layers": [1, 2, 3]}})
    assert not few.check(taking("none", "full", "full", "full"))
    assert not few.check(taking("none", "none", "full", "full"))


BAD = [
    ({"alternatives": [1]}, "alternatives", "no mapping"),
    ({"alternatives": {"x": 3}}, "alternatives.x", "no figures"),
    ({"alternatives": {"x": {"stsh": 3}}}, "alternatives.x", "stash"),
    ({"alternatives": {"x": {"forward": [1, 2]}}}, "alternatives.x.forward", "shape"),
    ({"alternatives": {"x": {"stash": -1}}}, "alternatives.x.stash", "at least 0"),
    ({"alternatives": {"x": {"layers": [4]}}}, "alternatives.x.layers", "0..3"),
    ({"alternatives": {"x": {"forward": 2**62}}}, "alternatives.x.forward", "2"),
    ({"alternatives": {"x": {"exclusive": 2**61}}}, "exclusive", "2**62"),
    ({"alternatives": {"none": {"stash": 1}}}, "own_alternative", "no name"),
    ({"alternatives": {"full": {"stash": 1}}}, "recompute", "too"),
    ({"alternatives_per": "device"}, "alternatives_per", "layer or stage"),
    ({"recompute": "selective"}, "recompute", "figures"),
    ({"training": False}, "recompute", "training"),
    ({"stages_per_device": 2}, "alternatives", "one stage"),
    ({"memory_table": np.zeros((5, 5), int)}, "memory_table", "table"),
    ({"memory": "weights", "alternatives": {"x": {"exclusive": 3}}}, "alternatives.x.exclusive",
     "category"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "said"), BAD)
def test_bad_input_is_one_error_that_names_its_field(
    changes: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        training(**changes)
    assert caught.value.field == field
    assert said in str(caught.value)


def test_headroom_refuses_them() -> None:
    with pytest.raises(InputError, match="headroom counts"):
        training(training=False, recompute="none", kv_bytes=3, objective="headroom",
                 alternatives={"cpu": {"exclusive": 0}})  # fmt: skip


def test_files_hold_them_and_their_solutions(tmp_path: Path) -> None:
    for seed in range(60):
        instance = chosen_instance(seed)
        path = tmp_path / "chain.json"
        sp.write(instance, path)
        again = sp.read(path)
        assert again.digest == instance.digest
        assert pickle.loads(pickle.dumps(instance)).digest == instance.digest
        assert instance.replace(alternatives=None).digest != instance.digest
    solution = taking("full", "none", "none", "full")
    sp.write_solution(training(), solution, tmp_path / "cut.json")
    assert json.loads((tmp_path / "cut.json").read_text())["choices"][3] == "full"
    assert sp.read_solution(tmp_path / "cut.json", training()) == solution
    plain = training(recompute="none")
    assert plain.digest == training(recompute="none", alternatives={}).digest


def test_a_warm_start_brings_its_choices() -> None:
    instance = training()
    known = taking("full", "none", "none", "full")
    for method in ("dp", "auto"):
        result = sp.solve(instance, method=method, warm_start=known)
        assert result.objective == 210, method


def test_the_schedule_counts_what_was_chosen() -> None:
    solution = taking("full", "none", "none", "full")
    schedule = sp.PipelineSchedule.from_partition(training(), solution, split=False)
    assert schedule.forward.tolist() == [30, 70]
    assert schedule.backward is not None
    assert schedule.backward.tolist() == [70, 180]
    assert schedule.memory_forward.tolist() == [9 + 1, 12 + 3]
    assert schedule.limit is not None
    assert schedule.limit.tolist() == [50 - 12 - 9, 50 - 12 - 12]


def test_bounds_of_chains_with_alternatives_are_not_verified() -> None:
    for seed in range(40):
        instance = chosen_instance(seed, largest_n=4)
        result = sp.solve(instance)
        assert result.proof == "search"
        bound = None if result.solution is None else result.bound
        for evidence in (result.evidence, {"rule": "fill"}):
            found = verify(instance, bound, "witness", evidence)
            assert not found.shown, instance.name


def test_claims_of_small_chains_are_confirmed_by_trying_everything() -> None:
    own, less = [2**50 + 1, 2**50 + 3, 2**51 + 7], [2**49 + 1, 2**49 + 5, 2**50 + 9]
    instance = sp.PipelinePartition.from_arrays(
        [1, 2, 3],
        devices=1,
        capacity=2**48,
        exclusive=own,
        alternatives={"cpu": {"exclusive": less}},
    )
    with pytest.raises(InputError, match="use dp"):
        sp.solve(instance, "cp-sat")
    result = sp.solve(instance)
    assert result.status == "INFEASIBLE"
    checked = sp.check_result(instance, result, prove=True)
    assert "status INFEASIBLE: confirmed; by enumeration of 8 candidates" in str(
        next(c for c in checked.claims if c.name == "status")
    )


def test_what_is_explained_and_traded_knows_them() -> None:
    tight = training(capacity=42)
    found = sp.explain(tight)
    assert "layers 2 to 3" in dict(found.critical)["most compute"]
    several = sp.explain(tight.replace(alternatives_per="stage"))
    assert "alternatives layer by layer" in [change.change for change in several.changes]
    front = sp.pareto(tight, "memory")
    assert all(point.proved for point in front.points)
    assert len(front.points) > 1
    for point in front.points:
        assert (
            point.y
            == sp.solve(
                tight.replace(cluster=sp.Cluster.uniform(2, memory=point.x)), method="dp"
            ).objective
        )


def test_no_change_that_they_contradict_is_asked_about() -> None:
    chain = sp.PipelinePartition.from_arrays(
        [5, 3, 8, 2, 7, 4],
        exclusive=[9] * 6,
        devices=3,
        capacity=20,
        alternatives={"cpu": {"forward": 50, "exclusive": 0}},
    )
    changes = [change.change for change in sp.explain(chain).changes]
    assert "no limit of memory" in changes
    assert "up to two stages on each device" not in changes
